// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong on one rank is an error of all: nobody is left waiting for a rank that has given up.
#pragma once

#include <functional>

#include "kernels/communicator.hpp"

namespace gyr {

// Runs `f` on every rank of `world`. Where it fails on some, the Error of the first of them is thrown on all. Collective; `f` itself
// must not wait for a rank that may have failed.
void together(Communicator& world, const std::function<void()>& f);

// Every rank's text in rank order on the first rank; nothing on the others. Collective.
std::vector<std::string> gather_texts(Communicator& world, const std::string& mine);

}  // namespace gyr
