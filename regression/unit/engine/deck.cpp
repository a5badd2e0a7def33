// SPDX-License-Identifier: BSD-3-Clause
// Decks: one declaration generates help, echo and errors. Invalid input is refused with its position and a remedy.
#include "src/deck/deck.hpp"

#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "modules/settings/nearest.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/trials.hpp"
#include "src/commands/deck_arguments.hpp"

namespace gyr::testing::deck_suite {

using Strings = std::vector<std::string>;

namespace {

struct Settings {
  Index width, chunk, steps;
  int layers;
  double lr, clip;
  bool tied;
  std::string pattern, schedule, prefix;
  std::vector<double> betas;
  std::vector<Index> grid;
  std::optional<Index> seed;
  Strings files;

  bool operator==(const Settings&) const = default;
};

// Declares the settings of a small example program.
Settings declare(Deck& deck) {
  Settings a;
  Section& model = deck.section("model", "the model");
  a.width = model.need<Index>("width", "hidden size: elements per token between layers").positive().multiple_of(8).at_most(65536);
  a.layers = model.need<int>("layers", "number of blocks").positive();
  a.pattern = model.get("pattern", "P", "layer types").one_of({"P", "M", "*"});
  a.tied = model.get("tied_embeddings", false, "share the embedding matrix with the output head");
  Section& mamba = model.section("mamba", "state-space branch");
  a.chunk = mamba.get("chunk", 128, "SSD chunk length").unit("tokens").power_of_two().at_most(512);
  Section& train = deck.section("train", "length and speed of training");
  a.steps = train.need<Index>("steps", "optimizer steps").at_least(0);
  a.lr = train.get("learning_rate", 3e-4, "peak learning rate").positive().finite();
  a.clip = train.get("clip_norm", 1.0, "maximum gradient norm").above(0);
  a.betas = train.get("betas", std::vector<double>{0.9, 0.95}, "Adam beta1 and beta2").at_least(0).below(1);
  a.schedule = train.get("schedule", "cosine", "learning rate schedule").one_of({"constant", "linear", "cosine"});
  a.seed = train.get("seed", std::optional<Index>(1234), "seed of initial weights and data order").at_least(0);
  Section& run = deck.section("run", "output");
  a.grid = run.get("grid", std::vector<Index>{1, 1, 1}, "ranks along each axis").at_least(1);
  a.prefix = run.get("prefix", "out/run", "path prefix of the output").not_empty();
  a.files = run.get("files", Strings{}, "training data");
  deck.finish();
  return a;
}

const std::string good = R"(# a deck
model:
  width: 256
  layers: 4
  pattern: M
  tied_embeddings: true
  mamba:
    chunk: 64
train:
  steps: 100
  learning_rate: 1e-3
  clip_norm: 1
  betas: [0.9, 0.99]
  schedule: linear
  seed: null
run:
  grid: [1, 2, 4]
  prefix: "a: b # \t\"\\\u00e9"
  files: [x.bin, "0123", y z]
)";

// Exit code and message of the error, or Exit::ok if the deck is accepted.
std::pair<Exit, std::string> outcome(const std::string& text, const Strings& overrides = {}) {
  try {
    Deck deck = Deck::parse(text, "run.yaml", overrides);
    declare(deck);
  } catch (const Error& e) {
    return {e.code, e.what()};
  }
  return {Exit::ok, ""};
}

void expect_refused(const std::string& text, const Strings& expected, const Strings& overrides = {}, Exit code = Exit::config) {
  const auto [got, message] = outcome(text, overrides);
  EXPECT_EQ(got, code) << message;
  for (const std::string& part : expected) EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

// `good` with the first occurrence of `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to) {
  std::string text = good;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Strings lines_of(const std::string& text) {
  Strings lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const Strings& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

std::string key_of(const std::string& line) {
  const auto begin = line.find_first_not_of(' ');
  return line.substr(begin, line.find(':') - begin);
}

// One typing error: a letter is dropped, doubled, replaced or swapped with the next one.
std::string misspelt(std::string word, std::mt19937& random) {
  const std::string right = word;
  while (word == right) {
    const std::size_t i = random() % (word.size() - 1);
    switch (random() % 4) {
      case 0: word.erase(i, 1); break;
      case 1: word.insert(i, 1, word[i]); break;
      case 2: word[i] = char('a' + random() % 26); break;
      case 3: std::swap(word[i], word[i + 1]); break;
    }
  }
  return word;
}

}  // namespace

TEST(deck, returns_the_values_in_the_deck) {
  Deck deck = Deck::parse(good, "run.yaml");
  const Settings a = declare(deck);
  EXPECT_EQ(a.width, 256);
  EXPECT_EQ(a.layers, 4);
  EXPECT_EQ(a.pattern, "M");
  EXPECT_TRUE(a.tied);
  EXPECT_EQ(a.chunk, 64);
  EXPECT_EQ(a.lr, 1e-3);
  EXPECT_EQ(a.betas, (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(a.grid, (std::vector<Index>{1, 2, 4}));
  EXPECT_EQ(a.prefix, "a: b # \t\"\\\xc3\xa9");
  EXPECT_EQ(a.files, (Strings{"x.bin", "0123", "y z"}));
  EXPECT_FALSE(a.seed.has_value());
}

TEST(deck, missing_keys_take_their_defaults) {
  Deck deck = Deck::parse("model: {width: 8, layers: 1}\ntrain: {steps: 0}\nrun:\n", "run.yaml");
  const Settings a = declare(deck);
  EXPECT_EQ(a.chunk, 128);
  EXPECT_EQ(a.lr, 3e-4);
  EXPECT_EQ(a.seed, 1234);
  EXPECT_EQ(a.schedule, "cosine");
  EXPECT_FALSE(a.tied);
}

TEST(deck, effective_deck_reads_back_to_the_same_settings) {
  for (const std::string& text : {good, std::string("model: {width: 8, layers: 1}\ntrain: {steps: 0}\n")}) {
    Deck first = Deck::parse(text, "run.yaml", Strings{"train.clip_norm=inf", "run.prefix=\"a\\x07\\nb\""});
    const Settings a = declare(first);
    Deck second = Deck::parse(first.effective(), "checkpoint");
    EXPECT_EQ(declare(second), a);
    EXPECT_EQ(second.effective(), first.effective());
  }
}

TEST(deck, values_keep_their_bits_in_the_effective_deck) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const double x = __builtin_bit_cast(double, random());
    if (std::isnan(x)) continue;
    const YamlValue list = parse_yaml("x: [" + write_yaml(x) + "]", "test").items[0];
    std::vector<double> back;
    ASSERT_EQ(read_yaml(list, back), "") << write_yaml(x);
    EXPECT_EQ(back.at(0), x);
  }
}

TEST(deck, declared_keys_appear_in_help_and_effective_deck) {
  Deck deck = Deck::parse(good, "run.yaml");
  declare(deck);
  Deck described = Deck::describe();
  declare(described);
  const Strings keys = {"width",    "layers", "pattern", "tied_embeddings", "chunk", "steps", "learning_rate", "clip_norm", "betas",
                        "schedule", "seed",   "grid",    "prefix",          "files"};
  const std::string help = "\n" + described.help(), effective = deck.effective();
  std::size_t last = 0;
  for (const std::string& key : keys) {
    EXPECT_NE(help.find("\n" + key + " "), std::string::npos) << key;
    const auto at = effective.find(" " + key + ": ");
    EXPECT_NE(at, std::string::npos) << key;
    EXPECT_GT(at + 1, last) << key << " is out of order";
    last = at;
  }
  EXPECT_EQ(deck.help(), described.help());  // help does not depend on what the user wrote
}

// Sections with names of the user's choice.
std::vector<std::pair<std::string, Index>> named_widths(Deck& deck) {
  Section& models = deck.section("models", "models by name");
  std::vector<std::pair<std::string, Index>> widths;
  for (const std::string& name : models.names())
    widths.emplace_back(name, models.section(name, "a model").get("width", 7, "channels").positive().value());
  return widths;
}

TEST(deck, sections_may_have_free_names) {
  Deck deck = Deck::parse("models:\n  critic: {width: 3}\n  judge-2:\n", "run.yaml", std::vector<std::string>{"models.Late.width=5"});
  using Widths = std::vector<std::pair<std::string, Index>>;
  EXPECT_EQ(named_widths(deck), (Widths{{"critic", 3}, {"judge-2", 7}, {"Late", 5}}));
  deck.finish();
  Deck again = Deck::parse(deck.effective(), "effective");
  EXPECT_EQ(named_widths(again), named_widths(deck));
  Deck none = Deck::parse("other: {}\n", "run.yaml"), described = Deck::describe(), named = Deck::describe({"a", "b"});
  EXPECT_TRUE(named_widths(none).empty());
  EXPECT_EQ(named_widths(described), (Widths{{"NAME", 7}}));
  EXPECT_EQ(named_widths(named), (Widths{{"a", 7}, {"b", 7}}));
}

TEST(deck, wrong_entries_of_named_sections_are_refused) {
  const auto message = [](const std::string& text) {
    const Error error = error_of([&] {
      Deck deck = Deck::parse("models:\n" + text, "run.yaml");
      named_widths(deck);
      deck.finish();
    });
    return std::string(error.what());
  };
  EXPECT_NE(message("  critic: {widht: 3}\n").find("run.yaml:2: unknown key `models.critic.widht`; did you mean `models.critic.width`?"),
            std::string::npos)
      << message("  critic: {widht: 3}\n");
  EXPECT_NE(message("  critic: {width: 0}\n").find("run.yaml:2: models.critic.width"), std::string::npos);
  EXPECT_NE(message("  critic: 3\n").find("run.yaml:2: `models.critic` is a section"), std::string::npos) << message("  critic: 3\n");
  EXPECT_NE(message("  'my critic': {width: 3}\n").find("run.yaml:2: `my critic` is no name in section `models`"), std::string::npos);
}

TEST(deck, help_is_aligned_within_120_columns) {
  Deck deck = Deck::describe();
  Section& s = deck.section("a_section", "help");
  (void)s.get("a_key_that_is_longer_than_any_reasonable_key_would_be", std::string(300, 'x'), "help " + std::string(200, 'y'))
      .unit("microseconds per token")
      .one_of({std::string(300, 'x'), "another long word to choose from"});
  declare(deck);
  const std::string help = deck.help();
  const Strings lines = lines_of(help);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 120u) << line;
  for (const char* word : {"tokens", "power of 2, <= 512", "(required)", "1234"}) EXPECT_NE(help.find(word), std::string::npos) << word;
  const std::size_t column = lines[0].find("default");
  for (const auto& [key, fallback] : {std::pair{"chunk ", "128"}, std::pair{"seed ", "1234"}})
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [key = key, fallback = fallback, column](const std::string& line) {
      return line.starts_with(key) && line.find(fallback) == column;
    })) << key;
}

