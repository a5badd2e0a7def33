// SPDX-License-Identifier: BSD-3-Clause
// Attention by cuDNN: selection of supported cases, layout conversions, and splitting of the gradient into parts that
// fit the workspace.
#include "kernels/cuda/attention/cudnn_attention.hpp"

#include <cstdlib>
#include <string_view>

#include "kernels/cuda/attention/attention.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

bool cudnn_requested() {
  const char* const given = std::getenv("GYR_CUDA_ATTENTION");
  const std::string_view wanted = given ? given : "own";
  require(wanted == "own" || wanted == "cudnn", Exit::usage, "GYR_CUDA_ATTENTION must be own or cudnn, not '{}'", wanted);
  require(wanted == "own" || FusedLibrary::is_there(), Exit::usage,
          "GYR_CUDA_ATTENTION=cudnn needs a program that is built with cuDNN; configure it with -DGYR_CUDNN=ON");
  return wanted == "cudnn";
}

// Visible keys of the mask as a band around the diagonal. band_of returns none if the mask is not a band.
struct Band {
  std::optional<Index> back, ahead;
};
std::optional<Band> band_of(const AttentionShape& s, const Mask& mask) {
  const VisibleKeys visible(s, mask);
  if (visible.seen(0, Documents::unlimited) == s.keys && visible.hidden(s.queries - 1, Documents::unlimited) == 0) return Band{};
  if (mask.first_query != mask.first_key || (mask.window > 0 && s.queries > s.keys)) return std::nullopt;
  Band band;
  if (mask.window > 0) band.back = mask.window;
  if (mask.causal) band.ahead = 0;
  else if (mask.window > 0) band.ahead = mask.window - 1;
  return band;
}

bool begins_on_packs(const Matrix<const bf16>& x, Index width) {
  return width % 8 == 0 && x.stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

FusedLibrary& library_of(const Device& dev) {
  Queue::State& queue = dev.queue.state();
  if (!queue.fused_attention) queue.fused_attention = std::make_shared<FusedLibrary>(queue.stream);
  return *queue.fused_attention;
}
bool has_plans() { return device_capability() == 90; }

// Converts cuDNN's log-sum-exp (B H, Tq) to the attention state: m (B Tq, H) = log-sum-exp, l = 1.
GYR_KERNEL state_kernel(Index queries, Index heads, Global<const float> stats, Global<float> m, Global<float> l) {
  each_row(m.rows(), [&](Index r) {
    each_column<1>(heads, [&](Index h) {
      m.store(r, h, stats.load(r / queries * heads + h, r % queries));
      l.store(r, h, 1.0f);
    });
  });
}

// Computes o = dO delta / |dO|^2 for each row and head, and rearranges lse for cuDNN. dO is scaled by its largest
// magnitude first, so that the squares of small values do not underflow.
template <int N>
GYR_KERNEL output_for_delta_kernel(Index queries, Index heads, Index width, Global<const bf16> dout, Global<const float> lse, Global<const float> delta,
                       Global<bf16> o, Global<float> stats) {
  each_row(dout.rows() * heads, [&](Index task) {
    const Index r = task / heads, h = task % heads;
    float top = 0;
    each_column<N>(width, [&](Index c) {
      const auto d = dout.load_values<N>(r, h * width + c);
      for (int i = 0; i < N; ++i) {
        const float size = d.at[i] < 0 ? -d.at[i] : d.at[i];
        if (size > top) top = size;
      }
    });
    for (int other = warp_size / 2; other > 0; other /= 2) {
      const float there = shuffle_xor(top, other);
      if (there > top) top = there;
    }
    float square = 0;
    if (top > 0)
      each_column<N>(width, [&](Index c) {
        const auto d = dout.load_values<N>(r, h * width + c);
        for (int i = 0; i < N; ++i) square += d.at[i] / top * (d.at[i] / top);
      });
    square = warp_sum(square);
    const float factor = top > 0 ? delta.load(r, h) / top / square : 0;
    each_column<N>(width, [&](Index c) {
      const auto d = dout.load_values<N>(r, h * width + c);
      Pack<bf16, N> v;
      for (int i = 0; i < N; ++i) v.at[i] = bf16(top > 0 ? d.at[i] / top * factor : 0);
      o.store_pack<N>(r, h * width + c, v);
    });
    if (lane() == 0) stats.store(r / queries * heads + h, r % queries, lse.load(r, h));
  });
}

template <int N>
GYR_KERNEL add_gradient_kernel(Global<const bf16> more, Global<float> x) {
  each_pack<N>(x, [&](Index r, Index c) {
    auto v = x.load_pack<N>(r, c);
    const auto m = more.load_values<N>(r, c);
    for (int i = 0; i < N; ++i) v.at[i] += m.at[i];
    x.store_pack<N>(r, c, v);
  });
}

void add_gradient(Device& dev, const Tensor2<bf16>& more, const Matrix<float>& x) {
  const Global<const bf16> from{Tensor2<const bf16>(more)};
  const Global<float> to(x);
  with_packs_of<4>([&](auto n) { launch(dev, "attention_backward", grid_of_rows(to), add_gradient_kernel<n()>, from, to); }, from, to);
}

// Largest part of the gradient whose workspace is at most `most` bytes: full sequences, whose number divides the batch,
// or some key heads of one sequence. None if a single key head needs more.
std::optional<FusedAttention> part_of(const FusedAttention& all, Index most) {
  const auto part = [&](Index sequences, Index kv_heads) {
    FusedAttention p = all;
    p.batch = sequences, p.num_kv_heads = kv_heads, p.num_heads = kv_heads * all.group();
    return p;
  };
  const auto largest = [&](Index count, const auto& of) {
    std::optional<FusedAttention> best;
    for (Index n = 1; n <= count; ++n)
      if (count % n == 0 && backward_workspace(of(n)) <= most) best = of(n);
    return best;
  };
  if (const auto all_heads = largest(all.batch, [&](Index n) { return part(n, all.num_kv_heads); })) return all_heads;
  return largest(all.num_kv_heads, [&](Index n) { return part(1, n); });
}

}  // namespace

