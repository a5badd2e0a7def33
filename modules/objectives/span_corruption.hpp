// SPDX-License-Identifier: BSD-3-Clause
// Span corruption of T5 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020): spans of a sample are removed from the encoder input, and
// the decoder has to generate them. In the encoder input, a different sentinel token replaces each span. The decoder text has each sentinel followed
// by its span. Both end with an end token.
//   sample   a b c d e f g h:        source   a b <S0> e f <S1> </s>        text   <S0> c d <S1> g h </s>
// A function of only the seed and the index of the sample.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct SpanCorruption {
  double fraction = 0.15;     // fraction of the tokens of a sample in spans, rounded; at least one token in and one outside of spans
  double mean_length = 3;     // target mean length of the spans in tokens, from which their number is computed
  Token end_token = 1;        // id of the end token of encoder input and text
  Token first_sentinel = -1;  // token id of the first sentinel, the next one is one less; -1: the last token of the vocabulary
  std::uint64_t seed = 1234;
};

// Number of corrupted tokens and of spans in the first L tokens of a sample.
struct SpanCounts {
  Index corrupted, spans;

  SpanCounts(const SpanCorruption&, Index tokens);  // Exit::config if there are fewer than two tokens
  TextLengths lengths(Index tokens) const { return {corrupted + spans + 1, tokens - corrupted + spans + 1}; }
};

// `start`: decoder start token. Exit::config if the sentinels overlap the end token or the start token.
Labelled corrupt_spans(const SpanCorruption&, const SampleView&, Token start);

std::shared_ptr<const Objective> span_corruption(const SpanCorruption& = {});  // creates the span corruption objective
const SpanCorruption* span_corruption_of(const Objective&);                    // settings of span corruption; null if it is another objective

}  // namespace gyr
