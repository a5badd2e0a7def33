// SPDX-License-Identifier: BSD-3-Clause
// Encoder-decoder models: gradients, visibility of tokens, span corruption and token-by-token generation. Equality with
// T5 is tested in grid/huggingface.cpp.
#include <random>

#include "modules/cost/flops.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "regression/support/byte_front.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/encoder_decoder.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::encoder_decoder_suite {

namespace {

constexpr Index sequences = 2, length = 9, source_length = 14;

ModelConfig model_of(const std::string& pattern, Index buckets) {
  ModelConfig m = encoder_and_decoder(pattern, buckets);
  m.objective = span_corruption();
  return m;
}

EngineConfig config_of(const ModelConfig& m) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = sequences, c.seq_length = length, c.source_length = source_length;
  return c;
}

MicroBatch batch_of(const ModelConfig& m, const std::vector<Index>& lengths = {}) {
  MicroBatch batch = micro_batch(0, sequences, length, m.vocab_size);
  batch.source.tokens = micro_batch(7, sequences, source_length, m.vocab_size).tokens, batch.source.length = source_length;
  batch.source.lengths = lengths;
  for (Token& label : batch.labels)
    if (label == ignored_label) label = 1;
  return batch;
}

std::vector<RowScore> scores_of(Engine& engine, const MicroBatch& batch) {
  return engine.scores([&](int) { return batch; }, 1).at(0).rows;
}

// Samples of random tokens. The last ids of the vocabulary are left to the sentinels.
struct Sampled {
  std::vector<Token> tokens;
  std::vector<std::uint8_t> learned;
  SampleView view(Index number, Index vocabulary) const { return {tokens, learned, {}, number, vocabulary}; }
};
Sampled sample_of(std::mt19937_64& random, Index tokens, Index vocabulary) {
  Sampled s;
  for (Index t = 0; t <= tokens; ++t)
    s.tokens.push_back(Token(2 + random() % std::uint64_t(vocabulary - 100))), s.learned.push_back(random() % 8 > 0);
  return s;
}

}  // namespace

TEST(encoder_decoder, gradients_equal_finite_differences) {
  for (const char* pattern : {"*->*X-", "B>X", "*->M*X-*X-"})
    for (const Index buckets : {0, 8})
      for (const std::vector<Index>& lengths : {std::vector<Index>{}, {14, 5}}) {
        SCOPED_TRACE(fmt::format("{}, {} buckets, {}", pattern, buckets, lengths.empty() ? "full encoder inputs" : "padded"));
        const ModelConfig m = model_of(pattern, buckets);
        Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
        set_weights(rig.engine);
        expect_differences_of(rig.engine, batch_of(m, lengths));
      }
}

// Every decoder row sees all of its encoder input and the decoder tokens before it. Padding and other sequences change
// no bit of its loss.
TEST(encoder_decoder, decoder_row_sees_encoder_input_and_earlier_tokens) {
  for (const Index buckets : {0, 8}) {
    const ModelConfig m = model_of("*->*X-", buckets);
    Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
    set_weights(rig.engine);
    const MicroBatch batch = batch_of(m, {14, 5});
    const auto before = scores_of(rig.engine, batch);
    for (Index changed = 0; changed < sequences * source_length; ++changed) {
      MicroBatch other = batch;
      other.source.tokens[changed] = (other.source.tokens[changed] + 1) % Token(m.vocab_size);
      const auto after = scores_of(rig.engine, other);
      const bool padding = changed >= source_length + 5;
      for (Index r = 0; r < sequences * length; ++r)
        EXPECT_EQ(before[r].loss != after[r].loss, !padding && r / length == changed / source_length)
            << "token " << changed << " of the encoder input, row " << r;
    }
    for (Index changed = 0; changed < sequences * length; ++changed) {
      MicroBatch other = batch;
      other.tokens[changed] = (other.tokens[changed] + 1) % Token(m.vocab_size);
      const auto after = scores_of(rig.engine, other);
      for (Index r = 0; r < sequences * length; ++r)
        EXPECT_EQ(before[r].loss != after[r].loss, r >= changed && r / length == changed / length)
            << "token " << changed << " of the decoder input, row " << r;
    }
  }
}

