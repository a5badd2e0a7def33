// SPDX-License-Identifier: BSD-3-Clause
// seq2seq pairs of an encoder input (source) and a target text. JSON lines, samples and labels are compared with plain
// counting. Padding does not change the loss of a pair. Loss and gradients match those of transformers.
#include "modules/objectives/seq2seq.hpp"

#include <random>
#include <set>

#include "regression/support/encoder_decoder.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/token_files.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/sourced_text.hpp"
#include "src/pretrained/weights.hpp"
#include "src/train/feed.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing::seq2seq_suite {
namespace {

class Dice {
 public:
  Index from(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  std::vector<Token> tokens(Index count) {
    std::vector<Token> all;
    for (Index t = 0; t < count; ++t) all.push_back(Token(from(2, 20)));
    return all;
  }

 private:
  std::mt19937_64 random_{seed_of_run()};
};

TEST(seq2seq, json_line_gives_source_and_text) {
  const SourcedText pair = read_sourced(R"({"en": "a b", "de": "c", "id": 3})", "en", "de");
  EXPECT_EQ(pair.source, "a b");
  EXPECT_EQ(pair.text, "c");
  EXPECT_EQ(pair.problem, "");
  const SourcedText inner = read_sourced(R"({"t": {"en": "a", "de": "b"}, "t.de": "c"})", "t.en", "t.de");
  EXPECT_EQ(inner.source, "a");
  EXPECT_EQ(inner.text, "c") << "a key 't.de' has priority over a nested key";
  EXPECT_EQ(read_sourced(R"({"t": {"en": "a"}})", "t.en", "t.de").problem, "has no key 'de' in 't' (keys: en)");
  EXPECT_EQ(read_sourced(R"({"t": 1})", "t.en", "t.de").problem, "has a number under 't', not an object");
  for (const auto& [line, part] : {std::pair{R"({"de": "c"})", "has no key 'en' (keys: de)"},
                                   {R"({"en": "a"})", "has no key 'de'"},
                                   {R"({"en": 1, "de": "c"})", "a number"},
                                   {R"({"en": "", "de": "c"})", "has an empty text under 'en'"},
                                   {R"({"en": "a", "de": " \n"})", "has an empty text under 'de'"},
                                   {R"({"en": "a", "en": "b", "de": "c"})", "twice"},
                                   {"[1]", "an array"},
                                   {"{", "not valid JSON"}}) {
    const SourcedText wrong = read_sourced(line, "en", "de");
    EXPECT_NE(wrong.problem.find(part), std::string::npos) << line << ": " << wrong.problem;
    EXPECT_EQ(wrong.source + wrong.text, "");
  }
}

// Random texts with or without an end token, which fill their length, are truncated or leave padding, are compared
// token by token.
TEST(seq2seq, labels_are_the_target_text_and_end_token) {
  Dice dice;
  for (int draw = 0; draw < 500; ++draw) {
    const Index max_tokens = dice.from(1, 9), max_source_tokens = dice.from(1, 9), end = 1, start = dice.from(0, 3);
    const bool same_capacity = dice.from(0, 3) == 0;
    const auto given = [&](Index most) {
      std::vector<Token> tokens = dice.tokens(dice.from(0, most));
      if (dice.from(0, 1) && Index(tokens.size()) < most) tokens.push_back(Token(end));
      return tokens;
    };
    const std::vector<Token> source = given(same_capacity ? max_tokens : max_source_tokens), text = given(max_tokens);
    std::vector<Token> padded = text;
    padded.resize(max_tokens + 1, 0);
    std::vector<std::uint8_t> learned(max_tokens + 1, 0);
    for (std::size_t t = 0; t < text.size(); ++t) learned[t] = dice.from(0, 3) > 0;
    const TextSpan span{0, Index(text.size())};
    SampleView view{padded, learned, {}, 0, 30};
    view.start = Token(start), view.texts = {&span, 1}, view.source = source;
    const Labelled l = label_pair({same_capacity ? 0 : max_source_tokens, Token(end)}, view);

    const auto ended = [&](const std::vector<Token>& tokens) { return !tokens.empty() && tokens.back() == end; };
    const Index most = same_capacity ? max_tokens : max_source_tokens, kept = std::min(Index(source.size()) - ended(source), most - 1);
    std::vector<Token> expected(source.begin(), source.begin() + kept);
    expected.push_back(Token(end));
    EXPECT_EQ(l.source, expected);
    const Index words = std::min(Index(text.size()) - ended(text), max_tokens - 1);
    ASSERT_EQ(Index(l.tokens.size()), max_tokens);
    ASSERT_EQ(Index(l.labels.size()), max_tokens);
    for (Index t = 0; t < max_tokens; ++t) {
      EXPECT_EQ(l.tokens[t], t == 0 ? Token(start) : t <= words ? text[t - 1] : 0) << t;
      const Token label = t < words ? (learned[t] ? text[t] : ignored_label) : t > words || (ended(text) && !learned[t]) ? ignored_label : Token(end);
      EXPECT_EQ(l.labels[t], label) << t;
    }
  }
}

// Corpus of pairs with the given sequence lengths. Token t of sequence s is 100 s + t. Even sequences are sources, odd
// ones are texts.
struct Corpus {
  Folder folder;
  std::filesystem::path prefix = folder / "pairs";
  TokenLists sequences, marks;

