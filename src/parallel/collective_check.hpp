// SPDX-License-Identifier: BSD-3-Clause
// Turns an error on one rank into an error on all ranks, so that no rank waits for one that has failed.
#pragma once

#include <functional>

#include "kernels/comm/communicator.hpp"

namespace gyr {

// Runs `f` on every rank of `world`. If it fails on some ranks, the Error of the first of them is thrown on all ranks.
// Collective; `f` itself must not wait for a rank that may have failed.
void collective_check(Communicator& world, const std::function<void()>& f);

// Calls `visit` on rank 0 with the text of every rank, in rank order, holding one text at a time. Other ranks only
// send. Collective; `visit` must not throw.
void visit_texts(Communicator& world, std::string mine, const std::function<void(const std::string&)>& visit);
// Returns the texts of all ranks in rank order on rank 0, and nothing on other ranks. Collective.
std::vector<std::string> gather_texts(Communicator& world, const std::string& mine);
// Returns the text of rank 0 on every rank. Collective.
std::string text_of_first(Communicator& world, const std::string& mine);

}  // namespace gyr