// Prompts of different lengths, generated all together or two at a time, give the same tokens as each prompt by itself.
TEST(encoder_decoder, batched_generation_equals_generation_of_single_prompts) {
  for (const Index buckets : {0, 8}) {
    const ModelConfig m = model_of("*->*X-*X-", buckets);
    std::mt19937_64 random(seed_of_run());
    std::vector<std::vector<Token>> prompts;
    for (const std::size_t n : {5, 1, 9, 3, 9})
      for (prompts.emplace_back(); prompts.back().size() < n;) prompts.back().push_back(Token(random() % std::uint64_t(m.vocab_size)));
    const auto made = [&](const std::vector<std::vector<Token>>& asked, Index batch_size) {
      Generator generator(m, DType::f64, single_rank_grid(m.layers()), {batch_size, 9, 12});
      Device dev(false, 0);
      for (const auto& p : generator.stage().parameters().all()) initialise(dev, *p, 5);
      return texts_of(generator, asked, {0, 0, 1, 1, 12}, [](Index, Token token) { return token == 11; });
    };
    std::vector<std::vector<Token>> single_prompt_results;
    for (const auto& prompt : prompts) single_prompt_results.push_back(made({prompt}, 1)[0]);
    EXPECT_EQ(made(prompts, 2), single_prompt_results);
    EXPECT_EQ(made(prompts, 5), single_prompt_results);
  }
}

// Bytes of patches, different in every row, for inputs of `rows` rows.
MicroBatch with_pixels(MicroBatch batch, Index rows, const std::vector<Index>& lengths = {}) {
  batch.source = {rows, {}, lengths};
  for (Index i = 0; i < sequences * rows * bytes_of_a_row; ++i) batch.source.values[pixels].push_back(std::uint8_t(i * i * 37 + 11 * i));
  return batch;
}

ModelConfig model_of_patches(const std::string& pattern) {
  ModelConfig m = model_of(pattern, 8);
  m.encoder_front = "bytes";
  return m;
}

// A front of the tests: its weight is trained, its bytes are read by their own sequence only, and its work is counted.
TEST(encoder_decoder, registered_front_reads_bytes_and_learns) {
  const ModelConfig m = model_of_patches("*->*X-");
  Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
  set_weights(rig.engine);
  const MicroBatch batch = with_pixels(batch_of(m), source_length, {14, 5});
  expect_differences_of(rig.engine, batch);
  const auto before = scores_of(rig.engine, batch);
  for (const Index changed : {Index(3), (source_length + 4) * bytes_of_a_row, (source_length + 5) * bytes_of_a_row}) {
    MicroBatch other = batch;
    other.source.values[pixels][std::size_t(changed)] ^= 0xff;
    const auto after = scores_of(rig.engine, other);
    const Index row = changed / bytes_of_a_row;
    const bool padding = row >= source_length + 5;
    for (Index r = 0; r < sequences * length; ++r)
      EXPECT_EQ(before[r].loss != after[r].loss, !padding && r / length == row / source_length) << changed << " " << r;
  }
  ModelConfig tokens = m;
  tokens.encoder_front = "tokens";
  const TextLengths lengths(length, source_length);
  const double front = byte_flops(m) * double(source_length) / double(length);
  EXPECT_NEAR(forward_flops(m, lengths).minimal - forward_flops(tokens, lengths).minimal, front, 1e-9);
  EXPECT_NEAR(training_flops(m, lengths, {}) - training_flops(tokens, lengths, {}), 3 * front, 1e-9);
  EXPECT_NEAR(stage_costs(m, lengths).embedding - stage_costs(tokens, lengths).embedding, front, 1e-9);
  EXPECT_EQ(parameter_count(m) - parameter_count(tokens), m.hidden_size * bytes_of_a_row);
}

// An encoder with a width, heads, norm and MLP of its own, in front of a decoder.
ModelConfig model_of_two_widths(const std::string& pattern) {
  ModelConfig m = model_of(pattern, 0);
  m.encoder = StackConfig{.hidden_size = 12, .norm = NormType::layer, .rms_norm_eps = 1e-3, .attention = m.attention, .mlp = m.mlp};
  m.encoder->attention.num_heads = 3, m.encoder->attention.num_kv_heads = 1, m.encoder->attention.head_dim = 6;
  m.encoder->mlp.intermediate_size = 10, m.encoder->mlp.gated = false, m.encoder->mlp.activation = Activation::gelu;
  return m;
}

