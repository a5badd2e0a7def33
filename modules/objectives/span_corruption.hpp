// SPDX-License-Identifier: BSD-3-Clause
// Spans of a sample that an encoder does not see and a decoder has to write (Raffel et al., "Exploring the Limits of Transfer Learning", 2020). In
// the source a sentinel stands for each span, another one for each; the text is each sentinel and what it stands for. Both end with a token of their
// own.
//   source   a b <S0> e f <S1> </s>        text   <S0> c d <S1> g h </s>        of a b c d e f g h
// A function of the seed and the sample's number alone.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct SpanCorruption {
  double share = 0.15;        // of the tokens of a sample that are in spans, rounded; one at least, and one is left
  double mean_length = 3;     // of spans, of which there are as many as come nearest to it
  Token end_token = 1;        // ends source and text
  Token first_sentinel = -1;  // the next is one less; -1: the last token of the vocabulary
  std::uint64_t seed = 1234;
};

// Of the first L tokens of a sample.
struct SpanCounts {
  Index corrupted, spans;

  SpanCounts(const SpanCorruption&, Index tokens);  // Exit::config of fewer than two
  TextLengths lengths(Index tokens) const { return {corrupted + spans + 1, tokens - corrupted + spans + 1}; }
};

// `start`: what the text is begun with where it is read. Exit::config where sentinels reach the end token.
Labelled corrupt_spans(const SpanCorruption&, const SampleView&, Token start);

std::shared_ptr<const Objective> span_corruption(const SpanCorruption& = {});  // the objective
const SpanCorruption* span_corruption_of(const Objective&);                    // null where it is another one

}  // namespace gyr
