// SPDX-License-Identifier: BSD-3-Clause
// State passing from chunk to chunk, forward and backward. Each thread carries some adjacent elements of a state
// through all chunks of its sequence.
#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/cuda/ssm/ssd.hpp"
#include "kernels/base/instances.hpp"

namespace gyr {

namespace cuda::scan {

namespace {

// State elements of this thread: N adjacent elements of one head, from `first`.
template <int N>
struct Place {
  Index b, first, head;
  GYR_DEVICE Place(const ChunkGrid& s) {
    const Index i = (block_index() * block_threads() + thread_index()) * N;
    b = i / s.state_elements(), first = i % s.state_elements(), head = first / s.head_elements();
  }
  GYR_DEVICE bool inside(const ChunkGrid& s) const { return b < s.batch; }
};
template <int N>
Grid grid_of_states(const ChunkGrid& s) {
  return {ceil_div(s.batch * s.state_elements(), Index(N) * usual_threads), usual_threads};
}

// Applies one step to a state: x = factor x + more.
template <class A, int N>
GYR_DEVICE void go_on(Pack<A, N>& x, A factor, const Pack<A, N>& more) {
  for (int i = 0; i < N; ++i) x.at[i] = factor * x.at[i] + more.at[i];
}

// State passing: S_{c+1} = g_c S_c + L_c, written over L_c.
template <class A, int N>
GYR_KERNEL pass_kernel(ChunkGrid s, Global<const A> decay, Global<const A> initial, States<A> states) {
  const Place<N> at(s);
  if (!at.inside(s)) return;
  Pack<A, N> x = {};
  if (initial) x = initial.template load_pack<N>(at.b, at.first);
  const Index chunk = at.b * s.chunks;
  states.between.template store_pack<N>(chunk, at.first, x);
  for (Index c = 0; c + 1 < s.chunks; ++c) {
    go_on(x, decay.load(chunk + c, at.head), states.between.template load_pack<N>(chunk + c + 1, at.first));
    states.between.template store_pack<N>(chunk + c + 1, at.first, x);
  }
  if (!states.last) return;
  go_on(x, decay.load(chunk + s.chunks - 1, at.head), states.last.template load_pack<N>(at.b, at.first));
  states.last.template store_pack<N>(at.b, at.first, x);
}

// State passing in the backward pass: dS_c += g_c dS_{c+1}, from the last chunk to the first.
template <class A, int N>
GYR_KERNEL pass_backward_kernel(ChunkGrid s, Global<const A> decay, Global<const A> dlast, Global<A> dstates) {
  const Place<N> at(s);
  if (!at.inside(s)) return;
  Pack<A, N> x = {};
  if (dlast) x = dlast.template load_pack<N>(at.b, at.first);
  for (Index chunk = (at.b + 1) * s.chunks - 1; chunk >= at.b * s.chunks; --chunk) {
    go_on(x, decay.load(chunk, at.head), dstates.template load_pack<N>(chunk, at.first));
    dstates.template store_pack<N>(chunk, at.first, x);
  }
}

// Computes the state that leaves a sequence if its initial state is zero.
template <class A, int N>
GYR_KERNEL local_state_kernel(ChunkGrid s, Global<const A> decay, Global<const A> states, Global<const A> last, Global<A> local) {
  const Place<N> at(s);
  if (!at.inside(s)) return;
  Pack<A, N> x = {};
  const Index chunk = at.b * s.chunks;
  for (Index c = 0; c + 1 < s.chunks; ++c) go_on(x, decay.load(chunk + c, at.head), states.template load_pack<N>(chunk + c + 1, at.first));
  go_on(x, decay.load(chunk + s.chunks - 1, at.head), last.template load_pack<N>(at.b, at.first));
  local.template store_pack<N>(at.b, at.first, x);
}
template <class A, int N>
GYR_KERNEL local_state_backward_kernel(ChunkGrid s, Global<const A> decay, Global<const A> dstates, Global<A> local) {
  const Place<N> at(s);
  if (!at.inside(s)) return;
  Pack<A, N> x = {};
  for (Index chunk = (at.b + 1) * s.chunks - 1; chunk >= at.b * s.chunks; --chunk)
    go_on(x, decay.load(chunk, at.head), dstates.template load_pack<N>(chunk, at.first));
  local.template store_pack<N>(at.b, at.first, x);
}

template <class A>
GYR_KERNEL total_decay_kernel(ChunkGrid s, Global<const A> decay, Global<A> total) {
  const Index i = block_index() * block_threads() + thread_index(), b = i / s.num_heads, h = i % s.num_heads;
  if (b >= s.batch) return;
  A product = 1;
  for (Index c = 0; c < s.chunks; ++c) product *= decay.load(b * s.chunks + c, h);
  total.store(b, h, product);
}

// Passes a state over a run of tokens: S <- decay S + local.
template <class A, int N>
GYR_KERNEL state_step_kernel(ChunkGrid s, Global<const A> decay, Global<const A> local, Global<A> state) {
  const Place<N> at(s);
  if (!at.inside(s)) return;
  auto x = state.template load_pack<N>(at.b, at.first);
  go_on(x, decay.load(at.head), local.template load_pack<N>(at.b, at.first));
  state.template store_pack<N>(at.b, at.first, x);
}

// Calls f(N) with N = elements that one instruction moves, or N = 1 if such packs would cross heads or are not aligned.
template <class A, class F, class... X>
void with_state_packs(const ChunkGrid& s, const F& f, const Global<X>&... tensors) {
  constexpr int n = pack_bytes / int(sizeof(A));
  if (s.head_elements() % n == 0) with_packs<A>(f, tensors...);
  else f(std::integral_constant<int, 1>());
}

}  // namespace

template <class A>
void pass_states(Device& dev, const ChunkGrid& s, Global<const A> decay, Global<const A> initial, const States<A>& states) {
  with_state_packs<A>(
      s, [&](auto n) { launch(dev, "ssd", grid_of_states<n>(s), pass_kernel<A, n>, s, decay, initial, states); }, initial, states.between,
      states.last);
}

template <class A>
void pass_states_backward(Device& dev, const ChunkGrid& s, Global<const A> decay, Global<const A> dlast, Global<A> dstates) {
  with_state_packs<A>(
      s, [&](auto n) { launch(dev, "ssd_backward", grid_of_states<n>(s), pass_backward_kernel<A, n>, s, decay, dlast, dstates); }, dlast, dstates);
}

#define GYR_PASSING(A)                                                                                   \
  template void pass_states<A>(Device&, const ChunkGrid&, Global<const A>, Global<const A>, const States<A>&); \
  template void pass_states_backward<A>(Device&, const ChunkGrid&, Global<const A>, Global<const A>, Global<A>);
GYR_PASSING(double)
GYR_PASSING(float)
#undef GYR_PASSING

}  // namespace cuda::scan

namespace backend {

using namespace cuda;
using namespace cuda::scan;

template <class A>
void ssd_local_state(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total,
                   Tensor2<A> local) {
  const ChunkGrid s(shape);
  const auto run = dev.launch("ssd", 2 * s.states() + double(s.all_chunks() * s.num_heads), sizeof(A) * s.states());
  if (!run) return;
  const Global<const A> factors = rows_of(decay), added = rows_of(states), added_last(last);
  const Global<A> out(local);
  launch(dev, "ssd", {ceil_div(s.batch * s.num_heads, usual_threads), usual_threads}, total_decay_kernel<A>, s, factors, total);
  with_state_packs<A>(
      s, [&](auto n) { launch(dev, "ssd", grid_of_states<n>(s), local_state_kernel<A, n>, s, factors, added, added_last, out); }, added, added_last,
      out);
}

template <class A>
void ssd_state_after(Device& dev, const SsdShape& shape, std::span<const StateStep<A>> steps, Tensor2<A> state) {
  SsdShape one = shape;
  one.batch = 1;
  const ChunkGrid s(one);
  const double elements = double(s.state_elements());
  const auto run = dev.launch("ssd", 2 * elements * double(steps.size()), sizeof(A) * elements * (1 + 3 * double(steps.size())));
  if (!run) return;
  const Global<A> x(state);
  copy_rows<A>(dev, "ssd", {}, x);
  for (const StateStep<A>& step : steps) {
    const Global<const A> factors(Matrix<const A>(step.decay, 1, s.num_heads, s.num_heads)),
        local(Matrix<const A>(step.local, 1, s.state_elements(), s.state_elements()));
    with_state_packs<A>(
        s, [&](auto n) { launch(dev, "ssd", grid_of_states<n>(s), state_step_kernel<A, n>, s, factors, local, x); }, local, x);
  }
}

template <class A>
void ssd_pass_states(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last) {
  const ChunkGrid s(shape);
  const auto run = dev.launch("ssd", 2 * s.states(), 2.0 * sizeof(A) * s.states());
  if (run) pass_states<A>(dev, s, rows_of(decay), initial, {rows_of(states), last});
}

template <class A>
void ssd_local_state_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> local) {
  const ChunkGrid s(shape);
  const auto run = dev.launch("ssd_backward", 2 * s.states(), sizeof(A) * s.states());
  if (!run) return;
  const Global<const A> factors = rows_of(decay), gradients = rows_of(dstates);
  const Global<A> out(local);
  with_state_packs<A>(
      s, [&](auto n) { launch(dev, "ssd_backward", grid_of_states<n>(s), local_state_backward_kernel<A, n>, s, factors, gradients, out); }, gradients,
      out);
}

template <class A>
void ssd_pass_states_backward(Device& dev, const SsdShape& shape, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates) {
  const ChunkGrid s(shape);
  const auto run = dev.launch("ssd_backward", 2 * s.states(), 2.0 * sizeof(A) * s.states());
  if (run) pass_states_backward<A>(dev, s, rows_of(decay), dlast, rows_of(dstates));
}

GYR_SSD_PASSING(double)
GYR_SSD_PASSING(float)

}  // namespace backend

}  // namespace gyr
