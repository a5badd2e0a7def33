// SPDX-License-Identifier: BSD-3-Clause
// Direct preference optimization (DPO): loss and gradient, samples that keep both responses of a pair together, and
// predictions. The sources of objectives contain no parallelism.
#include <fstream>
#include <random>

#include "modules/objectives/objective.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/packing.hpp"
#include "src/data/paired_texts.hpp"
#include "src/data/sample_view.hpp"
#include "src/data/token_writer.hpp"
#include "src/train/feed.hpp"
#include "src/verify/random_data.hpp"

namespace gyr::testing::preference_suite {
namespace {

namespace fs = std::filesystem;

// Random sequences of a run, with at least one pair.
struct Drawn {
  double beta;
  RunConfig run;
  std::vector<Sample> samples;
  MicroBatch batch;

  Drawn(std::mt19937& random, Index count, const std::string& pattern = "PM*-") : beta(0.05 + double(random() % 100) / 50) {
    Deck deck = Deck::parse(fmt::format("train: {{seq_length: {}}}\ndata: {{order: documents, documents: separate}}\n", 16 + random() % 20), "deck");
    run = read_run_config(deck);
    run.model = named("T2").model;
    run.model.pattern = pattern;
    run.model.objective = preference(beta);
    for (Index first = Index(random() % 1000); std::ranges::count(batch.values[label_of_pair], 0) == 0; first += count) {
      samples.clear();
      for (Index b = 0; b < count; ++b) samples.push_back(random_sample(run, first + b));
      batch = micro_batch_of([&](Index i) { return samples[i]; }, run.model, 0, count, run.train.seq_length);
    }
  }
  EngineConfig config() const {
    EngineConfig c;
    c.model = run.model;
    c.micro_batch_size = batch.batch, c.seq_length = batch.seq_length;
    return c;
  }
};

// Plain loops over the scores of rows: the sums of ln p of the chosen and the rejected response, and the margin. Only
// pairs with target tokens in both responses count.
struct Compared {
  double chosen, rejected, margin;
};
std::vector<Compared> compared(const Drawn& d, const std::vector<RowScore>& scores) {
  std::vector<Compared> pairs;
  for (std::size_t b = 0; b < d.samples.size(); ++b) {
    const Sample& s = d.samples[b];
    const auto sum = [&](const TextSpan& text) {
      std::optional<double> sum;
      for (Index t = text.first + 1; t < text.first + text.count; ++t)
        if (s.learned[t]) sum = sum.value_or(0) - scores[b * d.batch.seq_length + t - 1].loss;
      return sum;
    };
    for (std::size_t i = 0; i + 1 < s.texts.size(); i += 2)
      if (const auto c = sum(s.texts[i]), r = sum(s.texts[i + 1]); c && r)
        pairs.push_back({*c, *r, d.beta * ((*c - s.texts[i].reference) - (*r - s.texts[i + 1].reference))});
  }
  return pairs;
}

double number_of(const Record& record, const std::string& name) {
  const auto found = std::ranges::find(record, name, [](const auto& field) { return field.first; });
  return found == record.end() ? NAN : std::get<double>(found->second);
}

TEST(preference, loss_and_predictions_match_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    const Drawn d(random, 1 + draw % 3);
    Rig<double> rig(d.config(), single_rank_grid(d.run.model.layers()));
    set_weights(rig.engine);
    const auto source = [&](int) { return d.batch; };
    const ObjectiveScores pair_scores = rig.engine.scores(source, 1).at(0);
    const std::vector<RowScore>& scores = pair_scores.rows;
    const std::vector<Compared> pairs = compared(d, scores);
    ASSERT_EQ(pair_scores.margins.size(), pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) EXPECT_NEAR(pair_scores.margins[i], pairs[i].margin, 1e-12);
    double loss = 0;
    for (const Compared& p : pairs) loss += std::log(1 + std::exp(-p.margin));
    const auto [sum, count] = rig.engine.evaluate(source, 1);
    EXPECT_EQ(count, Index(pairs.size()));
    EXPECT_NEAR(sum, loss, 1e-12 * std::max(1.0, loss));
    EXPECT_NEAR(rig.engine.gradients(source, 1, 1).loss, loss / double(pairs.size()), 1e-12 * std::max(1.0, loss));
    std::vector<Record> records;
    for (std::size_t b = 0; b < d.samples.size(); ++b) {
      const SampleView view = view_of(d.samples[b], Index(b), d.run.model);
      const Objective& task = *d.run.model.objective;
      const Index length = d.batch.seq_length;
      for (Record& r : task.predict(view, task.label(view), std::span(scores).subspan(b * length, length))) records.push_back(std::move(r));
    }
    ASSERT_EQ(records.size(), pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_NEAR(number_of(records[i], "chosen"), pairs[i].chosen, 1e-12);
      EXPECT_NEAR(number_of(records[i], "rejected"), pairs[i].rejected, 1e-12);
      EXPECT_NEAR(number_of(records[i], "margin"), pairs[i].margin, 1e-12);
      EXPECT_NEAR(number_of(records[i], "preference_loss"), std::log(1 + std::exp(-pairs[i].margin)), 1e-12);
      EXPECT_EQ(number_of(records[i], "accuracy"), pairs[i].margin > 0);
    }
  }
}

TEST(preference, gradients_match_finite_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"P", "M-", "*-*-", "LE"}) {
    Drawn d(random, 2, pattern);
    SCOPED_TRACE(pattern);
    for (const bool tied : {false, true}) {
      EngineConfig config = d.config();
      config.model.tie_word_embeddings = tied;
      Rig<double> rig(config, single_rank_grid(d.run.model.layers()));
      set_weights(rig.engine);
      expect_differences_of(rig.engine, d.batch);
    }
  }
}

