// SPDX-License-Identifier: BSD-3-Clause
// Generation as a service: a text is a function of weights, prompt, seed, id and sample, however requests are served.
#include "src/engine/generate/service.hpp"

#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"

namespace gyr::testing::service_suite {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  Index from(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  std::vector<Token> prompt(Index length, Index vocab_size) {
    std::vector<Token> tokens;
    for (Index t = 0; t < length; ++t) tokens.push_back(Token(from(0, vocab_size - 1)));
    return tokens;
  }
  template <class V>
  void shuffle(std::vector<V>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

 private:
  std::mt19937 random_;
};

// Weights of the tests, several times as large in the head, so that texts vary.
void set_values(Generator& generator) {
  Device device(false, 0);
  for (const auto& p : generator.stage().parameters().all()) assign(device, *p, WeightValues(p->weight));
}

// Equal texts, whose probabilities differ by at most `tolerance`.
void expect_equal(const GeneratedText& found, const GeneratedText& expected, double tolerance, const std::string& where) {
  EXPECT_EQ(found.id, expected.id) << where;
  EXPECT_EQ(found.sample, expected.sample) << where;
  EXPECT_EQ(found.tokens, expected.tokens) << where;
  EXPECT_LE(difference(found.log_probs, expected.log_probs), tolerance) << where;
  EXPECT_LE(difference(found.kept, expected.kept), tolerance) << where;
  EXPECT_EQ(found.end, expected.end) << where;
}

// Random requests, sampling rules and numbers of slots. Every text equals the one that a generator with a single slot
// writes for its request alone; with `exact`, its probabilities too are equal bit for bit. A text ends at token 3 or where its length is a multiple
// that depends on id and sample, so that slots become free at different times.
void expect_texts_of_single_requests(const ModelConfig& model, DType dtype, Dice& dice, Index most_slots, bool exact) {
  constexpr Index longest = 20, tokens = 14;
  std::vector<Request> requests;
  for (Index id = 0, count = dice.from(2, 6); id < count; ++id)
    requests.push_back({id * 7 + 1, dice.prompt(dice.from(1, longest), model.vocab_size), dice.from(1, 4)});
  dice.shuffle(requests);
  Sampling sampling{double(dice.from(0, 3)) / 2, dice.from(0, 1) * 9, dice.from(0, 1) ? 1 : 0.9, std::uint64_t(dice.from(1, 99)), tokens, {3}, exact,
                    dice.from(0, 1) == 1};
  TextHooks hooks;
  Index done = 0;
  hooks.stops = [](const GeneratedText& r) { return Index(r.tokens.size()) == 1 + (r.id + 5 * r.sample) % 11; };
  hooks.done = [&](const GeneratedText& r) { done += r.end != TextEnd::none; };
  const auto replies = [&](Index slots, const std::vector<Request>& these) {
    Generator generator(model, dtype, single_rank_grid(model.layers()), {slots, longest, tokens, Factors::stored, 4});
    set_values(generator);
    return GenerationService(generator).serve(these, sampling, hooks);
  };
  const Index slots = dice.from(1, most_slots);
  const std::vector<GeneratedText> together = replies(slots, requests);
  EXPECT_EQ(done, Index(together.size()));
  std::size_t at = 0;
  for (const Request& request : requests)
    for (const GeneratedText& alone : replies(1, {request}))
      expect_equal(together.at(at++), alone, exact ? 0 : 1e-12,
                   fmt::format("{} slots, temperature {}, request {}", slots, sampling.temperature, request.id));
  EXPECT_EQ(at, together.size());
}

TEST(service, text_depends_only_on_its_own_request) {
  Dice dice(seed_of_run());
  for (const char* name : {"T1", "T2", "T3", "T5"})
    for (int number = 0; number < 4; ++number) expect_texts_of_single_requests(named(name).model, DType::f64, dice, 6, false);
}

// More than few_rows texts in progress: with Sampling::exact, rounding does not depend on them in any precision.
TEST(service, exact_text_ignores_others_in_low_precision) {
  Dice dice(seed_of_run() + 1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int number = 0; number < 4; ++number) expect_texts_of_single_requests(named("T2").model, dtype, dice, 20, true);
}

// The states of a prompt are copied to its samples: at temperature 0, all of them equal the only text of a request.
TEST(service, samples_share_one_read_of_the_prompt) {
  Dice dice(seed_of_run() + 2);
  for (const char* name : {"T1", "T2", "T4", "T6"}) {
    const ModelConfig& model = named(name).model;
    const std::vector<std::vector<Token>> prompts{dice.prompt(9, model.vocab_size), dice.prompt(4, model.vocab_size)};
    const auto replies = [&](Index samples, Index slots) {
      Generator generator(model, DType::f32, single_rank_grid(model.layers()), {slots, 9, 8, Factors::stored, samples});
      set_values(generator);
      GenerationService service(generator);
      auto all = service.serve(requests_of(prompts, samples), {0, 0, 1, 1, 8});
      EXPECT_EQ(service.pace().prompt_tokens, 9 + 4);
      return all;
    };
    const auto single = replies(1, 1);
    for (const Index slots : {1, 2, 3}) {
      const auto several = replies(5, slots);
      ASSERT_EQ(several.size(), 10u);
      for (std::size_t i = 0; i < several.size(); ++i) {
        EXPECT_EQ(several[i].sample, Index(i % 5));
        EXPECT_EQ(several[i].tokens, single[i / 5].tokens) << name;
        EXPECT_EQ(several[i].log_probs, single[i / 5].log_probs) << name;
      }
    }
  }
}

TEST(service, samples_have_random_streams_of_their_own) {
  const ModelConfig& model = named("T1").model;
  Generator generator(model, DType::f64, single_rank_grid(model.layers()), {2, 2, 12, Factors::stored, 4});
  set_values(generator);
  std::set<std::vector<Token>> different;
  for (const GeneratedText& reply : GenerationService(generator).serve({{0, {5, 9}, 4}, {1, {5, 9}, 4}}, {4, 0, 1, 1, 12}))
    different.insert(reply.tokens);
  EXPECT_EQ(different.size(), 8u);
}

// Gumbel draws of a model whose logits are all equal are those of equal scores, with the streams of policy training.
TEST(service, rollouts_take_gumbel_draws) {
  const ModelConfig& model = named("T1").model;
  Generator generator(model, DType::f32, single_rank_grid(model.layers()), {2, 2, 5, Factors::stored, 3});
  set_values(generator);
  Device device(false, 0);
  assign(device, generator.stage().head().weight(), [](Index) { return 0; });
  for (const GeneratedText& reply : GenerationService(generator).serve({{4, {5, 9}, 3}}, {1, 0, 1, 6, 5, {}, false, true})) {
    const Stream stream(6, fmt::format("rollout 4/{}", reply.sample));
    for (Index t = 0; t < 5; ++t) {
      Index want = 0;
      for (Index v = 1; v < model.vocab_size; ++v)
        if (stream.uniform((t << 32) + v) > stream.uniform((t << 32) + want)) want = v;
      EXPECT_EQ(reply.tokens[std::size_t(t)], Token(want)) << reply.sample;
      EXPECT_NEAR(reply.log_probs[std::size_t(t)], -std::log(double(model.vocab_size)), 1e-12);
      EXPECT_EQ(reply.kept[std::size_t(t)], 1);
    }
  }
}

// Log-probabilities are those of the training forward on the full text.
TEST(service, log_probs_equal_those_of_training) {
  Dice dice(seed_of_run() + 3);
  for (const DType dtype : {DType::f64, DType::f32})
    for (const char* name : {"T1", "T2", "T3", "T6"}) {
      const ModelConfig& model = named(name).model;
      const auto prompt = dice.prompt(dice.from(1, 12), model.vocab_size);
      constexpr Index made = 10;
      Generator generator(model, dtype, single_rank_grid(model.layers()), {3, 12, made, Factors::stored, 3});
      set_values(generator);
      const auto replies = GenerationService(generator).serve({{5, prompt, 3}}, {1, 6, 0.9, 2, made});
      EngineConfig config;
      config.model = model, config.precision = dtype, config.micro_batch_size = 1, config.seq_length = Index(prompt.size()) + made;
      AnyRig rig(config, single_rank_grid(model.layers()));
      double worst = 0;
      for (const GeneratedText& reply : replies) {
        std::vector<Token> text = prompt;
        text.insert(text.end(), reply.tokens.begin(), reply.tokens.end());
        std::vector<Token> labels(text.begin() + 1, text.end());
        labels.push_back(ignored_label);
        const auto scores = rig.engine.scores([&](int) { return MicroBatch{1, Index(text.size()), text, labels}; }, 1);
        for (std::size_t t = 0; t < reply.tokens.size(); ++t) {
          worst = std::max(worst, std::abs(-scores[0].rows[prompt.size() - 1 + t].loss - reply.log_probs[t]));
          EXPECT_GE(reply.kept[t], std::exp(reply.log_probs[t]) * (1 - 1e-9));
          EXPECT_LT(reply.kept[t], 1);
        }
      }
      EXPECT_LE(worst, dtype == DType::f64 ? 1e-10 : 2e-4) << name;
      std::printf("%s %s: largest difference of a log-probability %.1e\n", name, dtype == DType::f64 ? "fp64" : "fp32", worst);
    }
}

// One generator reads prompts of all lengths up to its limit, in any order, with the texts of generators made for one
// length.
TEST(service, every_prompt_length_is_accepted) {
  Dice dice(seed_of_run() + 4);
  constexpr Index longest = 70, made = 3;
  for (const char* name : {"T2", "T5"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const ModelConfig& model = named(name).model;
      Generator generator(model, dtype, single_rank_grid(model.layers()), {2, longest, made});
      set_values(generator);
      const auto all = dice.prompt(longest, model.vocab_size);
      std::vector<std::vector<Token>> prompts;
      for (Index length = 1; length <= longest; ++length) prompts.emplace_back(all.begin(), all.begin() + length);
      dice.shuffle(prompts);
      const auto texts = texts_of(generator, prompts, {0, 0, 1, 1, made});
      for (std::size_t i = 0; i < prompts.size(); i += 9) {
        Generator only(model, dtype, single_rank_grid(model.layers()), {2, Index(prompts[i].size()), made});
        set_values(only);
        EXPECT_EQ(texts_of(only, {prompts[i]}, {0, 0, 1, 1, made})[0], texts[i]) << prompts[i].size() << " tokens";
      }
    }
}

// A generator borrows the weights of an engine in training: it allocates none, follows every step, and changes no bit of
// the training.
TEST(service, borrowed_weights_follow_training_steps) {
  const Case& c = named("T2");
  EngineConfig config;
  config.model = c.model, config.precision = DType::f32, config.micro_batch_size = c.batch, config.seq_length = c.seq_length;
  const MicroBatch batch = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  const std::vector<Request> requests{{0, {5, 9, 2}, 2}, {1, {7}, 1}};
  const Sampling sampling{1, 0, 1, 4, 12};
  Grid& grid = single_rank_grid(c.model.layers());
  AnyRig plain(config, grid), served(config, grid);
  const GeneratorCapacity capacity{2, 3, 12, Factors::stored, 2};
  Generator borrowing(served.engine, grid, capacity), owning(c.model, DType::f32, grid, capacity);
  EXPECT_LE(borrowing.bytes() + served.engine.stage().parameters().extent() * Index(sizeof(float)) / 2, owning.bytes());
  std::set<std::vector<double>> different;
  for (int step = 1; step <= 3; ++step) {
    const auto found = GenerationService(borrowing).serve(requests, sampling);
    for (const auto& p : owning.stage().parameters().all())
      for (const auto& from : served.engine.parameters())
        if (from->weight.name == p->weight.name) copy_on_device(served.engine.device(), from->value(), p->value());
    const auto expected = GenerationService(owning).serve(requests, sampling);
    for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], 0, fmt::format("step {}", step));
    different.insert(found[0].log_probs);
    const auto train = [&](Engine& engine) { return engine.train([&](int) { return batch; }, 1, step, 1e-2).loss; };
    EXPECT_EQ(train(served.engine), train(plain.engine));
  }
  EXPECT_EQ(different.size(), 3u) << "a step did not change the weights of the generator";
}

// Training and generation take turns in one working memory. Texts and losses are those of separate memory.
TEST(service, generator_shares_working_memory_with_training) {
  const Case& c = named("T2");
  EngineConfig config;
  config.model = c.model, config.precision = DType::f32, config.micro_batch_size = c.batch, config.seq_length = c.seq_length;
  const MicroBatch batch = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  Grid& grid = single_rank_grid(c.model.layers());
  const GeneratorCapacity capacity{2, 30, 12, Factors::stored, 2};
  AnyRig plain(config, grid);
  Index bytes = Generator::working_bytes(plain.engine, grid, capacity);
  bytes = std::max(bytes, plain.capacity.working());
  const Arena working(Memory::activations, bytes), poison = working.part(Memory::activations, 0, bytes);
  AnyRig shared(config, grid, &working);
  Generator sharing(shared.engine, grid, capacity, &working), separate(plain.engine, grid, capacity);
  EXPECT_LT(sharing.bytes() - bytes, separate.bytes());
  for (int step = 1; step <= 3; ++step) {
    std::fill_n(poison.begin(), bytes, char(0xff));
    const std::vector<Request> requests{{0, {5, 9, 2}, 2}, {1, std::vector<Token>(std::size_t(9 * step), 7), 1}};
    const Sampling sampling{1, 0, 1, 4, 12};
    const auto found = GenerationService(sharing).serve(requests, sampling), expected = GenerationService(separate).serve(requests, sampling);
    for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], 0, fmt::format("step {}", step));
    const auto train = [&](Engine& engine) { return engine.train([&](int) { return batch; }, 1, step, 1e-2).loss; };
    EXPECT_EQ(train(shared.engine), train(plain.engine));
  }
}

