// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of sums in a fixed order: left to right, and sums of squares. The results are bitwise reproducible.
#include "kernels/ops/sum.hpp"
#include "kernels/cuda/rowwise/rows.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr Index strip = 16384;  // elements that one block adds up

// One thread adds the values in order, since there are only a few hundred. The other threads load them to shared
// memory.
GYR_KERNEL add_in_order_kernel(Global<const double> x, Global<double> sum) {
  const Shared<double> storage;
  double t = 0;
  for (Index first = 0; first < x.columns(); first += block_threads()) {
    const Index rest = x.columns() - first;
    const int here = rest < block_threads() ? int(rest) : block_threads();
    if (thread_index() < here) storage.store(thread_index(), x.load(first + thread_index()));
    sync_block();
    if (thread_index() == 0)
      for (int i = 0; i < here; ++i) t += storage.load(i);
    sync_block();
  }
  if (thread_index() == 0) sum.store(0, sum.load(0) + t);
}

// partial(b) = sum of x^2 over strip b. A thread takes N adjacent elements at a time. Loading them as a pack or one by
// one gives the same bits.
template <class A, int N>
GYR_KERNEL squares_kernel(Global<const A> x, bool packs, Global<double> partial) {
  const Shared<double> storage;
  const Index b = block_index(), last = (b + 1) * strip < x.columns() ? (b + 1) * strip : x.columns();
  double t = 0;
  for (Index i = b * strip + N * thread_index(); i < last; i += N * block_threads()) {
    Pack<A, N> v = {};
    if (packs && i + N <= last) v = x.template load_pack<N>(0, i);
    else
      for (int k = 0; k < N && i + k < last; ++k) v.at[k] = x.load(i + k);
    for (int k = 0; k < N; ++k) t += double(v.at[k]) * double(v.at[k]);
  }
  t = block_sum(t, storage);
  if (thread_index() == 0) partial.store(b, t);
}

GYR_KERNEL total_kernel(Global<const double> partial, Global<double> total) {
  const Shared<double> storage;
  double t = 0;
  for (Index b = thread_index(); b < partial.columns(); b += block_threads()) t += partial.load(b);
  t = block_sum(t, storage);
  if (thread_index() == 0) total.store(0, t);
}

}  // namespace

void add_in_order(Device& dev, Tensor1<const double> x, Tensor1<double> sum) {
  launch(dev, "add_in_order", {1, usual_threads, usual_threads * int(sizeof(double))}, add_in_order_kernel, x, sum);
}

template <class A>
Tensor1<double> sum_of_squares(Device& dev, Tensor1<const A> x) {
  constexpr int N = pack_bytes / int(sizeof(A));
  const Index n = x.extent(0), strips = ceil_div(n, strip);
  const auto partial = dev.scratch.tensor<double>(strips);
  const auto total = dev.scratch.tensor<double>(1);
  if (dev.dry_run()) return total;
  const int storage = usual_warps * int(sizeof(double));
  const bool packs = Global<const A>(rows(x, 0, n - n % N)).template packs<N>();
  launch(dev, "sum_of_squares", {strips, usual_threads, storage}, squares_kernel<A, N>, x, packs, partial);
  launch(dev, "sum_of_squares", {1, usual_threads, storage}, total_kernel, Tensor1<const double>(partial), total);
  return total;
}

template Tensor1<double> sum_of_squares<double>(Device&, Tensor1<const double>);
template Tensor1<double> sum_of_squares<float>(Device&, Tensor1<const float>);
template Tensor1<double> sum_of_squares<bf16>(Device&, Tensor1<const bf16>);

}  // namespace gyr::backend
