// SPDX-License-Identifier: BSD-3-Clause
// The page of samples: statistics of its suspects equal plain computations, a falling logged rule is named first, texts from outside stay
// text, and the page keeps its limit.
#include "src/samples/samples_page.hpp"

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/html.hpp"
#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/policy/iteration_figures.hpp"
#include "src/policy/rollout_file.hpp"
#include "src/samples/answer_html.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::samples_page_suite {
namespace {

namespace fs = std::filesystem;

using Values = std::vector<double>;

// An output folder of policy training with two rules, of which `gold` is only logged.
class RunFolder {
 public:
  RunFolder() { deck(""); }

  void deck(const std::string& tokenizer) {
    folder_.write("deck.yaml",
                  "rl:\n  iterations: 12\n  rewards:\n    proxy: {type: length, most: 9}\n    gold: {type: length, most: 5, weight: 0}\n"
                  "data: {tokenizer: '" +
                      tokenizer + "'}\n");
  }
  // Sets the rewards to proxy, and the rules to proxy and gold.
  static void reward(Rollouts& r, double proxy, double gold) {
    r.reward_names = {"proxy", "gold"};
    for (Rollout& x : r.all) x.reward = proxy + 0.01 * double(x.sample), x.rewards = {x.reward, gold + 0.01 * double(x.sample)};
  }
  void add(const Rollouts& r) {
    write_rollouts(rollout_path(folder_.path(), r.iteration), r);
    PolicyConfig c;
    c.iterations = 12;
    lines_ += iteration_json(figures_of(r, targets_of(r, c), c, 1), 1.7e9 + double(r.iteration)) + "\n";
    folder_.write("metrics.jsonl", lines_);
  }
  void add_course(std::mt19937& random, const std::function<std::pair<double, double>(double)>& rewards, Index iterations = 12) {
    for (Index i = 0; i < iterations; ++i) {
      Rollouts r = drawn_rollouts(random);
      r.iteration = i;
      const auto [proxy, gold] = rewards(double(i) / double(iterations - 1));
      reward(r, proxy, gold);
      add(r);
    }
  }
  const fs::path& path() const { return folder_.path(); }
  const Folder& folder() const { return folder_; }
  SamplesPage page(const SamplesOptions& options = {}) const {
    return samples_page(path(), options, [](const std::string&) {});
  }

 private:
  Folder folder_;
  std::string lines_;
};

Values drawn_values(std::mt19937& random, std::size_t n, unsigned distinct) {
  Values values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(double(random() % distinct) / 7 - 3);
  return values;
}

// Rank of each value by counting: the number of smaller values, and half of the number of other equal ones.
Values counted_ranks(const Values& values) {
  Values ranks;
  for (const double v : values) {
    double rank = -0.5;
    for (const double other : values) rank += other < v ? 1 : other == v ? 0.5 : 0;
    ranks.push_back(rank);
  }
  return ranks;
}

// Pearson's r by the formula of raw sums.
double plain_pearson(const Values& x, const Values& y) {
  long double n = x.size(), sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sx += x[i], sy += y[i], sxx += x[i] * x[i], syy += y[i] * y[i], sxy += x[i] * y[i];
  return double((n * sxy - sx * sy) / std::sqrt((n * sxx - sx * sx) * (n * syy - sy * sy)));
}

TEST(samples_page, correlations_equal_plain_formulas) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    const std::size_t n = 3 + random() % 40;
    const Values x = drawn_values(random, n, 2 + random() % 30), y = drawn_values(random, n, 2 + random() % 30);
    if (std::set(x.begin(), x.end()).size() < 2 || std::set(y.begin(), y.end()).size() < 2) {
      EXPECT_TRUE(std::isnan(pearson(x, y)) && std::isnan(spearman(x, y)));
      continue;
    }
    EXPECT_NEAR(pearson(x, y), plain_pearson(x, y), 1e-10);
    EXPECT_NEAR(spearman(x, y), plain_pearson(counted_ranks(x), counted_ranks(y)), 1e-10);
  }
}