// If the policy equals the reference model, the loss is ln 2. Training then lowers it.
TEST(preference, dpo_loss_starts_at_ln_2_and_falls) {
  std::mt19937 random(seed_of_run());
  Drawn d(random, 3);
  Rig<double> rig(d.config(), single_rank_grid(d.run.model.layers()));
  set_weights(rig.engine);
  const auto source = [&](int) { return d.batch; };
  auto& references = d.batch.values[reference_of_text];
  const auto scores = rig.engine.scores(source, 1).at(0).rows;
  std::ranges::fill(references, 0.0);
  for (std::size_t r = 0; r < scores.size(); ++r)
    if (const Token text = d.batch.values[text_of_row][r]; text >= 0) references[text] -= scores[r].loss;
  EXPECT_NEAR(rig.engine.gradients(source, 1, 1).loss, std::log(2.0), 1e-13);
  double loss = 1;
  for (int step = 1; step <= 30; ++step) loss = rig.engine.train(source, 1, step, 1e-3).loss;
  EXPECT_LT(loss, 0.3);
}

TEST(preference, a_batch_without_pairs_is_refused) {
  std::mt19937 random(seed_of_run());
  Drawn d(random, 1);
  Rig<double> rig(d.config(), single_rank_grid(d.run.model.layers()));
  set_weights(rig.engine);
  std::ranges::fill(d.batch.values[label_of_pair], ignored_label);
  EXPECT_EQ(error_of([&] { rig.engine.gradients([&](int) { return d.batch; }, 1, 1); }).code, Exit::data);
}

// Token files with sequences of these lengths.
struct Corpus {
  Folder folder;
  fs::path prefix = folder / "pairs";

  explicit Corpus(const std::vector<Index>& lengths) {
    TokenWriter writer(prefix, 1000);
    for (const Index length : lengths) writer.add(std::vector<std::int32_t>(std::size_t(length), std::int32_t(length))), writer.end_document();
    writer.finish();
  }
  DatasetOptions options(Index seq_length, const std::string& split = "1") const {
    DatasetOptions o;
    o.corpora = {{prefix, {}}};
    o.split = split, o.seq_length = seq_length, o.order = SampleOrder::documents, o.separate = true, o.pairs = Pairs::as_they_are;
    return o;
  }
};

