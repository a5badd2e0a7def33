// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/text_means.hpp"

#include "kernels/device/upload.hpp"
#include "kernels/ops/embedding.hpp"
#include "modules/pass/stream.hpp"

namespace gyr {

// Text index of each row; -1 for padding rows.
template <class T>
std::vector<std::int32_t> TextMeans<T>::numbered() const {
  const SequenceLayout& s = a_.sequences;
  std::vector<std::int32_t> number;
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.seq_length; ++t) {
      const Index place = s.shared() ? s.place(t) : t, before = s.documents.packed() ? Index(s.documents.host[b * s.seq_length + t]) : place;
      number.push_back(place < s.full_length() ? std::int32_t(b * s.full_length() + std::max<Index>(0, place - before)) : -1);
    }
  return number;
}

template <class T>
Tensor1<const std::int32_t> TextMeans<T>::index_texts() {
  const auto there = frame_.put(text, a_.sequences.rows());
  if (a_.dev.dry_run()) return there;
  const std::vector<std::int32_t> number = numbered();
  backend::upload(a_.dev.queue, number.data(), there.data(), Index(number.size() * sizeof number[0]));
  return there;
}

// Sums over the rows of each text: first over the rows on this rank, then over all context-parallel ranks.
template <class T>
Tensor2<Acc<T>> TextMeans<T>::sums_of(Tensor2<const T> all, Tensor1<const std::int32_t> text) {
  const auto sums = a_.template scratch<A>("sums of texts", most_texts(), Index(all.extent(1)));
  fill<A>(a_.dev, flat(sums), 0);
  embedding_backward<T>(a_.dev, text, all, 0, 1, -1, sums);
  if (a_.context) a_.context->all_reduce(a_.dev, flat(sums));
  return sums;
}

template <class T>
void TextMeans<T>::apply(Tensor1<const std::int32_t> text, Tensor2<T> x, Tensor2<T> y) {
  Scope scope(a_.dev.scratch);
  const Device::Purpose purpose(a_.dev, "mean pooling of texts: rows x hidden");
  const bool split = a_.stream.split();  // without sequence parallelism every rank keeps all rows
  const Index rows = a_.stream.rows, first = split ? a_.stream.first() : 0, mine = split ? a_.stream.count() : rows, width = x.extent(1);
  const auto ones = a_.template scratch<T>("ones", rows, Index(1));
  fill<T>(a_.dev, flat(ones), 1);
  AllRows<T> all(a_, "rows of texts", x);
  const auto sums = sums_of(all.gather(), text), counts = sums_of(ones, text);
  const auto sum = a_.template scratch<A>("text sum of each row", mine, width),
             count = a_.template scratch<A>("text length of each row", mine, Index(1));
  embedding<A>(a_.dev, gyr::rows(text, first, mine), sums, 0, 1, sum);
  embedding<A>(a_.dev, gyr::rows(text, first, mine), counts, 0, 1, count);
  divide_rows<T>(a_.dev, sum, flat(count), gyr::rows(y, 0, mine));
  if (const Index padding = Index(y.extent(0)) - mine; padding > 0) fill<T>(a_.dev, flat(gyr::rows(y, mine, padding)), 0);
}

template class TextMeans<double>;
template class TextMeans<float>;
template class TextMeans<bf16>;

}  // namespace gyr
