// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generate/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/device/upload.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr {

TextStream::TextStream(const Sampling& s, Index id, Index sample)
    : TextStream(s.seed, s.rollouts    ? fmt::format("rollout {}/{}", id, sample)
                         : sample == 0 ? fmt::format("sequence {}", id)
                                       : fmt::format("sequence {}/{}", id, sample)) {}

namespace {

// Index in `order` (most likely first) of the drawn token, and the sum of the weights that top_k and top_p keep.
std::pair<std::size_t, double> draw(const std::vector<double>& weight, const Sampling& s, double uniform) {
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double kept = 0;
  std::size_t last = 0;  // last token of the nucleus: the one with which the sum reaches p
  for (; last < weight.size(); ++last) {
    kept += weight[last];
    if (kept >= s.top_p * total) break;
  }
  last = std::min(last, weight.size() - 1);
  double rest = uniform * kept;
  for (std::size_t i = 0; i < last; ++i) {
    rest -= weight[i];
    if (rest < 0) return {i, kept};
  }
  return {last, kept};
}

}  // namespace

DrawnToken sample_token(std::span<const double> logits, const Sampling& s, double uniform) {
  if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) return {};
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](Token a, Token b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  const Token first = *std::min_element(order.begin(), order.end(), likelier);
  const auto exponent = [&](Token v) { return (logits[v] - logits[first]) / (s.temperature > 0 ? s.temperature : 1); };
  double all = 0;  // sum of the weights of the full vocabulary
  for (const Token v : order) all += std::exp(exponent(v));
  if (s.temperature == 0) return {first, -std::log(all), 1};
  const std::size_t keep = s.top_k > 0 ? std::min<std::size_t>(s.top_k, order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + keep, order.end(), likelier);
  std::vector<double> weight(keep);
  for (std::size_t i = 0; i < keep; ++i) weight[i] = std::exp(exponent(order[i]));
  const auto [drawn, kept] = draw(weight, s, uniform);
  return {order[drawn], exponent(order[drawn]) - std::log(all), std::min(1.0, kept / all)};
}

DeviceDraws::DeviceDraws(Device& dev, DType logits, int ranks, std::span<const DrawPlace> places)
    : count_(Index(places.size())), dtype_(logits), ranks_(ranks),
      values_(dev.scratch.named("draws").tensor<double>(count_ * (values_per_draw + 3 * ranks))) {
  if (dev.dry_run()) return;
  std::vector<TokenDraw> begin;
  for (const DrawPlace& p : places) {
    TokenDraw& draw = begin.emplace_back();
    draw.uniform = p.uniform, draw.seed = p.seed, draw.stream = p.stream, draw.position = p.position;
  }
  backend::upload(dev.queue, begin.data(), values_.data(), count_ * Index(sizeof(TokenDraw)));
}

void DeviceDraws::enqueue(Device& dev, Communicator& tensor, const Head& head, const AnyTensor2& logits, const Sampling& s, Index vocab_size) const {
  if (dtype_ == DType::f64) enqueue<double>(dev, tensor, head, logits.as<const double>(), s, vocab_size);
  else enqueue<float>(dev, tensor, head, logits.as<const float>(), s, vocab_size);
}

template <class A>
void DeviceDraws::enqueue(Device& dev, Communicator& tensor, const Head& head, Tensor2<const A> logits, const Sampling& s, Index vocab_size) const {
  Scope scope(dev.scratch);
  const Device::Purpose purpose(dev, "sampling: rows x bins");
  const auto top = dev.scratch.tensor<A>(logits.extent(0));
  const auto best = dev.scratch.tensor<double>(count_, 3);
  logits_top<A>(dev, logits, head.valid(), top);
  tensor.all_reduce(dev, top, Reduction::max);
  search<A>(dev, tensor, head, logits, top, s, vocab_size);
  if (!takes_gumbel(s)) return;
  gumbel_best<A>(dev, logits, head.valid(), top, head.first_column(), s.temperature, draws(), best);
  tensor.all_gather<double>(dev, flat(best), Tensor1<double>(results(), 3 * count_ * ranks_));
}

// The searches that the sampling rule needs. All rules need the weight of all tokens, which the first bins contain.
template <class A>
void DeviceDraws::search(Device& dev, Communicator& tensor, const Head& head, Tensor2<const A> logits, Tensor1<const A> top, const Sampling& s,
                         Index vocab_size) const {
  const auto found = dev.scratch.tensor<A>(count_);
  const auto first_bins = dev.scratch.tensor<double>(count_, 2 * draw_digits_of_round),
             more = dev.scratch.tensor<double>(count_, 2 * draw_digits_of_round);
  const DrawRules rules{s.temperature > 0 ? s.temperature : 1, s.top_k, s.top_p, vocab_size};
  const auto count = [&](int round, const Tensor2<double>& bins) {
    draw_bins<A>(dev, logits, head.valid(), top, rules.temperature, round, draws(), bins);
    tensor.all_reduce(dev, flat(bins));
  };
  count(0, first_bins);
  const auto search = [&](TokenSearch what, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      if (round > 0) count(round, more);
      draw_digits<A>(dev, what, round, rules, round == 0 ? first_bins : more, draws(), found);
    }
  };
  const bool searches = s.temperature > 0 && !takes_gumbel(s);
  if (searches && s.top_k > 0 && s.top_k < vocab_size) search(TokenSearch::top_k, draw_rounds<A>);
  if (searches && s.top_p < 1) search(TokenSearch::top_p, draw_rounds<A>);
  search(TokenSearch::token, searches ? draw_rounds<A> : 1);
  if (takes_gumbel(s)) return;
  const Tensor1<A> ids(reinterpret_cast<A*>(results()), count_);
  const Tensor1<const A> target = searches ? Tensor1<const A>(found) : top;
  const Index each = Index(logits.extent(0)) == count_ ? count_ : 1;  // draws per launch
  for (Index d = 0; d < count_; d += each)
    logits_argmax<A>(dev, logits, head.valid(), rows(target, searches ? d : 0, each), head.first_column(), rows(ids, d, each));
  tensor.all_reduce(dev, ids, Reduction::max);
}

// The largest score of all ranks; of equal ones the lower token.
DrawnToken DeviceDraws::best_of_ranks(const double* results, Index d, double all) const {
  const double* best = results + 3 * d;
  for (int r = 1; r < ranks_; ++r)
    if (const double* other = results + 3 * (r * count_ + d); other[0] > best[0]) best = other;
  return {Token(best[1]), best[2] - std::log(all), 1};
}

std::vector<DrawnToken> DeviceDraws::tokens(Device& dev, const Sampling& s, Index vocab_size) const {
  const std::vector<double> values = to_host(dev, values_);
  const double* const results = values.data() + count_ * values_per_draw;
  std::vector<DrawnToken> drawn;
  for (Index d = 0; d < count_; ++d) {
    TokenDraw draw;
    std::memcpy(static_cast<void*>(&draw), values.data() + d * values_per_draw, sizeof(draw));
    if (takes_gumbel(s)) {
      drawn.push_back(draw.finite == double(vocab_size) ? best_of_ranks(results, d, draw.all) : DrawnToken());
      continue;
    }
    const double minus = dtype_ == DType::f64 ? results[d] : double(reinterpret_cast<const float*>(results)[d]);
    const Token token = draw.finite != double(vocab_size) ? no_token : draw.uncertain != 0 ? uncertain_token : Token(-minus);
    drawn.push_back({token, (s.temperature > 0 ? std::log(draw.weight) : 0) - std::log(draw.all), std::min(1.0, draw.kept / draw.all)});
  }
  return drawn;
}

}  // namespace gyr