TEST(encoder_decoder, encoder_of_own_configuration_matches_differences) {
  for (const char* pattern : {"*->*X-", "B*>MX-*X"})
    for (const bool bytes : {false, true}) {
      ModelConfig m = model_of_two_widths(pattern);
      if (bytes) m.encoder_front = "bytes";
      check(m);
      Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
      set_weights(rig.engine);
      expect_differences_of(rig.engine, bytes ? with_pixels(batch_of(m), source_length, {14, 5}) : batch_of(m, {14, 5}));
    }
  std::map<std::string, Shape> shapes;
  for (const Weight& w : declared_weights(model_of_two_widths("*->*X-"))) shapes[w.name] = w.shape;
  const ModelConfig m = model_of_two_widths("*->*X-");
  EXPECT_EQ(shapes.at("model.encoder.embed_tokens.weight"), (Shape{m.vocab_size, 12}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_proj.weight"), (Shape{18, 12}));
  EXPECT_EQ(shapes.at("model.layers.1.feed_forward.up_proj.weight"), (Shape{10, 12}));
  EXPECT_EQ(shapes.at("model.layers.2.norm.bias"), (Shape{12}));
  EXPECT_EQ(shapes.at("model.layers.4.cross_attn.k_proj.weight"), (Shape{m.attention.num_kv_heads * m.attention.head_dim, 12}));
  EXPECT_EQ(shapes.at("model.layers.4.cross_attn.q_proj.weight"), (Shape{m.attention.num_heads * m.attention.head_dim, m.hidden_size}));
}

TEST(encoder_decoder, contradictory_stacks_are_refused) {
  ModelConfig m = model_of_two_widths("*->*X-");
  m.attention.relative_bias = m.encoder->attention.relative_bias = {8, 7};
  EXPECT_NE(std::string(error_of([&] { check(m); }).what()).find("encoder and decoder need as many buckets (8 and 8) and heads (3 and"),
            std::string::npos);
  m = model_of_two_widths("*->*X-");
  m.encoder->attention.num_kv_heads = 2;
  EXPECT_EQ(error_of([&] { check(m); }).code, Exit::config);
}

TEST(encoder_decoder, unknown_front_is_refused_by_name) {
  ModelConfig m = model_of_patches("*->*X-");
  m.encoder_front = "frames";
  EXPECT_EQ(std::string(error_of([&] { parameter_count(m); }).what()),
            "the encoder has no front named frames; the fronts are bytes, patches, tokens");
}

// Micro-batches of one step with inputs of different counts: each takes the smallest capacity that holds its input. Loss
// and gradients are those of the largest capacity, and the memory is that of the plan.
TEST(encoder_decoder, inputs_take_the_smallest_planned_capacity) {
  for (const bool bytes : {false, true}) {
    const ModelConfig m = bytes ? model_of_patches("*->*X-") : model_of("*->*X-", 8);
    const auto batch = [&](int micro) {
      const Index rows = std::vector<Index>{5, 14, 3, 6}[std::size_t(micro)];
      if (bytes) return with_pixels(batch_of(m), rows);
      MicroBatch b = batch_of(m);
      b.source = {rows, micro_batch(7 + micro, sequences, rows, m.vocab_size).tokens, {}};
      return b;
    };
    const auto step = [&](const std::vector<Index>& smaller) {
      EngineConfig c = config_of(m);
      c.micros = 4, c.smaller_sources = smaller;
      Rig<double> rig(c, single_rank_grid(m.layers()));
      set_weights(rig.engine);
      const StepResult result = rig.engine.gradients(batch, 4, 1);
      for (int i = 0; i < memory_categories; ++i) EXPECT_LE(rig.engine.measured().bytes(Memory(i)), rig.capacity.bytes(Memory(i)));
      const Error error = error_of([&] {
        MicroBatch longer = batch(0);
        longer.source.length = 15;
        rig.engine.gradients([&](int) { return longer; }, 4, 1);
      });
      EXPECT_EQ(error.code, Exit::data);
      EXPECT_NE(std::string(error.what()).find("15 tokens in an encoder input, but memory is planned for at most 14"), std::string::npos)
          << error.what();
      return std::tuple(result.loss, result.gradient_norm, rig.capacity.total());
    };
    const auto [loss, norm, total] = step({});
    const auto [loss_of_rooms, norm_of_rooms, total_of_rooms] = step({3, 6});
    EXPECT_NEAR(loss_of_rooms, loss, 1e-12);
    EXPECT_NEAR(norm_of_rooms, norm, 1e-12);
    EXPECT_EQ(total_of_rooms, total);
  }
}

// Encoder input and decoder input combine to the original sample, and their lengths equal the predicted ones. The other
// checks follow from the definition of span corruption.
TEST(encoder_decoder, corrupted_spans_move_from_input_to_target) {
  std::mt19937_64 random(seed_of_run());
  for (int trial = 0; trial < 200; ++trial) {
    SpanCorruption c;
    c.fraction = 0.05 + 0.9 * double(random() % 1000) / 1000, c.mean_length = 1 + double(random() % 5000) / 1000, c.seed = random() % 5;
    const Index tokens = 2 + Index(random() % 80), vocabulary = 300, number = Index(random() % 1000);
    const Sampled sample = sample_of(random, tokens, vocabulary);
    const Labelled l = corrupt_spans(c, sample.view(number, vocabulary), 0);
    const SpanCounts count(c, tokens);
    EXPECT_EQ(count.corrupted, std::clamp<Index>(std::llround(double(tokens) * c.fraction), 1, tokens - 1));
    EXPECT_EQ(Index(l.tokens.size()), count.lengths(tokens).text);
    EXPECT_EQ(Index(l.labels.size()), count.lengths(tokens).text);
    EXPECT_EQ(Index(l.source.size()), count.lengths(tokens).source);
    EXPECT_EQ(l.source.back(), c.end_token);
    EXPECT_EQ(l.tokens[0], 0);

    std::vector<Token> text(l.tokens.begin() + 1, l.tokens.end()), decoder_input;  // decoder input after the start token; it has no end token
    std::size_t at = 0, learned = 0;
    for (std::size_t i = 0; i + 1 < l.source.size(); ++i) {
      if (l.source[i] < vocabulary - count.spans) {
        decoder_input.push_back(l.source[i]);
        continue;
      }
      ASSERT_EQ(text.at(at), l.source[i]);
      EXPECT_EQ(l.labels[at++], l.source[i]);
      const std::size_t first = at;
      for (; at < text.size() && text[at] < vocabulary - count.spans; ++at) {
        EXPECT_EQ(l.labels[at], sample.learned[decoder_input.size()] ? text[at] : ignored_label);
        learned += 1;
        decoder_input.push_back(text[at]);
      }
      EXPECT_GT(at, first) << "an empty span";
    }
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(Index(learned), count.corrupted);
    EXPECT_EQ(decoder_input, std::vector<Token>(sample.tokens.begin(), sample.tokens.end() - 1));
    const Labelled again = corrupt_spans(c, sample.view(number, vocabulary), 0);
    EXPECT_EQ(again.source, l.source);
    c.seed += 1;
    if (count.spans > 3) {
      EXPECT_NE(corrupt_spans(c, sample.view(number, vocabulary), 0).source, l.source);
    }
  }
}

TEST(encoder_decoder, a_sample_of_one_token_is_refused) {
  const Error error = error_of([] { span_corruption()->lengths(1); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("use 2 tokens or more"), std::string::npos) << error.what();
}

// All positions are in spans equally often, except at the ends: the first position never is, and the last one always
// is.
TEST(encoder_decoder, spans_are_spread_evenly) {
  std::mt19937_64 random(seed_of_run());
  const Index tokens = 100, samples = 4000, vocabulary = 300;
  const Sampled sample = sample_of(random, tokens, vocabulary);
  SpanCorruption c;
  std::vector<double> hidden(tokens, 0);
  std::map<Index, double> lengths;
  for (Index number = 0; number < samples; ++number) {
    const Labelled l = corrupt_spans(c, sample.view(number, vocabulary), 0);
    Index t = 0, span = 0;
    for (std::size_t i = 1, s = 0; i < l.tokens.size(); ++i) {
      if (l.tokens[i] >= vocabulary - 5) {
        for (; l.source[s] < vocabulary - 5; ++s) ++t;
        ++s;
        if (span > 0) ++lengths[span];
        span = 0;
      } else {
        hidden[t++] += 1, ++span;
      }
    }
    ++lengths[span];
  }
  EXPECT_EQ(hidden[0], 0);
  EXPECT_EQ(hidden[tokens - 1], samples);
  for (Index t = 10; t < 90; ++t) EXPECT_NEAR(hidden[t] / double(samples), 0.15, 0.05) << t;
  double spans = 0, sum = 0;
  for (const auto& [n, times] : lengths) spans += times, sum += double(n) * times;
  EXPECT_NEAR(sum / spans, 3, 0.01);
  EXPECT_GT(lengths[1], lengths[4]);
}

}  // namespace gyr::testing::encoder_decoder_suite
