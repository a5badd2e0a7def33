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

template <class T>
Generator<T>::Generator(const ModelConfig& config, Grid& grid, Index sequences, Index prompt, Index capacity)
    : config_(config), grid_(grid), sequences_(sequences), prompt_(prompt), capacity_(capacity) {
  make(true, 0, 0, 0);
  const std::vector<Token> tokens(std::max(prompt, sequences), 0);
  advance({1, prompt, 0, {0}}, std::span(tokens).first(prompt));
  advance({sequences, 1, 0, std::vector<Index>(sequences, capacity - 1)}, std::span(tokens).first(sequences));
  const Index scratch = device_->scratch.high_water(), slot = stage_->slots().front().bytes, state = state_->arena().high_water();
  make(false, scratch, slot, state);
}

template <class T>
void Generator<T>::make(bool dry_run, Index scratch, Index slot, Index state) {
  const Index weights = weights_ ? weights_->high_water() : 0;
  stage_ = std::make_unique<Stage<T>>(config_, grid_);
  device_ = std::make_unique<Device>(dry_run, scratch);
  weights_ = std::make_unique<Arena>(Arena::make(Memory::weights, weights, dry_run));
  none_ = std::make_unique<Arena>(Arena::make(Memory::gradients, 0, dry_run));
  stage_->parameters().allocate(*weights_, *none_, Gradients::none);
  stage_->make_slots({{1, slot}}, dry_run);
  state_ = std::make_unique<StateStore>(Arena::make(Memory::activations, state, dry_run), sequences_, capacity_);
}

template <class T>
Index Generator<T>::bytes() const {
  return weights_->capacity() + device_->scratch.capacity() + stage_->slots_capacity() + state_->arena().capacity();
}

template <class T>
std::vector<double> Generator<T>::advance(const Sequences& sequences, std::span<const Token> tokens) {
  Communicator& pipeline = grid_.group(Axis::pipeline);
  const int rank = pipeline.rank();
  const Tensor2<T> input = stage_->begin(*device_, sequences, tokens).x;
  if (rank > 0) pipeline.start_receive(*device_, flat(input), rank - 1).device_wait(*device_);
  const Tensor2<T> output = stage_->forward(*device_, *state_).x;
  if (rank == pipeline.size() - 1) return whole_rows(stage_->logits(*device_, Stage<T>::Rows::last));
  pipeline.start_send<T>(*device_, flat(output), rank + 1).device_wait(*device_);
  return {};
}

template <class T>
std::vector<double> Generator<T>::whole_rows(Tensor2<const Acc<T>> mine) {
  using A = Acc<T>;
  const Index rows = mine.extent(0), here = mine.extent(1);
  const int ranks = grid_.tensor().size();
  Scope scope(device_->scratch);
  Tensor2<const A> all(mine.data(), 1, rows * here);
  if (ranks > 1) {
    auto gathered = device_->scratch.template tensor<A>(ranks, rows * here);
    grid_.tensor().whole().start_all_gather<A>(*device_, flat(mine), flat(gathered)).device_wait(*device_);
    all = gathered;
  }
  std::vector<double> logits(rows * config_.vocab_size);
  if (device_->dry_run()) return logits;
  const auto host = to_host(*device_, flat(all));
  for (Index r = 0; r < rows; ++r)
    for (Index v = 0; v < config_.vocab_size; ++v) logits[r * config_.vocab_size + v] = double(host[v / here * rows * here + r * here + v % here]);
  return logits;
}

template <class T>
std::vector<Token> Generator<T>::from_last_stage(const std::vector<Token>& tokens) {
  const std::vector<double> mine(tokens.begin(), tokens.end());
  const std::vector<double> all = grid_.group(Axis::pipeline).gather(mine);
  return {all.end() - std::ptrdiff_t(mine.size()), all.end()};
}

template <class T>
std::vector<std::vector<Token>> Generator<T>::generate(const std::vector<std::vector<Token>>& prompts, const Sampling& sampling,
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

template class Generator<double>;
template class Generator<float>;
template class Generator<bf16>;

}  // namespace gyr
