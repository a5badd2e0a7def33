// SPDX-License-Identifier: BSD-3-Clause
// GEMM with oneDNN, or stubs in builds without it.
#include "kernels/kokkos/onednn.hpp"

#ifdef GYR_ONEDNN

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#ifdef __x86_64__
#include <cpuid.h>
#endif

extern "C" void omp_set_num_threads(int);  // oneDNN uses OpenMP threads

namespace gyr {

namespace {

using dnnl::memory;

struct StridedGemm {
  MatrixOp op_a, op_b;
  Index m, n, k, stride_a, stride_b, stride_c;
  DType in, out;
  double alpha, beta;
  bool operator==(const StridedGemm&) const = default;
  std::size_t hash() const {
    std::size_t hash = std::size_t(op_a) * 2 + std::size_t(op_b);
    for (const Index extent : {m, n, k, stride_a, stride_b, stride_c}) hash = mixed(hash, std::uint64_t(extent));
    return hash;
  }
  struct Hash {
    std::size_t operator()(const StridedGemm& s) const { return s.hash(); }
  };
};

// The workspace grows with the number of rows, except for some hundred bytes. Rounded up, a workspace planned for many
// rows is sufficient for fewer.
Index rounded(Index workspace) {
  constexpr Index step = 1 << 16;
  return (workspace + step - 1) / step * step;
}

// True if the processor describes its AMX tiles (CPUID leaf 1Dh). A hypervisor may show the AMX flag and hide this
// leaf. oneDNN would then set up tiles of zero size, and its first bf16 GEMM would execute an illegal instruction.
bool describes_tiles() {
#ifdef __x86_64__
  unsigned palette = 0, b, c, d, tile = 0;
  return __get_cpuid_count(0x1d, 0, &palette, &b, &c, &d) && palette > 0 && __get_cpuid_count(0x1d, 1, &tile, &b, &c, &d) && tile != 0;
#else
  return false;
#endif
}

// Limits oneDNN to AVX512-BF16 if AMX tiles cannot be used. Must be called before any other oneDNN function.
void choose_instructions() {
  [[maybe_unused]] static const bool chosen = [] {
    return !describes_tiles() && dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16) == dnnl::status::success;
  }();
}

memory::data_type type_of(DType type) { return type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

memory::desc described(Index rows, Index columns, Index stride, MatrixOp op, DType type) {
  return {{rows, columns}, type_of(type), op == MatrixOp::none ? memory::dims{stride, 1} : memory::dims{1, stride}};
}

}  // namespace

// oneDNN primitives of one device, by GEMM shape.
class GemmCache {
 public:
  struct MatmulPrimitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul run;  // oneDNN primitive, created at its first use
    std::unordered_map<int, memory> operands;
    Index workspace = 0;  // size of the primitive's workspace in bytes
  };

