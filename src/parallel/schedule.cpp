// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/schedule.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace gyr {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::forward: return "forward";
    case Op::backward: return "backward";
    case Op::backward_input: return "backward input";
    case Op::backward_weights: return "backward weights";
    case Op::send: return "send";
    case Op::receive: return "receive";
    case Op::clear: return "clear";
    case Op::reduce: return "reduce";
    case Op::gather: return "gather";
    case Op::step: return "step";
  }
  return "";
}

namespace {

void one_chunk(const PipelineShape& shape, const char* name) { ensure(shape.chunks == 1, "{} has one chunk per rank, not {}", name, shape.chunks); }

// Warm-up forwards of a rank in 1F1B, before its first backward: one for each rank after it.
int warm_up_of(const PipelineShape& shape, int rank) { return std::min(shape.ranks - rank - 1, shape.micros); }

}  // namespace

std::vector<PipelineStep> forward_only(const PipelineShape& shape, int) {
  std::vector<PipelineStep> list;
  for (int first = 0; first < shape.micros; first += shape.ranks)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = first; i < std::min(first + shape.ranks, shape.micros); ++i) list.push_back({Op::forward, chunk, i});
  return list;
}

std::vector<PipelineStep> all_forward_all_backward(const PipelineShape& shape, int) {
  one_chunk(shape, "GPipe");
  std::vector<PipelineStep> list;
  for (int i = 0; i < shape.micros; ++i) list.push_back({Op::forward, 0, i});
  for (int i = 0; i < shape.micros; ++i) list.push_back({Op::backward, 0, i});
  return list;
}

std::vector<PipelineStep> one_f_one_b(const PipelineShape& shape, int rank) {
  one_chunk(shape, "1F1B");
  std::vector<PipelineStep> list;
  const int warm_up = warm_up_of(shape, rank);
  for (int i = 0; i < warm_up; ++i) list.push_back({Op::forward, 0, i});
  for (int i = warm_up; i < shape.micros; ++i) {
    list.push_back({Op::forward, 0, i});
    list.push_back({Op::backward, 0, i - warm_up});
  }
  for (int i = shape.micros - warm_up; i < shape.micros; ++i) list.push_back({Op::backward, 0, i});
  return list;
}

std::vector<PipelineStep> interleaved(const PipelineShape& shape, int rank) {
  const auto [p, v, m] = shape;
  std::vector<PipelineStep> list;
  // Adds the i-th forward, or backward, of a rank. Micro-batches missing in the last group are skipped, so that
  // messages stay in the order of full groups.
  const auto add = [&, p = p, v = v, m = m](Op op, int i) {
    const int group = i / (p * v), within = i % (p * v), chunk = within / p, micro = group * p + within % p;
    if (micro < m) list.push_back({op, op == Op::forward ? chunk : v - 1 - chunk, micro});
  };
  const int all = (m + p - 1) / p * p * v, warm_up = std::min(2 * (p - rank - 1) + (v - 1) * p, all);
  for (int i = 0; i < warm_up; ++i) add(Op::forward, i);
  for (int i = warm_up; i < all; ++i) {
    add(Op::forward, i);
    add(Op::backward, i - warm_up);
  }
  for (int i = all - warm_up; i < all; ++i) add(Op::backward, i);
  return list;
}

std::vector<PipelineStep> zero_bubble(const PipelineShape& shape, int rank) {
  one_chunk(shape, "ZB-H1");
  std::vector<PipelineStep> list;
  int left = 0;  // first micro-batch whose weight gradients are postponed
  const auto backward = [&](int i, int leave) {
    list.push_back({Op::backward_input, 0, i});
    for (; left <= i - leave; ++left) list.push_back({Op::backward_weights, 0, left});
  };
  const int warm_up = warm_up_of(shape, rank);
  for (int i = 0; i < warm_up; ++i) list.push_back({Op::forward, 0, i});
  for (int i = warm_up; i < shape.micros; ++i) {
    list.push_back({Op::forward, 0, i});
    backward(i - warm_up, rank);
  }
  // During the drain, a rank waits after each backward for about as long as weight gradients take.
  for (int i = shape.micros - warm_up; i < shape.micros; ++i) {
    list.push_back({Op::backward_input, 0, i});
    if (left <= i) list.push_back({Op::backward_weights, 0, left++});
  }
  for (; left < shape.micros; ++left) list.push_back({Op::backward_weights, 0, left});
  return list;
}

int in_flight(const std::vector<PipelineStep>& list, int chunk) {
  const bool split = std::any_of(list.begin(), list.end(), [](const PipelineStep& t) { return t.op == Op::backward_weights; });
  int now = 0, most = 0;
  for (const PipelineStep& pipeline_step : list) {
    if (pipeline_step.chunk != chunk) continue;
    now += (pipeline_step.op == Op::forward) - (pipeline_step.op == (split ? Op::backward_weights : Op::backward));
    most = std::max(most, now);
  }
  return most;
}

}  // namespace gyr
