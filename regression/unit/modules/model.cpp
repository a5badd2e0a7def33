// SPDX-License-Identifier: BSD-3-Clause
// The full model on one rank: no token influences earlier ones, full prefill equals token-by-token decoding, and
// gradients equal central differences. Chunk length, micro-batches and unlabelled tokens do not change the result.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "modules/cost/flops.hpp"
#include "modules/model/layer.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::model_suite {
namespace {

EngineConfig config_of(const ModelConfig& model, Index batch, Index seq_length, int micros = 1) {
  EngineConfig c;
  c.model = model;
  c.micro_batch_size = batch, c.seq_length = seq_length, c.micros = micros;
  return c;
}

using Values = std::map<std::string, std::vector<double>>;

struct Outcome {
  double loss;
  Values gradients;
};

template <class T>
Outcome outcome(Rig<T>& rig, const std::vector<MicroBatch>& batches) {
  const StepResult result = rig.engine.gradients([&](int i) { return batches[i]; }, int(batches.size()), 1);
  return {result.loss, gathered_gradients(rig.engine)};
}

// Largest difference between gradients of a weight, relative to the largest gradient of that weight.
double difference(const Values& a, const Values& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, x] : a) {
    const auto& y = b.at(name);
    double error = 0, size = 1e-300;
    for (std::size_t i = 0; i < x.size(); ++i) error = std::max(error, std::abs(x[i] - y[i])), size = std::max(size, std::abs(x[i]));
    worst = std::max(worst, error / size);
  }
  return worst;
}

double loss(Engine& engine, const MicroBatch& batch) {
  const auto [sum, tokens] = engine.evaluate([&](int) { return batch; }, 1);
  return sum / double(tokens);
}

// A model that reads tokens and keeps their state (KV cache and SSM state), with the weights of the test cases.
template <class T>
class Reader {
 public:
  Reader(const ModelConfig& model, Index sequences, Index capacity)
      : model_(model), sequences_(sequences), capacity_(capacity), stage_(model, dtype_of<T>(), single_rank_grid(model.layers())) {
    stage_.make_slots({{1, Index(1) << 24}}, false);
    stage_.allocate(weights_, none_, Gradients::none, capacity);
    for (const auto& p : stage_.parameters().all()) assign(device_, *p, WeightValues(p->weight));
    forget();
  }
  Index state_bytes() const { return state_->arena().high_water(); }
  Index slot_bytes() const { return stage_.slots().front().bytes; }
  void forget() { state_.emplace(Arena(Memory::activations, Index(1) << 22), sequences_, capacity_); }
  // Logits of every new token of every sequence, (sequences * seq_length, vocab_size).
  std::vector<std::vector<Acc<T>>> read(const std::vector<Token>& tokens, Index past) {
    return read(tokens, std::vector<Index>(std::size_t(sequences_), past));
  }
  // The same with the number of tokens that each sequence has already.
  std::vector<std::vector<Acc<T>>> read(const std::vector<Token>& tokens, const std::vector<Index>& past) {
    const Index seq_length = Index(tokens.size()) / sequences_;
    stage_.begin(device_, {sequences_, seq_length, 0, past}, tokens);
    stage_.forward(device_, *state_);
    const auto logits = stage_.logits(device_, Stage::Rows::all).as<Acc<T>>();
    std::vector<std::vector<Acc<T>>> rows;
    for (Index r = 0; r < Index(logits.extent(0)); ++r) rows.emplace_back(&logits(r, 0), &logits(r, 0) + model_.vocab_size);
    return rows;
  }

 private:
  ModelConfig model_;
  Index sequences_, capacity_;
  Device device_{false, Index(1) << 26};
  Arena weights_{Memory::weights, Index(1) << 22}, none_{Memory::gradients, 0};
  Stage stage_;
  std::optional<StateStore> state_;
};

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Case& c : cases()) names.push_back(c.name);
  return names;
}

class model : public ::testing::TestWithParam<std::string> {
 protected:
  const Case& c = named(GetParam());
  MicroBatch batch() const { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); }
};

INSTANTIATE_TEST_SUITE_P(T, model, ::testing::ValuesIn(all_names()), [](const auto& info) { return info.param; });

// Without a backward pass, only the activations of one layer are kept, however many layers there are.
TEST_P(model, inference_keeps_activations_of_one_layer) {
  const auto bytes = [&](const std::string& pattern) {
    ModelConfig model = c.model;
    model.pattern = pattern;
    Reader<float> reader(model, c.batch, c.seq_length);
    reader.read(batch().tokens, 0);
    return reader.slot_bytes();
  };
  EXPECT_EQ(bytes(c.model.pattern + c.model.pattern), bytes(c.model.pattern));
}

template <class T>
void expect_causal(const Case& c) {
  Reader<T> reader(c.model, c.batch, c.seq_length);
  const std::vector<Token> tokens = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size).tokens;
  const auto before = reader.read(tokens, 0);
  for (Index t = 0; t + 1 < c.seq_length; ++t) {
    std::vector<Token> second = tokens;
    for (Index b = 0; b < c.batch; ++b)
      for (Index later = t + 1; later < c.seq_length; ++later) {
        Token& token = second[b * c.seq_length + later];
        token = Token((token + 17) % c.model.vocab_size);
      }
    reader.forget();
    const auto after = reader.read(second, 0);
    for (Index b = 0; b < c.batch; ++b) {
      for (Index now = 0; now <= t; ++now) {
        const Index r = b * c.seq_length + now;
        ASSERT_EQ(std::memcmp(before[r].data(), after[r].data(), before[r].size() * sizeof(before[r][0])), 0)
            << "tokens after " << t << " changed the logits of token " << now;
      }
      EXPECT_NE(before[b * c.seq_length + t + 1], after[b * c.seq_length + t + 1]) << "the logits do not depend on their own token";
    }
  }
}

