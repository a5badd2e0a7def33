// SPDX-License-Identifier: BSD-3-Clause
#include "modules/head.hpp"

#include "modules/embedding.hpp"
#include "modules/trainable.hpp"

namespace gyr {

namespace {
constexpr Index block_rows = 256;  // enough for a full-rate product, few enough for the logits to stay small

// body(first, n) for the blocks of so many rows.
template <class Body>
void for_blocks(Device& dev, Index rows, const Body& body) {
  const Index whole = rows / block_rows, rest = rows % block_rows;
  for_equal(dev, whole, [&](Index i) { body(i * block_rows, block_rows); });
  if (rest > 0) body(whole * block_rows, rest);
}
}  // namespace

template <class T>
Head<T>::Head(const ModelConfig& c, Parameter* table, Parameters<T>& parameters)
    : c_(c), norm_(c.hidden_size, c.rms_norm_eps, "model.final_layernorm", parameters), w_(table) {
  if (w_) return;
  Weight weight = embedding_weight(c);
  if (!c.tie_word_embeddings) weight.name = "lm_head.weight";
  w_ = &parameters.declare(std::move(weight));
  w_->tied = c.tie_word_embeddings;
}

template <class T>
void Head<T>::logits(Pass<T>& a, Frame& frame, Tensor2<const T> x, Tensor2<Acc<T>> logits) {
  linear<T, Acc<T>>(a.dev, norm_.forward(a, frame, x), w_->template matrix<const T>(), logits, c_.lm_head_multiplier);
}

// Loss of some rows; where scale is not 0, h becomes the gradient of scale * loss; with `each`, also the score of every row.
template <class T>
double Head<T>::block_loss(Pass<T>& a, Tensor2<T> h, Tensor1<const Token> labels, double scale, std::vector<TokenScore>* each) {
  using A = Acc<T>;
  const Index n = h.extent(0), columns = vocab_size_here();
  Scope scope(a.dev.scratch);
  auto& scratch = a.dev.scratch;
  auto logits = scratch.template tensor<A>(n, columns);
  auto top = scratch.template tensor<A>(n);
  auto sums = scratch.template tensor<A>(2, n);
  auto losses = scratch.template tensor<double>(n);
  linear<T, A>(a.dev, h, w_->template matrix<const T>(), logits, c_.lm_head_multiplier);
  if (each && observer_ && !a.dev.dry_run()) observer_(logits);
  logits_top<A>(a.dev, logits, valid(), top);
  a.tensor.whole().all_reduce(a.dev, top, Reduction::max);
  logits_sums<A>(a.dev, logits, valid(), top, labels, first_token(), sums);
  a.tensor.whole().all_reduce(a.dev, flat(sums));
  cross_entropy<A>(a.dev, sums, labels, losses);
  if (scale != 0) {
    Tensor2<T> dlogits;
    if constexpr (std::is_same_v<T, A>) dlogits = logits;
    else dlogits = scratch.template tensor<T>(n, columns);
    cross_entropy_backward<T>(a.dev, logits, valid(), top, sums, labels, first_token(), scale, dlogits);
    weights_backward<T>(a.dev, {w_}, dlogits, h, c_.lm_head_multiplier);
    linear_backward_input<T>(a.dev, dlogits, w_->template matrix<const T>(), h, c_.lm_head_multiplier);
  }
  if (a.dev.dry_run()) return 0;
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), losses);
  double sum = 0;
  for (Index r = 0; r < n; ++r) sum += host(r);
  if (each) {
    const auto below = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), sums);  // the label's logit less the largest
    for (Index r = 0; r < n; ++r) each->push_back({host(r), -double(below(1, r))});
  }
  return sum;
}

template <class T>
double Head<T>::loss(Pass<T>& a, Frame& frame, Tensor2<const T> x, Tensor1<const Token> labels, std::vector<TokenScore>* each) {
  return loss_of_blocks(a, norm_.forward(a, frame, x), labels, 0, each);
}

template <class T>
double Head<T>::loss_and_gradient(Pass<T>& a, Frame& frame, Tensor2<const T> x, Tensor1<const Token> labels, double scale) {
  const Tensor2<T> h = norm_.forward(a, frame, x);
  frame.refer(gradient, h);
  const double sum = loss_of_blocks(a, h, labels, scale, nullptr);
  a.tensor.whole().all_reduce(a.dev, flat(h));
  return sum;
}

template <class T>
void Head<T>::backward(Pass<T>& a, Frame& frame, Tensor2<T> dx) {
  norm_.backward(a, frame, frame.get(gradient), Add::no, dx);
}

template <class T>
double Head<T>::loss_of_blocks(Pass<T>& a, Tensor2<T> h, Tensor1<const Token> labels, double scale, std::vector<TokenScore>* each) {
  double sum = 0;
  const Workspace workspace(a.dev.scratch, "loss");
  for_blocks(a.dev, h.extent(0), [&](Index first, Index n) { sum += block_loss(a, rows(h, first, n), rows(labels, first, n), scale, each); });
  return sum;
}

template class Head<double>;
template class Head<float>;
template class Head<bf16>;

}  // namespace gyr