TEST(deck, key_table_fits_width_of_the_terminal) {
  for (const int width : {60, 78, 99, 100, 120, 160}) {
    const Strings lines = lines_of(key_table(deck_keys(), width));
    std::size_t longest = 0;
    for (const std::string& line : lines) longest = std::max(longest, line.size());
    EXPECT_LE(longest, std::size_t(width));
    EXPECT_GE(longest + 20, std::size_t(width)) << "the table does not use the width";
    for (const char* start : {"optimizer:", "lr  ", "model.mamba:", "state_size  "})
      EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(start); })) << start << width;
  }
}

TEST(deck, command_line_overrides_deck_and_is_named) {
  Deck deck = Deck::parse(
      good, "run.yaml", Strings{"model.mamba.chunk=32", "train.steps=1", "train.steps=2", "run.prefix=a # b: c", "run.grid=[2, 2]", "train.seed=7"});
  const Settings a = declare(deck);
  EXPECT_EQ(a.chunk, 32);
  EXPECT_EQ(a.steps, 2);
  EXPECT_EQ(a.prefix, "a # b: c");
  EXPECT_EQ(a.grid, (std::vector<Index>{2, 2}));
  EXPECT_EQ(a.seed, 7);

  expect_refused(good, {"command line `model.mamba.chunk=33`", "model.mamba.chunk = 33", "power of 2, <= 512", "default 128"},
                 {"model.mamba.chunk=33"});
  expect_refused(good, {"command line `train.stpes=3`", "unknown key `train.stpes`", "did you mean `train.steps`?"}, {"train.stpes=3"});
  expect_refused(good, {"command line `model.width.x=3`", "`model.width` is a value (run.yaml:3)"}, {"model.width.x=3"});
  expect_refused(good, {"command line `model.mamba=3`", "is a section"}, {"model.mamba=3"});
  expect_refused(good, {"command line `train.steps=`"}, {"train.steps="});
  for (const char* malformed : {"train.steps", "steps=3", ".steps=3", "train.=3", "train..steps=3", "=", "", "run.x={a: 1}"})
    expect_refused(good, {"command line"}, {malformed}, Exit::usage);
}