TEST_P(model, future_tokens_do_not_change_logits_in_fp64) { expect_causal<double>(c); }
TEST_P(model, future_tokens_do_not_change_logits_in_fp32) { expect_causal<float>(c); }

// The same for training, which keeps no state: later tokens do not change the loss of the first labels by one bit.
template <class T>
void expect_causal_loss(const Case& c) {
  Rig<T> rig(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  const MicroBatch all = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  for (Index t = 0; t + 1 < c.seq_length; ++t) {
    MicroBatch before = all;
    for (Index r = 0; r < c.batch * c.seq_length; ++r)
      if (r % c.seq_length > t) before.labels[r] = ignored_label;
    MicroBatch after = before;
    for (Index r = 0; r < c.batch * c.seq_length; ++r)
      if (r % c.seq_length > t) after.tokens[r] = Token((after.tokens[r] + 17) % c.model.vocab_size);
    ASSERT_EQ(loss(rig.engine, before), loss(rig.engine, after)) << "tokens after " << t << " changed the loss of earlier tokens";
    for (Index b = 0; b < c.batch; ++b) after.tokens[b * c.seq_length + t] = Token((after.tokens[b * c.seq_length + t] + 17) % c.model.vocab_size);
    EXPECT_NE(loss(rig.engine, before), loss(rig.engine, after)) << "the loss does not depend on token " << t;
  }
}

TEST_P(model, future_tokens_do_not_change_loss_in_fp64) { expect_causal_loss<double>(c); }
TEST_P(model, future_tokens_do_not_change_loss_in_fp32) { expect_causal_loss<float>(c); }

template <class T>
void expect_decoding_matches_prefill(const Case& c, double tolerance) {
  Reader<T> reader(c.model, c.batch, c.seq_length);
  const std::vector<Token> tokens = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size).tokens;
  const auto full = reader.read(tokens, 0);
  const auto expect_rows = [&](Index first, Index count, const std::string& how) {
    std::vector<Token> part;
    for (Index b = 0; b < c.batch; ++b)
      part.insert(part.end(), tokens.begin() + b * c.seq_length + first, tokens.begin() + b * c.seq_length + first + count);
    const auto rows = reader.read(part, first);
    double error = 0;
    for (Index b = 0; b < c.batch; ++b)
      for (Index t = 0; t < count; ++t)
        for (Index v = 0; v < c.model.vocab_size; ++v)
          error = std::max(error, std::abs(double(rows[b * count + t][v]) - double(full[b * c.seq_length + first + t][v])));
    EXPECT_LE(error, tolerance) << how << ", tokens from " << first;
  };
  reader.forget();
  for (Index t = 0; t < c.seq_length; ++t) expect_rows(t, 1, "token by token");
  for (const Index k : {Index(1), Index(2), c.seq_length / 2, c.seq_length - 1})
    for (const Index second : {Index(1), Index(2), (c.seq_length - k) / 2, c.seq_length - k}) {
      if (second < 1 || k + second > c.seq_length) continue;
      reader.forget();
      expect_rows(0, k, "prompt");
      expect_rows(k, second, "several tokens after a prompt");
      if (k + second < c.seq_length) expect_rows(k + second, c.seq_length - k - second, "several tokens after several tokens");
    }
}

TEST_P(model, incremental_decoding_matches_full_prefill_in_fp64) { expect_decoding_matches_prefill<double>(c, 1e-12); }
TEST_P(model, incremental_decoding_matches_full_prefill_in_fp32) { expect_decoding_matches_prefill<float>(c, 1e-5); }

// Windows of one token, of some tokens, of exactly all tokens and of more, in one layer and next to layers with full
// attention.
TEST(model, windowed_incremental_decoding_matches_full_prefill) {
  for (const Index window : {1, 2, 5, 8, 20, 21, 22, 100})
    for (const char* pattern : {"W", "W*-WM"}) {
      SCOPED_TRACE(fmt::format("{} window {}", pattern, window));
      Case c = named("T2");
      c.model.pattern = pattern, c.model.window.size = window;
      expect_decoding_matches_prefill<double>(c, 1e-12);
      expect_decoding_matches_prefill<float>(c, 1e-5);
    }
}

// Gated delta nets, attention with an output gate, and a gated shared expert.
Case gated_case() {
  Case c = named("T2");
  c.model.pattern = "GE*-G";
  c.model.attention.output_gate = c.model.attention.qk_norm = c.model.moe.shared_gate = true;
  c.model.moe.experts = 3, c.model.moe.intermediate_size = 12, c.model.moe.shared_intermediate_size = 10;
  return c;
}

TEST(model, future_tokens_do_not_change_gated_logits) {
  Case c = gated_case();
  c.model.pattern = "G*-G";  // rows of an expert layer are grouped with later ones, which may change their rounding
  expect_causal<double>(c);
  expect_causal<float>(c);
}
TEST(model, gated_incremental_decoding_matches_full_prefill) {
  expect_decoding_matches_prefill<double>(gated_case(), 1e-12);
  expect_decoding_matches_prefill<float>(gated_case(), 1e-5);
}

