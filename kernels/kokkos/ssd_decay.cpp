// SPDX-License-Identifier: BSD-3-Clause
// Decay exponents (cumulative sums of A dt within a chunk, in double), and the decays from the start and to the end of
// the chunk, head by head.
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::scan {

template <class A>
Decay<A>::Decay(Device& dev, const Chunking& n)
    : sum(dev.scratch.tensor<A>(n.num_heads, n.chunk_size)), rest(dev.scratch.tensor<A>(n.num_heads, n.chunk_size)),
      from_start(dev.scratch.tensor<A>(n.num_heads, n.chunk_size)), to_end(dev.scratch.tensor<A>(n.num_heads, n.chunk_size)) {}

template <class A>
void Decay<A>::fill(Device& dev, const char* kernel, const Chunk& k, Tensor2<const A> dt, Tensor1<const A> a_log) const {
  const auto to = *this;
  const Index heads = sum.extent(0);
  const auto run = dev.launch(kernel, 6.0 * heads * k.length, 4.0 * sizeof(A) * heads * k.length);
  if (!run) return;
  for_rows(
      dev, "ssd_decay", heads, KOKKOS_LAMBDA(const Index h) {
        const double rate = -std::exp(double(a_log(h)));
        double s = 0;
        for (Index l = 0; l < k.length; ++l) {
          // std::fma makes the rounding explicit. The compiler makes separate loops with and without documents, and
          // could round differently in each.
          s = std::fma(rate, double(dt(k.first + l, h)), k.documents.reach(k.first + l) > 0 ? s : 0);
          to.sum(h, l) = A(s);
          to.rest(h, l) = A((s - double(A(s))) / rest_unit);
        }
        const Index begin = k.begin(k.length - 1), last = k.length - 1;
        for (Index l = 0; l < k.length; ++l) {
          to.from_start(h, l) = k.carried(l) ? fast_exp(to.sum(h, l)) : A(0);
          to.to_end(h, l) = l >= begin ? fast_exp(difference(to.sum(h, last), to.rest(h, last), to.sum(h, l), to.rest(h, l))) : A(0);
        }
      });
}

template struct Decay<double>;
template struct Decay<float>;

}  // namespace gyr::scan
