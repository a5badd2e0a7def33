// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generate/generator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/ops/sum.hpp"
#include "modules/layers/experts.hpp"
#include "src/base/stopwatch.hpp"

namespace gyr {

namespace {
constexpr Token no_token = -1;  // marks logits that are not finite; sent to all ranks

// True if everything that changes from token to token is in device memory, so that CUDA graphs can be replayed. This
// excludes encoder-decoder models, whose source lengths only the host knows, and experts whose rows the host has to
// count.
bool repeats(const ModelConfig& config, DType dtype, const GeneratorCapacity& limits) {
  const bool finds = limits.factors == Factors::stored && groups_rows_on_device(config.moe, dtype, limits.sequences);
  return !has_layer(config.pattern, [&](const LayerTraits& t) { return !t.same_launches || (t.experts && !finds); }) && !has_relative_bias(config);
}
}  // namespace

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
  std::size_t last = 0;  // last token of the nucleus: the one with which the sum reaches p
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

// Every prompt length and number of sequences is rehearsed, because GEMMs of few and of many rows need different
// scratch.
Generator::Generator(const ModelConfig& config, DType dtype, Grid& grid, GeneratorCapacity limits)
    : config_(config), encodes_(has_encoder(config)), dtype_(dtype), grid_(grid), limits_(std::move(limits)) {
  ensure(!limits_.prompts.empty() && *limits_.prompts.begin() > 0, "a generator needs at least one prompt length, and none may be 0");
  require(config.attention.causal, Exit::config,
          "model.attention.causal = false: a model with bidirectional attention cannot generate text; use it for scoring and tagging");
  require(config.objective->classes().empty(), Exit::config, "train.objective = {}: a classification model cannot generate text; use it with eval",
          config.objective->name());
  make(true, 0, 0, 0);
  const std::vector<Token> tokens(std::max(*limits_.prompts.rbegin(), limits_.sequences), 0);
  for (const Index length : limits_.prompts) read(0, std::span(tokens).first(length));
  for (Index n = 1; n <= limits_.sequences; ++n) {
    SequenceLayout layout{n, 1, 0, std::vector<Index>(n, capacity() - 1)};
    layout.source_lengths.assign(n, source_capacity());
    advance(layout, std::span(tokens).first(n));
  }
  repeats_ = DeviceGraph::possible() && repeats(config, dtype, limits_) && graphs_support(layer_communicators(grid));
  const Index scratch = device_->scratch.high_water(), slot = stage_->slots().front().bytes, state = state_->arena().high_water();
  make(false, scratch, slot, state);
}

void Generator::make(bool dry_run, Index scratch, Index slot, Index state) {
  const Index weights = weights_ ? weights_->high_water() : 0;
  stage_ = std::make_unique<Stage>(config_, dtype_, grid_, Trained(), RecomputeConfig(), limits_.factors);
  device_ = std::make_unique<Device>(dry_run, scratch);
  weights_ = std::make_unique<Arena>(Arena::make(Memory::weights, weights, dry_run));
  none_ = std::make_unique<Arena>(Arena::make(Memory::gradients, 0, dry_run));
  stage_->allocate(*weights_, *none_, Gradients::none, std::max(capacity(), source_capacity()));
  stage_->make_slots({{1, slot}}, dry_run);
  state_ = std::make_unique<StateStore>(Arena::make(Memory::activations, state, dry_run), limits_.sequences, capacity(), source_capacity());
}

Index Generator::bytes() const { return weights_->capacity() + device_->scratch.capacity() + stage_->slots_capacity() + state_->arena().capacity(); }

std::vector<double> Generator::read(Index at, std::span<const Token> prompt) {
  const Index length = Index(prompt.size());
  if (!encodes_) return advance({1, length, at, {0}}, prompt);
  SequenceLayout begin{1, 1, at, {0}};
  begin.source_lengths = {length};
  const Token start = config_.decoder_start_token_id;
  return advance(begin, {&start, 1}, {{1, length, at, {0}}, prompt});
}

std::vector<double> Generator::advance(const SequenceLayout& sequences, std::span<const Token> tokens, const GivenText& source) {
  Communicator& pipeline = grid_.group(Axis::pipeline);
  const int rank = pipeline.rank();
  const Bundle input = stage_->begin(*device_, sequences, tokens, source);
  if (rank > 0)
    input.each([&](const BundleTensor&, const AnyTensor2& x) { pipeline.start_receive(*device_, x.flat(), rank - 1).device_wait(*device_); });
  const bool again = repeats_ && sequences.seq_length == 1 && sequences.first_sequence == 0;
  const Made made = again ? replay_decode(sequences.batch) : compute();
  if (rank == pipeline.size() - 1) return gather_logits(made.logits);
  made.output.each([&](const BundleTensor&, const AnyTensor2& x) { pipeline.start_send(*device_, x.flat(), rank + 1).device_wait(*device_); });
  return {};
}

Generator::Made Generator::compute() {
  Made made{stage_->forward(*device_, *state_)};
  if (stage_->last()) made.logits = stage_->logits(*device_, Stage::Rows::last);
  return made;
}

Generator::Made Generator::replay_decode(Index sequences) {
  if (!repeated_.contains(sequences)) repeated_.emplace(sequences, Repeated{GraphReplay(layer_communicators(grid_))});
  Repeated& r = repeated_.at(sequences);
  const void* const tokens = stage_->slot(0, 0).text.tokens.data();
  r.work.run(*device_, [&] { r.made = compute(), r.tokens = tokens; });
  ensure(tokens == r.tokens, "the token ids of {} sequences are not where they were when the CUDA graph was captured", sequences);
  return r.made;
}

Index Generator::graphs() const {
  return std::count_if(repeated_.begin(), repeated_.end(), [](const auto& r) { return r.second.work.captured(); });
}

std::vector<double> Generator::gather_logits(const AnyTensor2& mine) {
  const Index rows = mine.rows, here = mine.columns;
  const int ranks = grid_.tensor().size();
  Scope scope(device_->scratch);
  AnyTensor2 all(mine.data, mine.dtype, 1, rows * here);
  if (ranks > 1) {
    all = take(device_->scratch, mine.dtype, ranks, rows * here);
    grid_.tensor().full().start_all_gather(*device_, mine.flat(), all.flat()).device_wait(*device_);
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

std::vector<Token> Generator::broadcast_from_last_stage(const std::vector<Token>& tokens) {
  const std::vector<double> mine(tokens.begin(), tokens.end());
  const std::vector<double> all = grid_.group(Axis::pipeline).gather(mine);
  return {all.end() - std::ptrdiff_t(mine.size()), all.end()};
}

// Prompts in progress, each in a slot of the state store.
class Generator::Continuation {
 public:
  Continuation(Generator& generator, const std::vector<std::vector<Token>>& prompts, const Sampling& sampling, const Finished& finished)
      : g_(generator), prompts_(prompts), sampling_(sampling), finished_(finished), made_(prompts.size()), slots_(g_.limits_.sequences) {
    const Communicator& pipeline = g_.grid_.group(Axis::pipeline);
    draws_ = pipeline.rank() == pipeline.size() - 1;
  }

  std::vector<std::vector<Token>> run() {
    for (;;) {
      while (read_prompts()) {
      }
      const Index n = live();
      if (n == 0) return std::move(made_);
      advance(n);
    }
  }

 private:
  struct Slot {
    std::optional<Index> prompt = {};
    Index past = 0, source = 1;  // tokens read so far of the text, and of the encoder input
    Token last = 0;
  };

  // Number of slots up to the last one with a prompt.
  Index live() const {
    Index n = Index(slots_.size());
    while (n > 0 && !slots_[n - 1].prompt) --n;
    return n;
  }

  // Reads prompts into free slots and draws their first new tokens. Returns true if there were any. A sequence may end
  // at once, which frees its slot again.
  bool read_prompts() {
    const Stopwatch watch(g_.pace_.prompt_seconds);
    std::vector<Index> fresh;
    for (Index s = 0; s < Index(slots_.size()) && next_ < Index(prompts_.size()); ++s) {
      if (slots_[s].prompt) continue;
      const std::vector<Token>& prompt = prompts_[next_];
      require(g_.limits_.prompts.contains(Index(prompt.size())), Exit::internal, "prompt {} has {} tokens, a length that no memory was allocated for",
              next_, prompt.size());
      const Index length = Index(prompt.size());
      slots_[s] = {next_++, g_.encodes_ ? 1 : length, length, 0};
      g_.state_->forget(*g_.device_, s);
      const auto logits = g_.read(s, prompt);
      if (draws_) draw(slots_[s], logits);
      g_.pace_.prompt_tokens += length;
      fresh.push_back(s);
    }
    if (!fresh.empty()) accept(fresh);
    return !fresh.empty();
  }

  // Decodes the next token of all slots. A slot without a prompt is computed too, and its result is ignored.
  void advance(Index n) {
    const Stopwatch watch(g_.pace_.new_seconds);
    SequenceLayout layout{n, 1, 0, {}};
    std::vector<Token> last;
    std::vector<Index> mine;
    for (Index s = 0; s < n; ++s) {
      layout.past.push_back(slots_[s].past), last.push_back(slots_[s].last);
      if (g_.encodes_) layout.source_lengths.push_back(slots_[s].source);
      if (slots_[s].prompt) mine.push_back(s);
    }
    const auto logits = g_.advance(layout, last);
    if (draws_)
      for (const Index s : mine) draw(slots_[s], std::span(logits).subspan(s * g_.config_.vocab_size, g_.config_.vocab_size));
    for (const Index s : mine) slots_[s].past += 1;
    g_.pace_.new_tokens += Index(mine.size());
    accept(mine);
  }

  void draw(Slot& slot, std::span<const double> logits) {
    const Index i = *slot.prompt;
    const bool finite = std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
    const Stream stream(sampling_.seed, fmt::format("sequence {}", i));
    slot.last = finite ? sample_token(logits, sampling_, stream, Index(made_[i].size())) : no_token;
  }

  // Appends the tokens that the last stage has drawn for these slots, on every stage.
  void accept(const std::vector<Index>& slots) {
    std::vector<Token> drawn;
    for (const Index s : slots) drawn.push_back(slots_[s].last);
    drawn = g_.broadcast_from_last_stage(drawn);
    for (std::size_t k = 0; k < slots.size(); ++k) {
      Slot& slot = slots_[slots[k]];
      const Index i = *slot.prompt;
      slot.last = drawn[k];
      require(slot.last != no_token, Exit::numeric,
              "the logits of token {} after prompt {} are not all finite: the weights contain NaN or infinity (`info --statistics` shows where), or "
              "are too "
              "large for this precision",
              made_[i].size() + 1, i + 1);
      made_[i].push_back(slot.last);
      if (finished_(i, slot.last) || Index(made_[i].size()) >= sampling_.tokens) slot.prompt.reset();
    }
  }

  Generator& g_;
  const std::vector<std::vector<Token>>& prompts_;
  const Sampling& sampling_;
  const Finished& finished_;
  std::vector<std::vector<Token>> made_;
  std::vector<Slot> slots_;
  Index next_ = 0;
  bool draws_;
};

std::vector<std::vector<Token>> Generator::generate(const std::vector<std::vector<Token>>& prompts, const Sampling& sampling,
                                                    const Finished& finished) {
  require(sampling.tokens <= limits_.tokens, Exit::internal, "{} new tokens requested, but memory was allocated for {}", sampling.tokens,
          limits_.tokens);
  return Continuation(*this, prompts, sampling, finished).run();
}

}  // namespace gyr
