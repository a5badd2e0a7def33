// SPDX-License-Identifier: BSD-3-Clause
// Generation with layers R: a prompt read in one pass equals the same tokens one by one, texts do not depend on others, and
// a prompt of full chunks equals the forward of training.
#include <random>

#include "regression/support/retrieval.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"

namespace gyr::testing::retrieved_text_suite {
namespace {

constexpr Index new_tokens = 9, longest_prompt = 11;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  Index from(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  std::vector<Token> prompt(Index length, Index vocab_size) {
    std::vector<Token> tokens;
    for (Index t = 0; t < length; ++t) tokens.push_back(Token(from(0, vocab_size - 1)));
    return tokens;
  }
  ModelConfig model() {
    const char* const patterns[] = {"*R-R", "PRMR", "R*-R", "MR-R"};
    const char* const encoders[] = {"*X-*-", "X", "*X-X-"};
    ModelConfig m = retrieval_model(patterns[from(0, 3)], from(1, 4), from(1, 3), encoders[from(0, 2)]);
    m.attention.bias = from(0, 1) == 1;
    return with_encoder_width(m, 6 * from(0, 2));
  }

 private:
  std::mt19937_64 random_;
};

std::string text_of(const ModelConfig& m) {
  return fmt::format("{}, encoder {} of width {}, m {}, k {}", m.pattern, m.retrieval.encoder, encoder_config(m).hidden_size, m.retrieval.chunk,
                     m.retrieval.neighbours);
}

struct Writer {
  Writer(const ModelConfig& model, const RetrievalOptions& options, Index slots = 1, Index samples = 1)
      : generator(model, DType::f64, single_rank_grid(model.layers()), {slots, longest_prompt, 2 * longest_prompt, Factors::stored, samples}) {
    Device device(false, 0);
    for (const auto& p : generator.stage().parameters().all()) assign(device, *p, WeightValues(p->weight));
    generator.retrieve_with(options);
  }
  // The most likely token after the last one of each step.
  DrawnToken next(Token token, Index past) { return generator.decode(std::vector<Generator::Step>{{token, past}}, greedy)[0]; }
  DrawnToken first(std::span<const Token> prompt) { return generator.read(0, prompt, greedy, std::vector<DrawPlace>(1))[0]; }

