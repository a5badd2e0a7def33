// SPDX-License-Identifier: BSD-3-Clause
// plans COUNT: cuDNN makes plans for COUNT random attention descriptions that `fused_attention` supports, forward and
// backward, for an H100 that need not be present. Each plan must fit in the workspace that the program allocates. Some
// unsupported descriptions must be rejected. Nothing is executed.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/cuda/cudnn/plan.hpp"
#include "regression/support/seed.hpp"

using namespace gyr;
using namespace gyr::cuda;

namespace {

// Device properties of an H100 in cuDNN's serialised format.
const std::string h100 =
    R"({"cudaDeviceId":0,"deviceName":"H100","deviceVer":900,"driverVer":13000,"totalGlobalMem":85017493504,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":2619000,"l2CacheSize":52428800})";

std::shared_ptr<cudnn_frontend::DeviceProperties> properties() {
  auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  auto error = device->deserialize({h100.begin(), h100.end()});
  if (error.is_bad()) std::printf("cuDNN rejects the device properties: %s\n", error.get_message().c_str()), std::exit(1);
  return device;
}

std::string planned(std::shared_ptr<cudnn::Graph> graph, Index workspace) {
  static const auto device = properties();
  graph->set_device_properties(device);
  return cudnn::planned(*graph, nullptr, workspace);
}
std::string planned_forward(const FusedAttention& a) { return planned(cudnn::forward_graph(a), forward_workspace(a)); }
std::string planned_backward(const FusedAttention& a) { return planned(cudnn::backward_graph(a), backward_workspace(a)); }

FusedAttention rows_set(FusedAttention a, Index gap) {
  a.o_row = a.num_heads * a.v_head_dim;
  a.dq_row = a.num_heads * a.head_dim, a.dk_row = a.num_kv_heads * a.head_dim, a.dv_row = a.num_kv_heads * a.v_head_dim;
  a.q_row = a.dq_row + gap, a.k_row = a.dk_row + gap, a.v_row = a.dv_row + gap;
  return a;
}

FusedAttention drawn(std::mt19937& random) {
  const auto among = [&](Index least, Index most) { return least + Index(random() % unsigned(most - least + 1)); };
  const auto width = [&] { return among(0, 1) ? 64 * among(1, 2) : 8 * among(1, 32); };
  FusedAttention a{};
  a.batch = among(1, 4), a.num_kv_heads = among(1, 4), a.num_heads = a.num_kv_heads * among(1, 4);
  const Index longest = among(0, 3) ? 600 : 20000;
  a.queries = among(2, longest), a.keys = among(0, 1) ? a.queries : among(1, longest);
  a.head_dim = width(), a.v_head_dim = among(0, 1) ? a.head_dim : width();
  a.scale = 1 / std::sqrt(double(a.head_dim));
  const Index mask = among(0, 3), window = among(1, 300);  // no mask, causal, window with causal mask, window to both sides
  if (mask == 1) a.ahead = 0;
  if (mask >= 2 && a.queries <= a.keys) a.back = window, a.ahead = mask == 2 ? 0 : window - 1;
  return rows_set(a, among(0, 1) * 8 * among(1, 100));
}

std::string text_of(const FusedAttention& a) {
  const auto bound = [](const std::optional<Index>& b) { return b ? std::to_string(*b) : "none"; };
  return std::to_string(a.batch) + " sequences of " + std::to_string(a.queries) + " queries and " + std::to_string(a.keys) + " keys, " +
         std::to_string(a.num_heads) + " heads on " + std::to_string(a.num_kv_heads) + " of " + std::to_string(a.head_dim) + " and " +
         std::to_string(a.v_head_dim) + ", back " + bound(a.back) + ", ahead " + bound(a.ahead) + ", rows of q " + std::to_string(a.q_row);
}

int failures = 0;
void expect(bool holds, const char* what, const FusedAttention& a, const std::string& problem) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s: %s: %.300s\n", what, text_of(a).c_str(), problem.c_str());
}

// Descriptions that fused_attention leaves to the own kernels, and that cuDNN's front end must reject too.
std::vector<FusedAttention> not_covered() {
  FusedAttention plain{};
  plain.batch = 1, plain.num_heads = 4, plain.num_kv_heads = 2, plain.queries = plain.keys = 256, plain.head_dim = plain.v_head_dim = 64;
  plain.scale = 0.125;
  std::vector<FusedAttention> all(4, plain);
  all[0].head_dim = 60;
  all[1].head_dim = all[1].v_head_dim = 264;
  all[2].queries = 300, all[2].back = 100, all[2].ahead = 0;
  all[3].num_heads = 3;
  for (FusedAttention& a : all) a = rows_set(a, 0);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 20;
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int i = 0; i < count; ++i) {
    const FusedAttention a = drawn(random);
    std::string problem = planned_forward(a);
    expect(problem.empty(), "not planned forward", a, problem);
    problem = planned_backward(a);
    expect(problem.empty(), "not planned backward", a, problem);
    if (i > 2) continue;
    problem = planned(cudnn::backward_graph(a), backward_workspace(a) / 4);
    expect(!problem.empty(), "planned with too little workspace", a, "");
  }
  for (const FusedAttention& a : not_covered()) expect(!planned_backward(a).empty(), "planned, although unsupported by the program", a, "");
  std::printf("cuDNN %zu, front end %d.%d.%d: %d descriptions for an H100, %d failures\n", cudnnGetVersion(), CUDNN_FRONTEND_MAJOR_VERSION,
              CUDNN_FRONTEND_MINOR_VERSION, CUDNN_FRONTEND_PATCH_VERSION, count, failures);
  return failures > 0;
}