TEST(deck, wrong_values_are_refused_with_place_and_range) {
  expect_refused(with("chunk: 64", "chunk: 1024"), {"run.yaml:8:", "model.mamba.chunk = 1024", "power of 2, <= 512, in tokens", "SSD chunk length"});
  expect_refused(with("width: 256", "width: abc"), {"run.yaml:3:", "model.width = abc is not an integer"});
  expect_refused(with("width: 256", "width: 1.5"), {"1.5 is not an integer"});
  expect_refused(with("steps: 100", "steps: 1e16"), {"write 10000000000000000"});  // beyond 2^53, the digits may differ from what was meant
  expect_refused(with("steps: 100", "steps: 100.0"), {"write 100"});
  expect_refused(with("steps: 100", "steps: 1.5e0"), {"is not an integer"});
  expect_refused(with("steps: 100", "steps: 1_000"), {"is not an integer"});
  expect_refused(with("steps: 100", "steps: 0100"), {"begins with 0"});
  expect_refused(with("steps: 100", "steps: \"100\""), {"run.yaml:10:", "is not an integer"});
  expect_refused(with("steps: 100", "steps: 9223372036854775808"), {"64-bit"});
  expect_refused(with("steps: 100", "steps: [1]"), {"(a list of 1) is not an integer"});
  expect_refused(with("steps: 100", "steps:"), {"(nothing) is not an integer"});
  expect_refused(with("layers: 4", "layers: 3000000000"), {"run.yaml:4:", "<= 2147483647"});
  for (const char* word : {"yes", "no", "on", "TRUE", "1", "\"true\"", "\"True\""})
    expect_refused(with("tied_embeddings: true", std::string("tied_embeddings: ") + word), {"run.yaml:6:", "neither true nor false"});
  for (const char* number : {"nan", ".nan", "0x10", "1e999", "1,5", "1.5.2", "infinity", "--1", "+"})
    expect_refused(with("clip_norm: 1", std::string("clip_norm: ") + number), {"run.yaml:12:", "is not a number"});
  expect_refused(with("1e-3", "inf"), {"finite"});
  expect_refused(with("[0.9, 0.99]", "[0.9, 1]"), {"train.betas", "< 1"});
  expect_refused(with("[0.9, 0.99]", "0.9"), {"run.yaml:", "train.betas = 0.9 is not a list; write [0.9]"});
  expect_refused(with("linear", "cosin"), {"did you mean `cosine`?", "constant | linear | cosine"});
  expect_refused(with("\"a: b # \\t\\\"\\\\\\u00e9\"", "\"\""), {"run.prefix", "not empty"});
}

