// SPDX-License-Identifier: BSD-3-Clause
// State passing from chunk to chunk:  S_{c+1} = g_c S_c + L_c.
// Backward:  dS_c = g_c dS_{c+1} + the gradient from the outputs of chunk c.
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/ssd_group.hpp"
#include "kernels/ops/ssd_chunk.hpp"

namespace gyr {

namespace scan {

template <class A>
void copy(Device& dev, const char* kernel, const A* from, A* to, Index count) {
  const auto run = dev.launch(kernel, 0, 2.0 * sizeof(A) * count);
  if (!run) return;
  for_rows(
      dev, "ssd_copy", 1, KOKKOS_LAMBDA(const Index) {
        for (Index i = 0; i < count; ++i) to[i] = from ? from[i] : A(0);
      });
}

template <class A>
void pass_state(Device& dev, const char* kernel, Index head_dim, Matrix<const A> factor, Matrix<const A> from, Matrix<const A> added, Matrix<A> to) {
  const double elements = double(to.rows) * to.columns;
  const auto run = dev.launch(kernel, elements, 2.0 * sizeof(A) * elements);
  if (!run) return;
  const bool adds = added.data != nullptr;
  for_rows(
      dev, "ssd_pass_state", to.rows, KOKKOS_LAMBDA(const Index i) {
        const A g = factor(i / head_dim, 0);
        const A* const in = from.row(i);
        const A* const more = added.row(i);
        A* const out = to.row(i);
        if (adds)
#pragma GCC ivdep  // `to` may be `from`
          for (Index j = 0; j < to.columns; ++j) out[j] = g * in[j] + more[j];
        else
#pragma GCC ivdep
          for (Index j = 0; j < to.columns; ++j) out[j] = g * in[j];
      });
}

template void copy<double>(Device&, const char*, const double*, double*, Index);
template void copy<float>(Device&, const char*, const float*, float*, Index);
template void pass_state<double>(Device&, const char*, Index, Matrix<const double>, Matrix<const double>, Matrix<const double>, Matrix<double>);
template void pass_state<float>(Device&, const char*, Index, Matrix<const float>, Matrix<const float>, Matrix<const float>, Matrix<float>);

}  // namespace scan

namespace backend {

using namespace scan;

namespace {

// to = g_c from + added, for all heads of chunk c of sequence b
template <class A>
void pass_over(Device& dev, const char* kernel, const Chunking& n, const Chunk& k, const Tensor3<const A>& decay, const A* from, const A* added,
               A* to) {
  const Matrix<const A> factor(&decay(k.sequence, k.number, 0), n.num_heads, 1, 1);
  pass_state<A>(dev, kernel, n.head_dim, factor, n.state(from), n.state(added), n.state(to));
}

}  // namespace

template <class A>
void ssd_local_state(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total,
                     Tensor2<A> local) {
  const Chunking n(shape);
  const States<const A> added{states, last};
  for_chunks(n, [&](const Chunk& k) {
    A* const to = &local(k.sequence, 0);
    if (k.number == 0) copy<A>(dev, "ssd", added.leaving(k), to, n.state_elements());
    else pass_over<A>(dev, "ssd", n, k, decay, to, added.leaving(k), to);
  });
  const auto run = dev.launch("ssd", double(n.batch) * n.chunks * n.num_heads, double(sizeof(A)) * n.batch * n.chunks * n.num_heads);
  if (!run) return;
  for_rows(
      dev, "ssd_total_decay", n.batch * n.num_heads, KOKKOS_LAMBDA(const Index i) {
        const Index b = i / n.num_heads, h = i % n.num_heads;
        A product = 1;
        for (Index c = 0; c < n.chunks; ++c) product *= decay(b, c, h);
        total(b, h) = product;
      });
}

template <class A>
void ssd_state_after(Device& dev, const SsdShape& shape, std::span<const StateStep<A>> steps, Tensor2<A> state) {
  const Chunking n(shape);
  copy<A>(dev, "ssd", nullptr, state.data(), n.state_elements());
  for (const StateStep<A>& step : steps)
    pass_state<A>(dev, "ssd", n.head_dim, Matrix<const A>(step.decay, n.num_heads, 1, 1), n.state<const A>(state.data()), n.state(step.local),
                  n.state(state.data()));
}

template <class A>
void ssd_local_state_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> local) {
  const Chunking n(shape);
  for (Index b = 0; b < n.batch; ++b) {
    A* const to = &local(b, 0);
    copy<A>(dev, "ssd_backward", &dstates(b, n.chunks - 1, 0), to, n.state_elements());
    for (Index c = n.chunks - 2; c >= 0; --c) pass_over<A>(dev, "ssd_backward", n, n.at(b, c), decay, to, &dstates(b, c, 0), to);
  }
}

template <class A>
void ssd_pass_states(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last) {
  const Chunking n(shape);
  const States<A> s{states, last};
  for_chunks(n, [&](const Chunk& k) {
    if (k.number == 0) copy<A>(dev, "ssd", initial.data() ? &initial(k.sequence, 0) : nullptr, s.entering(k), n.state_elements());
    if (s.stores_leaving_state(k)) pass_over<A>(dev, "ssd", n, k, decay, s.entering(k), s.leaving(k), s.leaving(k));
  });
}

template <class A>
void ssd_pass_states_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates) {
  const Chunking n(shape);
  const States<const A> leave{dstates, dlast};
  for (Index b = 0; b < n.batch; ++b)
    for (Index c = n.chunks - 1; c >= 0; --c) {
      const Chunk k = n.at(b, c);
      A* const enter = &dstates(b, c, 0);
      if (leave.stores_leaving_state(k)) pass_over<A>(dev, "ssd_backward", n, k, decay, leave.leaving(k), enter, enter);
    }
}

GYR_SSD_PASSING(double)
GYR_SSD_PASSING(float)

}  // namespace backend

}  // namespace gyr