// The sequences of a batch may be continued from different lengths, by several tokens each. A layer of full attention
// may read its last tokens again.
TEST(model, sequences_of_different_lengths_continue_together) {
  Case c = named("T2");
  c.model.pattern = "*-*";
  ASSERT_GE(c.batch, 2);
  Reader<double> reader(c.model, c.batch, c.seq_length);
  const std::vector<Token> tokens = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size).tokens;
  const auto full = reader.read(tokens, 0);
  for (const Index count : {1, 2, 5}) {
    std::vector<Index> past;
    std::vector<Token> part;
    for (Index b = 0; b < c.batch; ++b) {
      past.push_back(c.seq_length - count - b);
      part.insert(part.end(), tokens.begin() + b * c.seq_length + past.back(), tokens.begin() + b * c.seq_length + past.back() + count);
    }
    reader.forget();
    reader.read(tokens, 0);
    const auto rows = reader.read(part, past);
    for (Index b = 0; b < c.batch; ++b)
      for (Index t = 0; t < count; ++t)
        for (Index v = 0; v < c.model.vocab_size; ++v)
          EXPECT_NEAR(rows[b * count + t][v], full[b * c.seq_length + past[b] + t][v], 1e-12) << "sequence " << b << ", token " << t;
  }
}

// A token changes exactly the logits of the tokens whose window contains it. All other logits keep their bits.
TEST(model, tokens_outside_the_window_do_not_change_logits) {
  Case c = named("T2");
  c.model.pattern = "W";
  for (const Index window : {1, 3, 8, 21}) {
    c.model.window.size = window;
    Reader<float> reader(c.model, c.batch, c.seq_length);
    const std::vector<Token> tokens = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size).tokens;
    const auto before = reader.read(tokens, 0);
    for (Index t = 0; t < c.seq_length; ++t) {
      std::vector<Token> second = tokens;
      for (Index b = 0; b < c.batch; ++b) second[b * c.seq_length + t] = Token((tokens[b * c.seq_length + t] + 17) % c.model.vocab_size);
      reader.forget();
      const auto after = reader.read(second, 0);
      for (Index r = 0; r < c.batch * c.seq_length; ++r) {
        const Index now = r % c.seq_length;
        EXPECT_EQ(before[r] != after[r], now >= t && now < t + window) << "window " << window << ", token " << t << " and the logits of " << now;
      }
    }
  }
}

TEST(model, window_over_all_tokens_equals_full_attention_bitwise) {
  Case c = named("T2");
  c.model.window = {c.seq_length, 0};
  const auto run = [&](const char* pattern) {
    c.model.pattern = pattern;
    Rig<float> rig(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
    return outcome(rig, {micro_batch(0, c.batch, c.seq_length, c.model.vocab_size)});
  };
  const Outcome window = run("W-W"), all = run("*-*");
  EXPECT_EQ(window.loss, all.loss);
  EXPECT_EQ(window.gradients, all.gradients);
  c.model.window.size -= 5;
  EXPECT_NE(run("W-W").loss, all.loss);
}

// KV cache of a sliding-window layer: window - 1 tokens per sequence, or the capacity if the window is not smaller.
TEST(model, kv_cache_holds_no_more_than_the_window) {
  const Case& c = named("T2");
  const auto bytes = [&](const char* pattern, Index window, Index capacity) {
    ModelConfig m = c.model;
    m.pattern = pattern, m.window.size = window;
    Reader<float> reader(m, 3, capacity);
    reader.read(std::vector<Token>(3, 5), 0);
    return reader.state_bytes();
  };
  const auto rounded = [](Index bytes) { return (bytes + 255) / 256 * 256; };
  const Index token = 3 * 2 * c.model.attention.num_kv_heads * c.model.attention.head_dim * Index(sizeof(float));
  EXPECT_EQ(bytes("*", 5, 30), rounded(30 * token));
  for (const Index window : {1, 2, 5, 29, 30, 31, 1000})
    EXPECT_EQ(bytes("W", window, 30), rounded((window < 30 ? window - 1 : 30) * token)) << window;
}

// Latent attention caches the normed key/value latent and the rotary key channels of a token, for all heads together.
TEST(model, latent_cache_does_not_depend_on_heads) {
  ModelConfig m = named("T2").model;
  m.pattern = "L";
  const auto rounded = [](Index bytes) { return (bytes + 255) / 256 * 256; };
  for (const Index heads : {1, 2, 16})
    for (const Index rank : {1, 5, 12}) {
      m.latent.num_heads = heads, m.latent.head_dim = 4, m.latent.rope_dim = 6, m.latent.v_head_dim = 5, m.latent.kv_rank = rank;
      Reader<float> reader(m, 3, 30);
      reader.read(std::vector<Token>(3, 5), 0);
      EXPECT_EQ(reader.state_bytes(), rounded(3 * 30 * (rank + 6) * Index(sizeof(float)))) << heads << " heads, latent of " << rank;
    }
}

// Queries multiplied by the expansion of the keys, over cached latents, give the logits of expanded keys and values.
TEST(model, latent_incremental_decoding_matches_full_prefill) {
  for (const Index q_rank : {0, 6})
    for (const bool neighbours : {true, false}) {
      Case c = named("T2");
      c.model.pattern = "L-L";
      LatentConfig& latent = c.model.latent;
      latent.num_heads = 3, latent.head_dim = 4, latent.rope_dim = 6, latent.v_head_dim = 5, latent.q_rank = q_rank, latent.kv_rank = 7;
      latent.rope_theta = 100, latent.neighbours = latent.bias = neighbours;
      expect_decoding_matches_prefill<double>(c, 1e-12);
      expect_decoding_matches_prefill<float>(c, 1e-5);
    }
}

// Three prompts of different lengths give the same tokens together, in smaller batches and one at a time. Each token is
// the most likely one after all tokens before it.
TEST_P(model, batched_generation_equals_one_prompt_at_a_time) {
  constexpr Index made = 6;
  const Sampling greedy{0, 0, 1, 1, made};
  std::vector<std::vector<Token>> prompts;
  for (const Index seq_length : {5, 1, 3}) prompts.push_back(micro_batch(Index(prompts.size()), 1, seq_length, c.model.vocab_size).tokens);
  const auto generate = [&](const std::vector<std::vector<Token>>& these, Index max_new_tokens = 3) {
    Generator generator(c.model, DType::f64, single_rank_grid(c.model.layers()), {max_new_tokens, 5, made});
    Device device(false, 0);
    for (const auto& p : generator.stage().parameters().all()) assign(device, *p, WeightValues(p->weight));
    return texts_of(generator, these, greedy);
  };
  const auto joint = generate(prompts);
  for (const Index max_new_tokens : {1, 2}) EXPECT_EQ(generate(prompts, max_new_tokens), joint);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(joint[i], generate({prompts[i]})[0]) << "prompt " << i;
    std::vector<Token> text = prompts[i];
    text.insert(text.end(), joint[i].begin(), joint[i].end());
    ASSERT_EQ(text.size(), prompts[i].size() + made);
    Reader<double> reader(c.model, 1, Index(text.size()));
    const auto logits = reader.read(text, 0);
    for (std::size_t t = prompts[i].size(); t < text.size(); ++t)
      EXPECT_EQ(std::max_element(logits[t - 1].begin(), logits[t - 1].end()) - logits[t - 1].begin(), text[t]) << "prompt " << i << " at " << t;
  }
}