  explicit Corpus(const std::vector<Index>& lengths) {
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      sequences.emplace_back(), marks.emplace_back(lengths[s], std::int32_t(s % 2));
      for (Index t = 0; t < lengths[s]; ++t) sequences[s].push_back(std::int32_t(100 * Index(s) + t));
    }
    write();
  }
  void write() const {
    write_token_files(prefix, sequences, TokenType::u16);
    write_token_files(mask_prefix(prefix), marks, TokenType::u8);
  }
  DatasetOptions options(Index source_length, Index seq_length) const {
    DatasetOptions o;
    o.corpora = {{prefix, {}}};
    o.split = "1";
    o.order = SampleOrder::documents;
    o.seq_length = seq_length, o.source_length = source_length;
    return o;
  }
};

TEST(seq2seq, every_epoch_holds_every_pair_once) {
  Dice dice;
  for (int draw = 0; draw < 30; ++draw) {
    const Index pairs = dice.from(1, 12), source_length = dice.from(1, 6), seq_length = dice.from(1, 6);
    std::vector<Index> lengths;
    for (Index s = 0; s < 2 * pairs; ++s) lengths.push_back(dice.from(1, 8));
    const Corpus corpus(lengths);
    const Dataset data(corpus.options(source_length, seq_length));
    ASSERT_EQ(data.per_epoch(0), pairs);
    std::vector<std::vector<Index>> orders;
    for (Index epoch = 0; epoch < 3; ++epoch) {
      orders.emplace_back();
      for (Index i = 0; i < pairs; ++i) {
        const Sample s = data.sample(epoch * pairs + i);
        const Index source = s.source.at(0) / 100, text = source + 1;
        orders.back().push_back(source / 2);
        EXPECT_EQ(Index(s.source.size()), std::min(lengths[source], source_length));
        EXPECT_TRUE(std::equal(s.source.begin(), s.source.end(), corpus.sequences[source].begin()));
        const Index kept = std::min(lengths[text], seq_length);
        ASSERT_EQ(s.texts.size(), 1u);
        EXPECT_EQ(s.texts[0].count, kept);
        ASSERT_EQ(Index(s.tokens.size()), seq_length + 1);
        for (Index t = 0; t <= seq_length; ++t) {
          EXPECT_EQ(s.tokens[t], t < kept ? corpus.sequences[text][t] : 0);
          EXPECT_EQ(s.learned[t], t < kept);
        }
      }
      EXPECT_EQ(std::set<Index>(orders.back().begin(), orders.back().end()).size(), std::size_t(pairs));
    }
    if (pairs > 8) {
      EXPECT_NE(orders[0], orders[1]);
    }
  }
}

TEST(seq2seq, each_pair_belongs_to_one_split) {
  const Corpus corpus(std::vector<Index>(20, 3));
  std::set<Index> sources;
  for (const Split which : {Split::train, Split::validation, Split::test}) {
    DatasetOptions o = corpus.options(4, 4);
    o.split = "5,3,2", o.which = which;
    const Dataset data(o);
    EXPECT_EQ(data.per_epoch(0), which == Split::train ? 5 : which == Split::validation ? 3 : 2);
    for (Index i = 0; i < data.per_epoch(0); ++i) {
      const Sample s = data.sample(i);
      EXPECT_EQ(s.tokens[0], s.source[0] + 100);
      sources.insert(s.source[0]);
    }
  }
  EXPECT_EQ(sources.size(), 10u);
}

TEST(seq2seq, truncated_pairs_are_reported) {
  const Corpus corpus({9, 3, 2, 8, 9, 9});
  const auto note = [&](Index source_length, Index seq_length) { return Dataset(corpus.options(source_length, seq_length)).notes().at(0); };
  EXPECT_TRUE(note(9, 9).ends_with(": 3 pairs of an encoder input and a target text")) << note(9, 9);
  EXPECT_TRUE(note(8, 8).ends_with("; 2 encoder inputs longer than 8 tokens lose the end; 1 target text longer than 8 tokens loses the end"))
      << note(8, 8);
}

TEST(seq2seq, files_without_valid_pairs_are_refused) {
  const auto refusal = [](const DatasetOptions& o) { return error_of([&] { Dataset(o).sample(0); }); };
  const auto expect = [](const Error& e, Exit code, const char* part) {
    EXPECT_EQ(e.code, code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  };
  Corpus odd({3, 3, 3});
  expect(refusal(odd.options(4, 4)), Exit::data, "3 sequences are not pairs of an encoder input and a target text");
  Corpus unmarked({3, 3});
  std::filesystem::remove(tokens_path(mask_prefix(unmarked.prefix))), std::filesystem::remove(index_path(mask_prefix(unmarked.prefix)));
  expect(refusal(unmarked.options(4, 4)), Exit::data, "2 sequences without a loss mask");
  Corpus learned({3, 3});
  learned.marks[0][1] = 1, learned.write();
  expect(refusal(learned.options(4, 4)), Exit::data, "sequence 0 is an encoder input");
  Corpus empty({0, 3});
  expect(refusal(empty.options(4, 4)), Exit::data, "sequence 0 is empty");
  const Corpus good({3, 3});
  for (const bool separate : {false, true}) {
    DatasetOptions o = good.options(4, 4);
    o.separate = separate, o.order = separate ? SampleOrder::documents : SampleOrder::shuffled;
    expect(refusal(o), Exit::config, "data.order: documents");
  }
}

EngineConfig config_of(const ModelConfig& m, Index batch, Index seq_length) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = batch, c.seq_length = m.objective->lengths(seq_length).text, c.source_length = m.objective->lengths(seq_length).source;
  return c;
}

Sample sample_of(const std::vector<Token>& source, const std::vector<Token>& text, Index seq_length) {
  Sample s{text, {}, std::vector<std::uint8_t>(seq_length + 1, 0), {}};
  std::fill_n(s.learned.begin(), text.size(), 1);
  s.tokens.resize(seq_length + 1, 0);
  s.texts = {{0, Index(text.size())}}, s.source = source;
  return s;
}

// A batch has pairs of any length, down to one token. Its loss and gradients must be the means over labels of those of
// each pair in its own batch without padding.
TEST(seq2seq, padding_does_not_change_loss_and_gradients) {
  Dice dice;
  for (const char* pattern : {"*->*X-", "B>X", "*->M*X-"})
    for (const Index buckets : {0, 8})
      for (int draw = 0; draw < 4; ++draw) {
        const Index pairs = dice.from(1, 4), seq_length = dice.from(1, 9), source_length = dice.from(1, 12);
        SCOPED_TRACE(fmt::format("{} {} buckets, {} pairs in {} and {}", pattern, buckets, pairs, source_length, seq_length));
        ModelConfig m = encoder_and_decoder(pattern, buckets);
        m.objective = seq2seq({source_length, 1});
        std::vector<std::vector<Token>> sources, texts;
        for (Index i = 0; i < pairs; ++i)
          sources.push_back(dice.tokens(dice.from(0, source_length))), texts.push_back(dice.tokens(dice.from(0, seq_length)));
        const auto step = [&](const ModelConfig& model, Index first, Index count, Index length) {
          const EngineConfig config = config_of(model, count, length);
          Rig<double> rig(config, single_rank_grid(model.layers()));
          set_weights(rig.engine);
          const auto sample = [&](Index i) {
            return sample_of(sources[i], {texts[i].begin(), texts[i].begin() + std::min(Index(texts[i].size()), length)}, length);
          };
          const MicroBatch batch = micro_batch_of(sample, model, first, count, length);
          const StepResult r = rig.engine.gradients([&](int) { return batch; }, 1, 1);
          return std::pair(r, gathered_gradients(rig.engine));
        };
        const auto [joint, gradients] = step(m, 0, pairs, seq_length);
        double sum = 0, labels = 0;
        NamedGradients sums;
        for (Index i = 0; i < pairs; ++i) {
          ModelConfig one = m;
          one.objective = seq2seq({std::min(Index(sources[i].size()) + 1, source_length), 1});
          const auto [r, g] = step(one, i, 1, std::min(Index(texts[i].size()) + 1, seq_length));
          sum += r.loss * double(r.tokens), labels += double(r.tokens);
          for (const auto& [name, x] : g) {
            auto& to = sums[name];
            to.resize(x.size(), 0);
            for (std::size_t k = 0; k < x.size(); ++k) to[k] += x[k] * double(r.tokens);
          }
        }
        EXPECT_EQ(double(joint.tokens), labels);
        EXPECT_NEAR(joint.loss, sum / labels, 1e-12);
        for (const auto& [name, x] : gradients)
          for (std::size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], sums.at(name)[k] / labels, 1e-12) << name << " " << k;
      }
}

