// SPDX-License-Identifier: BSD-3-Clause
// Mamba-2 scan and its parts. All chunks, sequences and heads are processed in parallel, except for state passing.
#include <algorithm>

#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/cuda/ssm/ssd.hpp"
#include "kernels/base/instances.hpp"

namespace gyr {

namespace cuda::scan {

namespace {

constexpr Index piece = 1024;  // elements of a row per warp and step: rows are few and long

template <class A>
GYR_KERNEL copy_kernel(Global<const A> from, Global<A> x) {
  const Index pieces = ceil_div(x.columns(), piece);
  each_row(x.rows() * pieces, [&](Index task) {
    const Index r = task / pieces, first = task % pieces * piece, end = first + piece < x.columns() ? first + piece : x.columns();
    for (Index c = first + lane(); c < end; c += warp_size) x.store(r, c, from ? from.load(r, c) : A(0));
  });
}

}  // namespace

template <class A>
void copy_rows(Device& dev, const char* kernel, Global<const A> from, Global<A> x) {
  const Index tasks = x.rows() * ceil_div(x.columns(), piece);
  launch(dev, kernel, {std::min(ceil_div(tasks, usual_warps), most_blocks), usual_threads}, copy_kernel<A>, from, x);
}

template void copy_rows<double>(Device&, const char*, Global<const double>, Global<double>);
template void copy_rows<float>(Device&, const char*, Global<const float>, Global<float>);

}  // namespace cuda::scan

namespace backend {

using namespace cuda;
using namespace cuda::scan;

namespace {

template <class T>
Tokens<T> tokens_of(const SsdInput<T>& in, const SsdSaved<Acc<T>>& saved, const DecayScratch<Acc<T>>& workspace) {
  return {in.x, in.b, in.c, Tensor2<const Acc<T>>(saved.dt), workspace.decays()};
}

// FLOP counts that are reported with Device::launch.
struct Flops {
  const ChunkGrid& s;
  double channels() const { return double(s.num_heads * s.head_dim); }
  double steps() const { return 4 * s.tokens() * double(s.num_heads); }
  double decays() const { return 6 * s.tokens() * double(s.num_heads); }
  double states() const { return 2 * s.tokens() * channels() * double(s.state_size); }  // FLOPs of the GEMMs that write or read chunk states
  double gemm_flops() const { return 2 * s.pairs() * double(s.num_groups * s.state_size); }  // FLOPs of the GEMMs C B' and dG B
  double weighted() const { return 2 * s.pairs() * channels(); }  // FLOPs of the GEMM W U
  double passing() const { return 2 * s.states(); }
  // FLOPs of the outputs, and of the token gradients.
  double outputs() const { return states() + gemm_flops() + weighted() + 2 * s.pairs() * double(s.num_heads); }
  double gradients() const { return 3 * states() + 3 * gemm_flops() + 3 * weighted() + 5 * s.pairs() * double(s.num_heads) + passing(); }
};

// Bytes moved: `of_tokens` passes over x and B plus `of_states` passes over the chunk states.
template <class T>
double bytes(const ChunkGrid& s, double of_tokens, double of_states) {
  const double width = double(s.num_heads * s.head_dim + s.num_groups * s.state_size);
  return of_tokens * sizeof(T) * s.tokens() * width + of_states * sizeof(Acc<T>) * s.states();
}

// Computes the gradients of tokens and weights, and owns the scratch for them.
template <class T>
struct Backward {
  using A = Acc<T>;
  TokenSums<A> sums;
  Tensor2<A> partial;
  TensorCoreScratch tensors;

  Backward(Device& dev, const ChunkGrid& s)
      : sums(dev, s, std::is_same_v<T, bf16>), partial(dev.scratch.tensor<A>(s.all_chunks(), 3 * s.num_heads)),
        tensors(tensor_core_scratch<T>(dev, s, true)) {}
  void operator()(Device& dev, const SsdShape& shape, const ChunkGrid& s, const SsdInput<T>& in, const SsdWeights<A>& w, const SsdSaved<A>& saved,
                  const DecayScratch<A>& workspace, Tensor2<const T> dy, const States<const A>& gradients, const SsdInputGradient<T>& d_in,
                  const SsdWeightGradient<A>& dw, bool walked = false) {
    const Flops flops{s};
    const auto run = dev.launch("ssd_backward", flops.gradients() + flops.decays() + 2 * flops.steps(), bytes<T>(s, 6, 2));
    if (!run) return;
    const Tensor2<const A> dt(saved.dt);
    token_gradients<T>(dev, s, tokens_of(in, saved, workspace), w.d, dy, rows_of(saved.states), gradients, tensors, walked, d_in, sums);
    steps_backward<T>(dev, shape, s, in, w, dt, sums, partial, d_in.dt_raw, dw);
  }
};

// Memory for the fp32 gradients of the chunk states. For shapes in which one block walks through all chunks
// (TensorCoreScratch::walks), it is workspace.both: the walk needs no fp32 gradients, and the fallback does not use
// workspace.both.
template <class T>
Tensor3<Acc<T>> gradients_of_states(Device& dev, const ChunkGrid& s, [[maybe_unused]] const TensorCoreScratch& workspace) {
  if constexpr (std::is_same_v<T, bf16>)
    if (TensorCoreScratch::walks(s))
      return Tensor3<Acc<T>>(workspace.both.data(), std::size_t(s.batch), std::size_t(s.chunks), std::size_t(s.state_elements()));
  return dev.scratch.tensor<Acc<T>>(s.batch, s.chunks, s.state_elements());
}

}  // namespace

template <class T>
void ssd_chunk_states(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                      Tensor2<Acc<T>> last, Tensor3<Acc<T>> decay) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const Flops flops{s};
  const DecayScratch<A> workspace(dev, s);
  const auto run = dev.launch("ssd", flops.steps() + flops.decays() + flops.states(), bytes<T>(s, 1, 1));
  if (!run) return;
  time_steps<T>(dev, shape, in.dt_raw, w.dt_bias, saved.dt);
  fill_decays<A>(dev, "ssd", s, saved.dt, w.a_log, workspace, rows_of(decay));
  chunk_states<T>(dev, s, tokens_of(in, saved, workspace), {rows_of(saved.states), last});
}

template <class T>
void ssd_outputs(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<T> y) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const Flops flops{s};
  const DecayScratch<A> workspace(dev, s);
  const TensorCoreScratch tensors = tensor_core_scratch<T>(dev, s, false);
  const auto run = dev.launch("ssd", flops.decays() + flops.outputs(), bytes<T>(s, 2, 1));
  if (!run) return;
  fill_decays<A>(dev, "ssd", s, saved.dt, w.a_log, workspace, {});
  outputs<T>(dev, s, tokens_of(in, saved, workspace), w.d, rows_of(saved.states), tensors, false, y);
}