TEST(samples_page, facts_of_answers_equal_plain_counts) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    Rollouts r = drawn_rollouts(random);
    for (Rollout& x : r.all)
      for (std::size_t t = std::size_t(x.begin); t < x.tokens.size(); ++t) x.tokens[t] = Token(random() % 2);  // many repetitions
    const SampledIteration s = sampled(r, {}, 1);
    double duplicated = 0;
    for (std::size_t first = 0; first < r.all.size(); first += std::size_t(r.group)) {
      std::set<std::vector<Token>> distinct;
      for (std::size_t i = first; i < first + std::size_t(r.group); ++i)
        distinct.insert({r.all[i].tokens.begin() + r.all[i].begin, r.all[i].tokens.end()});
      duplicated += double(r.group) - double(distinct.size());
    }
    EXPECT_NEAR(s.duplicated(), duplicated / double(r.all.size()), 1e-12);
    for (std::size_t i = 0; i < r.all.size(); ++i) {
      const auto begin = r.all[i].tokens.begin() + r.all[i].begin;
      std::set<std::vector<Token>> grams;
      const Index count = std::max<Index>(0, r.all[i].length() - repeated_ngram + 1);
      for (Index t = 0; t < count; ++t) grams.insert({begin + t, begin + t + repeated_ngram});
      EXPECT_NEAR(s.facts[i].repeated, count == 0 ? 0 : 1 - double(grams.size()) / double(count), 1e-12);
    }
    const double best = *s.facts[s.best.front()].reward, worst = *s.facts[s.worst.front()].reward;
    for (const AnswerFacts& f : s.facts) EXPECT_TRUE(*f.reward <= best && *f.reward >= worst);
    for (const auto& some : {s.best, s.worst, s.drawn}) EXPECT_EQ(some.size(), std::min(shown_each, r.all.size()));
  }
}

// Removing the mean of each prompt leaves the correlation within the prompts, whatever the prompts have in common.
TEST(samples_page, length_correlation_ignores_differences_between_prompts) {
  std::mt19937 random(seed_of_run());
  int correlated = 0;
  for (int draw = 0; draw < 50; ++draw) {
    std::vector<SampledIteration> sampled_iterations;
    Values rewards, lengths;
    for (int i = 0; i < 3; ++i) {
      Rollouts r = drawn_rollouts(random);
      for (std::size_t k = 0; k < r.all.size(); ++k) *r.all[k].reward += 0.5 * double(r.all[k].length());
      for (std::size_t first = 0; first < r.all.size(); first += std::size_t(r.group)) {
        double reward = 0, length = 0;
        for (std::size_t k = first; k < first + std::size_t(r.group); ++k)
          reward += *r.all[k].reward / double(r.group), length += double(r.all[k].length()) / double(r.group);
        for (std::size_t k = first; k < first + std::size_t(r.group); ++k)
          rewards.push_back(*r.all[k].reward - reward), lengths.push_back(double(r.all[k].length()) - length);
      }
      for (Rollout& x : r.all) *x.reward += 100 * double(x.prompt);
      sampled_iterations.push_back(sampled(r, {}, 1));
    }
    const double r = length_correlation(sampled_iterations).r;
    if (!std::isfinite(plain_pearson(rewards, lengths))) continue;
    EXPECT_NEAR(r, plain_pearson(rewards, lengths), 1e-9);
    correlated += r > 0.2;
  }
  EXPECT_GT(correlated, 25);
}

TEST(samples_page, unrelated_values_are_no_trend) {
  std::mt19937 random(seed_of_run());
  std::normal_distribution<double> normal;
  int trends = 0;
  for (int draw = 0; draw < 1000; ++draw) {
    Values at(8 + random() % 200), value(at.size());
    std::iota(at.begin(), at.end(), 0.0);
    for (double& v : value) v = normal(random);
    const Trend t = trend_of(at, value);
    trends += rises(t) || falls(t);
    // A rise by 100 standard deviations is a trend.
    for (std::size_t i = 0; i < value.size(); ++i) value[i] += 100 * at[i] / double(at.size());
    EXPECT_TRUE(rises(trend_of(at, value)));
    // An early fall before a long plateau is one, too, although its rank correlation is small.
    Values early(40), places(40);
    std::iota(places.begin(), places.end(), 0.0);
    for (std::size_t i = 0; i < early.size(); ++i) early[i] = (i < 3 ? 10.0 : 0) + 0.3 * normal(random);
    EXPECT_TRUE(falls(trend_of(places, early)));
  }
  EXPECT_LT(trends, 25) << "about one percent by the ranks";
}

TEST(samples_page, falling_logged_rule_is_the_first_suspect) {
  std::mt19937 random(seed_of_run());
  const auto noise = [&] { return 0.02 * (double(random() % 1000) / 1000 - 0.5); };
  RunFolder hacked, honest, late;
  hacked.add_course(random, [&](double t) { return std::pair(t + noise(), 0.8 - 0.5 * t + noise()); });
  honest.add_course(random, [&](double t) { return std::pair(t + noise(), 0.3 + 0.5 * t + noise()); });
  late.add_course(
      random, [&](double t) { return std::pair(t + noise(), 0.5 - std::abs(t - 0.5) + noise()); }, 40);
  for (const RunFolder* folder : {&hacked, &late}) {
    const SamplesPage page = folder->page();
    ASSERT_FALSE(page.suspects.empty());
    EXPECT_EQ(page.suspects.front().title, "The reward rises while `gold` falls");
    EXPECT_NE(page.html.find("The reward rises while <code>gold</code> falls"), std::string::npos);
    EXPECT_FALSE(page.suspects.front().evidence.empty());
  }
  for (const Suspect& s : honest.page().suspects) EXPECT_EQ(s.title.find("gold"), std::string::npos) << s.title;
}

