// SPDX-License-Identifier: BSD-3-Clause
// An error on one rank becomes an error on all, so that no rank waits for one that has failed.
#pragma once

#include <functional>

#include "kernels/comm/communicator.hpp"

namespace gyr {

// Runs `f` on every rank of `world`. Where it fails on some, the Error of the first of them is thrown on all. Collective; `f` itself
// must not wait for a rank that may have failed.
void collective_check(Communicator& world, const std::function<void()>& f);

// Every rank's text in rank order on the first rank, which has one of them at a time; nothing on the others. Collective: `visit` must not throw.
void visit_texts(Communicator& world, std::string mine, const std::function<void(const std::string&)>& visit);
// The same all together.
std::vector<std::string> gather_texts(Communicator& world, const std::string& mine);
// The first rank's text, on every rank. Collective.
std::string text_of_first(Communicator& world, const std::string& mine);

}  // namespace gyr
