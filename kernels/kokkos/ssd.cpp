// SPDX-License-Identifier: BSD-3-Clause
// Mamba-2 scan on the host, chunk by chunk and group by group of heads: first the outputs, then the state that leaves
// the chunk. Scratch holds one chunk.
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/ssd_group.hpp"
#include "kernels/ops/ssd_chunk.hpp"

namespace gyr {

namespace scan {

template <class T, class P>
void group_backward(Device& dev, const SsdShape& shape, const Group<T, P>& k, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w,
                    Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving, Matrix<const P> dy, Matrix<const P> carried,
                    const SharedGradient<Acc<T>>& shared, const SsdInputGradient<T>& d_in, const SsdWeightGradient<Acc<T>>& dw) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const bool shared_b_and_c = k.sharing > 1;
  const Index width = shared_b_and_c ? 0 : k.state_size();
  const Matrix<T> db = k.shared(d_in.b), dc = k.shared(d_in.c);
  const Tensor2<A> b_scratch = scratch_for<A, T>(dev, k.tokens, width), c_scratch = scratch_for<A, T>(dev, k.tokens, width);
  const Matrix<A> wide_db = shared_b_and_c ? shared.of(k, shared.b) : target<T>(db, b_scratch),
                  wide_dc = shared_b_and_c ? shared.of(k, shared.c) : target<T>(dc, c_scratch);
  const GroupGradient<P> gradient(dev, k, wide_db, wide_dc);
  chunk_state_backward<T, P>(dev, k, entering, dleaving, gradient);
  chunk_output_backward<T, P>(dev, k, entering, dy, carried, gradient);
  if (!shared_b_and_c) deliver<T>(dev, wide_db, db), deliver<T>(dev, wide_dc, dc);
  step_inputs_backward<T, P>(dev, shape, k, in, w, dy, gradient, d_in, dw);
}

#define GYR_GROUP(T, P)                                                                                                                           \
  template void group_backward<T, P>(Device&, const SsdShape&, const Group<T, P>&, const SsdInput<T>&, const SsdWeights<Acc<T>>&,                 \
                                     Matrix<const Acc<T>>, Matrix<const Acc<T>>, Matrix<const P>, Matrix<const P>, const SharedGradient<Acc<T>>&, \
                                     const SsdInputGradient<T>&, const SsdWeightGradient<Acc<T>>&);
GYR_GROUP(double, double)
GYR_GROUP(float, float)
GYR_GROUP(bf16, float)
GYR_GROUP(bf16, bf16)
#undef GYR_GROUP

}  // namespace scan

namespace backend {

using namespace scan;

template <class T>
void ssd(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<const Acc<T>> initial, Tensor2<T> y,
         SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last) {
  using A = Acc<T>;
  const Chunking n(shape, in.documents);
  const States<A> states{saved.states, last};
  time_steps<T>(dev, shape, in.dt_raw, w.dt_bias, saved.dt);
  for_equal(dev, n.batch,
            [&](Index b) { copy<A>(dev, "ssd", initial.data() ? &initial(b, 0) : nullptr, &saved.states(b, 0, 0), n.state_elements()); });

  const Decay<A> decay(dev, n);
  const auto through_chunk = [&]<class P>(std::type_identity<P>, const Chunk& chunk) {
    decay.fill(dev, "ssd", chunk, saved.dt, w.a_log);
    for_groups<T, P>(dev, "ssd", n, chunk, in, saved.dt, decay, [&](Device& lane, const Group<T, P>& k) {
      const Matrix<const A> entering = n.state<const A>(states.entering(chunk), k.number);
      chunk_output<T, P>(lane, k, w.d, entering, k.part(Matrix<T>(y)));
      if (!states.stores_leaving_state(chunk)) return;
      const Matrix<A> leaving = n.state(states.leaving(chunk), k.number);
      pass_state<A>(lane, "ssd", n.head_dim, k.over(), entering, {}, leaving);
      chunk_state<T, P>(lane, k, 1, leaving);
    });
  };
  with_operands<T>(dev, [&](auto type) { for_equal_chunks(dev, n, [&](const Chunk& chunk) { through_chunk(type, chunk); }); });
}

// Processes chunks from last to first. dS is the gradient of the state that leaves a chunk. group_backward computes the
// gradients of the chunk's tokens. The gradient of the entering state is  dS <- exp(s_Q) dS + (exp(s) dY)' C
template <class T>
void ssd_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in, SsdWeightGradient<Acc<T>> dw, Tensor2<Acc<T>> dinitial) {
  using A = Acc<T>;
  const Chunking n(shape, in.documents);
  const Decay<A> decay(dev, n);
  const SharedGradient<A> shared(dev, n);
  const auto dstate_of_all = dev.scratch.tensor<A>(n.state_elements());
  const auto through_chunk = [&]<class P>(std::type_identity<P>, const Chunk& chunk) {
    decay.fill(dev, "ssd_backward", chunk, saved.dt, w.a_log);
    for_groups<T, P>(dev, "ssd_backward", n, chunk, in, saved.dt, decay, [&](Device& lane, const Group<T, P>& k) {
      const Matrix<const A> entering = n.state<const A>(&saved.states(chunk.sequence, chunk.number, 0), k.number);
      const Matrix<A> dstate = n.state(dstate_of_all.data(), k.number);
      const Matrix<P> carried = lane.scratch.tensor<P>(k.tokens, k.channels());
      const Matrix<const P> dy_part = operand<P>(lane, k.part(Matrix<const T>(dy)));
      carried_outputs<T, P>(lane, k, dy_part, carried);
      group_backward<T, P>(lane, shape, k, in, w, entering, dstate, dy_part, carried, shared, d_in, dw);
      pass_state<A>(lane, "ssd_backward", n.head_dim, k.over(), dstate, {}, dstate);
      matmul<P>(lane, MatrixOp::transpose, carried, MatrixOp::none, k.c, dstate, 1, 1);
    });
    shared.deliver(dev, "ssd_backward", n, chunk, d_in.b, d_in.c);
  };
  const bool equal = !n.documents.packed();
  const auto through_sequence = [&](auto type, Index b) {
    copy<A>(dev, "ssd_backward", dlast.data() ? &dlast(b, 0) : nullptr, dstate_of_all.data(), n.state_elements());
    through_chunk(type, n.at(b, n.chunks - 1));
    for_equal(
        dev, n.chunks - 1, [&](Index i) { through_chunk(type, n.at(b, n.chunks - 2 - i)); }, equal);
    if (dinitial.data()) copy<A>(dev, "ssd_backward", dstate_of_all.data(), &dinitial(b, 0), n.state_elements());
  };
  with_operands<T>(dev, [&](auto type) {
    for_equal(
        dev, n.batch, [&](Index b) { through_sequence(type, b); }, equal);
  });
}

GYR_SCALARS(GYR_SSD)

}  // namespace backend

}  // namespace gyr