TEST(samples_page, hostile_answers_stay_text) {
  std::mt19937 random(seed_of_run());
  const Tokenizer bytes(byte_vocabulary({}));
  RunFolder run;
  bytes.save(run.folder() / "tokenizer.json");
  run.deck((run.folder() / "tokenizer.json").string());
  const std::string hostile = "</script><img sr" + std::string("c=x onerror=\"alert(1)\"> ' & <!-- @NUMBERS@ @TOOLS@ \x1b[31m \xe2\x80\xae \xff");
  for (Index i = 0; i < 2; ++i) {
    Rollouts r = drawn_rollouts(random);
    r.iteration = i;
    for (Rollout& x : r.all) {
      const auto tokens = bytes.encode(hostile), prompt = bytes.encode("<b>@BODY@</b>");
      x.tokens = prompt, x.begin = Index(prompt.size());
      x.tokens.insert(x.tokens.end(), tokens.begin(), tokens.end());
      x.said.assign(tokens.size(), -1), x.old = x.said, x.reference = x.said, x.values.clear();
    }
    RunFolder::reward(r, 0.5, 0.5);
    r.reward_names = {"<i>proxy`", "gold"};
    run.add(r);
  }
  const std::string html = run.page().html;
  expect_well_formed(html);
  expect_self_contained(html);
  EXPECT_EQ(html.find('\x1b'), std::string::npos);
  EXPECT_NE(html.find("\\x1b"), std::string::npos) << "control characters are shown by their codes";
  EXPECT_NE(html.find("&lt;b&gt;@BODY@&lt;/b&gt;"), std::string::npos);
  EXPECT_EQ(data_of(html)["answers"].size(), occurrences(html, "<article "));
}

// The values of the page's data are those of the rollouts, and every shown token has one.
TEST(samples_page, page_has_a_value_per_shown_token) {
  std::mt19937 random(seed_of_run());
  RunFolder run;
  run.add_course(
      random, [](double t) { return std::pair(t, t); }, 20);
  const SamplesPage page = run.page({.iterations = 5});
  EXPECT_EQ(page.iterations, 5u);
  expect_well_formed(page.html);
  expect_self_contained(page.html);
  const Json data = data_of(page.html);
  std::size_t seen = 0;
  for (const std::int64_t iteration : chosen_iterations(read_policy_run(run.path()).stored, 5)) {
    const Rollouts r = read_rollouts(rollout_path(run.path(), iteration));
    for (const Rollout& x : r.all) {
      const std::string anchor = fmt::format("i{}-{}-{}", iteration, x.prompt, x.sample);
      if (!data["answers"].contains(anchor)) continue;
      ++seen;
      const Json& said = data["answers"][anchor]["log_prob"];
      for (std::size_t t = 0; t < x.said.size(); ++t) EXPECT_NEAR(said[said.size() == 1 ? 0 : t].get<double>(), x.said[t], 1e-3);
      const std::size_t at = page.html.find("id=\"" + anchor + "\""), end = page.html.find("</article>", at);
      const std::string article = page.html.substr(at, end - at);
      EXPECT_EQ(occurrences(article, "<i>") + occurrences(article, "<i "), x.said.size());
    }
  }
  EXPECT_EQ(seen, page.answers);
}

TEST(samples_page, token_texts_join_to_the_decoded_answer) {
  std::mt19937 random(seed_of_run());
  const Tokenizer bytes(byte_vocabulary({}));
  for (int draw = 0; draw < 200; ++draw) {
    std::string text;
    while (text.size() < 40)
      if (random() % 4 == 0) text += char(random() % 256);
      else append_character(text, char32_t(random() % 3 == 0 ? 0x1f600 + random() % 64 : 0x20 + random() % 0x700));
    const auto tokens = bytes.encode(text);
    std::string joined;
    std::size_t next = 5;
    for (const TokenText& t : token_texts(&bytes, tokens, 5, tokens.size())) {
      EXPECT_EQ(t.first, next);
      next += t.count, joined += t.text;
    }
    EXPECT_EQ(next, tokens.size());
    EXPECT_EQ(joined, lossy_utf8(bytes.decode(std::span(tokens).subspan(5))));
  }
  EXPECT_EQ(token_texts(nullptr, std::vector<std::int32_t>{3, 14, 15}, 1, 3)[1].text, "15 ");
}