std::optional<FusedAttention> fused_attention(const AttentionShape& s, const Mask& mask, const ScoreRule& scores, const Matrix<const bf16>& q,
                                              const Matrix<const bf16>& k, const Matrix<const bf16>& v) {
  constexpr Index widest = 256;
  if (!cudnn_requested()) return std::nullopt;
  if (mask.documents.packed() || scores.cap > 0 || scores.bias || scores.dropout.drops()) return std::nullopt;
  if (s.batch == 0 || s.queries < 2 || s.keys == 0 || std::max(s.queries, s.keys) >= Index(1) << 24) return std::nullopt;
  if (std::max(s.head_dim, s.v_head_dim) > widest) return std::nullopt;
  if (!begins_on_packs(q, s.head_dim) || !begins_on_packs(k, s.head_dim) || !begins_on_packs(v, s.v_head_dim)) return std::nullopt;
  const auto band = band_of(s, mask);
  if (!band) return std::nullopt;
  return FusedAttention{.batch = s.batch,
                        .queries = s.queries,
                        .keys = s.keys,
                        .num_heads = s.num_heads,
                        .num_kv_heads = s.num_kv_heads,
                        .head_dim = s.head_dim,
                        .v_head_dim = s.v_head_dim,
                        .scale = scores.scale,
                        .back = band->back,
                        .ahead = band->ahead,
                        .q_row = q.stride,
                        .k_row = k.stride,
                        .v_row = v.stride,
                        .o_row = s.num_heads * s.v_head_dim};
}

FusedForwardCall::FusedForwardCall(Arena& scratch, const FusedAttention& described)
    : described_(described), stats_(scratch.tensor<float>(described.batch * described.num_heads, described.queries)),
      workspace_(scratch.tensor<char>(forward_workspace(described))) {}

