// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/sum.hpp"

namespace gyr {

namespace {
constexpr Token no_token = -1;  // drawn from logits that are not finite; told to all ranks
}

Token sample_token(std::span<const double> logits, const Sampling& s, const Stream& stream, Index index) {
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](Token a, Token b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (s.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  const std::size_t keep = s.top_k > 0 ? std::min<std::size_t>(s.top_k, order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + keep, order.end(), likelier);
  order.resize(keep);
  std::vector<double> weight(keep);
  double total = 0;
  for (std::size_t i = 0; i < keep; ++i) total += weight[i] = std::exp((logits[order[i]] - logits[order[0]]) / s.temperature);
  double kept = 0;
  std::size_t last = 0;  // the nucleus: tokens up to and with the one that reaches p
  for (; last < keep; ++last) {
    kept += weight[last];
    if (kept >= s.top_p * total) break;
  }
  last = std::min(last, keep - 1);
  double rest = stream.uniform(index) * kept;
  for (std::size_t i = 0; i < last; ++i) {
    rest -= weight[i];
    if (rest < 0) return order[i];
  }
  return order[last];
}

Generator::Generator(const ModelConfig& config, DType dtype, Grid& grid, Index sequences, Index prompt, Index capacity)
    : config_(config), dtype_(dtype), grid_(grid), sequences_(sequences), prompt_(prompt), capacity_(capacity) {
  make(true, 0, 0, 0);
  const std::vector<Token> tokens(std::max(prompt, sequences), 0);
  advance({1, prompt, 0, {0}}, std::span(tokens).first(prompt));
  advance({sequences, 1, 0, std::vector<Index>(sequences, capacity - 1)}, std::span(tokens).first(sequences));
  const Index scratch = device_->scratch.high_water(), slot = stage_->slots().front().bytes, state = state_->arena().high_water();
  make(false, scratch, slot, state);
}

void Generator::make(bool dry_run, Index scratch, Index slot, Index state) {
  const Index weights = weights_ ? weights_->high_water() : 0;
  stage_ = std::make_unique<Stage>(config_, dtype_, grid_);
  device_ = std::make_unique<Device>(dry_run, scratch);
  weights_ = std::make_unique<Arena>(Arena::make(Memory::weights, weights, dry_run));
  none_ = std::make_unique<Arena>(Arena::make(Memory::gradients, 0, dry_run));
  stage_->allocate(*weights_, *none_, Gradients::none, capacity_);
  stage_->make_slots({{1, slot}}, dry_run);
  state_ = std::make_unique<StateStore>(Arena::make(Memory::activations, state, dry_run), sequences_, capacity_);
}

Index Generator::bytes() const { return weights_->capacity() + device_->scratch.capacity() + stage_->slots_capacity() + state_->arena().capacity(); }

std::vector<double> Generator::advance(const SequenceLayout& sequences, std::span<const Token> tokens) {
  Communicator& pipeline = grid_.group(Axis::pipeline);
  const int rank = pipeline.rank();
  const AnyTensor2 input = stage_->begin(*device_, sequences, tokens).x;
  if (rank > 0) pipeline.start_receive(*device_, input.flat(), rank - 1).device_wait(*device_);
  const AnyTensor2 output = stage_->forward(*device_, *state_).x;
  if (rank == pipeline.size() - 1) return whole_rows(stage_->logits(*device_, Stage::Rows::last));
  pipeline.start_send(*device_, output.flat(), rank + 1).device_wait(*device_);
  return {};
}

std::vector<double> Generator::whole_rows(const AnyTensor2& mine) {
  const Index rows = mine.rows, here = mine.columns;
  const int ranks = grid_.tensor().size();
  Scope scope(device_->scratch);
  AnyTensor2 all(mine.data, mine.dtype, 1, rows * here);
  if (ranks > 1) {
    all = take(device_->scratch, mine.dtype, ranks, rows * here);
    grid_.tensor().whole().start_all_gather(*device_, mine.flat(), all.flat()).device_wait(*device_);
  }
  std::vector<double> logits(rows * config_.vocab_size);
  if (device_->dry_run()) return logits;
  with_type(all.flat(), [&](const auto& typed) {
    const auto host = to_host(*device_, typed);
    for (Index r = 0; r < rows; ++r)
      for (Index v = 0; v < config_.vocab_size; ++v) logits[r * config_.vocab_size + v] = double(host[v / here * rows * here + r * here + v % here]);
  });
  return logits;
}

std::vector<Token> Generator::from_last_stage(const std::vector<Token>& tokens) {
  const std::vector<double> mine(tokens.begin(), tokens.end());
  const std::vector<double> all = grid_.group(Axis::pipeline).gather(mine);
  return {all.end() - std::ptrdiff_t(mine.size()), all.end()};
}

std::vector<std::vector<Token>> Generator::generate(const std::vector<std::vector<Token>>& prompts, const Sampling& sampling,
                                                    const Finished& finished) {
  const Index count = prompts.size();
  ensure(count <= sequences_, "{} prompts where there is room for {}", count, sequences_);
  std::vector<std::vector<Token>> made(count);
  std::vector<Index> past(count);
  std::vector<Token> last(count);
  std::vector<bool> done(count, false);
  const bool draws = grid_.group(Axis::pipeline).rank() == grid_.group(Axis::pipeline).size() - 1;
  const auto draw = [&](Index i, std::span<const double> logits) {
    if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) {
      last[i] = no_token;
      return;
    }
    const Stream stream(sampling.seed, fmt::format("sequence {}", i));
    last[i] = sample_token(logits, sampling, stream, Index(made[i].size()));
  };
  const auto accept = [&](Index i) {
    require(last[i] != no_token, Exit::numeric,
            "the logits of token {} after prompt {} are not all finite: the weights are no numbers (`info --statistics` shows where), or too large "
            "for this precision",
            made[i].size() + 1, i + 1);
    made[i].push_back(last[i]);
    done[i] = finished(i, last[i]) || Index(made[i].size()) >= sampling.tokens;
  };
  for (Index i = 0; i < count; ++i) {
    require(!prompts[i].empty() && Index(prompts[i].size()) <= prompt_, Exit::usage, "prompt {} has {} tokens; 1 to {} are possible", i,
            prompts[i].size(), prompt_);
    const auto logits = advance({1, Index(prompts[i].size()), i, {0}}, prompts[i]);
    if (draws) draw(i, logits);
    past[i] = prompts[i].size();
  }
  last = from_last_stage(last);
  for (Index i = 0; i < count; ++i) accept(i);
  while (!std::all_of(done.begin(), done.end(), [](bool d) { return d; })) {
    const auto logits = advance({count, 1, 0, past}, last);
    for (Index i = 0; i < count; ++i)  // a finished sequence is computed along, at the same place, and ignored
      if (draws && !done[i]) draw(i, std::span(logits).subspan(i * config_.vocab_size, config_.vocab_size));
    last = from_last_stage(last);
    for (Index i = 0; i < count; ++i) {
      if (done[i]) continue;
      past[i] += 1;
      accept(i);
    }
  }
  return made;
}

}  // namespace gyr
