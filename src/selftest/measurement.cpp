// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/measurement.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include "kernels/base/error.hpp"
#include "kernels/device/random.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/host_values.hpp"
#include "src/base/input_file.hpp"
#include "src/base/output_file.hpp"
#include "src/base/stopwatch.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr::selftest {

namespace {

constexpr Index gemm_size = 512;
constexpr int rate_repetitions = 5;

// Shortest time of several calls.
template <class Body>
double least_seconds(int times, const Body& body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      body();
    }
    least = std::min(least, seconds);
  }
  return least;
}

// Value of a word in a pattern: all bits 0, all bits 1, its index, a hash of its index.
std::uint64_t word_of(int pattern, std::size_t i) {
  switch (pattern) {
    case 0: return 0;
    case 1: return ~std::uint64_t(0);
    case 2: return i;
    default: return (i + 1) * 0x9E3779B97F4A7C15u;
  }
}

// True if all patterns, each written twice, are read back. Accesses are volatile, so that the compiler keeps them.
bool memory_holds(Index bytes, bool pretends_fault) {
  std::vector<std::uint64_t> memory(std::size_t(bytes) / sizeof(std::uint64_t));
  volatile std::uint64_t* const words = memory.data();
  bool right = true;
  for (int time = 0; time < 2; ++time)
    for (int pattern = 0; pattern < 4; ++pattern) {
      for (std::size_t i = 0; i < memory.size(); ++i) words[i] = word_of(pattern, i);
      if (pretends_fault) words[memory.size() / 2] = words[memory.size() / 2] ^ 4;
      for (std::size_t i = 0; i < memory.size(); ++i) right = right && words[i] == word_of(pattern, i);
    }
  return right;
}

// Bytes per second of y += x on tensors larger than all caches.
double memory_rate() {
  constexpr Index n = Index(16) << 20;
  Device dev(false, 2 * n * Index(sizeof(float)) + 4096);
  const auto x = dev.scratch.tensor<float>(n), y = dev.scratch.tensor<float>(n);
  fill<float>(dev, x, 1), fill<float>(dev, y, 1);
  dev.fence();
  return 3.0 * sizeof(float) * double(n) / least_seconds(rate_repetitions, [&] { add<float>(dev, Tensor1<const float>(x), y), dev.fence(); });
}

struct GemmFindings {
  std::uint64_t sum = 0;
  bool repeats = true;
  double seconds = 0;
};

// C = A B' of drawn matrices, repeated. `wrong`: pretends that the last result has a wrong bit.
template <class T>
GemmFindings repeated_gemm(int times, bool wrong) {
  using S = Acc<T>;
  constexpr Index size = gemm_size * gemm_size;
  const auto multiply = [](Device& dev, const Tensor1<T>& a, const Tensor1<T>& b, const Tensor1<S>& c) {
    const auto matrix = []<class X>(const Tensor1<X>& x) { return Matrix<X>(x.data(), gemm_size, gemm_size, gemm_size); };
    gemm<T, S>(dev, MatrixOp::none, Matrix<const T>(matrix(a)), MatrixOp::transpose, Matrix<const T>(matrix(b)), matrix(c));
  };
  Device dry(true, 0);
  Arena counted = Arena::dry_run(Memory::activations);
  multiply(dry, counted.tensor<T>(size), counted.tensor<T>(size), counted.tensor<S>(size));
  Device dev(false, dry.scratch.high_water());
  Arena memory(Memory::activations, counted.high_water());
  const auto a = memory.tensor<T>(size), b = memory.tensor<T>(size);
  const auto c = memory.tensor<S>(size);
  for (const auto& [x, name] : {std::pair(a, "selftest a"), std::pair(b, "selftest b")}) {
    HostValues<T> values(x);
    const Stream stream(1, name);
    for (Index i = 0; i < size; ++i) values(i) = T(float(stream.normal(i)));
    values.put();
  }
  GemmFindings found;
  found.seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    found.seconds = std::min(found.seconds, least_seconds(1, [&] { multiply(dev, a, b, c), dev.fence(); }));
    HostValues<S> values(c);
    values.take();
    std::vector<S> result(static_cast<std::size_t>(size));
    for (Index j = 0; j < size; ++j) result[std::size_t(j)] = values(j);
    if (wrong && i == times - 1) result.front() += S(1);
    const std::uint64_t sum = checksum(result.data(), Index(result.size() * sizeof(S)));
    if (i == 0) found.sum = sum;
    found.repeats = found.repeats && sum == found.sum;
  }
  return found;
}

}  // namespace

std::string processor_model() {
  std::istringstream text(text_or_nothing("/proc/cpuinfo", std::size_t(1) << 16));  // the first processor
  for (std::string line; std::getline(text, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  return "unknown";
}

void measure_device(const Effort& effort, const Fault& fault, int rank, Findings& f) {
  f.processor = processor_model();
  f.memory_right = memory_holds(effort.memory_bytes, fault.hits(rank, FaultKind::wrong_memory));
  const bool wrong = fault.hits(rank, FaultKind::wrong_bit);
  const std::array<GemmFindings, precisions.size()> gemms{repeated_gemm<double>(effort.repetitions, false),
                                                          repeated_gemm<float>(effort.repetitions, wrong),
                                                          repeated_gemm<bf16>(effort.repetitions, false)};
  for (std::size_t i = 0; i < gemms.size(); ++i) f.sums[i] = gemms[i].sum, f.repeats = f.repeats && gemms[i].repeats;
  f.gemm_rate = 2.0 * double(gemm_size * gemm_size * gemm_size) / gemms[1].seconds;
  f.memory_rate = memory_rate() * (fault.hits(rank, FaultKind::slow_memory) ? 0.5 : 1);
}

void measure_file(const Effort& effort, const std::filesystem::path& folder, int rank, Findings& f) {
  const std::filesystem::path path = folder / fmt::format("gyrfalcon-selftest-{}-{}", f.host, rank);
  std::string bytes(std::size_t(effort.file_bytes), 0);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(word_of(3, i) >> 32);
  try {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      OutputFile file(path);
      file.append(bytes);
      file.commit();
    }
    f.file_rate = double(bytes.size()) / seconds;
    f.file_right = SummedFile(path).sum() == checksum(bytes.data(), Index(bytes.size()));
    remove_file(path);
  } catch (const Error&) {
    f.file_right = false;
  }
}

}  // namespace gyr::selftest
