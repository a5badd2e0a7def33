// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/context_scan.hpp"

#include "kernels/ops/convolution.hpp"
#include "kernels/ops/elementwise.hpp"

namespace gyr {

template <class T>
ContextScan<T>::ContextScan(Pass& a) : a_(a), s_(a.sequences), here_(s_.batch * s_.blocks()), last_(s_.ranks * s_.blocks() - 1) {}

template <class T>
Index ContextScan<T>::gathered(Index sequence, Index number) const {
  const Index rank = number < s_.ranks ? number : 2 * s_.ranks - 1 - number;
  return rank * here_ + sequence * s_.blocks() + (number < s_.ranks ? 0 : 1);
}

template <class T>
void ContextScan<T>::inputs_before(Matrix<const T> x, Tensor3<T> before) {
  const Index taps = Index(before.extent(1)), channels = Index(before.extent(2));
  if (taps == 0) return;
  ensure(s_.block_length() >= taps, "blocks of {} tokens are shorter than the {} inputs that the convolution reads before each block",
         s_.block_length(), taps);
  Scope scope(a_.dev.scratch);
  const auto mine = a_.dev.scratch.named("last inputs of blocks").template tensor<T>(here_, taps, channels);
  const auto all = a_.template scratch<T>("last inputs of blocks of all ranks", s_.ranks * here_, taps * channels);
  convolution_tail<T>(a_.dev, here_, x, {}, mine);
  const Device::Purpose purpose(a_.dev, "convolution: inputs before each block x channels");
  a_.context->all_gather<T>(a_.dev, flat(mine), flat(all));
  for (Index i = 0; i < here_; ++i) {
    const Tensor1<T> to(before.data() + i * taps * channels, taps * channels);
    if (number(i) == 0) fill<T>(a_.dev, to, 0);
    else
      convert<T, T>(a_.dev, Matrix<const T>(rows(all, gathered(i / s_.blocks(), number(i) - 1), 1)),
                    Matrix<T>(to.data(), 1, to.extent(0), to.extent(0)));
  }
}

template <class T>
void ContextScan<T>::inputs_before_backward(Tensor3<const T> dbefore, Matrix<T> dx) {
  const Index taps = Index(dbefore.extent(1)), channels = Index(dbefore.extent(2)), length = s_.block_length();
  if (taps == 0) return;
  Scope scope(a_.dev.scratch);
  const auto all = a_.template scratch<T>("gradients of last inputs", s_.ranks * here_ * taps, channels);
  const Device::Purpose purpose(a_.dev, "convolution, backward: inputs before each block x channels");
  a_.context->all_gather<T>(a_.dev, flat(dbefore), flat(all));
  for (Index i = 0; i < here_; ++i)
    if (number(i) < last_)
      add<T>(a_.dev, Matrix<const T>(rows(all, gathered(i / s_.blocks(), number(i) + 1) * taps, taps)),
             dx.block((i + 1) * length - taps, taps, 0, channels));
}

// Gathers the states of all ranks. Each block combines the states on one side of it, from far to near.
template <class T>
void ContextScan<T>::combine_block_states(const SsdShape& shape, Tensor2<const A> total, Tensor2<const A> local, Tensor2<A> state,
                                          bool from_the_end) {
  Scope scope(a_.dev.scratch);
  const Index heads = Index(total.extent(1)), width = Index(local.extent(1)), each = here_ * (heads + width);
  const auto mine = a_.template scratch<A>("states of blocks", each);
  const auto all = a_.template scratch<A>("states of blocks of all ranks", s_.ranks * each);
  const auto row = [](auto x) { return Matrix(x.data(), 1, Index(x.span()), Index(x.span())); };
  convert<A, A>(a_.dev, row(total), Matrix<A>(mine.data(), 1, here_ * heads, here_ * heads));
  convert<A, A>(a_.dev, row(local), Matrix<A>(mine.data() + here_ * heads, 1, here_ * width, here_ * width));
  const Device::Purpose purpose(a_.dev, from_the_end ? "scan, backward: decay and state of each block" : "scan: decay and state of each block");
  a_.context->all_gather<A>(a_.dev, mine, all);
  for (Index i = 0; i < here_; ++i) {
    std::vector<StateStep<A>> steps;
    for (Index n = from_the_end ? last_ : 0; n != number(i); from_the_end ? --n : ++n) {
      const Index from = gathered(i / s_.blocks(), n);
      const A* const rank = all.data() + from / here_ * each;
      steps.push_back({rank + from % here_ * heads, rank + here_ * heads + from % here_ * width});
    }
    ssd_state_after<A>(a_.dev, shape, steps, rows(state, i, 1));
  }
}

template <class T>
void ContextScan<T>::entering(const SsdShape& shape, Tensor2<const A> total, Tensor2<const A> local, Tensor2<A> state) {
  combine_block_states(shape, total, local, state, false);
}

template <class T>
void ContextScan<T>::leaving_gradient(const SsdShape& shape, Tensor2<const A> total, Tensor2<const A> local, Tensor2<A> dstate) {
  combine_block_states(shape, total, local, dstate, true);
}

template class ContextScan<double>;
template class ContextScan<float>;
template class ContextScan<bf16>;

}  // namespace gyr