TEST(preference, every_fitting_pair_occurs_once_per_epoch) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 10; ++draw) {
    const Index seq_length = Index(10 + random() % 30);
    std::vector<Index> lengths(2 * (4 + random() % 40));
    for (Index& length : lengths) length = Index(random() % (seq_length + 4));
    lengths[0] = lengths[1] = 3;
    const Corpus corpus(lengths);
    const Dataset data(corpus.options(seq_length));
    std::set<std::int64_t> seen, fit;
    for (std::size_t p = 0; p < lengths.size(); p += 2)
      if (lengths[p] > 0 && lengths[p + 1] > 0 && lengths[p] + lengths[p + 1] <= seq_length + 1) fit.insert(std::int64_t(p));
    for (std::int64_t n = 0; n < data.per_epoch(0); ++n) {
      const Sample s = data.sample(n);
      ASSERT_EQ(s.texts.size() % 2, 0u);
      for (std::size_t i = 0; i < s.texts.size(); i += 2) {
        EXPECT_TRUE(seen.insert(s.texts[i].number).second) << "pair " << s.texts[i].number / 2 << " occurs a second time";
        EXPECT_EQ(s.texts[i + 1].number, s.texts[i].number + 1);
        EXPECT_EQ(s.texts[i + 1].first, s.texts[i].first + s.texts[i].count);
        for (const TextSpan& text : {s.texts[i], s.texts[i + 1]}) {
          EXPECT_EQ(text.count, lengths[text.number]);
          for (Index t = 0; t < text.count; ++t) EXPECT_EQ(s.positions[text.first + t], t) << "positions start at 0 in each response";
        }
      }
    }
    EXPECT_EQ(seen, fit);
    const std::size_t out = lengths.size() / 2 - fit.size();
    const std::string note = data.notes().at(0);
    EXPECT_NE(note.find(fmt::format("{} pair{} in", fit.size(), fit.size() == 1 ? "" : "s")), std::string::npos) << note;
    EXPECT_EQ(note.find(fmt::format("; {} longer than a window", out)) != std::string::npos, out > 0) << note;
  }
}

TEST(preference, data_splits_never_separate_a_pair) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 10; ++draw) {
    const Corpus corpus(std::vector<Index>(2 * (5 + random() % 20), 4));
    std::vector<std::int64_t> numbers;
    for (const Split split : {Split::train, Split::validation}) {
      DatasetOptions options = corpus.options(7, "2,1,0");
      options.which = split;
      const Dataset data(options);
      for (std::int64_t n = 0; n < data.per_epoch(0); ++n) {
        const Sample s = data.sample(n);
        ASSERT_EQ(s.texts.size(), 2u);
        numbers.push_back(s.texts[0].number);
      }
    }
    std::ranges::sort(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], std::int64_t(2 * i));
  }
}

