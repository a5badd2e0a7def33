// SPDX-License-Identifier: BSD-3-Clause
// Samples of a source and a text each: sequences 2 i and 2 i + 1 of a token file (data build --source).
#pragma once

#include <memory>

#include "src/data/samples.hpp"

namespace gyr {

// Every epoch holds every pair once, in an order that is a pure function of (seed, epoch), and never ends. The extracts of a sample are the source's
// and the text's; what is longer than its room is cut at its end. `file` must outlive the result. Exit::data where one of the sequences is empty.
std::unique_ptr<Samples> sourced_samples(const TokenFile& file, SequenceRange r, std::int64_t source_room, std::int64_t text_room,
                                         std::uint64_t seed);

}  // namespace gyr