  const Sampling greedy{0, 0, 1, 1, new_tokens};
  Generator generator;
};

void expect_equal(const DrawnToken& found, const DrawnToken& expected, const std::string& where) {
  EXPECT_EQ(found.token, expected.token) << where;
  EXPECT_NEAR(found.log_prob, expected.log_prob, 1e-11) << where;
}

}  // namespace

TEST(retrieved_text, prompt_equals_its_tokens_one_by_one) {
  Dice dice(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    const ModelConfig model = dice.model();
    const Index o = dice.from(1, model.retrieval.chunk), n = dice.from(2, longest_prompt);
    const RetrievalOptions options{drawn_search(model, seed_of_run()), ChunkAlignment::end, o};
    const std::vector<Token> prompt = dice.prompt(n, model.vocab_size);
    Writer together(model, options), one_by_one(model, options);
    DrawnToken expected = one_by_one.first(std::span(prompt).first(1));
    for (Index t = 1; t < n; ++t) expected = one_by_one.next(prompt[std::size_t(t)], t);
    DrawnToken found = together.first(prompt);
    const std::string where = fmt::format("{}, first chunk {}, prompt of {}", text_of(model), o, n);
    expect_equal(found, expected, where);
    for (Index t = n; t < n + new_tokens; ++t) {
      const Token token = expected.token;
      expect_equal(found = together.next(token, t), expected = one_by_one.next(token, t), where);
    }
    ASSERT_EQ(together.generator.cited(0).size(), one_by_one.generator.cited(0).size()) << where;
    for (const CitedChunk& chunk : together.generator.cited(0)) EXPECT_EQ((chunk.last - o) % model.retrieval.chunk, 0) << where;
  }
}

TEST(retrieved_text, prompt_of_full_chunks_equals_the_training_forward) {
  Dice dice(seed_of_run() + 1);
  for (int draw = 0; draw < 6; ++draw) {
    const ModelConfig model = dice.model();
    const Index chunks = dice.from(1, 2), n = chunks * model.retrieval.chunk;
    EngineConfig config = retrieval_config(model, 1, chunks);
    MicroBatch batch = retrieval_batch(config, seed_of_run() + std::uint64_t(draw));
    const RetrievalConfig& c = model.retrieval;
    Index chunk = 0;
    RetrievalOptions options;
    options.search = [&](Index, std::span<const Token> text) {
      EXPECT_EQ(Index(text.size()), c.chunk);
      FoundNeighbours found;
      for (Index k = 0; k < c.neighbours; ++k) {
        const Index at = k * chunks + chunk;
        found.lengths.push_back(batch.source.lengths[std::size_t(at)]);
        const auto first = batch.source.tokens.begin() + at * c.neighbour_length();
        found.tokens.insert(found.tokens.end(), first, first + c.neighbour_length());
      }
      ++chunk;
      return found;
    };
    Writer writer(model, options);
    const DrawnToken drawn = writer.first(batch.tokens);
    EXPECT_EQ(chunk, chunks);
    batch.labels.back() = drawn.token;
    Rig<double> rig(config, single_rank_grid(model.layers()));
    const auto row = rig.engine.scores([&](int) { return batch; }, 1).at(0).rows.at(std::size_t(n - 1));
    EXPECT_LE(row.shortfall, 0) << text_of(model);
    EXPECT_NEAR(drawn.log_prob, -row.loss, 1e-11) << text_of(model);
  }
}

TEST(retrieved_text, texts_do_not_depend_on_those_served_together) {
  Dice dice(seed_of_run() + 2);
  for (int draw = 0; draw < 5; ++draw) {
    const ModelConfig model = dice.model();
    const RetrievalOptions options{drawn_search(model, seed_of_run()), draw % 2 == 0 ? ChunkAlignment::end : ChunkAlignment::begin, 0};
    std::vector<Request> requests;
    for (Index id = 0; id < 5; ++id) requests.push_back({id, dice.prompt(dice.from(1, longest_prompt), model.vocab_size), dice.from(1, 2)});
    const Sampling sampling{1, 0, 1, seed_of_run(), new_tokens};
    TextHooks hooks;
    hooks.stops = [](const GeneratedText& r) { return Index(r.tokens.size()) == 1 + (3 * r.id + r.sample) % 7; };
    Writer together(model, options, 3, 2);
    const auto all = GenerationService(together.generator).serve(requests, sampling, hooks);
    std::size_t at = 0;
    for (const Request& request : requests) {
      Writer alone(model, options, 1, 2);
      for (const GeneratedText& expected : GenerationService(alone.generator).serve({request}, sampling, hooks)) {
        EXPECT_EQ(all.at(at).tokens, expected.tokens) << text_of(model) << ", request " << request.id;
        EXPECT_EQ(all.at(at++).cited.size(), expected.cited.size()) << text_of(model) << ", request " << request.id;
      }
    }
  }
}

// The first row of the next chunk still sees the neighbours, and without a search all are missing.
TEST(retrieved_text, neighbours_change_the_tokens_after_their_chunk) {
  ModelConfig model = retrieval_model("*R-R", 3, 2, "*X-*-");
  Dice dice(seed_of_run() + 3);
  const std::vector<Token> prompt = dice.prompt(7, model.vocab_size);
  const auto log_prob = [&](std::uint64_t seed, std::size_t tokens, bool searches) {
    RetrievalOptions options{searches ? drawn_search(model, seed) : NeighbourSearch(), ChunkAlignment::begin, 0};
    if (searches)
      options.search = [seed, model](Index, std::span<const Token>) {
        const RetrievalConfig& c = model.retrieval;
        return FoundNeighbours{std::vector<Token>(std::size_t(c.neighbours * c.neighbour_length()), Token(seed)),
                               std::vector<Index>(std::size_t(c.neighbours), c.neighbour_length()),
                               {1, 2}};
      };
    return Writer(model, options).first(std::span(prompt).first(tokens)).log_prob;
  };
  for (const std::size_t tokens : {1, 2}) EXPECT_EQ(log_prob(1, tokens, true), log_prob(2, tokens, true)) << tokens;
  for (const std::size_t tokens : {3, 4, 5, 7}) {
    EXPECT_NE(log_prob(1, tokens, true), log_prob(2, tokens, true)) << tokens;
    EXPECT_NE(log_prob(1, tokens, true), log_prob(1, tokens, false)) << tokens;
  }
}

}  // namespace gyr::testing::retrieved_text_suite
