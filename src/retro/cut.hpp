// SPDX-License-Identifier: BSD-3-Clause
// Cuts documents into chunks of m tokens, the unit of retrieval, and selects the tokens that a retriever compares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/retro/project.hpp"

namespace gyr::retro {

// Tokens [first, last) of a document.
struct Piece {
  std::int64_t first, last;
  std::int64_t terms;  // tokens that are not special, which a retriever compares
  bool valid;          // false: no token is a target of the loss mask, or all are special; such a piece is left out
};

// Pieces of m tokens, the last one shorter. An end token at the end of the document belongs to no piece. `targets`: 1 for
// each target token of the loss mask.
std::vector<Piece> cut(const ProjectSettings&, std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets);

// The tokens that are not special, ascending, with repetitions.
std::vector<std::int32_t> terms_of(const ProjectSettings&, std::span<const std::int32_t> tokens);
// The same without repetitions.
std::vector<std::int32_t> distinct_terms_of(const ProjectSettings&, std::span<const std::int32_t> tokens);

}  // namespace gyr::retro
