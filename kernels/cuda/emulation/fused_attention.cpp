// SPDX-License-Identifier: BSD-3-Clause
// Emulation of cuDNN's attention: plain loops in double, rounded once at the end. A call that cuDNN does not support
// throws a Violation immediately. The contents of the workspace are destroyed by every call.
#include "kernels/cuda/emulation/fused_attention.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/cudnn/description.hpp"
#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/streams.hpp"

namespace gyr::cuda {

namespace {

Index calls = 0;

// Row (b, t) of head h: `width` elements of a tensor whose heads are next to each other in a row.
template <class T>
struct HeadsOf {
  T* data;
  Index tokens, width, row;
  T* at(Index b, Index t, Index h) const { return data + (b * tokens + t) * row + h * width; }
  double dot(Index b, Index t, Index h, const auto* other) const {
    double sum = 0;
    for (Index c = 0; c < width; ++c) sum += double(float(at(b, t, h)[c])) * double(float(other[c]));
    return sum;
  }
  // Records an access to all rows of the tensor.
  void touch(Index batch, Index heads, Touch how) const {
    for (Index r = 0; r < batch * tokens; ++r) cuda::touch(data + r * row, std::size_t(heads * width) * sizeof(T), how);
  }
  HeadsOf on_host() const { return {resolved(data), tokens, width, row}; }
};

bool sees(const FusedAttention& a, Index i, Index j) { return (!a.back || i - j < *a.back) && (!a.ahead || j - i <= *a.ahead); }

void require_taken(const FusedAttention& a, std::initializer_list<const void*> tensors, std::initializer_list<Index> rows) {
  const auto wrong = [](bool is, const char* what) {
    if (is) throw Violation(fmt::format("cuDNN attention is called with {}", what));
  };
  wrong(a.num_kv_heads < 1 || a.num_heads % a.num_kv_heads != 0, "a number of query heads that is not a multiple of the key heads");
  for (const Index width : {a.head_dim, a.v_head_dim})
    wrong(width < 8 || width > 256 || width % 8 != 0, "a head width that is not a multiple of 8 from 8 to 256");
  wrong(a.back && (*a.back < 1 || a.queries > a.keys), "an empty window, or a window with more queries than keys");
  wrong(a.ahead && *a.ahead < 0, "a negative right bound of the window");
  wrong(a.queries < 2 || a.keys < 1, "fewer than two queries, or no key");
  for (const void* p : tensors) wrong(reinterpret_cast<std::uintptr_t>(p) % 16 != 0, "a tensor that is not aligned to 16 bytes");
  for (const Index row : rows) wrong(row % 8 != 0, "a row stride that is not a multiple of 16 bytes");
}

void lose(void* workspace, Index bytes) {
  touch(workspace, std::size_t(bytes), Touch::write);
  std::memset(resolved(workspace), 0xff, std::size_t(bytes));
}

// Scores of query i for all keys, and their log-sum-exp.
struct Scores {
  std::vector<double> of_keys;
  double lse;
};
template <class K>
Scores scores_of(const FusedAttention& a, const bf16* query, const K& k, Index b, Index i, Index h) {
  Scores s{std::vector<double>(std::size_t(a.keys), -INFINITY), -INFINITY};
  double top = -INFINITY, sum = 0;
  for (Index j = 0; j < a.keys; ++j)
    if (sees(a, i, j)) top = std::max(top, s.of_keys[std::size_t(j)] = a.scale * k.dot(b, j, h / a.group(), query));
  for (const double score : s.of_keys) sum += std::exp(score - top);
  s.lse = top + std::log(sum);
  return s;
}

struct Operands {
  HeadsOf<const bf16> q, k, v;
  Operands(const FusedAttention& a, const bf16* q, const bf16* k, const bf16* v)
      : q{q, a.queries, a.head_dim, a.q_row}, k{k, a.keys, a.head_dim, a.k_row}, v{v, a.keys, a.v_head_dim, a.v_row} {}
  void read(const FusedAttention& a) {
    q.touch(a.batch, a.num_heads, Touch::read), k.touch(a.batch, a.num_kv_heads, Touch::read), v.touch(a.batch, a.num_kv_heads, Touch::read);
    q = q.on_host(), k = k.on_host(), v = v.on_host();
  }
};

template <class F>
void each_query(const FusedAttention& a, const F& f) {
  for (Index b = 0; b < a.batch; ++b)
    for (Index h = 0; h < a.num_heads; ++h)
      for (Index i = 0; i < a.queries; ++i) f(b, h, i, (b * a.num_heads + h) * a.queries + i);
}

void forward(const FusedAttention& a, const FusedForward& f, void* workspace) {
  Operands in(a, f.q, f.k, f.v);
  HeadsOf<float> out{f.o, a.queries, a.v_head_dim, a.o_row};
  const std::size_t stats = std::size_t(a.batch * a.num_heads * a.queries) * sizeof(float);
  in.read(a), lose(workspace, forward_workspace(a)), out.touch(a.batch, a.num_heads, Touch::write), touch(f.stats, stats, Touch::write);
  out = out.on_host();
  each_query(a, [&](Index b, Index h, Index i, Index place) {
    const Scores s = scores_of(a, in.q.at(b, i, h), in.k, b, i, h);
    std::vector<double> sum(std::size_t(a.v_head_dim), 0.0);
    for (Index j = 0; j < a.keys; ++j) {
      const double p = std::exp(s.of_keys[std::size_t(j)] - s.lse);
      if (p == 0) continue;
      for (Index c = 0; c < a.v_head_dim; ++c) sum[std::size_t(c)] += p * double(float(in.v.at(b, j, h / a.group())[c]));
    }
    for (Index c = 0; c < a.v_head_dim; ++c) out.at(b, i, h)[c] = float(sum[std::size_t(c)]);
    resolved(f.stats)[place] = float(s.lse);
  });
}

// Gradient of one tensor, accumulated in double and rounded once when it is written.
struct Sums {
  HeadsOf<bf16> to;
  std::vector<double> sums;
  Sums(bf16* data, Index batch, Index tokens, Index heads, Index width, Index row)
      : to{data, tokens, width, row}, sums(std::size_t(batch * tokens * heads * width), 0.0), batch_(batch), heads_(heads) {}
  void add(Index b, Index t, Index h, double factor, const bf16* x) {
    for (Index c = 0; c < to.width; ++c) sums[std::size_t(((b * to.tokens + t) * heads_ + h) * to.width + c)] += factor * double(float(x[c]));
  }
  void write() {
    to.touch(batch_, heads_, Touch::write);
    const HeadsOf<bf16> out = to.on_host();
    for (Index b = 0; b < batch_; ++b)
      for (Index t = 0; t < to.tokens; ++t)
        for (Index c = 0; c < heads_ * to.width; ++c)
          out.at(b, t, 0)[c] = bf16(float(sums[std::size_t((b * to.tokens + t) * heads_ * to.width + c)]));
  }

