// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/retrieval_decoding.hpp"

#include "modules/context/context_attention.hpp"
#include "modules/layers/retrieval.hpp"

namespace gyr {

// Keys and values of the neighbours that a sequence of the pass sees.
template <class T>
Tensor2<T> CrossAttention<T>::cached_neighbours(Pass& a, Index sequence) const {
  const Index held = a.state->source_capacity(), width = 2 * k_width();
  const auto cache = a.state->tensor(a.dev, this, Keys::cache, held, width);
  return Tensor2<T>(cache.data() + (a.sequences.first_sequence + sequence) * held * width, held, width);
}

// Replaces the cached neighbours of each sequence by those of its last chunk that ends in this pass.
template <class T>
void CrossAttention<T>::keep_neighbours(Pass& a, Tensor2<T> kv) const {
  const EndingChunks& ending = a.sequences.chunks;
  const Index chunks = Index(ending.lengths.size()), r = a.source->sequences.seq_length;
  for (Index c = 0; c < chunks; ++c) {
    if (c + 1 < chunks && ending.sequences[c + 1] == ending.sequences[c]) continue;
    const Tensor2<T> cache = cached_neighbours(a, ending.sequences[c]);
    for (Index n = 0; n < rule_.neighbours; ++n)
      convert<T, T>(a.dev, Matrix<const T>(rows(kv, (n * chunks + c) * r, r)), Matrix<T>(rows(cache, n * r, r)));
  }
}

// The row of each sequence sees its cached neighbours. A sequence without any has the output 0, and so have the rows of a
// prompt in which no chunk ends.
template <class T>
void CrossAttention<T>::attend_to_cached(Pass& a, Tensor2<T> q, const AttentionState<A>& state) const {
  fill<A>(a.dev, flat(state.o), 0), fill<A>(a.dev, flat(state.m), 0), fill<A>(a.dev, flat(state.l), 1);
  if (a.sequences.seq_length > 1) return;
  const Index r = a.state->source_capacity() / rule_.neighbours;
  for (Index b = 0; b < a.sequences.batch; ++b) {
    const Tensor2<T> cache = cached_neighbours(a, b);
    Carry carry = Carry::fresh;
    for (Index n = 0; n < rule_.neighbours; ++n) {
      const Index length = a.sequences.chunks.neighbours.at(b * rule_.neighbours + n);
      if (length == 0) continue;
      const Matrix<T> kv(rows(cache, n * r, length));
      attention<T>(a.dev, shape(1, 1, length), {false}, scores_, Matrix<T>(q).block(b, 1, 0, q_width()), keys<T>(kv), values<T>(kv), carry,
                   {rows(state.o, b, 1), rows(state.m, b, 1), rows(state.l, b, 1)});
      carry = Carry::continued;
    }
  }
}

// Keeps the rows h of the present chunks. Returns the rows of the chunks that end in this pass, one chunk after another.
template <class T>
Tensor2<T> Retrieval<T>::ended_rows(Pass& a, Tensor2<T> h) {
  const EndingChunks& ending = a.sequences.chunks;
  const Index width = Index(h.extent(1)), ended = std::accumulate(ending.lengths.begin(), ending.lengths.end(), Index(0));
  const auto kept = a.state->tensor(a.dev, this, present, chunk_, width);
  const auto of_sequence = [&](Index b) { return Tensor2<T>(kept.data() + (a.sequences.first_sequence + b) * chunk_ * width, chunk_, width); };
  const auto copy = [&](const Tensor2<T>& from, const Tensor2<T>& to) { convert<T, T>(a.dev, Matrix<const T>(from), Matrix<T>(to)); };
  if (const Index length = a.sequences.seq_length; length > 1) {
    if (ended < length) copy(rows(h, ended, length - ended), rows(of_sequence(0), 0, length - ended));
    return rows(h, 0, ended);
  }
  for (Index b = 0; b < a.sequences.batch; ++b) copy(rows(h, b, 1), rows(of_sequence(b), ending.begun.at(b), 1));
  if (!a.source) return {};
  const auto all = a.scratch<T>("rows of the chunks that end", ended, width);
  Index at = 0;
  for (std::size_t c = 0; c < ending.lengths.size(); at += ending.lengths[c++])
    copy(rows(of_sequence(ending.sequences[c]), 0, ending.lengths[c]), rows(all, at, ending.lengths[c]));
  return all;
}

template <class T>
void Retrieval<T>::encode_in_generation(Pass& a, Frame& frame, Tensor2<T> h) {
  Scope scope(a.dev.scratch);
  const Tensor2<T> ended = ended_rows(a, h);
  if (!a.source) return;
  Pass chunks = a;
  chunks.state = nullptr, chunks.stream = {Index(ended.extent(0)), 1, 0};
  a.encoded.values = encoder_->forward(chunks, frame, a.encoded.values.template as<T>(), ended);
}

template Tensor2<double> CrossAttention<double>::cached_neighbours(Pass&, Index) const;
template void CrossAttention<double>::keep_neighbours(Pass&, Tensor2<double>) const;
template void CrossAttention<double>::attend_to_cached(Pass&, Tensor2<double>, const AttentionState<Acc<double>>&) const;
template Tensor2<double> Retrieval<double>::ended_rows(Pass&, Tensor2<double>);
template void Retrieval<double>::encode_in_generation(Pass&, Frame&, Tensor2<double>);
template Tensor2<float> CrossAttention<float>::cached_neighbours(Pass&, Index) const;
template void CrossAttention<float>::keep_neighbours(Pass&, Tensor2<float>) const;
template void CrossAttention<float>::attend_to_cached(Pass&, Tensor2<float>, const AttentionState<Acc<float>>&) const;
template Tensor2<float> Retrieval<float>::ended_rows(Pass&, Tensor2<float>);
template void Retrieval<float>::encode_in_generation(Pass&, Frame&, Tensor2<float>);
template Tensor2<bf16> CrossAttention<bf16>::cached_neighbours(Pass&, Index) const;
template void CrossAttention<bf16>::keep_neighbours(Pass&, Tensor2<bf16>) const;
template void CrossAttention<bf16>::attend_to_cached(Pass&, Tensor2<bf16>, const AttentionState<Acc<bf16>>&) const;
template Tensor2<bf16> Retrieval<bf16>::ended_rows(Pass&, Tensor2<bf16>);
template void Retrieval<bf16>::encode_in_generation(Pass&, Frame&, Tensor2<bf16>);

}  // namespace gyr
