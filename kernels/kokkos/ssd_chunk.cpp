// SPDX-License-Identifier: BSD-3-Clause
// Parts of the scan over full sequences: the steps that ssd() does within a chunk, one step at a time for all chunks.
// State passing is in ssd_passing.cpp.
#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::backend {

using namespace scan;

namespace {

// Calls body(lane, chunking, group) for all groups of all chunks, with their decays. A lane is a device for one thread
// (lanes.hpp). Calls after_chunk(chunking, chunk) after the groups of a chunk.
template <class T, class Body, class AfterChunk>
void for_all_groups(Device& dev, const char* kernel, const SsdShape& shape, const SsdInput<T>& in, Tensor1<const Acc<T>> a_log,
                    Tensor2<const Acc<T>> dt, const Body& body, const AfterChunk& after_chunk) {
  const Chunking n(shape, in.documents);
  const Decay<Acc<T>> decay(dev, n);
  with_operands<T>(dev, [&]<class P>(std::type_identity<P>) {
    for_equal_chunks(dev, n, [&](const Chunk& chunk) {
      decay.fill(dev, kernel, chunk, dt, a_log);
      for_groups<T, P>(dev, kernel, n, chunk, in, dt, decay, [&](Device& lane, const Group<T, P>& k) { body(lane, n, k); });
      after_chunk(n, chunk);
    });
  });
}
template <class T, class Body>
void for_all_groups(Device& dev, const char* kernel, const SsdShape& shape, const SsdInput<T>& in, Tensor1<const Acc<T>> a_log,
                    Tensor2<const Acc<T>> dt, const Body& body) {
  for_all_groups<T>(dev, kernel, shape, in, a_log, dt, body, [](const Chunking&, const Chunk&) {});
}

}  // namespace

template <class T>
void ssd_chunk_states(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                      Tensor2<Acc<T>> last, Tensor3<Acc<T>> decay) {
  using A = Acc<T>;
  time_steps<T>(dev, shape, in.dt_raw, w.dt_bias, saved.dt);
  const States<A> states{saved.states, last};
  for_all_groups<T>(dev, "ssd", shape, in, w.a_log, saved.dt, [&]<class P>(Device& lane, const Chunking& n, const Group<T, P>& k) {
    const Matrix<const A> over = k.over();
    if (const auto run = lane.launch("ssd", 0, 2.0 * sizeof(A) * k.heads))
      for_rows(
          lane, "ssd_over", k.heads, KOKKOS_LAMBDA(const Index r) { decay(k.chunk.sequence, k.chunk.number, k.first_head + r) = over(r, 0); });
    if (!states.stores_leaving_state(k.chunk)) return;
    chunk_state<T, P>(lane, k, 0, n.state(states.leaving(k.chunk), k.number));
  });
}

template <class T>
void ssd_chunk_states_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                               Tensor2<const T> dy, Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in,
                               SsdWeightGradient<Acc<T>> dw) {
  using A = Acc<T>;
  const States<A> states{saved.states, {}};
  const States<const A> gradients{dstates, dlast};
  const Index elements = Chunking(shape).state_elements();
  const SharedGradient<A> shared(dev, Chunking(shape));
  const auto zeros = dev.scratch.tensor<A>(dlast.data() ? 0 : elements);
  if (!dlast.data()) copy<A>(dev, "ssd_backward", nullptr, zeros.data(), elements);
  for_all_groups<T>(
      dev, "ssd_backward", shape, in, w.a_log, saved.dt,
      [&]<class P>(Device& lane, const Chunking& n, const Group<T, P>& k) {
        const A* const dleaving = gradients.stores_leaving_state(k.chunk) ? gradients.leaving(k.chunk) : zeros.data();
        const Matrix<P> carried = lane.scratch.tensor<P>(k.tokens, k.channels());
        const Matrix<const P> dy_part = operand<P>(lane, k.part(Matrix<const T>(dy)));
        carried_outputs<T, P>(lane, k, dy_part, carried);
        group_backward<T, P>(lane, shape, k, in, w, n.state<const A>(states.entering(k.chunk), k.number), n.state(dleaving, k.number), dy_part,
                             carried, shared, d_in, dw);
      },
      [&](const Chunking& n, const Chunk& chunk) { shared.deliver(dev, "ssd_backward", n, chunk, d_in.b, d_in.c); });
}

template <class T>
void ssd_outputs(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<T> y) {
  using A = Acc<T>;
  const States<A> states{saved.states, {}};
  for_all_groups<T>(dev, "ssd", shape, in, w.a_log, saved.dt, [&]<class P>(Device& lane, const Chunking& n, const Group<T, P>& k) {
    chunk_output<T, P>(lane, k, w.d, n.state<const A>(states.entering(k.chunk), k.number), k.part(Matrix<T>(y)));
  });
}

template <class T>
void ssd_outputs_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                          Tensor2<const T> dy, Tensor3<Acc<T>> dstates) {
  using A = Acc<T>;
  const States<A> gradients{dstates, {}};
  for_all_groups<T>(dev, "ssd_backward", shape, in, w.a_log, saved.dt, [&]<class P>(Device& lane, const Chunking& n, const Group<T, P>& k) {
    const Matrix<P> carried = lane.scratch.tensor<P>(k.tokens, k.channels());
    const Matrix<const P> dy_part = operand<P>(lane, k.part(Matrix<const T>(dy)));
    carried_outputs<T, P>(lane, k, dy_part, carried);
    matmul<P>(lane, MatrixOp::transpose, carried, MatrixOp::none, k.c, n.state(gradients.entering(k.chunk), k.number));
  });
}

GYR_SCALARS(GYR_SSD_PIECES)

}  // namespace gyr::backend