template <class T>
void ssd_outputs_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                          Tensor2<const T> dy, Tensor3<Acc<T>> dstates) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const Flops flops{s};
  const DecayScratch<A> workspace(dev, s);
  const auto run = dev.launch("ssd_backward", flops.decays() + flops.states(), bytes<T>(s, 1, 1));
  if (!run) return;
  fill_decays<A>(dev, "ssd_backward", s, saved.dt, w.a_log, workspace, {});
  chunk_states_of_outputs<T>(dev, s, tokens_of(in, saved, workspace), dy, rows_of(dstates));
}

template <class T>
void ssd_chunk_states_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved,
                               Tensor2<const T> dy, Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in,
                               SsdWeightGradient<Acc<T>> dw) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const DecayScratch<A> workspace(dev, s);
  Backward<T> backward(dev, s);
  if (!dev.dry_run()) fill_decays<A>(dev, "ssd_backward", s, saved.dt, w.a_log, workspace, {});
  backward(dev, shape, s, in, w, saved, workspace, dy, {rows_of(dstates), dlast}, d_in, dw);
}

// The initial state is copied to saved.states first, because `last` may be the same memory as `initial`.
template <class T>
void ssd(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<const Acc<T>> initial, Tensor2<T> y,
         SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const Flops flops{s};
  const DecayScratch<A> workspace(dev, s);
  const auto over = dev.scratch.tensor<A>(s.all_chunks(), s.num_heads);
  const TensorCoreScratch tensors = tensor_core_scratch<T>(dev, s, false);
  const auto run = dev.launch("ssd", flops.steps() + flops.decays() + flops.states() + flops.passing() + flops.outputs(), bytes<T>(s, 3, 3));
  if (!run) return;
  const Matrix<A> entering(saved.states.data(), s.batch, s.state_elements(), s.chunks * s.state_elements());
  const States<A> states{rows_of(saved.states), last};
  copy_rows<A>(dev, "ssd", initial, entering);
  time_steps<T>(dev, shape, in.dt_raw, w.dt_bias, saved.dt);
  fill_decays<A>(dev, "ssd", s, saved.dt, w.a_log, workspace, over);
  const Tokens<T> tokens = tokens_of(in, saved, workspace);
  const bool walked = walk_states<T>(dev, s, tokens, Tensor2<const A>(over), states, tensors);
  if (!walked) {
    chunk_states<T>(dev, s, tokens, states);
    pass_states<A>(dev, s, Tensor2<const A>(over), entering, states);
  }
  outputs<T>(dev, s, tokens, w.d, rows_of(saved.states), tensors, walked, y);
}

template <class T>
void ssd_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in, SsdWeightGradient<Acc<T>> dw, Tensor2<Acc<T>> dinitial) {
  using A = Acc<T>;
  const ChunkGrid s(shape, in.documents);
  const Flops flops{s};
  const DecayScratch<A> workspace(dev, s);
  Backward<T> backward(dev, s);
  const auto over = dev.scratch.tensor<A>(s.all_chunks(), s.num_heads);
  const auto dstates = gradients_of_states<T>(dev, s, backward.tensors);
  bool walked = false;
  if (const auto run = dev.launch("ssd_backward", flops.states() + flops.passing(), bytes<T>(s, 1, 3))) {
    fill_decays<A>(dev, "ssd_backward", s, saved.dt, w.a_log, workspace, over);
    const Tokens<T> tokens = tokens_of(in, saved, workspace);
    const Tensor2<const A> factors(over);
    walked = walk_gradients<T>(dev, s, tokens, factors, dy, rows_of(Tensor3<const A>(saved.states)), dlast, dinitial, d_in, backward.tensors,
                               backward.sums);
    if (!walked) {
      if (TensorCoreScratch::walks(s)) backward.tensors = {};  // dstates occupies the memory of these tensors
      chunk_states_of_outputs<T>(dev, s, tokens, dy, rows_of(dstates));
      pass_states_backward<A>(dev, s, factors, dlast, rows_of(dstates));
      const Matrix<const A> entering(dstates.data(), s.batch, s.state_elements(), s.chunks * s.state_elements());
      if (dinitial.data()) copy_rows<A>(dev, "ssd_backward", entering, dinitial);
    }
  }
  backward(dev, shape, s, in, w, saved, workspace, dy, {rows_of(Tensor3<const A>(dstates)), dlast}, d_in, dw, walked);
}

GYR_SCALARS(GYR_SSD)
GYR_SCALARS(GYR_SSD_PIECES)

}  // namespace backend

}  // namespace gyr
