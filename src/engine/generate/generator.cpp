// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generate/generator.hpp"

#include <algorithm>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/sum.hpp"
#include "modules/layers/experts.hpp"

namespace gyr {

namespace {

// True if everything that changes from token to token is in device memory, so that CUDA graphs can be replayed. This
// excludes encoder-decoder models, whose source lengths only the host knows, and experts whose rows the host has to
// count.
bool repeats(const ModelConfig& config, DType dtype, const GeneratorCapacity& limits) {
  const bool finds = limits.factors == Factors::stored && groups_rows_on_device(config.moe, dtype, limits.sequences);
  return !has_layer(config.pattern, [&](const LayerTraits& t) { return !t.same_launches || (t.experts && !finds); }) && !has_relative_bias(config);
}

void check(const ModelConfig& config, const Layout& layout, const GeneratorCapacity& limits) {
  ensure(limits.sequences > 0 && limits.prompt > 0 && limits.samples > 0, "a generator needs at least one sequence, prompt token and sample");
  require(config.attention.causal, Exit::config,
          "model.attention.causal = false: a model with bidirectional attention cannot generate text; use it for scoring and tagging");
  require(config.objective->classes().empty() && !config.objective->gives_values(), Exit::config,
          "train.objective = {}: the model has no output for tokens and cannot generate text; use it with eval", config.objective->name());
  require(layout.expert == 1 && !layout.sequence && Index(layout.stages.size()) == layout.size(Axis::pipeline), Exit::config,
          "the layout {} cannot generate text: generate on a layout of the same ranks without expert parallelism, sequence parallelism and virtual "
          "stages",
          layout.text());
}

// A dry run finds neighbours of full length for every chunk.
RetrievalOptions dry_retrieval(const RetrievalConfig& c) {
  const std::vector<Index> lengths(std::size_t(c.neighbours), c.neighbour_length());
  return {[=](Index, std::span<const Token>) { return FoundNeighbours{{}, lengths, {}}; }};
}

// The model and its layout with the first two and the last layer of each type of each stage. A model with an encoder or with layers R,
// whose passes differ, keeps all layers.
std::pair<ModelConfig, Layout> with_few_layers(const ModelConfig& config, const Layout& layout) {
  std::pair<ModelConfig, Layout> few{config, layout};
  if (has_encoder(config) || reads_neighbours(config)) return few;
  few.first.pattern.clear();
  for (Span& stage : few.second.stages) {
    const Index first = few.first.layers();
    std::map<char, int> before;
    for (Index i = stage.first; i < stage.last; ++i) {
      const char symbol = config.pattern[std::size_t(i)];
      const std::size_t next = config.pattern.find(symbol, std::size_t(i) + 1);
      if (++before[symbol] <= 2 || next >= std::size_t(stage.last)) few.first.pattern += symbol;
    }
    stage = {first, few.first.layers()};
  }
  return few;
}

}  // namespace

// Shared memory cannot grow later, so that all prompt lengths are measured for it.
Generator::Generator(const ModelConfig& config, DType dtype, Grid& grid, const GeneratorCapacity& limits, const Arena* working)
    : Generator(std::unique_ptr<Generator>(new Generator(config, dtype, grid, limits, nullptr, working ? Lengths::all : Lengths::some)), working) {}

Generator::Generator(ModelState& trained, Grid& grid, const GeneratorCapacity& limits, const Arena* working)
    : Generator(std::unique_ptr<Generator>(
                    new Generator(trained.model(), trained.precision(), grid, limits, &trained, working ? Lengths::all : Lengths::some)),
                working) {}

Index Generator::working_bytes(ModelState& trained, Grid& grid, const GeneratorCapacity& limits) {
  return Generator(trained.model(), trained.precision(), grid, limits, &trained, Lengths::all).working_bytes().sum();
}

// Layers use scratch and activations in turn, so that a model with the first two and the last layer of each type of a stage has the
// same peaks. Passes of all lengths measure these. Weights and state are those of all layers, from one dry run of two passes.
GeneratorBytes Generator::bytes_of(const ModelConfig& config, DType dtype, Grid& grid, const GeneratorCapacity& limits) {
  const auto [few, layout] = with_few_layers(config, grid.layout());
  Grid grid_of_few = Grid::dry_run(layout, grid.position());
  const Generator small(few, dtype, grid_of_few, limits, nullptr, Lengths::all);
  if (few.pattern == config.pattern) return small.dry_bytes();
  Generator full(config, dtype, grid, limits, nullptr, Lengths::none);
  full.rehearse_prompt(limits.prompt);
  const Generator::Step last{0, full.capacity() - 1, 1, {}};
  full.uncounted([&] { full.decode(std::vector<Step>(std::size_t(limits.sequences), last), {}); });
  WorkingBytes working = full.working_bytes();
  const WorkingBytes peaks = small.working_bytes();
  working.scratch = std::max(working.scratch, peaks.scratch), working.slot = std::max(working.slot, peaks.slot);
  return {full.weights_->high_water(), working.sum(), full.elements()};
}

std::unique_ptr<Generator> Generator::dry_run(const ModelConfig& config, DType dtype, Grid& grid, const GeneratorCapacity& limits) {
  return std::unique_ptr<Generator>(new Generator(config, dtype, grid, limits, nullptr, Lengths::none));
}

GeneratorBytes Generator::dry_bytes() const { return {weights_->high_water(), working_bytes().sum(), elements()}; }

Index Generator::elements() const {
  Index sum = 0;
  for (const auto& p : stage_->parameters().all()) sum += p->size();
  return sum;
}

Generator::Generator(const ModelConfig& config, DType dtype, Grid& grid, const GeneratorCapacity& limits, ModelState* trained, Lengths lengths)
    : config_(config), encodes_(has_encoder(config) && !reads_images(config)), dtype_(dtype), grid_(grid), limits_(limits),
      retrieval_(dry_retrieval(config.retrieval)), chunks_(config.retrieval, slots(), retrieval_), trained_(trained) {
  check(config, grid.layout(), limits);
  make_weights(0, true);
  device_ = std::make_unique<Device>(true, 0);
  stage_->make_slots({{1, 0}}, true);
  make_state(Arena::dry_run(Memory::activations));
  if (lengths != Lengths::none) rehearse_all(lengths);
}

Generator::Generator(std::unique_ptr<Generator> rehearsal, const Arena* working)
    : config_(rehearsal->config_), encodes_(rehearsal->encodes_), dtype_(rehearsal->dtype_), grid_(rehearsal->grid_), limits_(rehearsal->limits_),
      chunks_(config_.retrieval, slots(), retrieval_), trained_(rehearsal->trained_), rehearsal_(std::move(rehearsal)) {
  repeats_ = DeviceGraph::possible() && repeats(config_, dtype_, limits_) && graphs_support(layer_communicators(grid_));
  make_weights(rehearsal_->weights_->high_water(), false);
  const WorkingBytes bytes = rehearsal_->working_bytes();
  require(!working || working->capacity() >= bytes.sum(), Exit::internal, "{} bytes of shared working memory, but the generator needs {}",
          working ? working->capacity() : 0, bytes.sum());
  const auto memory = [&](Memory category, Index offset, Index size) {
    return working ? working->part(category, offset, size) : Arena(category, size);
  };
  device_ = std::make_unique<Device>(false, memory(Memory::scratch, 0, bytes.scratch));
  if (working) stage_->make_slots({{1, bytes.slot}}, memory(Memory::activations, bytes.scratch, bytes.slot));
  else stage_->make_slots({{1, bytes.slot}}, false);
  make_state(memory(Memory::activations, bytes.scratch + bytes.slot, bytes.state));
}

void Generator::make_weights(Index bytes, bool dry_run) {
  stage_ = std::make_unique<Stage>(config_, dtype_, grid_, Trained(), RecomputeConfig(), limits_.factors);
  if (trained_) stage_->parameters().borrow(trained_->parameters());
  weights_ = std::make_unique<Arena>(Arena::make(Memory::weights, bytes, dry_run));
  none_ = std::make_unique<Arena>(Arena::make(Memory::gradients, 0, dry_run));
  stage_->allocate(*weights_, *none_, Gradients::none, std::max(capacity(), source_capacity()));
}

Index Generator::source_capacity() const {
  return encodes_ ? limits_.prompt : reads_neighbours(config_) ? config_.retrieval.neighbours * config_.retrieval.neighbour_length() : 0;
}

GivenText Generator::source_of(const EncoderInput& neighbours) const {
  if (neighbours.tokens.empty()) return {};
  return {{Index(neighbours.lengths.size()), config_.retrieval.neighbour_length(), 0, {}}, neighbours.tokens, neighbours.lengths};
}

void Generator::make_state(Arena memory) { state_ = std::make_unique<StateStore>(std::move(memory), slots(), capacity(), source_capacity()); }

Generator::WorkingBytes Generator::working_bytes() const {
  const auto aligned = [](Index bytes) { return (bytes + 255) / 256 * 256; };
  return {aligned(device_->scratch.high_water()), aligned(stage_->slots().front().bytes), aligned(state_->arena().high_water())};
}

// Measures all numbers of sequences, and the prompt lengths at which kernels change: GEMMs of few and of many rows need
// different scratch. Other lengths are measured when they occur.
void Generator::rehearse_all(Lengths lengths) {
  for (Index length = 1; length < limits_.prompt; length = lengths == Lengths::all ? length + 1 : length * 2) rehearse_prompt(length);
  rehearse_prompt(std::min(few_rows + 1, limits_.prompt));
  rehearse_prompt(limits_.prompt);
  const std::vector<Step> steps(limits_.sequences, Step{0, capacity() - 1, source_capacity(), {}});
  for (Index n = 1; n <= limits_.sequences; ++n) {
    chunks_.complete_all();
    uncounted([&] { decode(std::span(steps).first(n), {}); });
  }
}

void Generator::uncounted(const std::function<void()>& run) {
  std::vector<TrafficCount> before;
  grid_.visit([&](Communicator& c) { before.push_back(c.traffic()); });
  run();
  auto count = before.begin();
  grid_.visit([&](Communicator& c) { c.clear_traffic(), c.add(*count++); });
}

void Generator::rehearse_prompt(Index length) {
  if (!rehearsed_.insert(length).second) return;
  const std::vector<Token> prompt(length, 0);
  uncounted([&] { read(0, prompt, {}, std::vector<DrawPlace>(limits_.samples)); });
}

void Generator::accept_length(Index length) {
  if (!rehearsal_ || rehearsal_->rehearsed_.contains(length)) return;
  rehearsal_->rehearse_prompt(length);
  const WorkingBytes bytes = rehearsal_->working_bytes();
  if (bytes.scratch <= device_->scratch.capacity() && bytes.slot <= stage_->slots_capacity()) return;
  device_->fence();
  repeated_.clear();
  device_->scratch = Arena(Memory::scratch, bytes.scratch);
  stage_->make_slots({{1, bytes.slot}}, false);
}

void Generator::wait_for_weights() {
  if (!trained_) return;
  trained_->parameters();
  trained_->device().fence();
}

Index Generator::bytes() const { return weights_->capacity() + device_->scratch.capacity() + stage_->slots_capacity() + state_->arena().capacity(); }

std::vector<DrawnToken> Generator::read(Index slot, std::span<const Token> prompt, const Sampling& sampling, std::span<const DrawPlace> places,
                                        Index request) {
  const Index length = Index(prompt.size());
  accept_length(length);
  state_->forget(*device_, slot);
  if (reads_neighbours(config_)) {
    SequenceLayout layout{1, length, slot, {0}};
    const EncoderInput neighbours = chunks_.read(slot, request, prompt, layout.chunks);
    return advance(layout, prompt, source_of(neighbours), sampling, places);
  }
  if (!encodes_) return advance({1, length, slot, {0}}, prompt, {}, sampling, places);
  SequenceLayout begin{1, 1, slot, {0}};
  begin.source_lengths = {length};
  const Token start = config_.decoder_start_token_id;
  return advance(begin, {&start, 1}, {{1, length, slot, {0}}, prompt}, sampling, places);
}

std::vector<DrawnToken> Generator::decode(std::span<const Step> steps, const Sampling& sampling) {
  const Index all = Index(steps.size()), most = sampling.exact ? few_rows : all;
  std::vector<DrawnToken> drawn;
  for (Index first = 0; first < all; first += most) {
    SequenceLayout layout{std::min(most, all - first), 1, first, {}};
    std::vector<Token> tokens;
    std::vector<DrawPlace> places;
    std::vector<bool> idle;
    for (const Step& step : steps.subspan(first, layout.batch)) {
      idle.push_back(step.idle);
      layout.past.push_back(step.past), tokens.push_back(step.token), places.push_back(step.place);
      if (encodes_) layout.source_lengths.push_back(step.source);
    }
    EncoderInput neighbours;
    if (reads_neighbours(config_)) neighbours = chunks_.read(first, tokens, idle, layout.chunks);
    const auto block = advance(layout, tokens, source_of(neighbours), sampling, places);
    drawn.insert(drawn.end(), block.begin(), block.end());
  }
  return drawn;
}

std::vector<DrawnToken> Generator::advance(const SequenceLayout& sequences, std::span<const Token> tokens, const GivenText& source,
                                           const Sampling& sampling, std::span<const DrawPlace> places) {
  grid_.begin_task(sequences.seq_length == 1 ? "decode" : "prompt");  // shows the watchdog that this rank makes progress
  Communicator& pipeline = grid_.group(Axis::pipeline);
  const int rank = pipeline.rank();
  Scope scope(device_->scratch);
  std::optional<DeviceDraws> draws;
  if (stage_->last()) draws.emplace(*device_, accumulator_of(dtype_), grid_.tensor().size(), places);
  const Bundle input = stage_->begin(*device_, sequences, tokens, source);
  if (rank > 0)
    input.each([&](const BundleTensor&, const AnyTensor2& x) { pipeline.start_receive(*device_, x.flat(), rank - 1).device_wait(*device_); });
  const bool again = repeats_ && sequences.seq_length == 1 && sequences.first_sequence == 0 && Index(places.size()) == sequences.batch;
  const DeviceDraws* const here = draws ? &*draws : nullptr;
  const Made made = again ? replay_decode(sequences.batch, here, sampling) : compute(here, sampling);
  if (!stage_->last())
    made.output.each([&](const BundleTensor&, const AnyTensor2& x) { pipeline.start_send(*device_, x.flat(), rank + 1).device_wait(*device_); });
  std::vector<DrawnToken> drawn(places.size());
  if (draws) drawn = tokens_of(*draws, made.logits, sampling, places);
  if (!device_->dry_run()) broadcast_from_last_stage(drawn);
  return drawn;
}

Generator::Made Generator::compute(const DeviceDraws* draws, const Sampling& sampling) {
  Made made{stage_->forward(*device_, *state_)};
  if (!draws) return made;
  made.logits = stage_->logits(*device_, Stage::Rows::last);
  draws->enqueue(*device_, grid_.tensor().full(), stage_->head(), made.logits, sampling, config_.vocab_size);
  return made;
}

Generator::Made Generator::replay_decode(Index sequences, const DeviceDraws* draws, const Sampling& sampling) {
  Repeated& r = repeated_
                    .try_emplace({sequences, sampling.temperature, sampling.top_k, sampling.top_p, sampling.rollouts},
                                 Repeated{GraphReplay(layer_communicators(grid_))})
                    .first->second;
  const void *const tokens = stage_->slot(0, 0).text.tokens.data(), *const drawn = draws ? draws->address() : nullptr;
  r.work.run(*device_, [&] { r.made = compute(draws, sampling), r.tokens = tokens, r.draws = drawn; });
  ensure(tokens == r.tokens && drawn == r.draws, "the token ids of {} sequences are not where they were when the CUDA graph was captured", sequences);
  return r.made;
}

Index Generator::graphs() const {
  return std::count_if(repeated_.begin(), repeated_.end(), [](const auto& r) { return r.second.work.captured(); });
}

std::vector<DrawnToken> Generator::tokens_of(const DeviceDraws& draws, const AnyTensor2& logits, const Sampling& sampling,
                                             std::span<const DrawPlace> places) {
  std::vector<DrawnToken> drawn = draws.tokens(*device_, sampling, config_.vocab_size);
  if (device_->dry_run()) {
    gather_logits(rows(logits, 0, 1));  // so that memory is planned for it
    for (DrawnToken& d : drawn) d.token = 0;
    return drawn;
  }
  for (std::size_t i = 0; i < drawn.size(); ++i)
    if (drawn[i].token == uncertain_token)
      drawn[i] = sample_token(gather_logits(rows(logits, logits.rows > 1 ? Index(i) : 0, 1)), sampling, places[i].uniform);
  return drawn;
}

std::vector<double> Generator::gather_logits(const AnyTensor2& mine) {
  Scope scope(device_->scratch);
  AnyTensor all = mine.flat();
  if (const int ranks = grid_.tensor().size(); ranks > 1) {
    all = take(device_->scratch, mine.dtype, ranks * mine.columns);
    grid_.tensor().full().start_all_gather(*device_, mine.flat(), all).device_wait(*device_);
  }
  return with_type(all, [&](const auto& typed) {
    const auto host = to_host(*device_, typed);
    return std::vector<double>(host.begin(), host.begin() + config_.vocab_size);
  });
}

void Generator::broadcast_from_last_stage(std::vector<DrawnToken>& drawn) {
  std::vector<double> mine;
  for (const DrawnToken& d : drawn) mine.insert(mine.end(), {double(d.token), d.log_prob, d.kept});
  const std::vector<double> all = grid_.group(Axis::pipeline).gather(mine);
  const double* last = all.data() + (all.size() - mine.size());
  for (DrawnToken& d : drawn) d = {Token(last[0]), last[1], last[2]}, last += 3;
}

}  // namespace gyr