TEST_P(model, result_does_not_depend_on_the_chunk_length) {
  std::optional<Outcome> first;
  for (const Index chunk : {1, 4, 8, 64}) {
    ModelConfig changed = c.model;
    changed.mamba.chunk_size = chunk;
    Rig<double> rig(config_of(changed, c.batch, c.seq_length), single_rank_grid(changed.layers()));
    const Outcome now = outcome(rig, {batch()});
    if (!first) first = now;
    EXPECT_NEAR(now.loss, first->loss, 1e-11 * first->loss) << chunk;
    EXPECT_LE(difference(first->gradients, now.gradients), 1e-11) << chunk;
  }
}

TEST_P(model, zero_lm_head_gives_loss_ln_vocab_size) {
  Rig<double> rig(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  rig.engine.initialise(7);
  EXPECT_GT(std::abs(loss(rig.engine, batch()) - std::log(double(c.model.vocab_size))), 1e-9);
  assign(rig.engine.device(), rig.engine.stage().head().weight(), [](Index) { return 0; });
  EXPECT_NEAR(loss(rig.engine, batch()), std::log(double(c.model.vocab_size)), 1e-14 * 8);
}

// Logits are computed in blocks of 256 rows. With several blocks, the last one not full, evaluation gives the loss of
// the training step and the mean loss of the single sequences.
TEST(model, loss_over_several_logit_blocks_matches_training) {
  const ModelConfig m = named("T2").model;
  const Index batch = 3, seq_length = 200;
  Rig<double> rig(config_of(m, batch, seq_length), single_rank_grid(m.layers())),
      single(config_of(m, 1, seq_length, 3), single_rank_grid(m.layers()));
  rig.engine.initialise(7), single.engine.initialise(7);
  const MicroBatch joint = micro_batch(0, batch, seq_length, m.vocab_size);
  const double all = loss(rig.engine, joint);
  double one_by_one = 0;
  for (Index i = 0; i < batch; ++i) one_by_one += loss(single.engine, micro_batch(i, 1, seq_length, m.vocab_size)) / double(batch);
  EXPECT_NEAR(all, one_by_one, 1e-12 * all);
  EXPECT_NEAR(all, outcome(rig, {joint}).loss, 1e-12 * all);
}

TEST_P(model, gradient_accumulation_matches_one_larger_micro_batch) {
  Rig<double> joint(config_of(c.model, 4, c.seq_length), single_rank_grid(c.model.layers()));
  Rig<double> separate(config_of(c.model, 1, c.seq_length, 4), single_rank_grid(c.model.layers()));
  std::vector<MicroBatch> singles;
  for (Index i = 0; i < 4; ++i) singles.push_back(micro_batch(i, 1, c.seq_length, c.model.vocab_size));
  const Outcome a = outcome(joint, {micro_batch(0, 4, c.seq_length, c.model.vocab_size)}), b = outcome(separate, singles);
  EXPECT_NEAR(a.loss, b.loss, 1e-12 * a.loss);
  EXPECT_LE(difference(a.gradients, b.gradients), 1e-12);
}

// The tokens of an unlabelled sequence change neither loss nor gradients. Both equal those of the labelled sequence
// only.
TEST_P(model, tokens_without_labels_do_not_affect_gradients) {
  Rig<double> two(config_of(c.model, 2, c.seq_length), single_rank_grid(c.model.layers()));
  Rig<double> one(config_of(c.model, 1, c.seq_length), single_rank_grid(c.model.layers()));
  MicroBatch half = micro_batch(0, 2, c.seq_length, c.model.vocab_size);
  std::fill(half.labels.begin() + c.seq_length, half.labels.end(), ignored_label);
  half.labels[0] = ignored_label;
  MicroBatch other = half;
  for (Index t = 0; t < c.seq_length; ++t) other.tokens[c.seq_length + t] = Token((half.tokens[c.seq_length + t] + 5) % c.model.vocab_size);
  MicroBatch first = micro_batch(0, 1, c.seq_length, c.model.vocab_size);
  first.labels[0] = ignored_label;
  const Outcome a = outcome(two, {half}), b = outcome(two, {other}), first_only = outcome(one, {first});
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_LE(difference(a.gradients, b.gradients), 1e-13);
  EXPECT_NEAR(a.loss, first_only.loss, 1e-12 * first_only.loss);
  EXPECT_LE(difference(first_only.gradients, a.gradients), 1e-12);
}

// Loss and gradients over documents of different lengths, weighted by labelled tokens. The documents of each length run
// in an engine made for that length.
template <class T>
Outcome outcome_by_length(const ModelConfig& config, const std::vector<MicroBatch>& all) {
  std::map<Index, std::vector<MicroBatch>> by_length;
  for (const MicroBatch& m : all) by_length[m.seq_length].push_back(m);
  Outcome sum{0, {}};
  double tokens = 0;
  for (const auto& [length, group] : by_length) {
    double labelled = 0;
    for (const MicroBatch& m : group) labelled += double(std::count_if(m.labels.begin(), m.labels.end(), [](Token t) { return t != ignored_label; }));
    if (labelled == 0) continue;
    Rig<T> rig(config_of(config, 1, length, int(group.size())), single_rank_grid(config.layers()));
    const Outcome part = outcome(rig, group);
    sum.loss += labelled * part.loss, tokens += labelled;
    for (const auto& [name, values] : part.gradients) {
      auto& to = sum.gradients[name];
      to.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) to[i] += labelled * values[i];
    }
  }
  sum.loss /= tokens;
  for (auto& [name, values] : sum.gradients)
    for (double& x : values) x /= tokens;
  return sum;
}

