// SPDX-License-Identifier: BSD-3-Clause
// Part of the SSD scan that all backends share: checks the shapes, and releases the scratch memory of a call at its
// end.
#include "kernels/ops/ssd_chunk.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/gpu_plan.hpp"

namespace gyr {

namespace {

Index state_elements(const SsdShape& s) { return s.num_heads * s.head_dim * s.state_size; }  // elements of the state of one sequence

template <class T>
void check(const SsdShape& s, const SsdInput<T>& in, const SsdSaved<Acc<T>>& saved) {
  ensure(s.num_groups > 0 && s.num_heads % s.num_groups == 0 && s.chunk_size > 0 && s.seq_length > 0,
         "scan: {} heads must be a multiple of {} groups, and {} tokens and a chunk size of {} must be positive", s.num_heads, s.num_groups,
         s.seq_length, s.chunk_size);
  const Index rows = s.batch * s.seq_length;
  in.documents.check(rows);
  ensure(in.x.rows == rows && in.b.rows == rows && in.c.rows == rows && in.dt_raw.rows == rows && in.x.columns == s.num_heads * s.head_dim &&
             in.b.columns == s.num_groups * s.state_size && in.c.columns == in.b.columns && in.dt_raw.columns == s.num_heads,
         "scan: x ({},{}), b ({},{}), c ({},{}) and dt ({},{}) do not fit {} tokens, {} heads of width {} and {} groups of state size {}", in.x.rows,
         in.x.columns, in.b.rows, in.b.columns, in.c.rows, in.c.columns, in.dt_raw.rows, in.dt_raw.columns, rows, s.num_heads, s.head_dim,
         s.num_groups, s.state_size);
  ensure(Index(saved.dt.extent(0)) == rows && Index(saved.states.extent(0)) == s.batch && Index(saved.states.extent(1)) == s.chunks() &&
             Index(saved.states.extent(2)) == state_elements(s),
         "scan: saved dt of {} rows or saved states ({},{},{}) have the wrong shape", saved.dt.extent(0), saved.states.extent(0),
         saved.states.extent(1), saved.states.extent(2));
}

template <class A>
void check_passing(const SsdShape& s, const Tensor3<const A>& decay, const Tensor3<const A>& states) {
  ensure(Index(decay.extent(0)) == s.batch && Index(decay.extent(1)) == s.chunks() && Index(decay.extent(2)) == s.num_heads,
         "state passing: decays ({},{},{}) do not fit {} sequences of {} chunks and {} heads", decay.extent(0), decay.extent(1), decay.extent(2),
         s.batch, s.chunks(), s.num_heads);
  ensure(Index(states.extent(0)) == s.batch && Index(states.extent(1)) == s.chunks() && Index(states.extent(2)) == state_elements(s),
         "state passing: states ({},{},{}) do not fit {} sequences of {} chunks with {} elements each", states.extent(0), states.extent(1),
         states.extent(2), s.batch, s.chunks(), state_elements(s));
}

// Runs body(device) with the scratch that `call` takes on the planned device.
template <class T, class Body>
void scanned(Device& dev, const SsdShape& shape, ScanCall call, const Body& body) {
  const Workspace workspace(dev.scratch,
                            call == ScanCall::scan || call == ScanCall::chunk_states || call == ScanCall::outputs ? "ssd" : "ssd_backward");
  planned_for_gpu(
      dev, [&](Arena& scratch) { allocate_gpu_scan(scratch, shape, dtype_of<T>(), call); }, body);
}

}  // namespace

template <class T>
void ssd(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<const Acc<T>> initial, Tensor2<T> y,
         SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::scan, [&](Device& device) { backend::ssd<T>(device, shape, in, w, initial, y, saved, last); });
}

template <class T>
void ssd_step(Device& dev, const SsdShape& s, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<Acc<T>> state, Tensor2<T> y) {
  ensure(s.seq_length == 1 && in.x.rows == s.batch && Index(state.extent(0)) == s.batch && Index(state.extent(1)) == state_elements(s) &&
             in.x.columns == s.num_heads * s.head_dim,
         "scan step: {} tokens per sequence (expected 1), x ({},{}) and state ({},{}) do not fit", s.seq_length, in.x.rows, in.x.columns,
         state.extent(0), state.extent(1));
  const Workspace workspace(dev.scratch, "ssd");
  backend::ssd_step<T>(dev, s, in, w, state, y);
}

template <class T>
void ssd_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in, SsdWeightGradient<Acc<T>> dw, Tensor2<Acc<T>> dinitial) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::backward,
             [&](Device& device) { backend::ssd_backward<T>(device, shape, in, w, saved, dy, dlast, d_in, dw, dinitial); });
}

template <class T>
void ssd_chunk_states(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                      Tensor2<Acc<T>> last, Tensor3<Acc<T>> decay) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::chunk_states, [&](Device& device) { backend::ssd_chunk_states<T>(device, shape, in, w, saved, last, decay); });
}

template <class T>
void ssd_outputs(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<T> y) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::outputs, [&](Device& device) { backend::ssd_outputs<T>(device, shape, in, w, saved, y); });
}

template <class T>
void ssd_outputs_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                          Tensor2<const T> dy, Tensor3<Acc<T>> dstates) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::outputs_backward,
             [&](Device& device) { backend::ssd_outputs_backward<T>(device, shape, in, w, saved, dy, dstates); });
}

template <class T>
void ssd_chunk_states_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                               Tensor2<const T> dy, Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in,
                               SsdWeightGradient<Acc<T>> dw) {
  check(shape, in, saved);
  scanned<T>(dev, shape, ScanCall::chunk_states_backward,
             [&](Device& device) { backend::ssd_chunk_states_backward<T>(device, shape, in, w, saved, dy, dstates, dlast, d_in, dw); });
}

template <class A>
void ssd_local_state(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total,
                     Tensor2<A> local) {
  check_passing<A>(shape, decay, states);
  ensure(last.data() || dev.dry_run(), "state passing: `last`, the state that the last chunk adds, is missing");
  backend::ssd_local_state<A>(dev, shape, decay, states, last, total, local);
}

template <class A>
void ssd_state_after(Device& dev, const SsdShape& shape, std::span<const StateStep<A>> steps, Tensor2<A> state) {
  ensure(Index(state.extent(1)) == state_elements(shape), "state passing: the state has {} elements, expected {}", state.extent(1),
         state_elements(shape));
  backend::ssd_state_after<A>(dev, shape, steps, state);
}

template <class A>
void ssd_pass_states(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last) {
  check_passing<A>(shape, decay, states);
  backend::ssd_pass_states<A>(dev, shape, decay, initial, states, last);
}

template <class A>
void ssd_local_state_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> local) {
  check_passing<A>(shape, decay, dstates);
  backend::ssd_local_state_backward<A>(dev, shape, decay, dstates, local);
}

template <class A>
void ssd_pass_states_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates) {
  check_passing<A>(shape, decay, dstates);
  backend::ssd_pass_states_backward<A>(dev, shape, decay, dlast, dstates);
}

GYR_ALL_SSD

}  // namespace gyr
