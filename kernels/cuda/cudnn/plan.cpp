// SPDX-License-Identifier: BSD-3-Clause
// cuDNN graphs of the attention forward and backward passes.
#include "kernels/cuda/cudnn/plan.hpp"

namespace gyr::cuda::cudnn {

namespace {

namespace frontend = cudnn_frontend;
using frontend::DataType_t;
using Tensor = std::shared_ptr<frontend::graph::Tensor_attributes>;

// Tensor (B, heads, tokens, width) with a stride of `row` elements between tokens.
struct Extent {
  Index batch, heads, tokens, width, row;
  std::vector<std::int64_t> dim() const { return {batch, heads, tokens, width}; }
  std::vector<std::int64_t> stride() const { return {tokens * row, width, row, 1}; }
};

Extent queries_of(const FusedAttention& a, Index row) { return {a.batch, a.num_heads, a.queries, a.head_dim, row}; }
Extent outputs_of(const FusedAttention& a) { return {a.batch, a.num_heads, a.queries, a.v_head_dim, a.o_row}; }
Extent keys_of(const FusedAttention& a, Index row) { return {a.batch, a.num_kv_heads, a.keys, a.head_dim, row}; }
Extent values_of(const FusedAttention& a, Index row) { return {a.batch, a.num_kv_heads, a.keys, a.v_head_dim, row}; }

std::shared_ptr<Graph> empty_graph() {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(DataType_t::BFLOAT16).set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  graph->set_sm_version(90);  // must be set before the first node is added
  return graph;
}

Tensor input(Graph& graph, Name name, const Extent& e) {
  return graph.tensor(frontend::graph::Tensor_attributes().set_uid(name).set_dim(e.dim()).set_stride(e.stride()).set_data_type(DataType_t::BFLOAT16));
}
void output(const Tensor& x, Name name, const Extent& e, DataType_t type) {
  x->set_output(true).set_uid(name).set_dim(e.dim()).set_stride(e.stride()).set_data_type(type);
}

// One value per query and head, contiguous per head, as the backward graph requires.
template <class X>
void packed_stats(X& x, const FusedAttention& a) {
  x.set_uid(stats)
      .set_data_type(DataType_t::FLOAT)
      .set_dim({a.batch, a.num_heads, a.queries, 1})
      .set_stride({a.num_heads * a.queries, a.queries, 1, 1});
}

template <class Attributes>
Attributes rule(const FusedAttention& a) {
  Attributes attributes;
  attributes.set_attn_scale(float(a.scale));
  if (a.back || a.ahead) attributes.set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT);
  if (a.back) attributes.set_diagonal_band_left_bound(int(*a.back));
  if (a.ahead) attributes.set_diagonal_band_right_bound(int(*a.ahead));
  return attributes;
}

}  // namespace

std::shared_ptr<Graph> forward_graph(const FusedAttention& a) {
  auto graph = empty_graph();
  auto attributes = rule<frontend::graph::SDPA_attributes>(a);
  attributes.set_generate_stats(true);
  attributes.set_implementation(frontend::AttentionImplementation_t::COMPOSITE);  // the unified implementation has no fp32 output
  const auto [out, lse] = graph->sdpa(input(*graph, q, queries_of(a, a.q_row)), input(*graph, k, keys_of(a, a.k_row)),
                                      input(*graph, v, values_of(a, a.v_row)), attributes);
  output(out, o, outputs_of(a), DataType_t::FLOAT);
  lse->set_output(true);
  packed_stats(*lse, a);
  return graph;
}

std::shared_ptr<Graph> backward_graph(const FusedAttention& a) {
  auto graph = empty_graph();
  auto attributes = rule<frontend::graph::SDPA_backward_attributes>(a);
  attributes.set_deterministic_algorithm(true);
  frontend::graph::Tensor_attributes lse;
  packed_stats(lse, a);
  const auto [of_q, of_k, of_v] =
      graph->sdpa_backward(input(*graph, q, queries_of(a, a.q_row)), input(*graph, k, keys_of(a, a.k_row)), input(*graph, v, values_of(a, a.v_row)),
                           input(*graph, o, outputs_of(a)), input(*graph, dout, outputs_of(a)), graph->tensor(lse), attributes);
  output(of_q, dq, queries_of(a, a.dq_row), DataType_t::BFLOAT16);
  output(of_k, dk, keys_of(a, a.dk_row), DataType_t::BFLOAT16);
  output(of_v, dv, values_of(a, a.dv_row), DataType_t::BFLOAT16);
  return graph;
}

std::string planned(Graph& graph, cudnnHandle_t handle, Index workspace) {
  const auto bad = [](frontend::error_t error) { return error.is_bad() ? error.get_message() : std::string(); };
  std::string problem = bad(graph.validate());
  if (problem.empty()) problem = bad(handle ? graph.build_operation_graph(handle) : graph.build_operation_graph());
  if (problem.empty()) problem = bad(graph.create_execution_plans({frontend::HeurMode_t::A, frontend::HeurMode_t::FALLBACK}));
  if (!problem.empty()) return problem;
  graph.deselect_workspace_greater_than(workspace);
  problem = bad(handle ? graph.check_support(handle) : graph.check_support());
  if (problem.empty()) problem = bad(handle ? graph.build_plans(handle) : graph.build_plans());
  if (!problem.empty()) return problem;
  std::int64_t taken = 0;
  problem = bad(graph.get_workspace_size(taken));
  if (problem.empty() && taken > workspace)
    problem = "the plan needs " + std::to_string(taken) + " bytes of workspace, more than the limit of " + std::to_string(workspace);
  return problem;
}

}  // namespace gyr::cuda::cudnn