// The pairs of regression/golden/families/t5_pairs, without end tokens and padding, as a data set provides them.
TEST(seq2seq, loss_and_gradients_match_transformers) {
  const Golden& g = golden("t5_pairs");
  ModelConfig m = g.model;
  m.objective = seq2seq({g.batch.source.length, *g.model.objective->end_token()});
  const Index length = g.batch.seq_length;
  const auto sample = [&](Index b) {
    const auto source = g.batch.source.tokens.begin() + b * g.batch.source.length, label = g.batch.labels.begin() + b * length;
    return sample_of({source, source + g.batch.source.lengths[b] - 1}, {label, std::find(label, label + length, ignored_label) - 1}, length);
  };
  const MicroBatch batch = micro_batch_of(sample, m, 0, g.batch.batch, length);
  EXPECT_EQ(batch.labels, g.batch.labels);
  EXPECT_EQ(batch.source.tokens, g.batch.source.tokens);
  EXPECT_EQ(batch.source.lengths, g.batch.source.lengths);
  Rig<double> rig(config_of(m, g.batch.batch, length), single_rank_grid(m.layers()));
  load_weights(g.folder, rig.engine);
  const StepResult r = rig.engine.gradients([&](int) { return batch; }, 1, 1);
  EXPECT_NEAR(r.loss, g.twice.loss, 1e-13);
  const NamedGradients gradients = gathered_gradients(rig.engine);
  EXPECT_EQ(gradients.size(), g.twice.gradients.size());
  for (const auto& [name, expected] : g.twice.gradients) EXPECT_LE(distance(gradients.at(name), expected, g.twice.lengths.at(name)), 1e-12) << name;
}

}  // namespace
}  // namespace gyr::testing::seq2seq_suite