 private:
  Index batch_, heads_;
};

void backward(const FusedAttention& a, const FusedBackward& f, void* workspace) {
  Operands in(a, f.q, f.k, f.v);
  HeadsOf<const bf16> o{f.o, a.queries, a.v_head_dim, a.o_row}, dout{f.dout, a.queries, a.v_head_dim, a.o_row};
  in.read(a), o.touch(a.batch, a.num_heads, Touch::read), dout.touch(a.batch, a.num_heads, Touch::read);
  touch(f.stats, std::size_t(a.batch * a.num_heads * a.queries) * sizeof(float), Touch::read);
  lose(workspace, backward_workspace(a));
  o = o.on_host(), dout = dout.on_host();
  Sums dq(f.dq, a.batch, a.queries, a.num_heads, a.head_dim, a.dq_row), dk(f.dk, a.batch, a.keys, a.num_kv_heads, a.head_dim, a.dk_row),
      dv(f.dv, a.batch, a.keys, a.num_kv_heads, a.v_head_dim, a.dv_row);
  each_query(a, [&](Index b, Index h, Index i, Index place) {
    const bf16 *const query = in.q.at(b, i, h), *const gradient = dout.at(b, i, h);
    const Index g = h / a.group();
    const double delta = o.dot(b, i, h, gradient), lse = double(resolved(f.stats)[place]);
    const Scores s = scores_of(a, query, in.k, b, i, h);
    for (Index j = 0; j < a.keys; ++j) {
      const double p = std::exp(s.of_keys[std::size_t(j)] - lse);
      if (p == 0) continue;
      const double ds = a.scale * p * (in.v.dot(b, j, g, gradient) - delta);
      dv.add(b, j, g, p, gradient), dk.add(b, j, g, ds, query), dq.add(b, i, h, ds, in.k.at(b, j, g));
    }
  });
  dq.write(), dk.write(), dv.write();
}

}  // namespace

Index fused_calls() { return calls; }

struct FusedLibrary::State {
  CUstream_st* stream;
};

bool FusedLibrary::is_there() { return true; }
std::string FusedLibrary::version() { return "an emulation of cuDNN"; }
FusedLibrary::FusedLibrary(CUstream_st* stream) : state_(std::make_unique<State>(State{stream})) {}
FusedLibrary::~FusedLibrary() = default;

bool FusedLibrary::run(const FusedAttention& a, const FusedForward& f, void* workspace) {
  require_taken(a, {f.q, f.k, f.v, f.o, f.stats, workspace}, {a.q_row, a.k_row, a.v_row, a.o_row});
  ++calls;
  enqueue(state_->stream, "cuDNN attention", [=] { forward(a, f, workspace); });
  return true;
}
bool FusedLibrary::run(const FusedAttention& a, const FusedBackward& f, void* workspace) {
  require_taken(a, {f.q, f.k, f.v, f.o, f.dout, f.dq, f.dk, f.dv, workspace}, {a.q_row, a.k_row, a.v_row, a.o_row, a.dq_row, a.dk_row, a.dv_row});
  ++calls;
  enqueue(state_->stream, "cuDNN attention backward", [=] { backward(a, f, workspace); });
  return true;
}

}  // namespace gyr::cuda