TEST(service, weights_of_another_form_are_not_borrowed) {
  const Case& c = named("T2");
  EngineConfig config;
  config.model = c.model, config.precision = DType::f32, config.micro_batch_size = 1, config.seq_length = 4;
  AnyRig rig(config, single_rank_grid(c.model.layers()));
  const Error error = error_of([&] { Generator(rig.engine, single_rank_grid(c.model.layers()), {1, 4, 2, Factors::int8}); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("cannot be borrowed"), std::string::npos) << error.what();
}

TEST(service, impossible_requests_are_refused_with_remedy) {
  const ModelConfig& model = named("T1").model;
  Generator generator(model, DType::f64, single_rank_grid(model.layers()), {1, 4, 2, Factors::stored, 2});
  GenerationService service(generator);
  const auto refused = [&](const std::vector<Request>& requests, Index tokens, const char* part) {
    const Error error = error_of([&] { service.serve(requests, {0, 0, 1, 1, tokens}); });
    EXPECT_EQ(error.code, Exit::usage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  refused({{0, {1}}}, 3, "3 new tokens requested");
  refused({{3, {1}}, {3, {2}}}, 1, "two requests have the id 3");
  refused({{0, {}}}, 1, "a prompt of 0 tokens");
  refused({{0, {1, 2, 3, 4, 5}}}, 1, "request 0 has a prompt of 5 tokens");
  refused({{2, {1}, 3}}, 1, "request 2 has 3 samples");
}

// The vector is that of the specification of policy training.
TEST(service, deal_gives_longest_requests_to_least_loaded) {
  EXPECT_EQ(deal({7, 3, 9, 4, 4, 6, 2, 5}, 3), (std::vector<int>{1, 1, 0, 1, 0, 2, 2, 2}));
  EXPECT_EQ(deal({5, 5, 5}, 1), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(deal({1, 1}, 4), (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace gyr::testing::service_suite