TEST(deck, exact_exponents_and_python_booleans_are_read) {
  Deck deck =
      Deck::parse(with("steps: 100", "steps: 1.5e3"), "run.yaml", Strings{"model.tied_embeddings=False", "train.seed=9e15", "model.width=1E3"});
  const Settings a = declare(deck);
  EXPECT_EQ(a.steps, 1500);
  EXPECT_EQ(a.width, 1000);
  EXPECT_EQ(a.seed, 9000000000000000);
  EXPECT_FALSE(a.tied);
  EXPECT_NE(deck.effective().find("steps: 1500\n"), std::string::npos) << deck.effective();
  Deck other = Deck::parse(with("tied_embeddings: true", "tied_embeddings: True"), "run.yaml");
  EXPECT_TRUE(declare(other).tied);
}

TEST(deck, amounts_are_read_where_the_key_has_units) {
  const auto read = [](const std::string& text) {
    Deck deck = Deck::parse("train: {steps: " + text + "}", "run.yaml");
    return Index(deck.section("train", "").need<Index>("steps", "optimizer steps"));
  };
  EXPECT_EQ(read("10k"), 10000);
  EXPECT_EQ(read("1.5M"), 1500000);
  Deck lengths = Deck::parse("train: {seq_length: 32k}", "run.yaml");
  EXPECT_EQ(Index(lengths.section("train", "").need<Index>("seq_length", "tokens")), 32768);
  const auto bytes = [](const std::string& text) {
    Deck deck = Deck::parse("memory: {device_bytes: " + text + "}", "run.yaml");
    return Index(deck.section("memory", "").need<Index>("device_bytes", "limit"));
  };
  EXPECT_EQ(bytes("24GB"), 24'000'000'000);
  EXPECT_EQ(bytes("24 GiB"), Index(24) << 30);
  EXPECT_EQ(bytes("0.5kB"), 500);
  try {
    bytes("24XB");
    ADD_FAILURE() << "24XB is read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("24XB is not an integer; the units of bytes are kB, MB"), std::string::npos) << e.what();
  }
  expect_refused(good, {"model.width = 1k is not an integer; write 1000 or 1024"}, {"model.width=1k"});
  expect_refused(good, {"train.steps = 1% is not an integer; write the number itself, not a percentage"}, {"train.steps=1%"});
  expect_refused(good, {"train.steps = 1.00001k is not an integer"}, {"train.steps=1.00001k"});
}

TEST(deck, tilde_removes_a_key_or_section) {
  const auto chunk_of = [](const Strings& overrides) {
    Deck deck = Deck::parse(good, "run.yaml", overrides);
    return declare(deck).chunk;
  };
  EXPECT_EQ(chunk_of({}), 64);
  EXPECT_EQ(chunk_of({"~model.mamba.chunk"}), 128) << "the default";
  EXPECT_EQ(chunk_of({"~model.mamba"}), 128) << "a section";
  EXPECT_EQ(chunk_of({"~model.mamba.chunk", "model.mamba.chunk=32"}), 32);
  EXPECT_EQ(chunk_of({"model.mamba.chunk=32", "~model.mamba.chunk"}), 128) << "words apply in their order";
  expect_refused(good, {"command line `~train.steps`"}, {"~train.steps", "~train.steps"});
  for (const char* absent : {"~train.stepz", "~train.steps.x", "~data.prefixes"})
    expect_refused(good, {absent, "the deck does not set", "leave the word out"}, {absent});
  for (const char* malformed : {"~", "~train", "~train.steps=3", "~.steps"}) expect_refused(good, {"~section.key"}, {malformed}, Exit::usage);
}

TEST(deck, list_where_text_is_wanted_shows_quotes) {
  expect_refused(good, {"is a list, not text; write it in quotes", R"('...="[0-9]"')"}, {"run.prefix=[0-9]"});
  Deck deck = Deck::parse(good, "run.yaml", Strings{"run.prefix=\"[0-9]\""});
  EXPECT_EQ(declare(deck).prefix, "[0-9]");
  expect_refused(good, {"run.prefix", "~KEY"}, {"run.prefix="});
}

TEST(deck, words_that_are_no_overrides_get_a_remedy) {
  expect_refused(good, {"command line `train.steps:3`: write train.steps=3"}, {"train.steps:3"}, Exit::usage);
  expect_refused(good, {"command line `train/steps=3`: write train.steps=3"}, {"train/steps=3"}, Exit::usage);
  expect_refused(good, {"an override is written section.key=value"}, {"train.steps:"}, Exit::usage);
  expect_refused(good, {"`steps` has no section; an override is written section.key=value, and `gyrfalcon help steps` searches"}, {"steps=3"},
                 Exit::usage);
  expect_refused(good, {"this is a file, and a run has one deck"}, {std::string(GYR_SOURCE_DIR) + "/input/demo.yaml"}, Exit::usage);
}

TEST(deck, key_of_another_section_precedes_similar_names) {
  expect_refused(with("  schedule: linear", "  schedules: linear"), {"did you mean `train.schedule`?"});  // one letter differs
  expect_refused(with("  chunk: 64", "  stepz: 64"), {"section `model.mamba` has: chunk"});
  expect_refused(with("  clip_norm: 1", "  prefix: 1"), {"did you mean `run.prefix`?"});
  expect_refused(with("  clip_norm: 1", "  Clip-Norm: 1"), {"did you mean `train.clip_norm`?"});
  expect_refused(good, {"unknown key `TRAIN.STEPS`; did you mean `train.steps=3`?"}, {"TRAIN.STEPS=3"});
}

TEST(deck, beginning_of_a_key_suggests_the_full_name) {
  expect_refused(good, {"unknown key `train.learning`; did you mean `train.learning_rate`?"}, {"train.learning=1"});
  expect_refused(good, {"unknown key `model.tied_emb`; did you mean `model.tied_embeddings`?"}, {"model.tied_emb=true"});
}

TEST(deck, missing_settings_are_named_with_suspected_typo) {
  expect_refused(with("  steps: 100\n", ""), {"run.yaml:", "train.steps must be given", "optimizer steps", "train.steps=VALUE"});
  expect_refused(with("  steps:", "  stesp:"), {"run.yaml:10 has `stesp`; did you mean `steps`?"});
  expect_refused(with("model:", "modle:"), {"run.yaml:2 has `modle`; did you mean `model`?"});
}

TEST(deck, unknown_names_are_refused_with_the_nearest_name) {
  expect_refused(with("  schedule", "  shcedule"), {"run.yaml:14:", "unknown key `train.shcedule`", "did you mean `train.schedule`?"});
  expect_refused(with("  schedule: linear", "  chunk: 64"), {"did you mean `model.mamba.chunk`?"});
  expect_refused(with("  mamba:", "  mmaba:"), {"run.yaml:7:", "unknown section `model.mmaba`", "`model.mamba`?"});
  expect_refused(with("  schedule: linear", "  qqqqqqqq: 1"), {"section `train` has: steps, learning_rate"});
  expect_refused(good + "x: 1\nother: {a: 2}\n", {"run.yaml:20:", "run.yaml:21:"});  // all unknown keys are reported at once
}

TEST(deck, unsupported_yaml_is_refused) {
  expect_refused("a: [1", {"run.yaml:1:"});
  expect_refused("a:\n  b: 1\n  b: 2\n", {"run.yaml:3:", "`b` is given twice", "run.yaml:2"});
  expect_refused("a: &x 1\n", {"run.yaml:1:", "anchors"});
  expect_refused("a: {}\nb: *x\n", {"run.yaml:2:"});
  expect_refused("a: &x {b: 1}\nc: {<<: *x}\n", {"anchors"});
  expect_refused("a: !!int 3\n", {"tags"});
  expect_refused("a: {}\n---\nb: {}\n", {"second document"});
  expect_refused("- 1\n- 2\n", {"map of sections"});
  expect_refused("just words\n", {"map of sections"});
  expect_refused("a:\n\tb: 1\n", {"run.yaml:2:", "tab", "spaces"});
  expect_refused("a: \x01\n", {"run.yaml:1:", "0x01"});
  expect_refused("a:\n  b: \xff\xfe\n", {"run.yaml:2:", "UTF-8"});
  expect_refused("? [a]\n: 1\n", {"plain word"});
  expect_refused("? \n: 1\n", {"plain word"});
  expect_refused("model.width: 3\n", {"has a dot"});
  std::string deep;
  for (int i = 0; i < 20; ++i) deep = "{a: " + deep + "}";
  expect_refused(deep, {"run.yaml:1:", "16 levels"});
  expect_refused(std::string(2000, '['), {"run.yaml:1:"});
  expect_refused("a: [" + std::string(30000, ',') + "]", {"run.yaml:1:"});
  std::string many = "a:\n";
  for (int i = 0; i < 10001; ++i) many += "  k" + std::to_string(i) + ": 1\n";
  expect_refused(many, {"at most 10000"});
  expect_refused("#" + std::string(1 << 20, 'x'), {"1048577 bytes"});
  const std::string message = outcome("model: {\"a\\e[31m\\n\": 1, width: 8, layers: 1}\ntrain: {steps: 1}\n").second;
  // control characters of a key are escaped, so that it cannot change the terminal
  EXPECT_NE(message.find("\\x1b[31m\\x0a"), std::string::npos) << message;
}

// Layer patterns contain * and -, which have a meaning of their own in YAML at the start of a value.
TEST(deck, error_of_unquoted_pattern_shows_it_in_quotes) {
  std::mt19937 random(seed_of_run());
  const std::string symbols = "PM*-E x2*&!%@`";
  int refused = 0;
  for (int draw = 0; draw < 1000; ++draw) {
    std::string pattern(1 + random() % 6, ' ');
    for (char& c : pattern) c = symbols[random() % symbols.size()];
    pattern.erase(0, pattern.find_first_not_of(' '));
    pattern.erase(pattern.find_last_not_of(' ') + 1);
    if (pattern.empty()) continue;
    const bool flow = random() % 3 == 0;
    const auto deck = [&](const std::string& value) {
      return flow ? "model: {seq: 1, pattern: " + value + "}\n" : "model:\n  pattern: " + value + "  # layers\n  seq: 1\n";
    };
    std::string read;
    const Error error = error_of([&] { read = values_by_path(parse_yaml(deck(pattern), "d.yaml")).at("model.pattern"); });
    if (error.code == Exit::ok) {
      EXPECT_EQ(read, pattern);
      continue;
    }
    ++refused;
    const std::string quoted = '"' + pattern + '"';
    EXPECT_TRUE(std::string(error.what()).ends_with("must be in quotes: " + quoted)) << error.what();
    EXPECT_EQ(values_by_path(parse_yaml(deck(quoted), "d.yaml")).at("model.pattern"), pattern);
  }
  EXPECT_GT(refused, 200);
}

TEST(deck, files_that_cannot_be_read_are_named) {
  const auto folder = std::filesystem::temp_directory_path() / ("gyr_deck_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "good.yaml") << good;
  std::ofstream(folder / "bad.yaml") << with("chunk: 64", "chunk: 65");
  std::ofstream(folder / "prose.txt") << "It was a dark night: the rain fell\n- in torrents: except\n at intervals\n";
  std::filesystem::create_directories(folder / "hf");
  std::ofstream(folder / "hf/config.json") << "{\"model_type\": \"llama\", \"hidden_size\": 64}";
  Deck deck = Deck::read(folder / "good.yaml", Strings{"train.steps=5"});
  EXPECT_EQ(declare(deck).steps, 5);
  for (const auto& [name, code, expected] : {std::tuple{"bad.yaml", Exit::config, "bad.yaml:8:"},
                                             std::tuple{"none.yaml", Exit::missing, "no such deck"}, std::tuple{"", Exit::missing, "is a folder"},
                                             std::tuple{"prose.txt", Exit::config, "is a text file, not a deck (YAML); `gyrfalcon data build`"},
                                             std::tuple{"hf", Exit::missing, "is a folder, not a deck; a run starts from a model"},
                                             std::tuple{"hf/config.json", Exit::config, "is a Hugging Face config.json, not a deck"}}) {
    try {
      Deck wrong = Deck::read(folder / name);
      declare(wrong);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code) << e.what();
      EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(deck, contradictory_declarations_are_internal_errors) {
  const auto code = [](const std::function<void(Section&)>& use) {
    Deck deck = Deck::parse("", "run.yaml");
    Section& s = deck.section("a", "help");
    try {
      use(s);
      deck.finish();
    } catch (const Error& e) {
      return e.code;
    }
    return Exit::ok;
  };
  EXPECT_EQ(code([](Section& s) {
              (void)s.get("x", 1, "h");
              (void)s.get("x", 1, "h");
            }),
            Exit::ok);
  EXPECT_EQ(code([](Section& s) {
              (void)s.get("x", 1, "h");
              (void)s.get("x", 2, "h");
            }),
            Exit::internal);
  EXPECT_EQ(code([](Section& s) {
              (void)s.get("x", 1, "h");
              (void)s.get("x", 1.0, "h");
            }),
            Exit::internal);
  EXPECT_EQ(code([](Section& s) {
              (void)s.get("x", 1, "h");
              (void)s.section("x", "h");
            }),
            Exit::internal);
  EXPECT_EQ(code([](Section& s) {
              (void)s.section("x", "h");
              (void)s.get("x", 1, "h");
            }),
            Exit::internal);
  EXPECT_EQ(code([](Section& s) { (void)s.get("x", 1, "h").at_least(2); }),
            Exit::internal);  // a default value outside its own range
}

TEST(deck, ranges_apply_to_values_never_converted) {
  Deck deck = Deck::parse("a: {x: 5}", "run.yaml");
  Section& s = deck.section("a", "help");
  (void)s.get("x", 1, "h").at_most(4);
  EXPECT_THROW(deck.finish(), Error);
}

TEST(deck, description_without_deck_gives_valid_values) {
  Deck deck = Deck::describe();
  const Settings a = declare(deck);
  EXPECT_GT(a.layers, 0);
  EXPECT_EQ(a.width % 8, 0);
}

TEST(deck, given_reports_keys_set_by_user) {
  Deck deck = Deck::parse("a: {x: 5}", "run.yaml", Strings{"a.y=1"});
  const Section& s = deck.section("a", "help");
  EXPECT_TRUE(s.given("x") && s.given("y"));
  EXPECT_FALSE(s.given("z"));
}

TEST(deck, edit_distance_counts_typing_errors) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("width", "width"), 0);
  EXPECT_EQ(edit_distance("widht", "width"), 1);  // two swapped letters count as one error
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(nearest("abc", Strings{"xyz"}), "");
}

// Typing errors, wrong types, values out of range, repeated and unknown keys are all refused. For nine of ten typing
// errors the message suggests the right name.
TEST(deck, hundreds_of_broken_decks_are_all_refused) {
  ASSERT_EQ(outcome(good).first, Exit::ok);
  std::mt19937 random(7);
  const Strings lines = lines_of(good);
  const std::map<std::string, Strings> wrong = {{"width", {"wide", "100", "-8", "65544"}},
                                                {"layers", {"[4]", "0", "4.0"}},
                                                {"pattern", {"PM", "[P]"}},
                                                {"tied_embeddings", {"yes", "0"}},
                                                {"chunk", {"0", "48", "-64", "1024", "many"}},
                                                {"steps", {"-1", "1e-2", "~"}},
                                                {"learning_rate", {"0", "-1e-3", "fast", "inf"}},
                                                {"clip_norm", {"0", "{}", "nan"}},
                                                {"betas", {"[1.0, 0.9]", "[0.9, x]", "0.9", "[-0.1]"}},
                                                {"schedule", {"cos", "3", "~"}},
                                                {"seed", {"-1", "x", "1.5"}},
                                                {"grid", {"[0, 1]", "[1.5]", "2"}},
                                                {"prefix", {"~", "[a]", "\"\""}},
                                                {"files", {"x.bin", "[[a]]", "{a: b}"}}};
  int typos = 0, hints = 0;
  gyr::testing::Trials trials("deck with a typo, a wrong value, a repeated or an unknown key");
  const auto try_one = [&](const Strings& deck) {
    const auto refusal = outcome(joined(deck));
    trials.attempt([&] {
      EXPECT_EQ(refusal.first, Exit::config) << joined(deck);
      EXPECT_NE(refusal.second.find("run.yaml:"), std::string::npos) << refusal.second;
    });
    return refusal.second;
  };
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string key = key_of(lines[i]);
    for (int slip = 0; slip < 10; ++slip) {
      Strings deck = lines;
      deck[i].replace(deck[i].find(key), key.size(), misspelt(key, random));
      const std::string message = try_one(deck);
      ++typos;
      hints += message.find(key + "`?") != std::string::npos;
    }
    Strings twice = lines;
    twice.push_back(lines[i].substr(lines[i].find(key)));
    if (lines[i].find("  ") == 0) twice.insert(twice.begin() + long(i), lines[i]), twice.pop_back();
    try_one(twice);
    Strings unknown = lines;
    unknown.insert(unknown.begin() + long(i), std::string(lines[i].find(key), ' ') + "no_such_key_" + std::to_string(i) + ": 1");
    try_one(unknown);
    if (!wrong.contains(key)) continue;
    for (const std::string& value : wrong.at(key)) {
      Strings deck = lines;
      deck[i] = deck[i].substr(0, deck[i].find(':') + 1) + " " + value;
      try_one(deck);
    }
  }
  EXPECT_GT(typos, 100);
  EXPECT_GE(10 * hints, 9 * typos) << hints << " typos with the right suggestion, of a total of " << typos;
}

// For any bytes, the reader returns a tree or throws Error(config).
TEST(deck, no_bytes_crash_the_reader) {
  std::mt19937 random(11);
  const std::string alphabet = "\n\n  :-[]{},&*!|>'\"%@`#?\t\\\xc3\xa9\x01~0aM";
  int accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string text = good;
    for (unsigned n = 1 + random() % 6; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = alphabet[random() % alphabet.size()]; break;
        case 1: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        case 2: text.erase(at, 1 + random() % 20); break;
      }
    }
    const Exit code = outcome(text).first;
    accepted += code == Exit::ok;
    ASSERT_TRUE(code == Exit::ok || code == Exit::config) << text;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace gyr::testing::deck_suite