// Documents packed into sequences give the same loss and gradients as each document on its own, for all tested document
// lengths.
template <class T>
void expect_packing_matches_separate(const ModelConfig& config, Index batch, Index seq_length, double tolerance) {
  Rig<T> rig(config_of(config, batch, seq_length), single_rank_grid(config.layers()));
  for (const Lengths& lengths : document_splits(seq_length)) {
    const MicroBatch joint = packed(micro_batch(0, batch, seq_length, config.vocab_size), lengths);
    if (std::all_of(joint.labels.begin(), joint.labels.end(), [](Token label) { return label == ignored_label; })) continue;
    const Outcome a = outcome(rig, {joint}), b = outcome_by_length<T>(config, split_documents(joint));
    EXPECT_NEAR(a.loss, b.loss, tolerance * b.loss) << "packed documents, the first of length " << lengths.front() << " tokens";
    EXPECT_LE(difference(b.gradients, a.gradients), tolerance) << "packed documents, the first of length " << lengths.front() << " tokens";
  }
}

TEST_P(model, packed_documents_match_separate_documents) { expect_packing_matches_separate<double>(c.model, c.batch, 21, 1e-12); }

void expect_packing_in_every_layer_type(bool causal, NormPlacement placement) {
  for (const LayerType& type : layer_types()) {
    if (of_encoder_and_decoder(type)) continue;  // encoder-decoder layers do not support packed documents
    SCOPED_TRACE(type.name);
    ModelConfig config = named("T2").model;
    config.pattern = std::string(1, type.symbol);
    config.attention.causal = causal, config.norm_placement = placement;
    expect_packing_matches_separate<double>(config, 2, 21, 1e-12);
  }
}

TEST(model, packing_matches_separate_documents_in_every_layer_type) {
  expect_packing_in_every_layer_type(true, named("T2").model.norm_placement);
  expect_packing_matches_separate<float>(named("T2").model, 2, 21, 1e-4);
}
TEST(model, bidirectional_packing_matches_separate_documents) { expect_packing_in_every_layer_type(false, NormPlacement::after); }

// One document that fills its sequence gives the same bits as an unpacked sequence.
template <class T>
void expect_one_document_equals_unpacked(const Case& c) {
  Rig<T> rig(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  const MicroBatch plain = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  const Outcome a = outcome(rig, {plain}), b = outcome(rig, {packed(plain, {c.seq_length})});
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradients, b.gradients);
}

TEST_P(model, one_document_per_sequence_equals_unpacked_bitwise) {
  expect_one_document_equals_unpacked<double>(c);
  expect_one_document_equals_unpacked<float>(c);
  expect_one_document_equals_unpacked<bf16>(c);
}

// The loss of a document does not change by one bit when tokens of other documents change.
template <class T>
void expect_documents_separate(const Case& c) {
  constexpr Index seq_length = 21;
  Rig<T> rig(config_of(c.model, 1, seq_length), single_rank_grid(c.model.layers()));
  const MicroBatch all = packed(micro_batch(0, 1, seq_length, c.model.vocab_size), {3, 8, 2, 8});
  const auto extents = extents_of(all.positions, seq_length);
  const auto inside = [](const Extent& e, Index r) { return r >= e.first && r < e.first + e.count; };
  for (const Extent& one : extents)
    for (const Extent& other : extents) {
      MicroBatch before = all;
      for (Index r = 0; r < seq_length; ++r)
        if (!inside(one, r)) before.labels[r] = ignored_label;
      MicroBatch after = before;
      for (Index r = 0; r < seq_length; ++r)
        if (inside(other, r)) after.tokens[r] = Token((after.tokens[r] + 17) % c.model.vocab_size);
      EXPECT_EQ(loss(rig.engine, before) == loss(rig.engine, after), one.first != other.first)
          << "loss of the document at " << one.first << " when that at " << other.first << " changes";
    }
}

TEST_P(model, packed_documents_do_not_interact_in_fp64) { expect_documents_separate<double>(c); }
TEST_P(model, packed_documents_do_not_interact_in_fp32) { expect_documents_separate<float>(c); }

