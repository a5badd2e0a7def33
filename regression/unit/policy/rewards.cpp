// SPDX-License-Identifier: BSD-3-Clause
// Rules that reward answers: values by hand, drawn cases against plain definitions, and settings that are refused.
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/deck/deck.hpp"
#include "src/policy/rewards/normalize.hpp"
#include "src/policy/rewards/rational.hpp"
#include "src/policy/rewards/reward.hpp"

namespace gyr::testing::rewards_suite {
namespace {

using Value = std::optional<double>;
using Ids = std::vector<std::int32_t>;

std::vector<RewardConfig> configs_of(const std::string& text) {
  Deck deck = Deck::parse("rl: {rewards: {" + text + "}}\n", "d.yaml");
  const auto all = read_rewards(deck.section("rl", "policy training").section("rewards", "rewards"));
  deck.finish();
  return all;
}

// A reward `r` with these keys, and one answer at a time.
struct Judge {
  explicit Judge(const std::string& keys) : reward(make_reward(configs_of("r: {" + keys + "}").at(0), "")) {}
  Value operator()(const std::string& text, const Json& right = nullptr) const { return of({}, text, {{"right", right}}); }
  Value operator()(const Ids& tokens, const Json& right = nullptr) const { return of(tokens, "", {{"right", right}}); }
  Value of(const Ids& tokens, const std::string& text, const Json& fields) const {
    const Answer answer{17, 2, tokens, text, true, &fields, "line 18 of p_fields.jsonl"};
    return reward->of({answer}).at(0);
  }
  std::unique_ptr<Reward> reward;
};

std::string refused(const std::string& rewards, Exit code = Exit::config) {
  const Error error = error_of([&] {
    for (const RewardConfig& c : configs_of(rewards)) make_reward(c, "");
  });
  EXPECT_EQ(error.code, code) << rewards;
  return error.what();
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(rewards, exact_compares_texts_after_normalization) {
  const Judge plain("type: exact, field: right"), raw("type: exact, field: right, normalize: []");
  EXPECT_EQ(plain(" Paris\n", "Paris"), 1);
  EXPECT_EQ(plain("paris", "Paris"), 0);
  EXPECT_EQ(raw(" Paris", "Paris"), 0);
  EXPECT_EQ(plain("4", 4), 1);
  EXPECT_EQ(plain("4.0", 4), 0);
  EXPECT_EQ(plain("true", true), 1);
  const Judge all("type: exact, field: right, normalize: [strip, lower, spaces, punctuation]");
  EXPECT_EQ(all("\t\xc3\x89tienne,\n  le  GRAND!", "\xc3\xa9tienne le grand"), 1);
  EXPECT_EQ(all("a - b", "a b"), 1) << "the dash leaves two spaces, which become one";
  EXPECT_EQ(all("ab", "a b"), 0);
  EXPECT_EQ(normalized(" a\xff ", {"strip"}), "a\xef\xbf\xbd");
  EXPECT_EQ(normalized(" \n ", {"strip"}), "");
  EXPECT_EQ(normalized(" \n a", {"spaces"}), " a");
}

TEST(rewards, normalization_is_idempotent) {
  std::mt19937 random(seed_of_run());
  const std::string letters[] = {"a", "B", " ", "\n", ",", "\xc3\x89", "\xc2\xa0", "\xe2\x80\x94", "\xff"};
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (unsigned n = random() % 9; n > 0; --n) text += letters[random() % std::size(letters)];
    std::vector<std::string> steps;
    for (const char* step : {"strip", "lower", "spaces", "punctuation"})
      if (random() % 2) steps.push_back(step);
    const std::string once = normalized(text, steps);
    EXPECT_EQ(normalized(once, steps), once) << text;
    EXPECT_EQ(normalized(text, {}).size() >= once.size(), true);
  }
}

TEST(rewards, regex_searches_or_matches_within_its_steps) {
  const Judge search("type: regex, pattern: '\\d+ apples?'"), match("type: regex, pattern: '\\d+ apples?', mode: match");
  EXPECT_EQ(search("I have 12 apples."), 1);
  EXPECT_EQ(match("I have 12 apples."), 0);
  EXPECT_EQ(match("12 apple"), 1);
  EXPECT_EQ(search("apples"), 0);
  EXPECT_EQ(Judge("type: regex, pattern: '^.$', mode: match")("\xc3\xa9"), 1) << "UTF-8";
  EXPECT_EQ(Judge("type: regex, pattern: 'a'")("\xff\xfe a"), 1) << "invalid UTF-8";
  const Judge slow("type: regex, pattern: '(a+)+$', most_steps: 100000");
  EXPECT_EQ(slow("aaaa"), 1);
  EXPECT_EQ(slow(std::string(40, 'a') + "b"), Value()) << "exponential number of steps";
  const Judge everywhere("type: regex, pattern: '[ab]*[0-9]', most_steps: 10000");
  EXPECT_EQ(everywhere(std::string(1000, 'a')), 0);
  EXPECT_EQ(everywhere(std::string(20000, 'a')), Value()) << "the limit is that of the complete search";
  EXPECT_TRUE(has(refused("r: {type: regex, pattern: 'a('}"),
                  "rl.rewards.r.pattern = a( is no regular expression: missing closing parenthesis at character 2"));
}

TEST(rewards, choice_takes_the_last_option) {
  const Judge choice("type: choice, field: right, options: [A, B, AB, 'no', 'yes']"),
      words("type: choice, field: right, options: [A, 'no', 'yes'], whole_words: true");
  EXPECT_EQ(choice("A or B? B", "B"), 1);
  EXPECT_EQ(choice("A or B? B", "A"), 0);
  EXPECT_EQ(choice("it is AB", "AB"), 1) << "the longest that ends there";
  EXPECT_EQ(choice("it is AB", "B"), 0);
  EXPECT_EQ(choice("", "A"), 0);
  EXPECT_EQ(choice("yes, I know", "no"), 1);
  EXPECT_EQ(words("yes, I know", "yes"), 1);
  EXPECT_EQ(words("yes. A dog", "A"), 1);
  EXPECT_EQ(words("(A) Apples", "A"), 1);
  EXPECT_EQ(words("no\xc3\xa9", "no"), 0) << "a letter that is not ASCII";
  EXPECT_TRUE(has(error_of([&] { choice("A", "C"); }).what(), "has \"C\" under it; the field must be one of rl.rewards.r.options"));
}

TEST(rewards, number_reads_the_last_number) {
  const Judge number("type: number, field: right");
  const std::tuple<const char*, Json, double> cases[] = {
      {"2 + 2 = 4", 4, 1},
      {"It is 42.", 42, 1},
      {"42 or 43", 42, 0},
      {"nothing", 42, 0},
      {"", 0, 0},
      {"-3", -3, 1},
      {"x=-3", -3, 1},
      {"5-3", 3, 1},
      {"f(2)-3", 3, 1},
      {"-0", 0, 1},
      {"1,234,567.50", 1234567.5, 1},
      {"1,23", 23, 1},
      {"1,2345", 2345, 1},
      {"1234,567", 567, 1},
      {".5", "1/2", 1},
      {"0.50", 0.5, 1},
      {"0.1", 0.1, 1},
      {"1/3", "2/6", 1},
      {"1/3", 0.3333333333333333, 0},
      {"-1/2", -0.5, 1},
      {"3/0", 0, 1},
      {"1e3", 1000, 1},
      {"1.5E-2", "0.015", 1},
      {"2e", 2, 1},
      {"2e+", 2, 1},
      {"1e1000", "10e999", 1},
      {"1e1000", "1e1001", 0},
      {"1e300", 1e300, 1},
      {"100000000000000000000000000001", "100000000000000000000000000000", 0},
      {"the answer is \\boxed{7}, not 8", 7, 1},
      {"\\boxed{7} and then \\boxed{x = 8}", 8, 1},
      {"\\boxed{\\frac{1}{2}}", 2, 1},
      {"\\boxed{7} then \\boxed{8", 7, 1},
      {"\\boxed{} 9", 9, 0},
      {"steps 1 2 3\n#### 72\nand 5", 72, 1},
      {"#### 1\n#### 2", 2, 1},
      {"#### 1 \\boxed{2}", 2, 1},
      {"\\boxed{2} #### 1", 1, 1},
      {"72", "Add 70 and 2.\n#### 72", 1},
  };
  for (const auto& [text, right, expected] : cases) EXPECT_EQ(number(text, right), expected) << text << " against " << right;
  EXPECT_TRUE(has(error_of([&] { number("4", "four"); }).what(), "has \"four\" under it; the field must be a number, or a string that has one"));
  EXPECT_TRUE(has(error_of([&] { number("4", Json::array({4})); }).what(), "the field must be a string, a number or a truth value"));
}

TEST(rewards, number_equals_rational_arithmetic) {
  std::mt19937 random(seed_of_run());
  const Judge number("type: number, field: right");
  int equals = 0;
  for (int i = 0; i < 3000; ++i) {
    // value p / q, written as a fraction of decimals with shifted points
    std::int64_t p[2], q[2];
    std::string text[2];
    for (int k = 0; k < 2; ++k) {
      const std::int64_t factor = 1 + random() % 3;
      p[k] = (std::int64_t(random() % 7) - 3) * factor, q[k] = (1 + random() % 4) * factor;
      const int shift = int(random() % 3);
      const auto shown = [&](std::int64_t x) {
        const std::string digits = std::to_string(std::abs(x)), sign = x < 0 ? "-" : "";
        if (shift == 0) return sign + digits;
        if (shift == 1) return sign + digits + (random() % 2 ? "e-2" : ".00e-2");
        return sign + "0.0" + std::string(digits.size() < 2 ? "0" : "") + digits + "e1";
      };
      text[k] = shown(p[k]) + "/" + shown(q[k]);
      if (shift == 2 && (std::abs(p[k]) < 10) != (q[k] < 10)) text[k] = std::to_string(p[k]) + "/" + std::to_string(q[k]);
    }
    const bool same = p[0] * q[1] == p[1] * q[0];
    equals += same;
    EXPECT_EQ(number("so it is " + text[0], text[1]), same) << text[0] << " against " << text[1];
  }
  EXPECT_GT(equals, 100);
}

TEST(rewards, large_products_are_exact) {
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t a = random() >> (random() % 60), b = (random() >> (random() % 60)) | 1, k = 1 + random() % 1'000'000'000;
    const auto times = [](std::uint64_t x, std::uint64_t y) {
      unsigned __int128 value = (unsigned __int128)x * y;
      std::string digits;
      for (; value > 0; value /= 10) digits.insert(digits.begin(), char('0' + int(value % 10)));
      return digits.empty() ? std::string("0") : digits;
    };
    const auto x = last_number(std::to_string(a) + "/" + std::to_string(b)), y = last_number(times(a, k) + "/" + times(b, k));
    ASSERT_TRUE(x && y);
    EXPECT_TRUE(equal(*x, *y)) << a << "/" << b << " times " << k;
    EXPECT_FALSE(equal(*x, *last_number(times(a + 1, k) + "/" + times(b, k)))) << a << "/" << b;
    EXPECT_NEAR(to_double(*x), double(a) / double(b), 1e-15 * double(a) / double(b));
  }
}

TEST(rewards, tolerance_is_relative) {
  const Judge number("type: number, field: right, tolerance: 0.01");
  EXPECT_EQ(number("3.14", 3.14159), 1);
  EXPECT_EQ(number("3.1", 3.14159), 0);
  EXPECT_EQ(number("99", 100), 1);
  EXPECT_EQ(number("-99", 100), 0);
  EXPECT_EQ(number("0.001", 0), 0);
  EXPECT_EQ(number("0.0", 0), 1);
  EXPECT_EQ(number("1e999", "1e1000"), 0) << "values beyond a double are compared exactly";
}

TEST(rewards, format_requires_each_tag_once_in_order) {
  const Judge format("type: format, tags: [think, answer]");
  EXPECT_EQ(format("<think>a</think><answer>b</answer>"), 1);
  EXPECT_EQ(format("Well, <think>a\n</think>\n<answer> b </answer>\n"), 1);
  for (const char* wrong :
       {"", "<think>a</think>", "<answer>b</answer><think>a</think>", "<think>a<answer>b</answer></think>", "<think>a</think><answer>b</answer>.",
        "<think> </think><answer>b</answer>", "<think></think><answer>b</answer>", "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a<think>b</think><answer>c</answer>", "</think>a<think><answer>b</answer>", "<think>a</think><answer>b"})
    EXPECT_EQ(format(wrong), 0) << wrong;
}

TEST(rewards, length_and_tokens_count_tokens) {
  const Judge target("type: length, target: 4, scale: 2"), most("type: length, most: 2");
  EXPECT_EQ(target(Ids{1, 2}), -1);
  EXPECT_EQ(target(Ids{1, 2, 3, 4, 5}), -0.5);
  EXPECT_EQ(most(Ids{1, 2}), 1);
  EXPECT_EQ(most(Ids{1, 2, 3}), 0);
  const Judge tokens("type: tokens, field: right");
  EXPECT_EQ(tokens(Ids{1, 2, 1, 3}, 1), 0.5);
  EXPECT_EQ(tokens(Ids{1, 2, 1, 3}, Json::array({1, 3})), 0.75);
  EXPECT_EQ(tokens(Ids{}, 1), 0);
  EXPECT_TRUE(has(error_of([&] { tokens(Ids{1}, "1"); }).what(), "the field must be a token id or a list of token ids"));
  EXPECT_TRUE(has(error_of([&] { tokens(Ids{1}, Json::array({1, 1.5})); }).what(), "the field must be a token id or a list of token ids"));
}

TEST(rewards, repetition_equals_a_plain_count) {
  std::mt19937 random(seed_of_run());
  EXPECT_EQ(Judge("type: repetition, ngram: 2")(Ids{1, 2, 1, 2, 1}), -0.5);
  EXPECT_EQ(Judge("type: repetition")(Ids{1, 2}), 0);
  EXPECT_FALSE(std::signbit(*Judge("type: repetition")(Ids{1, 2, 3}))) << "0, not -0";
  for (int i = 0; i < 300; ++i) {
    const std::size_t n = 1 + random() % 4;
    Ids tokens(random() % 40);
    for (std::int32_t& token : tokens) token = std::int32_t(random() % 3);
    std::set<Ids> seen;
    double repeated = 0, all = 0;
    for (std::size_t at = 0; at + n <= tokens.size(); ++at, ++all)
      repeated += !seen.insert(Ids(tokens.begin() + std::ptrdiff_t(at), tokens.begin() + std::ptrdiff_t(at + n))).second;
    EXPECT_EQ(Judge(fmt::format("type: repetition, ngram: {}", n))(tokens), all > 0 ? -repeated / all : 0);
  }
}

TEST(rewards, values_are_clipped_but_not_weighted) {
  const Judge length("type: length, target: 0, clip: [-2, -1], weight: 10");
  EXPECT_EQ(length(Ids{}), -1);
  EXPECT_EQ(length(Ids{1, 2, 3}), -2);
  EXPECT_EQ(length(Ids{1, 2}), -2);
}

TEST(rewards, missing_field_is_refused_with_place_and_keys) {
  for (const char* type : {"exact", "choice, options: [a]", "number", "tokens"}) {
    const Judge judge(std::string("field: target, type: ") + type);
    const Error error = error_of([&] { judge.of({1}, "a", {{"anwser", 4}, {"level", 1}}); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_STREQ(
        error.what(),
        "rl.rewards.r.field is target, but line 18 of p_fields.jsonl has no such key (its keys are anwser, level); name a key that all lines "
        "have");
    EXPECT_TRUE(has(error_of([&] { judge.of({1}, "a", Json::object()); }).what(), "has no such key (it has none)"));
  }
}

// Fields and answers of any shape get a value, no value, or a refusal that names the place of the field.
TEST(rewards, fields_of_any_shape_never_crash) {
  Mutation mutation(seed_of_run());
  const std::vector<Judge> judges = [] {
    std::vector<Judge> all;
    for (const char* type : {"type: exact, normalize: [strip, lower, spaces, punctuation]", "type: choice, options: [a, 'b c'], whole_words: true",
                             "type: number", "type: number, tolerance: 0.01", "type: tokens"})
      all.emplace_back(std::string("field: right, ") + type);
    return all;
  }();
  int valued = 0, refused = 0;
  for (int draw = 0; draw < 3000; ++draw) {
    std::string text;
    for (unsigned n = mutation.up_to(12); n > 0; --n) {
      static const char* const pieces[] = {"1",    "0", "-",   "e", "/",  ",",    ".",    "\\boxed{",  "}",
                                           "####", "a", "b c", " ", "\n", "\xff", "\xc3", "9999999999"};
      text += pieces[mutation.up_to(std::size(pieces) - 1)];
    }
    Json fields{{"right", mutation.value()}, {"other", 1}};
    if (mutation.up_to(3) == 0) fields["right"] = text;
    try {
      const Value value = judges[mutation.up_to(unsigned(judges.size()) - 1)].of({1, -1, 1 << 30}, text, fields);
      EXPECT_TRUE(!value || (*value >= 0 && *value <= 1)) << text;
      ++valued;
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code, Exit::data) << error.what();
      EXPECT_TRUE(has(error.what(), "line 18 of p_fields.jsonl")) << error.what();
    }
  }
  EXPECT_GT(valued, 300);
  EXPECT_GT(refused, 300);
}

TEST(rewards, settings_keep_their_order_and_defaults) {
  const auto all = configs_of("b: {type: number, field: right, weight: 0.5, clip: [0, 1]}, a: {type: tokens, field: t}, c: {type: length, most: 5}");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "b");
  EXPECT_EQ(all[1].name, "a");
  EXPECT_EQ(all[0].weight, 0.5);
  EXPECT_EQ(all[0].clip, (std::vector<double>{0, 1}));
  EXPECT_EQ(all[1].weight, 1);
  EXPECT_EQ(std::vector<bool>({needs_text(all[0]), needs_text(all[1]), needs_text(all[2])}), (std::vector<bool>{true, false, false}));
  const auto program =
      configs_of("p: {type: process, command: [judge.py, -v], on_failure: none}, q: {type: process, command: [x], on_failure: zero}");
  EXPECT_EQ(program[0].on_failure, OnFailure::none);
  EXPECT_EQ(program[1].on_failure, OnFailure::zero);
  EXPECT_EQ(program[0].command, (std::vector<std::string>{"judge.py", "-v"}));
  Deck described = Deck::describe();
  read_rewards(described.section("rl", "policy training").section("rewards", "rewards"));
  const std::string help = described.help();
  for (const char* key : {"rl.rewards.NAME", "pattern", "most_steps", "timeout_seconds", "whole_words", "ngram"}) EXPECT_TRUE(has(help, key)) << key;
}

TEST(rewards, effective_settings_read_back_the_same) {
  for (const char* keys :
       {"type: number, field: right, tolerance: 0.5", "type: length, most: 5", "type: length, target: 5", "type: regex, pattern: 'a: [b]'",
        "type: process, command: [a, 'b c'], on_failure: none, processes: 3", "type: choice, field: x, options: [a, b]"}) {
    Deck deck = Deck::parse("rl: {rewards: {r: {" + std::string(keys) + "}}}\n", "d.yaml");
    read_rewards(deck.section("rl", "").section("rewards", ""));
    const std::string first = deck.effective();
    Deck again = Deck::parse(first, "e.yaml");
    read_rewards(again.section("rl", "").section("rewards", ""));
    again.finish();
    EXPECT_EQ(again.effective(), first);
  }
}

TEST(rewards, wrong_settings_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"r: {}", "rl.rewards.r.type must be given"},
      {"r: {type: exat, field: x}", "exact"},
      {"r: {type: exact}", "rl.rewards.r.field must be given"},
      {"r: {type: exact, field: ''}", "not empty"},
      {"r: {type: regex}", "rl.rewards.r.pattern must be given"},
      {"r: {type: choice, field: x}", "rl.rewards.r.options must be given"},
      {"r: {type: choice, field: x, options: ['']}", "rl.rewards.r.options has an empty option"},
      {"r: {type: format, tags: []}", "not empty"},
      {"r: {type: process}", "rl.rewards.r.command must be given"},
      {"r: {type: length}", "type length needs either target or most; give one of them"},
      {"r: {type: length, most: 3, target: 2}", "type length needs either target or most; give one of them"},
      {"r: {type: length, target: 2, scale: 0}", "> 0"},
      {"r: {type: length, target: 2, clip: [1]}", "[low, high] with low <= high"},
      {"r: {type: length, target: 2, clip: [1, 0]}", "[low, high] with low <= high"},
      {"r: {type: length, target: 2, weight: .inf}", "finite"},
      {"r: {type: number, field: x, tags: [a]}",
       "type number does not read tags; remove it from the deck, or on the command line with '~rl.rewards.r.tags'"},
      {"r: {type: tokens, field: x, normalize: [lower]}", "type tokens does not read normalize; remove it from the deck"},
      {"r: {type: tokens, field: x, tolerance: 1}", "type tokens does not read tolerance"},
      {"r: {type: exact, field: x, normalise: [lower]}", "normalize"},
      {"r: {type: process, command: [a], on_failure: ignore}", "stop"},
  };
  for (const auto& [deck, part] : cases) EXPECT_TRUE(has(refused(deck), part)) << deck << ": " << refused(deck);
}

}  // namespace gyr::testing::rewards_suite