  MatmulPrimitive& of(const StridedGemm& s) {
    const auto [entry, fresh] = primitives_.try_emplace(s);
    MatmulPrimitive& p = entry->second;
    if (!fresh) return p;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.alpha != 1) attributes.set_output_scales(0, {float(s.alpha)});
    if (s.beta != 0) {
      dnnl::post_ops add;
      add.append_sum(float(s.beta));
      attributes.set_post_ops(add);
    }
    const auto a = described(s.m, s.k, s.stride_a, s.op_a, s.in), b = described(s.k, s.n, s.stride_b, s.op_b, s.in);
    const auto c = described(s.m, s.n, s.stride_c, MatrixOp::none, s.out);
    p.description = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine_);
    p.workspace = rounded(Index(p.description.scratchpad_desc().get_size()));
    return p;
  }

  // Workspace in bytes. It is cached by shape, because dry runs query it often.
  Index workspace_of(const StridedGemm& s) {
    std::optional<Index>& known = workspaces_[s];
    if (!known) known = of(s).workspace;
    return *known;
  }

  // Memory for workspaces that the plan of the scratch memory does not contain.
  void* unplanned(Index bytes) {
    constexpr std::size_t cache_line = 64;
    unplanned_.resize(std::max(unplanned_.size(), std::size_t(bytes) + cache_line));
    const auto first = reinterpret_cast<std::uintptr_t>(unplanned_.data());
    return unplanned_.data() + (cache_line - first % cache_line);
  }

  void run(MatmulPrimitive& p, const void* a, const void* b, void* c, void* workspace) {
    if (!p.run) {
      p.run = dnnl::matmul(p.description);
      const auto operand = [&](int which, const memory::desc& desc) { p.operands.emplace(which, memory(desc, engine_, DNNL_MEMORY_NONE)); };
      operand(DNNL_ARG_SRC, p.description.src_desc()), operand(DNNL_ARG_WEIGHTS, p.description.weights_desc());
      operand(DNNL_ARG_DST, p.description.dst_desc()), operand(DNNL_ARG_SCRATCHPAD, p.description.scratchpad_desc());
    }
    p.operands.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(a));
    p.operands.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(b));
    p.operands.at(DNNL_ARG_DST).set_data_handle(c);
    p.operands.at(DNNL_ARG_SCRATCHPAD).set_data_handle(workspace);
    p.run.execute(stream_, p.operands);
    stream_.wait();
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<StridedGemm, MatmulPrimitive, StridedGemm::Hash> primitives_;
  ShapeCounts<StridedGemm, std::optional<Index>> workspaces_;
  std::vector<std::uint8_t> unplanned_;
};

bool has_onednn() { return true; }
bool multiplies_bf16() {
  static const bool does = [] {
    choose_instructions();
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return does;
}

template <class T, class S>
void onednn_gemm(Device& dev, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha, double beta) {
  choose_instructions();
  if (!dev.gemm_cache) dev.gemm_cache = std::make_shared<GemmCache>();
  const Index k = op_a == MatrixOp::none ? a.columns : a.rows;
  const StridedGemm shape{op_a, op_b, c.rows, c.columns, k, a.stride, b.stride, c.stride, dtype_of<T>(), dtype_of<S>(), alpha, beta};
  if (dev.dry_run()) {
    dev.scratch.tensor<std::uint8_t>(dev.gemm_cache->workspace_of(shape));
    return;
  }
  // Tiles of attention are as wide as the packed documents allow, and a narrower GEMM may need a larger workspace. The
  // plan knows only the widths that it met.
  auto& primitive = dev.gemm_cache->of(shape);
  const bool planned = primitive.workspace <= dev.scratch.capacity() - dev.scratch.used();
  void* const workspace = planned ? dev.scratch.tensor<std::uint8_t>(primitive.workspace).data() : dev.gemm_cache->unplanned(primitive.workspace);
  dev.gemm_cache->run(primitive, a.data, b.data, c.data, workspace);
}

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, bf16 {}", v->major, v->minor, v->patch, multiplies_bf16() ? "in hardware" : "converted to fp32");
}

void set_onednn_threads([[maybe_unused]] int threads) {
#ifndef KOKKOS_ENABLE_OPENMP  // if Kokkos uses OpenMP, oneDNN uses the same threads
  omp_set_num_threads(threads);
#endif
}

}  // namespace gyr

#else

namespace gyr {

class GemmCache {};
bool has_onednn() { return false; }
bool multiplies_bf16() { return false; }
template <class T, class S>
void onednn_gemm(Device&, MatrixOp, Matrix<const T>, MatrixOp, Matrix<const T>, Matrix<S>, double, double) {
  fail(Exit::internal, "this build has no oneDNN");
}
std::string onednn_version() { return ""; }
void set_onednn_threads(int) {}

}  // namespace gyr

#endif

namespace gyr {

template void onednn_gemm<float, float>(Device&, MatrixOp, Matrix<const float>, MatrixOp, Matrix<const float>, Matrix<float>, double, double);
template void onednn_gemm<bf16, bf16>(Device&, MatrixOp, Matrix<const bf16>, MatrixOp, Matrix<const bf16>, Matrix<bf16>, double, double);
template void onednn_gemm<bf16, float>(Device&, MatrixOp, Matrix<const bf16>, MatrixOp, Matrix<const bf16>, Matrix<float>, double, double);

}  // namespace gyr