TEST(samples_page, chosen_iterations_are_even_with_both_ends) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    std::vector<std::int64_t> stored(1 + random() % 200);
    std::iota(stored.begin(), stored.end(), 5);
    const Index count = 2 + Index(random() % 20);
    const auto chosen = chosen_iterations(stored, count);
    ASSERT_EQ(chosen.size(), std::min(stored.size(), std::size_t(count)));
    EXPECT_EQ(chosen.front(), stored.front());
    EXPECT_EQ(chosen.back(), stored.back());
    std::int64_t least = 1000, most = 0;
    for (std::size_t i = 1; i < chosen.size(); ++i)
      least = std::min(least, chosen[i] - chosen[i - 1]), most = std::max(most, chosen[i] - chosen[i - 1]);
    if (chosen.size() > 1) {
      EXPECT_TRUE(least > 0 && most - least <= 1);
    }
  }
}

TEST(samples_page, long_answers_are_shortened_to_the_limit) {
  std::mt19937 random(seed_of_run());
  RunFolder run;
  Rollouts r = drawn_rollouts(random);
  r.iteration = 0;
  for (Rollout& x : r.all)
    for (int t = 0; t < 5000; ++t)
      x.tokens.push_back(Token(random() % 11)), x.said.push_back(-0.123 * double(t % 7)), x.old.push_back(-1), x.reference.push_back(-2),
          x.values.clear();
  RunFolder::reward(r, 0.5, 0.5);
  run.add(r);
  const SamplesPage page = run.page({.megabytes = 0.3});
  EXPECT_LE(page.html.size(), 300'000u);
  EXPECT_GT(page.html.size(), 100'000u) << "the limit is used";
  EXPECT_NE(page.html.find("tokens left out"), std::string::npos);
  expect_well_formed(page.html);
  const Error error = error_of([&] { run.page({.megabytes = 0.01}); });
  EXPECT_EQ(error.code, Exit::usage);
  EXPECT_NE(std::string(error.what()).find("lower --iterations or raise --page-megabytes"), std::string::npos) << error.what();
}

// Iterations that a resumed run repeated count once, with their last values.
TEST(samples_page, repeated_iterations_count_once) {
  const Folder folder;
  folder.write("deck.yaml", "rl:\n  epochs: 2\n  rewards: {gold: {type: length, most: 5}}\n");
  std::string lines;
  const auto iteration = [&](int i, double reward) {
    lines += fmt::format("{{\"kind\":\"iteration\",\"iteration\":{},\"reward\":{}}}\n", i, reward);
  };
  const auto step = [&](int i, double entropy) { lines += fmt::format("{{\"kind\":\"step\",\"step\":{},\"entropy\":{}}}\n", i, entropy); };
  iteration(0, 1), step(1, 2), step(2, 4), iteration(1, 2), step(3, 1), iteration(2, 9);
  iteration(1, 3), step(3, 5), step(4, 7);
  folder.write("metrics.jsonl", lines);
  fs::create_directory(folder / "rollouts");
  folder.write("rollouts/iteration_00000001.h5", "");
  const PolicyRun run = read_policy_run(folder.path());
  EXPECT_EQ(run.series("reward").value, (Values{1, 3}));
  EXPECT_EQ(run.series("entropy").value, (Values{3, 6}));
  EXPECT_EQ(run.stored, std::vector<std::int64_t>{1});
}

TEST(samples_page, unusable_folders_are_refused_with_remedy) {
  std::mt19937 random(seed_of_run());
  const auto refused = [&](const std::function<void(RunFolder&)>& damage, Exit code, const std::string& message) {
    RunFolder run;
    run.add_course(
        random, [](double t) { return std::pair(t, t); }, 3);
    damage(run);
    const Error error = error_of([&] { run.page(); });
    EXPECT_EQ(error.code, code) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  };
  refused([](RunFolder& r) { fs::remove(r.path() / "metrics.jsonl"); }, Exit::missing, "pass the output.folder of a run of `train`");
  refused([](RunFolder& r) { r.folder().write("metrics.jsonl", "{\"kind\":\"step\",\"step\":1}\n"); }, Exit::data, "train.objective: policy");
  refused([](RunFolder& r) { fs::remove(r.path() / "deck.yaml"); }, Exit::missing, "restore the deck");
  refused([](RunFolder& r) { fs::remove_all(r.path() / "rollouts"); }, Exit::missing, "there is no file of rollouts");
  refused([](RunFolder& r) { put_contents(rollout_path(r.path(), 1), "damage"); }, Exit::data, "move this file to another folder");
  refused([](RunFolder& r) { fs::copy_file(rollout_path(r.path(), 0), rollout_path(r.path(), 2), fs::copy_options::overwrite_existing); }, Exit::data,
          "answers of iteration 0");
  refused([](RunFolder& r) { r.deck("/nowhere/tokenizer.json"); }, Exit::missing, "pass --tokenizer FILE");
}

}  // namespace
}  // namespace gyr::testing::samples_page_suite