TEST(preference, reference_log_probabilities_are_read_from_jsonl) {
  const Corpus corpus({4, 4, 3, 5}), odd({4, 4, 3});
  DatasetOptions options = corpus.options(8);
  const auto refused = [&](const DatasetOptions& o) {
    return error_of([&] {
      const Dataset data(o);
      for (std::int64_t n = 0; n < data.per_epoch(0); ++n) data.sample(n);
    });
  };
  EXPECT_EQ(refused(options).code, Exit::ok) << "evaluation needs no reference";
  EXPECT_EQ(refused(odd.options(8)).code, Exit::data);
  options.pairs = Pairs::with_reference;
  const Error missing = refused(options);
  EXPECT_EQ(missing.code, Exit::missing);
  EXPECT_NE(std::string(missing.what()).find("gyrfalcon eval MODEL --objective preference"), std::string::npos) << missing.what();
  const auto written = [&](const std::string& text) {
    std::ofstream(corpus.prefix.string() + "_reference.jsonl") << text;
    return refused(options);
  };
  const std::string first = R"({"pair":1,"chosen":-1.5,"rejected":-2})", second = R"({"pair":0,"chosen":-3,"rejected":-4})";
  EXPECT_EQ(written(first + "\n" + second + "\n").code, Exit::ok);
  const Dataset data(options);
  for (std::int64_t n = 0; n < data.per_epoch(0); ++n)
    for (const TextSpan& text : data.sample(n).texts) EXPECT_EQ(text.reference, (std::vector<double>{-3, -4, -1.5, -2}[text.number]));
  const auto notes = [&] {
    const std::vector<std::string> notes = Dataset(options).notes();
    return notes.empty() ? "" : notes.back();
  };
  EXPECT_NE(notes().find("not named in the file"), std::string::npos) << notes();
  const std::string model = R"({"model":"/a/b","xxh3":"0123456789abcdef"})";
  EXPECT_EQ(written(model + "\n" + first + "\n" + second + "\n").code, Exit::ok);
  EXPECT_NE(notes().find("_reference.jsonl: the reference model is /a/b (XXH3 0123456789abcdef)"), std::string::npos) << notes();
  for (const std::string& wrong : {first + "\n" + model + "\n" + second, std::string(R"({"model":"a"})"), R"({"model":4,"xxh3":"1"})" + first}) {
    EXPECT_EQ(written(wrong).code, Exit::data) << wrong;
  }
  for (const std::string& wrong : {first + "\n", first + "\n" + first + "\n", std::string(R"({"pair":2,"chosen":-1,"rejected":-1})"),
                                   std::string(R"({"pair":0,"chosen":"x","rejected":-1})"), std::string("no"), std::string(R"({"pair":-1})")}) {
    const Error error = written(wrong);
    EXPECT_EQ(error.code, Exit::data) << wrong;
    EXPECT_NE(std::string(error.what()).find("_reference.jsonl"), std::string::npos) << error.what();
  }
  options = corpus.options(8), options.separate = false;
  EXPECT_EQ(refused(options).code, Exit::config);
}

TEST(preference, json_line_holds_a_prompt_and_two_responses) {
  const PairedResponses pair = read_pair(R"({"prompt": "a", "chosen": "b", "rejected": "c", "score": 1})");
  ASSERT_EQ(pair.problem, "");
  ASSERT_EQ(pair.chosen.size(), 2u);
  EXPECT_EQ(pair.chosen[0].text + pair.chosen[1].text + pair.rejected[0].text + pair.rejected[1].text, "abac");
  EXPECT_TRUE(!pair.chosen[0].learned && pair.chosen[1].learned && !pair.rejected[0].learned && pair.rejected[1].learned);
  EXPECT_EQ(read_pair(R"({"chosen": "b", "rejected": "c"})").rejected.size(), 1u);
  for (const char* wrong : {R"({"prompt": "a", "chosen": "b"})", R"({"chosen": "b", "rejected": ""})", R"({"chosen": 1, "rejected": "c"})",
                            R"({"prompt": [], "chosen": "b", "rejected": "c"})", "[]", ""})
    EXPECT_NE(read_pair(wrong).problem, "") << wrong;
}

// Each objective (language model, classification, tagging, preference) is one file of fewer than 100 lines that defines
// samples, loss and predictions. It mentions no ranks, groups or communication.
TEST(preference, objective_sources_are_short_and_free_of_parallelism) {
  for (const char* task : {"next_token", "classify", "tag", "preference"}) {
    std::ifstream file(fs::path(GYR_SOURCE_DIR) / "modules" / "objectives" / (std::string(task) + ".cpp"));
    int lines = 0;
    bool registers = false;
    for (std::string line; std::getline(file, line); ++lines) {
      registers |= line.starts_with("const RegisteredObjective ");
      for (const char* word :
           {"rank", "Axis", "ommunicator", "all_reduce", "gather", "context", "a.tensor", "pipeline", "stream.hpp", "shard", "src/"})
        EXPECT_EQ(line.find(word), std::string::npos) << task << ".cpp:" << lines + 1 << ": " << line;
    }
    EXPECT_TRUE(registers) << task;
    EXPECT_LT(lines, 100) << task;
  }
}

}  // namespace
}  // namespace gyr::testing::preference_suite