bool FusedForwardCall::run(Device& dev, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v,
                           const AttentionState<float>& state) const {
  if (!has_plans() || !library_of(dev).run(described_, FusedForward{q.data, k.data, v.data, state.o.data(), stats_.data()}, workspace_.data()))
    return false;
  const Global<float> m(state.m);
  launch(dev, "attention", grid_of_rows(m), state_kernel, described_.queries, described_.num_heads, Global<const float>(Tensor2<const float>(stats_)), m,
         Global<float>(state.l));
  return true;
}

std::optional<FusedBackwardCall> FusedBackwardCall::made(Arena& scratch, const FusedAttention& described, Index most) {
  FusedAttention all = described;
  all.dq_row = all.num_heads * all.head_dim, all.dk_row = all.num_kv_heads * all.head_dim, all.dv_row = all.num_kv_heads * all.v_head_dim;
  const auto part = part_of(all, most);
  if (!part) return std::nullopt;
  return FusedBackwardCall(scratch, all, *part);
}

FusedBackwardCall::FusedBackwardCall(Arena& scratch, const FusedAttention& all, const FusedAttention& part)
    : all_(all), part_(part), stats_(scratch.tensor<float>(all.batch * all.num_heads, all.queries)),
      o_(scratch.tensor<bf16>(all.batch * all.queries, all.o_row)), dq_(scratch.tensor<bf16>(all.batch * all.queries, all.dq_row)),
      dk_(scratch.tensor<bf16>(all.batch * all.keys, all.dk_row)), dv_(scratch.tensor<bf16>(all.batch * all.keys, all.dv_row)),
      workspace_(scratch.tensor<char>(backward_workspace(part))) {}

bool FusedBackwardCall::run(Device& dev, const Matrix<const bf16>& q, const Matrix<const bf16>& k, const Matrix<const bf16>& v,
                            const Tensor2<const bf16>& dout, const Tensor2<const float>& lse, const Tensor2<const float>& delta,
                            const Matrix<float>& dq, const Matrix<float>& dk, const Matrix<float>& dv) const {
  if (!has_plans() || !begins_on_packs(dout, all_.v_head_dim)) return false;
  const Global<const bf16> gradient(dout);
  const Global<bf16> o(o_);
  with_packs_of<8>(
      [&](auto n) {
        launch(dev, "attention_backward", grid_of_warps(gradient.rows() * all_.num_heads), output_for_delta_kernel<n()>, all_.queries, all_.num_heads,
               all_.v_head_dim, gradient, Global<const float>(lse), Global<const float>(delta), o, Global<float>(stats_));
      },
      gradient, o);
  for (Index b = 0; b < all_.batch; b += part_.batch)
    for (Index g = 0; g < all_.num_kv_heads; g += part_.num_kv_heads) {
      const Index h = g * all_.group(), query = b * all_.queries, key = b * all_.keys, E = all_.head_dim, V = all_.v_head_dim;
      const Index output = query * all_.o_row + h * V;
      const FusedBackward data{.q = q.data + query * all_.q_row + h * E,
                               .k = k.data + key * all_.k_row + g * E,
                               .v = v.data + key * all_.v_row + g * V,
                               .o = o_.data() + output,
                               .dout = dout.data() + output,
                               .stats = stats_.data() + (b * all_.num_heads + h) * all_.queries,
                               .dq = dq_.data() + query * all_.dq_row + h * E,
                               .dk = dk_.data() + key * all_.dk_row + g * E,
                               .dv = dv_.data() + key * all_.dv_row + g * V};
      // This can only fail for the first part, because the other parts use the same plan.
      if (!library_of(dev).run(part_, data, workspace_.data())) return false;
    }
  add_gradient(dev, dq_, dq), add_gradient(dev, dk_, dk), add_gradient(dev, dv_, dv);
  return true;
}

}  // namespace gyr::backend