TEST(model, invalid_document_positions_are_refused) {
  const Case& c = named("T1");
  Rig<double> rig(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  MicroBatch bad = packed(micro_batch(0, c.batch, c.seq_length, c.model.vocab_size), {5, 16});
  bad.positions[3] = 7;
  EXPECT_THROW(loss(rig.engine, bad), Error);
  bad.positions.pop_back();
  EXPECT_THROW(loss(rig.engine, bad), Error);
}

// A dry run counts the FLOPs that a step with packed documents executes. Shorter documents need fewer.
TEST(model, dry_run_counts_flops_of_packed_documents) {
  const Case& c = named("T2");
  constexpr Index seq_length = 700;
  const EngineConfig config = config_of(c.model, 1, seq_length);
  Grid grid = Grid::dry_run(grid_layout(1, 1, 1, {{0, c.model.layers()}}), 0);
  Timers timers(engine_timer_names());
  Engine dry(config, grid, nullptr, timers);
  Rig<float> rig(config, single_rank_grid(c.model.layers()));
  const MicroBatch plain = micro_batch(0, 1, seq_length, c.model.vocab_size);
  double last = 0;
  for (const MicroBatch& batch : {packed(plain, Lengths(14, 50)), packed(plain, {350, 350}), plain}) {
    dry.device().clear_work(), rig.engine.device().clear_work();
    dry.gradients([&](int) { return batch; }, 1, 1), rig.engine.gradients([&](int) { return batch; }, 1, 1);
    EXPECT_EQ(dry.device().flops(), rig.engine.device().flops());
    EXPECT_GT(rig.engine.device().flops(), last);
    last = rig.engine.device().flops();
  }
  for (int i = 0; i < memory_categories; ++i)  // document positions need no more memory than planned
    EXPECT_EQ(rig.engine.measured().bytes(Memory(i)), rig.capacity.bytes(Memory(i))) << name_of(Memory(i));
}

TEST_P(model, bf16_loss_is_near_fp64_loss) {
  Rig<double> exact(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  Rig<bf16> rounded(config_of(c.model, c.batch, c.seq_length), single_rank_grid(c.model.layers()));
  const double a = loss(exact.engine, batch()), b = loss(rounded.engine, batch());
  EXPECT_NEAR(a, b, 2e-2);
  EXPECT_NE(a, b);
}

// Compares some elements of every weight's gradient with central differences of fourth order. The rounding of a loss of
// order one justifies the tolerance of 1e-10.
void expect_gradients_are_differences(const ModelConfig& config, Index batch, Index seq_length) {
  constexpr double h = 1e-3;
  constexpr Index samples = 11;
  Rig<double> rig(config_of(config, batch, seq_length), single_rank_grid(config.layers()));
  const MicroBatch tokens = micro_batch(0, batch, seq_length, config.vocab_size);
  const Values gradients = outcome(rig, {tokens}).gradients;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    const auto x = p->vector<double>();
    for (Index k = 0; k < std::min(samples, p->size()); ++k) {
      const Index i = k * (p->size() - 1) / std::max<Index>(1, std::min(samples, p->size()) - 1);
      const double at = x(i), gradient = gradients.at(p->weight.name)[i];
      const auto moved = [&](double by) {
        x(i) = at + by;
        return loss(rig.engine, tokens);
      };
      const double slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
      x(i) = at;
      EXPECT_NEAR(gradient, slope, 1e-6 * std::abs(slope) + 1e-10) << p->weight.name << " at " << i;
    }
  }
}

class gradient : public model {};

TEST_P(gradient, matches_central_differences) { expect_gradients_are_differences(c.model, c.batch, c.seq_length); }

INSTANTIATE_TEST_SUITE_P(model, gradient, ::testing::Values("T2", "T3", "T5", "T6", "T7"), [](const auto& info) { return info.param; });

// Every layer type, once and twice in a row, with all biases.
TEST(model, gradient_of_every_layer_type_matches_central_differences) {
  ASSERT_FALSE(layer_types().empty());
  for (const LayerType& type : layer_types()) {
    if (of_encoder_and_decoder(type)) continue;  // encoder-decoder layers have tests of their own
    SCOPED_TRACE(type.name);
    ModelConfig config = named("T2").model;
    config.attention.bias = config.mlp.bias = config.mamba.in_bias = config.mamba.out_bias = config.short_conv.bias = true;
    config.pattern = std::string(1, type.symbol);
    expect_gradients_are_differences(config, 2, 11);
    config.pattern = std::string(2, type.symbol);
    expect_gradients_are_differences(config, 1, 9);
  }
}

TEST(model, gradient_of_gates_matches_central_differences) {
  expect_gradients_are_differences(gated_case().model, 2, 9);
  expect_packing_matches_separate<double>(gated_case().model, 2, 21, 1e-12);
}

// Soft caps of attention scores and of logits, separately and together.
TEST(model, gradient_of_soft_caps_matches_central_differences) {
  for (const int which : {1, 2, 3}) {
    SCOPED_TRACE(which);
    ModelConfig config = named("T2").model;
    config.pattern = "PW-";
    if (which & 1) config.attention.soft_cap = 0.4;
    if (which & 2) config.lm_head_soft_cap = 0.9;
    expect_gradients_are_differences(config, 2, 9);
  }
}

TEST(model, soft_capped_incremental_decoding_matches_full_prefill) {
  Case c = named("T2");
  c.model.pattern = "PW*", c.model.window.size = 5, c.model.attention.soft_cap = 0.4, c.model.lm_head_soft_cap = 0.9;
  expect_decoding_matches_prefill<double>(c, 1e-12);
}

TEST(model, logits_follow_their_soft_cap) {
  ModelConfig m = named("T2").model;
  const std::vector<Token> tokens = micro_batch(0, 1, 9, m.vocab_size).tokens;
  m.lm_head_multiplier *= 9;
  const auto plain = Reader<double>(m, 1, 9).read(tokens, 0);
  m.lm_head_soft_cap = 2;
  const auto capped = Reader<double>(m, 1, 9).read(tokens, 0);
  for (std::size_t r = 0; r < plain.size(); ++r)
    for (Index v = 0; v < m.vocab_size; ++v) EXPECT_NEAR(capped[r][v], 2 * std::tanh(plain[r][v] / 2), 1e-13);
}

// Norms before and after each branch, norm weights stored with an offset (norm_offset), and norms over heads (qk_norm),
// separately and together. Norms of outputs only, and over all heads (OLMo 2).
TEST(model, gradient_of_norms_matches_central_differences) {
  for (const int which : {1, 2, 3, 4, 8, 12}) {
    SCOPED_TRACE(which);
    ModelConfig config = named("T2").model;
    config.pattern = "PW-B", config.attention.qk_norm = true;
    if (which & 1) config.norm_placement = NormPlacement::both;
    if (which & 2) config.norm_offset = 1;
    if (which & 4) config.norm_placement = NormPlacement::output;
    config.attention.qk_norm_all_heads = which & 8;
    expect_gradients_are_differences(config, 2, 9);
  }
}

// Storing norm weights minus one (norm_offset = 1) changes neither loss nor gradients.
TEST(model, norm_offset_does_not_change_loss_or_gradients) {
  const Case& c = named("T2");
  const auto run = [&](double offset) {
    ModelConfig m = c.model;
    m.norm_offset = offset, m.norm_placement = NormPlacement::both, m.attention.qk_norm = true;
    Rig<double> rig(config_of(m, c.batch, c.seq_length), single_rank_grid(m.layers()));
    for (const auto& p : rig.engine.stage().parameters().all()) {
      const std::string& name = p->weight.name;
      const bool norm = name.find("layernorm") != std::string::npos || name.find("q_norm") != std::string::npos || name.ends_with("k_norm.weight");
      const WeightValues values(p->weight);
      assign(rig.engine.device(), *p, [&](Index i) { return norm ? 1 + 0.3 * values(i) - offset : values(i); });
    }
    return outcome(rig, {micro_batch(0, c.batch, c.seq_length, c.model.vocab_size)});
  };
  const Outcome full = run(0), less_one = run(1);
  EXPECT_NEAR(full.loss, less_one.loss, 1e-13);
  EXPECT_LE(difference(full.gradients, less_one.gradients), 1e-12);
}

// Published model shapes with the parameter counts that their makers state, and forward FLOPs per token at 4096 tokens.
struct Published {
  const char* name;
  Index layers, hidden_size, num_heads, num_kv_heads, head_dim, intermediate_size, ssm_num_heads, ssm_head_dim, state_size, num_groups;
  bool norm;
  Index vocab_size;
  bool tie_word_embeddings;
  Index parameters;
  double flops;  // to three digits; 0: unknown
};
constexpr Published published[] = {
    {"0.5B", 36, 1024, 8, 2, 64, 2048, 24, 64, 128, 1, false, 32784, false, 521411104, 1.17e9},
    {"1.5B", 24, 2048, 8, 2, 128, 4608, 48, 64, 256, 1, true, 65536, false, 1554859392, 3.14e9},
    {"1.5B-Deep", 66, 1280, 6, 2, 128, 3072, 24, 64, 256, 1, true, 65536, false, 1554872208, 3.49e9},
    {"3B", 32, 2560, 10, 2, 128, 6144, 32, 128, 256, 1, true, 65536, false, 3149387264, 6.47e9},
    {"7B", 44, 3072, 12, 2, 128, 12288, 24, 128, 256, 1, true, 130048, false, 7585648736, 1.51e10},
    {"34B", 72, 5120, 20, 4, 128, 21504, 32, 128, 256, 2, true, 261120, false, 33642516224, 6.65e10},
    {"Tiny-90M", 24, 512, 8, 2, 64, 768, 24, 32, 64, 1, false, 32768, true, 91131072, 0},
    {"73M", 12, 512, 4, 2, 64, 1024, 12, 64, 128, 1, false, 32768, false, 73024432, 0},  // not published: the model of the benchmark deck
};

ModelConfig model_of(const Published& p) {
  ModelConfig m;
  m.pattern = std::string(p.layers, 'P');
  m.vocab_size = p.vocab_size, m.hidden_size = p.hidden_size, m.tie_word_embeddings = p.tie_word_embeddings;
  m.attention.num_heads = p.num_heads, m.attention.num_kv_heads = p.num_kv_heads, m.attention.head_dim = p.head_dim;
  m.mamba.num_heads = p.ssm_num_heads, m.mamba.head_dim = p.ssm_head_dim, m.mamba.num_groups = p.num_groups, m.mamba.state_size = p.state_size;
  m.mamba.norm = p.norm ? SsmNorm::gate_first : SsmNorm::none;
  m.mlp.intermediate_size = p.intermediate_size;
  return m;
}

TEST(model, published_shapes_have_their_published_parameter_counts) {
  for (const Published& p : published) EXPECT_EQ(parameter_count(model_of(p)), p.parameters) << p.name;
}

// Mixtral-8x7B: 32 layers of attention (32 query and 8 key heads), a router of 8 experts, of which a token uses two.
TEST(model, active_parameters_count_the_chosen_experts) {
  Deck deck = Deck::read(GYR_SOURCE_DIR "/input/mixtral-8x7b.yaml");
  const ModelConfig model = read_run_config(deck).model;
  const Index d = 4096, attention = 2 * d * d + 2 * d * (d / 4), expert = 3 * d * 14336;
  EXPECT_EQ(active_parameter_count(model), 32 * (attention + 8 * d + 2 * expert + 2 * d) + 2 * 32000 * d + d);
  EXPECT_EQ(parameter_count(model) - active_parameter_count(model), 32 * 6 * expert);
  EXPECT_EQ(active_parameter_count(model_of(published[0])), published[0].parameters);
}

TEST(model, flops_match_the_closed_form) {
  const double T = 4096, Q = 128, K = 4;
  for (const Published& p : published) {
    const double d = p.hidden_size, q = p.num_heads * p.head_dim, k = p.num_kv_heads * p.head_dim, H = p.ssm_num_heads, E = H * p.ssm_head_dim;
    const double N = p.state_size, GN = p.num_groups * N, V = p.vocab_size;
    const double gemms = 2 * d * (q + 2 * k) + 2 * q * d + 2 * d * (2 * E + 2 * GN + H) + 2 * E * d + 6 * d * p.intermediate_size;
    const double scores = 2 * T * q, convolution = 2 * K * (E + 2 * GN);
    const TokenFlops flops = forward_flops(model_of(p), Index(T));
    EXPECT_EQ(flops.executed, p.layers * (gemms + scores + convolution + 2 * Q * (GN + E) + 4 * E * N) + 2 * d * V) << p.name;
    EXPECT_EQ(flops.minimal, p.layers * (gemms + scores + convolution + 5 * E * N) + 2 * d * V) << p.name;
    EXPECT_EQ(flops.megatron, p.layers * (gemms + 2 * scores + 7 * E * N) + 2 * d * V) << p.name;
    EXPECT_TRUE(p.flops == 0 || std::abs(flops.executed / p.flops - 1) < 0.005) << p.name << " " << flops.executed;
    const StageCosts costs = stage_costs(model_of(p), Index(T));
    EXPECT_EQ(costs.layers, std::vector<double>(p.layers, (flops.executed - costs.head) / double(p.layers))) << p.name;
  }
}

// Average number of visible keys per token: half of the sequence with full causal attention, or the window size except
// for the first tokens.
TEST(model, flops_of_window_attention_count_visible_keys) {
  ModelConfig m = named("T2").model;
  const auto attention = [&](const char* pattern, Index window, Index seq_length) {
    ModelConfig other = m;
    other.pattern = pattern, other.window.size = window;
    const double gemms = forward_flops(other, 0).minimal;
    return forward_flops(other, seq_length).minimal - gemms;
  };
  const double each = 4.0 * double(m.attention.num_heads * m.attention.head_dim);
  EXPECT_EQ(attention("W", 4096, 4096), attention("*", 1, 4096));
  EXPECT_EQ(attention("W", 8192, 4096), attention("*", 1, 4096));
  EXPECT_NEAR(attention("W", 512, 4096), each * (4096 * 512 - 512 * 512 / 2) / 4096, 1e-6);
  const double causal = attention("W", 512, 4096);
  m.attention.causal = false;
  EXPECT_EQ(attention("W", 512, 4096), 2 * causal);
}

std::string deck_name(const Published& p) {
  std::string name = "falcon-h1-" + std::string(p.name) + ".yaml";
  std::transform(name.begin() + 10, name.end(), name.begin() + 10, [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Width rule of the published multipliers: those of the 1.5B-Deep model, scaled by the ratios of the widths that they
// act on.
void expect_multipliers_follow_the_width_rule(const ModelConfig& m, const std::string& deck) {
  const double d = 1280 / double(m.hidden_size), attention = 768 / double(m.attention.num_heads * m.attention.head_dim);
  const double inner = 1536 / double(m.mamba.inner()), f = 3072 / double(m.mlp.intermediate_size), n = 256 / double(m.mamba.state_size);
  const auto near = [&](double value, double rule, const char* what) { EXPECT_NEAR(value / rule, 1, 1e-12) << deck << " " << what; };
  near(m.embedding_multiplier, std::sqrt(32.0), "embedding");
  near(m.lm_head_multiplier, d / 32, "head");
  near(m.attention.in_multiplier, 1, "attention in");
  near(m.attention.key_multiplier, std::exp2(-2.5) * d * d * std::sqrt(128 / double(m.attention.head_dim)), "key");
  near(m.attention.out_multiplier, 0.5 * d * attention, "attention out");
  near(m.mamba.in_multiplier, d, "SSM in");
  near(m.mamba.out_multiplier, std::sqrt(2.0) / 6 * inner, "SSM out");
  near(m.mlp.gate_multiplier, std::sqrt(0.5) * d, "gate");
  near(m.mlp.down_multiplier, 0.3125 * d * f, "down");
  const double sections[] = {std::exp2(-1.5), 0.25, std::exp2(-2.5) * n, 0.5, std::exp2(-1.5)};
  for (int i = 0; i < 5; ++i) near(m.mamba.multipliers[i], sections[i], "z, x, B, C, dt");
}

// Every example deck must be valid. Decks with the name of a published model have its parameter count, FLOPs and
// multipliers.
TEST(model, example_decks_match_the_model_they_name) {
  int decks = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(GYR_SOURCE_DIR) / "input")) {
    const std::string name = file.path().filename();
    if (file.path().extension() != ".yaml") continue;
    SCOPED_TRACE(name);
    Deck deck = Deck::read(file.path());
    const ModelConfig m = read_run_config(deck).model;
    deck.finish();
    decks += 1;
    if (!name.starts_with("falcon-h1-")) continue;
    const auto p = std::find_if(std::begin(published), std::end(published), [&](const Published& one) { return deck_name(one) == name; });
    ASSERT_NE(p, std::end(published)) << "no published model has this name";
    EXPECT_EQ(parameter_count(m), p->parameters);
    EXPECT_EQ(forward_flops(m, 4096).executed, forward_flops(model_of(*p), 4096).executed);
    EXPECT_EQ(m.mamba.norm, model_of(*p).mamba.norm);
    EXPECT_EQ(m.attention.rope_theta, 1e11);
    EXPECT_EQ(m.rms_norm_eps, 1e-5);
    if (!m.tie_word_embeddings) expect_multipliers_follow_the_width_rule(m, name);
  }
  EXPECT_GT(decks, 0);
}

}  // namespace
}  // namespace gyr::testing::model_suite
