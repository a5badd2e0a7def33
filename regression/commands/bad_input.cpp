// SPDX-License-Identifier: BSD-3-Clause
// For every kind of wrong user input, the program must end with its documented exit code and one helpful message, on
// one process and on two ranks.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "regression/support/material.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::bad_input_suite {

namespace fs = std::filesystem;

namespace {

const Material& material() { return Material::get(); }

// Lines of standard error that begin with "gyrfalcon:".
Words messages(const std::string& err) {
  Words list;
  for (const std::string& line : lines_of(err))
    if (line.starts_with("gyrfalcon:")) list.push_back(line);
  return list;
}

// Expects exactly one message that contains all `parts`, the exit code, and no sign of a crash.
void expect_refused(const Result& r, Exit code, const Words& parts) {
  EXPECT_EQ(r.code, int(code)) << output_of(r);
  const Words message_lines = messages(r.err);
  ASSERT_EQ(message_lines.size(), 1u) << output_of(r);
  for (const std::string& part : parts)
    EXPECT_NE(message_lines[0].find(part), std::string::npos) << "'" << part << "' is not in: " << message_lines[0];
  for (const char* sign : {"terminate called", "what():", "Backtrace", "HDF5-DIAG", "Segmentation", "Assertion", "signal", "Fatal error"})
    EXPECT_EQ(r.err.find(sign), std::string::npos) << r.err;
}

// As expect_refused, on each number of ranks (0: without mpiexec). Standard error must hold that one line and nothing
// else.
void expect_refused_quietly(const Words& arguments, Exit code, const Words& parts, const std::vector<int>& ranks = {0, 2}) {
  for (const int n : ranks) {
    SCOPED_TRACE(fmt::format("{} ranks under mpiexec", n));
    const Result r = run(arguments, {.ranks = n});
    expect_refused(r, code, parts);
    EXPECT_EQ(lines_of(r.err).size(), 1u) << r.err;
    const bool ends = arguments[0] == "train" || arguments[0] == "eval";
    if (ends && code != Exit::usage) {
      EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED " + std::to_string(int(code)))) << output_of(r);
    }
  }
}

// Copy of the deck with one line changed; returns its path and the number of the changed line.
std::pair<fs::path, int> deck_with(const Folder& folder, const std::string& from, const std::string& to) {
  std::string text = contents(material().deck());
  const auto at = text.find(from);
  ensure(at != std::string::npos, "the deck has no '{}'", from);
  text.replace(at, from.size(), to);
  put_contents(folder / "changed.yaml", text);
  return {folder / "changed.yaml", 1 + int(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'))};
}

// Copies of the token files, which a test can damage.
struct Tokens {
  Folder folder;
  fs::path prefix = folder / "copy", bin = folder / "copy.bin", idx = folder / "copy.idx";
  Tokens() {
    fs::copy(material().prefix().string() + ".bin", bin);
    fs::copy(material().prefix().string() + ".idx", idx);
  }
  void poke(const fs::path& file, std::size_t at, const void* bytes, std::size_t count) {
    std::string all = contents(file);
    ensure(at + count <= all.size(), "{} has {} bytes", file.string(), all.size());
    std::memcpy(all.data() + at, bytes, count);
    put_contents(file, all);
  }
  Words train() const { return material().train(folder / "out", {"data.prefixes=[" + prefix.string() + "]"}); }
  Words eval() const { return {"eval", material().trained(), "--data", prefix}; }
};

void expect_data_refused(const Tokens& tokens, Exit code, const Words& parts) {
  expect_refused_quietly(tokens.train(), code, parts);
  expect_refused_quietly(tokens.eval(), code, parts);
}

}  // namespace

TEST(bad_input, misspelt_key_error_names_line_and_right_key) {
  const Folder folder;
  const auto [deck, line] = deck_with(folder, "  hidden_size: 32", "  hiden_size: 32");
  expect_refused_quietly({"train", deck}, Exit::config,
                         {"changed.yaml:" + std::to_string(line), "model.hiden_size", "did you mean `model.hidden_size`"});
  expect_refused_quietly({"train", deck, "--dry-run"}, Exit::config, {"changed.yaml:" + std::to_string(line), "did you mean `model.hidden_size`"},
                         {0});
  expect_refused_quietly(material().train(folder / "out", {"train.stesp=3"}), Exit::config, {"train.stesp", "did you mean `train.steps`"}, {0});
}

TEST(bad_input, renamed_deck_key_error_states_its_new_name) {
  const Folder folder;
  const auto [deck, line] = deck_with(folder, "  hidden_size: 32", "  width: 32");
  expect_refused_quietly({"train", deck}, Exit::config, {"changed.yaml:" + std::to_string(line) + ": model.width is called model.hidden_size now"});
  expect_refused_quietly(material().train(folder / "out", {"optimizer.rate=1"}), Exit::config,
                         {"`optimizer.rate=1`: optimizer.rate is called optimizer.lr now"}, {0});
}

TEST(bad_input, value_of_wrong_type_is_named_with_line) {
  const Folder folder;
  const auto [deck, line] = deck_with(folder, "  global_batch_size: 8", "  global_batch_size: eight");
  expect_refused_quietly({"train", deck}, Exit::config, {"changed.yaml:" + std::to_string(line), "train.global_batch_size = eight", "integer"});
  for (const char* change : {"train.global_batch_size=0", "train.global_batch_size=-8", "train.global_batch_size=1e99",
                             "train.global_batch_size=1e-3", "optimizer.beta1=1.5", "train.precision=fp8", "model.pattern=PQ"})
    expect_refused_quietly(material().train(folder / "out", {change}), Exit::config,
                           {std::string(change).substr(0, std::strchr(change, '=') - change)}, {0});
}

TEST(bad_input, impossible_grid_error_lists_valid_grids) {
  const Folder folder;
  expect_refused_quietly(material().train(folder / "out", {"parallel.tensor=3"}), Exit::config,
                         {"3 ranks", "there are 2", "1 x 1 x 1 x 2", "1 x 2 x 1 x 1", "2 x 1 x 1 x 1"}, {2});
  expect_refused_quietly(material().train(folder / "out", {"parallel.pipeline=2", "parallel.data=2"}), Exit::config,
                         {"4 ranks", "there are 1", "1 x 1 x 1 x 1"}, {0});
}

TEST(bad_input, impossible_expert_parallel_settings_are_refused) {
  const Folder folder;
  const auto refused = [&](Words words, const Words& expected, int ranks) {
    words.insert(words.begin(), {"model.pattern=P*E-", "model.moe.experts=6", "model.moe.intermediate_size=8"});
    expect_refused_quietly(material().train(folder / "out", words), Exit::config, expected, {ranks});
  };
  refused({"parallel.expert=2"}, {"parallel.expert = 2", "must divide the 1 ranks of data x context"}, 0);
  refused({"parallel.expert=2", "parallel.tensor=2"}, {"parallel.expert = 2", "must divide the 1 ranks"}, 2);
  refused({"parallel.expert=2", "model.moe.experts=5"}, {"parallel.expert = 2", "model.moe.experts = 5"}, 2);
  refused({"parallel.expert=2", "parallel.expert_room=0.5"}, {"parallel.expert_room = 0.5", "less than balanced routing needs"}, 2);
  refused({"model.moe.bias_update_rate=0.001"}, {"model.moe.bias_update_rate = 0.001", "no bias to move", "model.moe.bias: true"}, 0);
  expect_refused_quietly(material().train(folder / "out", {"parallel.expert=2", "model.pattern=P*"}), Exit::config,
                         {"parallel.expert = 2", "model.pattern has none"}, {2});
  refused({"parallel.expert=2", "optimizer.frozen=[\"*.experts.3.*\"]"},
          {"experts.3.gate_proj.weight is frozen", "experts.0.gate_proj.weight is not"}, 2);
}

TEST(bad_input, grids_listed_by_that_error_train) {
  const Folder folder;
  for (const Words& grid : {Words{"parallel.tensor=2"}, Words{"parallel.pipeline=2"}, Words{"parallel.data=2"}}) {
    Words arguments = material().train(folder / "out", grid);
    arguments.insert(arguments.end(), {"train.steps=1", "--anew"});
    const Result r = run(arguments, {.ranks = 2});
    EXPECT_EQ(r.code, 0) << grid[0] << output_of(r);
  }
}

TEST(bad_input, malformed_evaluation_example_is_named_with_its_line) {
  const Folder folder;
  const auto refused = [&](const char* task, const std::string& lines, const Words& parts, const std::vector<int>& ranks) {
    expect_refused_quietly({"eval", material().trained(), task, folder.write("bad.jsonl", lines)}, Exit::data, parts, ranks);
  };
  refused("--lambada", "{\"text\": \"a b\"}\n{\"text\": \"a b\"\n", {"bad.jsonl:2", "not valid JSON"}, {0, 2});
  refused("--lambada", "{\"text\": \"alone\"}\n", {"bad.jsonl:1", "two words"}, {0});
  refused("--choices", "\n{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}\n", {"bad.jsonl:2", "0 to 1"}, {0});
  refused("--lambada", "\n", {"bad.jsonl", "no example"}, {0});
  refused("--text", "{\"test\": \"a b\"}\n", {"bad.jsonl:1", "'text'"}, {0});
  expect_refused_quietly({"eval", material().trained(), "--lambada", folder / "none.jsonl"}, Exit::missing, {"none.jsonl"}, {0});
}

TEST(bad_input, eval_options_of_another_task_are_refused) {
  const Folder folder;
  const std::string text = material().text();
  const auto refused = [&](Words more, const Words& parts) {
    more.insert(more.begin(), {"eval", material().trained()});
    expect_refused_quietly(more, Exit::usage, parts, {0});
  };
  refused({"--text", text, "--choices", text}, {"--choices", "--text"});
  refused({"--lambada", text, "--stride", "4"}, {"--stride", "--text"});
  refused({"--text", text, "--delimiter", ":"}, {"--delimiter", "--choices"});
  refused({"--text", text, "--split", "test"}, {"--split"});
  refused({"--tokenizer", text}, {"--tokenizer"});
  refused({"--text", text, "--stride", "40", "--length", "32"}, {"--stride 40", "32"});
  refused({"--text", text, "--begin", "<nothing>"}, {"--begin <nothing>"});
}

TEST(bad_input, eval_refuses_unwritable_output_files_before_it_starts) {
  const Folder folder;
  for (const char* option : {"--json", "--records"})
    expect_refused_quietly({"eval", material().trained(), "--limit", "4", option, folder / "none" / "x.json"}, Exit::missing, {"none"});
  EXPECT_EQ(folder.files(), 0u);
}

TEST(bad_input, eval_keeps_existing_output_files) {
  const Folder folder;
  for (const char* option : {"--json", "--records", "--logits"}) {
    put_contents(folder / "kept", "kept");
    Words words{"eval", material().trained(), "--limit", "4", option, folder / "kept"};
    expect_refused_quietly(words, Exit::usage, {"kept: exists", "--overwrite"});
    EXPECT_EQ(contents(folder / "kept"), "kept");
    words.push_back("--overwrite");
    EXPECT_EQ(run(words).code, 0) << option;
    EXPECT_NE(contents(folder / "kept"), "kept");
  }
}

TEST(bad_input, indivisible_head_count_error_names_both_counts) {
  const Folder folder;
  expect_refused_quietly(material().train(folder / "out", {"parallel.tensor=2", "model.mamba.num_heads=3"}), Exit::config,
                         {"3", "2 tensor ranks", "parallel.tensor"}, {2});
  expect_refused_quietly(material().train(folder / "out", {"model.attention.num_heads=3"}), Exit::config, {"heads", "3", "2"});
}

TEST(bad_input, indivisible_batch_size_error_names_a_valid_multiple) {
  const Folder folder;
  expect_refused_quietly(material().train(folder / "out", {"train.global_batch_size=7"}), Exit::config, {"train.global_batch_size", "multiple of 2"},
                         {2});
  expect_refused_quietly(material().train(folder / "out", {"train.micro_batch_size=3"}), Exit::config, {"train.global_batch_size", "multiple of 3"},
                         {0});
}

// A folder of runs is taken for a run, and the words of an export are exchanged.
TEST(bad_input, folder_above_a_run_names_the_run) {
  const Folder folder;
  fs::create_directories(folder / "out" / "mine" / "checkpoints");
  put_contents(folder / "out" / "mine" / "metrics.jsonl", "{}\n");
  const std::string out = (folder / "out").string(), mine = (folder / "out" / "mine").string();
  for (const Words& words : {Words{"generate", out, "--prompt", "x"}, {"ps", out}, {"report", out}, {"info", out}})
    expect_refused_quietly(words, Exit::missing, {out, "; runs below " + out + ": " + mine}, {0});
  expect_refused_quietly({"ps", folder / "out" / "mine" / "checkpoints"}, Exit::missing, {"; the folder of the run is " + mine}, {0});
  for (const char* command : {"export-hf", "export-gguf"})
    expect_refused_quietly({command, folder / "new", mine}, Exit::usage,
                           {fmt::format("the model comes first: gyrfalcon {} {} {}", command, mine, (folder / "new").string())}, {0});
}

TEST(bad_input, a_missing_file_is_named) {
  const Folder folder;
  expect_refused_quietly({"train", folder / "none.yaml"}, Exit::missing, {"none.yaml"});
  expect_refused_quietly({"eval", folder / "none.h5"}, Exit::missing, {"none.h5"});
  expect_refused_quietly({"generate", folder / "none.h5", "--prompt", "x"}, Exit::missing, {"none.h5"});
  fs::create_directory(folder / "empty");
  expect_refused_quietly(material().train(folder / "out", {"--init-from", folder / "none"}), Exit::missing, {"there is no such checkpoint"});
  expect_refused_quietly(material().train(folder / "out", {"--init-from", folder / "empty"}), Exit::missing, {"neither a complete checkpoint nor"},
                         {0});
  expect_refused_quietly({"info", folder / "none.h5"}, Exit::missing, {"none.h5"}, {0});
  expect_refused_quietly({"diff", material().trained(), folder / "none.h5"}, Exit::missing, {"none.h5"}, {0});
  expect_refused_quietly({"tokenizer", "encode", folder / "none.json"}, Exit::missing, {"none.json"}, {0});
  expect_refused_quietly(material().train(folder / "out", {"data.tokenizer=" + (folder / "none.json").string()}), Exit::missing, {"none.json"}, {0});
  expect_refused_quietly({"tokenizer", "train", folder / "t.json", folder / "none.txt"}, Exit::missing, {"none.txt"}, {0});
  expect_refused_quietly({"data", "build", folder / "none.txt", folder / "p", "--tokenizer", material().tokenizer()}, Exit::missing, {"none.txt"});
  for (const std::string& prefix : Words{"", folder.path().string() + "/"})  // a prefix without a file name would create hidden files such as .bin
    expect_refused_quietly({"data", "build", material().text(), prefix, "--tokenizer", material().tokenizer()}, Exit::usage,
                           {"is not a PREFIX", "text"});
}

TEST(bad_input, forgotten_prefix_of_data_build_is_named) {
  const Folder folder;
  const fs::path a = folder / "a.txt", b = folder / "b.txt";
  put_contents(a, "ka lo\n"), put_contents(b, "mi ren\n");
  const auto build = [&](Words words) {
    words.insert(words.begin(), {"data", "build"});
    words.insert(words.end(), {"--tokenizer", material().tokenizer()});
    return words;
  };
  expect_refused_quietly(build({a, b}), Exit::usage, {"b.txt: is an existing file, not a PREFIX", "b_tokens"});
  expect_refused_quietly(build({a, b, "--overwrite"}), Exit::usage, {"b.txt: is an existing file, not a PREFIX"}, {0});
  expect_refused_quietly(build({a, a}), Exit::usage, {"a.txt: is an input and also the PREFIX"}, {0});
  expect_refused_quietly(build({a}), Exit::usage, {"a.txt", "the PREFIX to write is missing"}, {0});
  expect_refused_quietly(build({a, folder / "*.txt"}), Exit::usage, {"*.txt: is a pattern of text files, not a PREFIX"}, {0});
  put_contents(folder / "c.bin", "text\n");
  expect_refused_quietly(build({folder / "c.bin", folder / "c", "--overwrite"}), Exit::usage, {"c.bin: is an input", "would replace it"}, {0});
  EXPECT_EQ(contents(folder / "c.bin"), "text\n");
  EXPECT_FALSE(fs::exists(folder / "b.txt.bin") || fs::exists(folder / "a.txt.bin"));
}

TEST(bad_input, file_that_is_no_text_is_refused) {
  const Folder folder;
  const fs::path parquet = folder / "train.parquet", tokens = material().prefix().string() + ".bin";
  put_contents(parquet, std::string("PAR1\x15\x04\x15\x10", 8) + "ka lo mi ren" + "PAR1");
  const Words remedy{"train.parquet: is a Parquet file", "read_parquet(\"train.parquet\")", "to_json(\"train.jsonl\""};
  const std::string tokenizer = material().tokenizer();
  expect_refused_quietly({"data", "build", parquet, folder / "p", "--tokenizer", tokenizer}, Exit::data, remedy);
  expect_refused_quietly({"tokenizer", "train", folder / "t.json", parquet}, Exit::data, remedy, {0});
  expect_refused_quietly({"eval", material().trained(), "--text", parquet}, Exit::data, remedy, {0});
  expect_refused_quietly({"data", "build", tokens, folder / "p", "--tokenizer", tokenizer}, Exit::data, {"text.bin: is a token file of `data build`"},
                         {0});
  EXPECT_FALSE(fs::exists(folder / "p.bin") || fs::exists(folder / "t.json"));
}

TEST(bad_input, tokens_of_another_tokenizer_are_refused) {
  const Folder folder;
  const fs::path half = folder / "half.txt", tokenizer = folder / "other.json", other = folder / "other";
  put_contents(half, contents(material().text()).substr(0, 60000));
  ASSERT_EQ(run({"tokenizer", "train", tokenizer, half, "--vocab-size", "300"}).code, 0);
  const Words build{"data", "build", material().text(), other, "--tokenizer", tokenizer, "--documents", "separator"};
  const Result clash = run(build);  // other.json is the tokenizer and would be the fingerprint
  expect_refused(clash, Exit::usage, {"other.json: exists"});
  fs::rename(tokenizer, folder / "tokenizer.json");
  ASSERT_EQ(run({"data", "build", material().text(), other, "--tokenizer", folder / "tokenizer.json", "--documents", "separator"}).code, 0);
  const std::string prefixes = "data.prefixes=[" + other.string() + "]",
                    both = "data.prefixes=[" + material().prefix().string() + "," + other.string() + "]";
  const auto train = [&](Words changes) {
    changes.push_back("train.steps=1");
    return material().train(folder / "out", changes);
  };
  expect_refused_quietly(train({prefixes}), Exit::data,
                         {"other: was made with the tokenizer", "but data.tokenizer is " + material().tokenizer().string()});
  expect_refused_quietly({"eval", material().trained(), "--data", other}, Exit::data,
                         {"other: was made with the tokenizer", "the model's tokenizer"});
  expect_refused_quietly(train({both}), Exit::data, {"text and", "other were made with different tokenizers"});
  expect_refused_quietly(train({"model.vocab_size=290"}), Exit::data,
                         {"text: was made with a tokenizer of 300 tokens", "has 290", "raise model.vocab_size"});
  EXPECT_FALSE(fs::exists(folder / "out"));
  fs::remove(folder / "other.json");
  EXPECT_EQ(run(train({prefixes})).code, 0) << "token files without a fingerprint are not checked";
}

TEST(bad_input, fingerprint_of_replaced_token_files_is_refused) {
  Tokens tokens;
  const Words build{"data", "build", material().text(), tokens.folder / "whole", "--tokenizer", material().tokenizer()};
  ASSERT_EQ(run(build).code, 0);
  fs::copy(tokens.folder / "whole.json", tokens.folder / "copy.json");
  expect_data_refused(tokens, Exit::data, {"copy.json: describes", "another program has replaced it"});
  put_contents(tokens.folder / "copy.json", contents(tokens.folder / "copy.json").substr(0, 100));
  expect_data_refused(tokens, Exit::data, {"copy.json: is a damaged fingerprint"});
}

TEST(bad_input, data_rebuilt_under_a_resumed_run_is_refused) {
  const Folder folder;
  const fs::path prefix = folder / "p", text = folder / "text.txt";
  const auto build = [&](const std::string& content) {
    put_contents(text, content);
    return run({"data", "build", text, prefix, "--tokenizer", material().tokenizer(), "--documents", "separator", "--overwrite"}).code;
  };
  const auto train = [&](int steps, Words changes) {
    changes.insert(changes.end(), {"train.steps=" + std::to_string(steps), "checkpoint.every=1", "data.prefixes=[" + prefix.string() + "]"});
    return material().train(folder / "out", changes);
  };
  const std::string before = contents(material().text()), after = before.substr(before.find("\n\n") + 2) + before.substr(0, before.find("\n\n") + 2);
  ASSERT_EQ(build(before), 0);
  ASSERT_EQ(run(train(1, {})).code, 0);
  ASSERT_EQ(build(before), 0);
  ASSERT_EQ(run(train(2, {"--resume"})).code, 0) << "the same text gives the same fingerprint";
  ASSERT_EQ(build(after), 0);
  expect_refused_quietly(train(3, {"--resume"}), Exit::config, {"p: the token files were built again since step_00000002", "--accept-changes"});
  EXPECT_EQ(run(train(3, {"--resume", "--accept-changes"})).code, 0);
  EXPECT_EQ(run(train(4, {"--resume"})).code, 0) << "the newest checkpoint carries the new fingerprint";
}

// New token files of another tokenizer would go on with a model of which every token means something else.
TEST(bad_input, other_tokenizer_under_a_resumed_run_is_refused) {
  const Folder folder;
  const auto build = [&](const std::string& name, const fs::path& tokenizer) {
    return run({"data", "build", material().text(), folder / name, "--tokenizer", tokenizer, "--documents", "separator"}).code;
  };
  const auto train = [&](int steps, const std::string& name, const fs::path& tokenizer, Words changes) {
    changes.insert(changes.end(), {"train.steps=" + std::to_string(steps), "checkpoint.every=1", "data.tokenizer=" + tokenizer.string(),
                                   "data.prefixes=[" + (folder / name).string() + "]"});
    return material().train(folder / "out", changes);
  };
  const fs::path other = folder / "other.json";
  ASSERT_EQ(run({"tokenizer", "train", other, material().text(), "--vocab-size", "280"}).code, 0);
  ASSERT_EQ(build("first", material().tokenizer()), 0);
  ASSERT_EQ(build("second", other), 0);
  ASSERT_EQ(run(train(1, "first", material().tokenizer(), {})).code, 0);
  expect_refused_quietly(train(2, "second", other, {"--resume"}), Exit::config,
                         {"second: another tokenizer made the token ids since step_00000001", "--accept-changes"});
  EXPECT_EQ(run(train(2, "second", other, {"--resume", "--accept-changes"})).code, 0);
}

TEST(bad_input, tokenizer_larger_than_model_vocabulary_is_refused) {
  const Folder folder;
  const fs::path large = folder / "large.json";
  ASSERT_EQ(run({"tokenizer", "train", large, material().text(), "--vocab-size", "301", "--min-frequency", "1"}).code, 0);
  expect_refused_quietly({"generate", material().trained(), "--prompt", "ka", "--tokenizer", large}, Exit::data, {"large.json", "301", "300"});
  expect_refused_quietly(material().train(folder / "out", {"data.tokenizer=" + large.string()}), Exit::data, {"large.json", "301", "300"});
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(bad_input, a_missing_token_file_is_named) {
  for (const char* suffix : {".bin", ".idx"}) {
    const Tokens tokens;
    fs::remove(tokens.prefix.string() + suffix);
    expect_data_refused(tokens, Exit::missing, {std::string("copy") + suffix});
  }
}

TEST(bad_input, a_truncated_token_file_is_refused) {
  for (const bool index : {false, true}) {
    const Tokens tokens;
    const fs::path file = index ? tokens.idx : tokens.bin;
    fs::resize_file(file, fs::file_size(file) / 2);
    expect_data_refused(tokens, Exit::data, {index ? "copy.idx" : "copy.bin"});
  }
  const Tokens tokens;
  for (const std::uintmax_t size : {33, 20, 8, 0}) {
    fs::resize_file(tokens.idx, size);
    expect_refused_quietly(tokens.train(), Exit::data, {"copy.idx"}, {0});
  }
}

// Counts and offsets whose byte arithmetic overflows 2^63 or 2^64 and wraps to a plausible value.
TEST(bad_input, token_index_with_overflowing_counts_is_refused) {
  for (const std::uint64_t count : {std::uint64_t(1) << 61, std::uint64_t(1) << 63, ~std::uint64_t(0), (std::uint64_t(1) << 62) + 600}) {
    Tokens tokens;
    tokens.poke(tokens.idx, 18, &count, 8);
    expect_refused_quietly(tokens.train(), Exit::data, {"copy.idx", "byte"}, {0});
  }
  Tokens tokens;
  std::uint64_t sequences = 0;
  std::memcpy(&sequences, contents(tokens.idx).data() + 18, 8);
  const std::int64_t far = std::int64_t(0x7fffffffffffffff) - 8;
  tokens.poke(tokens.idx, 34 + 4 * sequences + 8, &far, 8);
  expect_data_refused(tokens, Exit::data, {"copy.idx", "byte"});
}

TEST(bad_input, token_id_beyond_the_vocabulary_is_refused) {
  Tokens tokens;
  std::string all = contents(tokens.bin);
  for (std::size_t i = 0; i + 1 < all.size(); i += 20) all[i] = char(0xff), all[i + 1] = char(0x7f);
  put_contents(tokens.bin, all);
  for (const Words& arguments : {tokens.train(), tokens.eval()})
    for (const int ranks : {0, 2}) expect_refused(run(arguments, {.ranks = ranks}), Exit::data, {"copy.bin", "byte", "32767", "vocabulary of 300"});
}

// Only one rank reads the damaged window. The other rank waits for it in a reduction and must not wait forever.
TEST(bad_input, error_on_one_rank_ends_the_job) {
  Tokens tokens;
  const std::uint16_t wrong = 32767;
  tokens.poke(tokens.bin, 2 * (Material::seq_length + Material::seq_length / 2), &wrong, 2);
  Words arguments = tokens.eval();
  for (const char* word : {"--tensor", "1"}) arguments.push_back(word);
  const Result r = run(arguments, {.ranks = 2, .limit = 30});
  expect_refused(r, Exit::data, {"rank ", "copy.bin", "32767"});
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 65")) << output_of(r);
}

TEST(bad_input, a_truncated_checkpoint_is_refused) {
  const Folder folder;
  const fs::path truncated = folder / "cut", shard = Material::shard(truncated);
  fs::copy(material().trained(), truncated);
  const auto size = fs::file_size(shard);
  for (const std::uintmax_t left : {size - 1, size / 2, std::uintmax_t(100), std::uintmax_t(0)}) {
    SCOPED_TRACE(left);
    fs::resize_file(shard, left);
    const std::vector<int> ranks = left == size / 2 ? std::vector<int>{0, 2} : std::vector<int>{0};
    expect_refused_quietly({"eval", truncated, "--data", material().prefix()}, Exit::data, {shard}, ranks);
    expect_refused_quietly({"generate", truncated, "--prompt", "ka"}, Exit::data, {shard}, ranks);
    expect_refused_quietly({"info", truncated}, Exit::data, {shard}, {0});
  }
}

void flip_a_bit(const fs::path& file) {
  std::string bytes = contents(file);
  bytes[bytes.size() / 2] = char(bytes[bytes.size() / 2] ^ 4);  // inside a tensor, so that the file header and the sizes stay valid
  put_contents(file, bytes);
}

TEST(bad_input, flipped_bit_in_a_checkpoint_is_detected) {
  const Folder folder;
  fs::copy(material().trained(), folder / "flipped");
  EXPECT_EQ(run({"info", folder / "flipped", "--check"}).code, 0);
  flip_a_bit(Material::shard(folder / "flipped"));
  expect_refused(run({"info", folder / "flipped", "--check"}), Exit::data, {"flipped/shard_00000.h5"});
  expect_refused(run({"info", Material::shard(folder / "flipped"), "--check"}), Exit::data, {"flipped/shard_00000.h5"});
  expect_refused(run({"info", folder / "flipped", "--statistics"}), Exit::data, {"flipped/shard_00000.h5"});
  expect_refused(run({"reshard", folder / "flipped", folder / "to"}), Exit::data, {"flipped/shard_00000.h5"});
  EXPECT_FALSE(fs::exists(folder / "to"));
}

// An output folder that holds the checkpoints of steps 30 and 60.
struct Saves {
  Saves() {
    for (const int step : {30, 60}) fs::copy(Material::checkpoint(material().output(), step), path(step), fs::copy_options::recursive);
  }
  fs::path path(int step) const {
    fs::create_directories(folder / "checkpoints");
    return Material::checkpoint(folder.path(), step);
  }
  Result resume(int ranks) const { return run(material().train(folder.path(), {"train.steps=31", "--resume"}), {.ranks = ranks}); }
  void expect_resumed_at_30(const Result& r) const {
    EXPECT_EQ(r.code, 0) << output_of(r);
    EXPECT_NE(r.out.find("skipped checkpoint " + path(60).string()), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("resumed from " + path(30).string() + " at step 30"), std::string::npos) << r.out;
  }
  Folder folder;
};

TEST(bad_input, resume_falls_back_to_newest_intact_checkpoint) {
  const Saves saves;
  const auto halve = [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); };
  halve(Material::shard(saves.path(60)));
  expect_refused(run({"info", saves.folder.path(), "--check"}), Exit::data, {saves.path(60).filename().string(), "the newest checkpoint"});
  EXPECT_EQ(run({"info", saves.path(30), "--check"}).code, 0);
  saves.expect_resumed_at_30(saves.resume(0));

  halve(saves.path(30) / "manifest.json");
  fs::remove_all(saves.path(31));
  expect_refused_quietly(material().train(saves.folder.path(), {"train.steps=31", "--resume"}), Exit::data, {"checkpoints"});
}

TEST(bad_input, folder_in_place_of_a_file_is_named) {
  const Saves saves;
  const auto replaced = [](const fs::path& file) {
    fs::remove(file);
    fs::create_directory(file);
    return file;
  };
  const fs::path tolerances = saves.folder.path() / "tolerances", manifest = replaced(saves.path(60) / "manifest.json");
  expect_refused(run({"info", saves.path(60), "--check"}), Exit::data, {manifest.string(), "is a folder"});
  fs::create_directory(tolerances);
  expect_refused(run({"diff", saves.path(30), saves.path(30), "--tolerances", tolerances}), Exit::missing, {tolerances.string(), "is a folder"});
  const fs::path text = saves.folder.path() / "text.txt", prefix = saves.folder.path() / "built";
  put_contents(text, "some text\n");
  fs::create_directory(prefix.string() + ".idx");
  expect_refused(run({"data", "build", text, prefix, "--tokenizer", material().tokenizer()}), Exit::io, {prefix.string() + ".idx", "is a folder"});
  const fs::path identity = replaced(saves.folder.path() / "run.json");
  expect_refused(run(material().train(saves.folder.path(), {"train.steps=70", "--resume"})), Exit::data, {identity.string()});
}

// Opening a pipe waits for a process that writes to it, so a command must recognise a pipe before it opens it.
TEST(bad_input, pipe_in_place_of_a_file_is_refused) {
  const Folder folder;
  const std::string pipe = folder / "pipe", text = folder / "text.jsonl", hf = folder / "hf", to = folder / "to";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(text.c_str(), 0600), 0);
  ASSERT_EQ(run({"export-hf", material().trained(), hf}).code, 0);
  const std::string trained = material().trained(), tokenizer = material().tokenizer();
  const Words commands[] = {{"train", pipe},
                            {"plan", pipe},
                            {"plan", material().deck(), "--cluster", pipe},
                            {"plan", material().deck(), "--cluster", std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml", "--profile", pipe},
                            {"info", pipe},
                            {"info", pipe, "--check"},
                            {"diff", trained, trained, "--tolerances", pipe},
                            {"reshard", pipe, to},
                            {"tokenizer", "encode", pipe, "--text", "a"},
                            {"tokenizer", "train", to, pipe},
                            {"data", "build", pipe, to, "--tokenizer", tokenizer},
                            {"data", "build", text, to, "--tokenizer", tokenizer},
                            {"data", "build", material().text(), to, "--tokenizer", pipe},
                            {"eval", trained, "--text", pipe},
                            {"eval", trained, "--lambada", pipe},
                            {"eval", trained, "--choices", pipe},
                            {"trace", "show", pipe},
                            {"ps", pipe},
                            {"generate", trained, "--prompt", "a", "--tokenizer", pipe},
                            {"generate", trained, "--batch", pipe}};
  for (const Words& command : commands) {
    const Result r = run(command, {.limit = 20.0 * slowness});
    EXPECT_TRUE(r.code > 0 && r.code < 128 && r.code != int(Exit::internal)) << command[0] << output_of(r);
    EXPECT_EQ(messages(r.err).size(), 1u) << output_of(r);
    EXPECT_NE(r.err.find("pipe"), std::string::npos) << output_of(r);
  }
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}) {
    const fs::path file = fs::path(hf) / name;
    fs::rename(file, folder / name);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    for (const Words& command : {Words{"import-hf", hf, to}, Words{"generate", hf, "--prompt", "a", "--tokens", "1"}, Words{"export-gguf", hf, to}}) {
      const Result r = run(command, {.limit = 20.0 * slowness});
      EXPECT_TRUE(r.code >= 0 && r.code < 128 && r.code != int(Exit::internal)) << command[0] << " " << name << output_of(r);
      fs::remove_all(to);
    }
    fs::rename(folder / name, file);
  }
}

TEST(bad_input, deck_line_with_other_indentation_is_named) {
  const Folder folder;
  folder.write("deck.yaml", "model:\n  pattern: P\n hidden_size: 64\n");
  const Result r = run({"train", folder / "deck.yaml", "--dry-run"});
  EXPECT_EQ(r.code, int(Exit::config));
  EXPECT_NE(r.err.find("deck.yaml:3:2: this line is indented differently from the lines before it in its section"), r.err.npos) << r.err;
}

TEST(bad_input, unquoted_yaml_alias_error_says_to_quote_it) {
  const Folder folder;
  const auto [deck, line] = deck_with(folder, "  pattern: P x 2", "  pattern: *-");
  expect_refused_quietly({"train", deck}, Exit::config, {"changed.yaml:" + std::to_string(line), "must be in quotes: \"*-\""}, {0});
}

TEST(bad_input, model_folder_in_place_of_checkpoint_is_named) {
  const Folder folder;
  const std::string hf = folder / "hf";
  ASSERT_EQ(run({"export-hf", material().trained(), hf}).code, 0);
  for (const Words& command : {Words{"export-hf", hf, folder / "again"}, {"info", hf}, {"reshard", hf, folder / "again"}, {"diff", hf, hf}})
    expect_refused_quietly(command, Exit::data, {hf + ": is a Hugging Face folder, and a checkpoint is needed", "gyrfalcon import-hf"}, {0});
}

TEST(bad_input, peft_type_that_is_no_text_is_refused) {
  const Folder folder;
  const std::string hf = folder / "hf";
  ASSERT_EQ(run({"export-hf", material().trained(), hf}).code, 0);
  fs::create_directory(folder / "peft");
  for (const char* type : {"1", "null", "[]", "{}", "true", "\"lora\""}) {
    put_contents(folder / "peft/adapter_config.json",
                 fmt::format(R"({{"peft_type": {}, "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}})", type));
    expect_refused_quietly({"import-hf", hf, folder / "to", "--adapters", folder / "peft"}, Exit::data, {"peft_type is not LORA"}, {0});
  }
}

TEST(bad_input, resume_skips_a_checkpoint_with_a_flipped_bit) {
  const Saves saves;
  flip_a_bit(Material::shard(saves.path(60)));
  saves.expect_resumed_at_30(saves.resume(2));
}

TEST(bad_input, a_checkpoint_of_another_model_is_refused) {
  const Saves saves;
  for (const char* change : {"model.mlp.intermediate_size=48", "model.pattern=P", "model.pattern=PPP"})
    expect_refused_quietly(material().train(saves.folder.path(), {change, "train.steps=70", "--resume"}), Exit::config,
                           {"step_00000060", "another model"},
                           change == std::string("model.pattern=P") ? std::vector<int>{0, 2} : std::vector<int>{0});
}

void lock_of_another_machine() {
  const Folder folder;
  put_contents(folder / "lock", R"({"host": "elsewhere", "pid": 77, "job": "4711"})");
  const Result waited = run(material().train(folder.path(), {"train.steps=1", "output.lock_seconds=1"}));
  EXPECT_EQ(waited.code, 0) << output_of(waited);
  for (const char* part : {"lock", "77 on elsewhere", "4711", "output.lock_seconds", "taken over"})
    EXPECT_NE(waited.out.find(part), std::string::npos) << output_of(waited);
  put_contents(folder / "lock", R"({"host": "elsewhere", "pid": 77, "job": "4711"})");
  const Result over = run(material().train(folder.path(), {"train.steps=1", "--anew", "--take-over"}));
  EXPECT_EQ(over.code, 0) << output_of(over);
  EXPECT_NE(over.out.find("taken over"), std::string::npos) << over.out;
}

void second_run_while_the_first_lives() {
  const Folder folder;
  bool asked = false;
  const Result first = run(material().train(folder.path(), {"train.steps=100000"}), {.kill_when = [&] {
                             if (asked || contents(folder / "metrics.jsonl").find("\"step\":3,") == std::string::npos) return asked;
                             asked = true;
                             const Words command = material().train(folder.path(), {"train.steps=1"});
                             // Starts the second run with std::system, because `run` would treat the ranks of the first
                             // run as its own orphans.
                             std::string line = program();
                             for (const std::string& word : command) line += " '" + word + "'";
                             const int status = std::system((line + " > " + (folder / "second").string() + " 2>&1").c_str());
                             EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == int(Exit::io)) << contents(folder / "second");
                             EXPECT_NE(contents(folder / "second").find("another run writes to this folder"), std::string::npos)
                                 << contents(folder / "second");
                             return true;
                           }});
  EXPECT_TRUE(first.killed && asked) << output_of(first);
  const Result again = run(material().train(folder.path(), {"train.steps=1", "--anew"}));  // the lock file of the killed run is still there
  EXPECT_EQ(again.code, 0) << output_of(again);
  EXPECT_NE(again.out.find("taken over"), std::string::npos) << again.out;
}

TEST(bad_input, output_folder_locked_by_another_run_is_refused) {
  Trials trials("second run on one output folder");
  trials.attempt(lock_of_another_machine);
  trials.attempt(second_run_while_the_first_lives);
}

TEST(bad_input, a_wrong_command_line_is_refused) {
  expect_refused_quietly({"trian"}, Exit::usage, {"`trian`", "did you mean `train`"});
  expect_refused_quietly({"fly"}, Exit::usage, {"`fly`", "--help"}, {0});
  expect_refused_quietly({"train", material().deck(), "--resmue"}, Exit::usage, {"--resmue"});
  expect_refused_quietly({"train"}, Exit::usage, {"deck"}, {0});
  expect_refused_quietly({"eval"}, Exit::usage, {"checkpoint"}, {0});
  expect_refused_quietly({"eval", material().trained(), "--limit", "many"}, Exit::usage, {"--limit"}, {0});
  expect_refused_quietly({"generate", material().trained(), "--prompt", "x", "--top-p", "1.5"}, Exit::usage, {"--top-p"}, {0});
  expect_refused_quietly({"train", material().deck(), "nonsense"}, Exit::usage, {"nonsense", "section.key=value"});
}

TEST(bad_input, deck_keys_with_dashes_are_answered_with_ours) {
  const auto refused = [](const Words& words, const std::string& advice) {
    Words arguments{"train", material().deck()};
    arguments.insert(arguments.end(), words.begin(), words.end());
    expect_refused_quietly(arguments, Exit::usage, {advice}, {0});
  };
  const std::string form = "keys of the deck are written section.key=value, without dashes: ";
  refused({"--train.steps=5"}, "there is no option `--train.steps`; " + form + "did you mean `train.steps=5`?");
  refused({"--tensor-model-parallel-size", "2"},
          "there is no option `--tensor-model-parallel-size`; " + form + "it is called parallel.tensor here: write parallel.tensor=2");
  refused({"--learning-rate=3e-4", "train.steps=1"}, form + "it is called optimizer.lr here: write optimizer.lr=3e-4");
  const Result several = run({"train", material().deck(), "--num-layers", "24", "--lr", "1e-3"});
  EXPECT_EQ(several.code, int(Exit::usage));
  for (const char* part : {"model.pattern=\"P x 24\"", "did you mean `optimizer.lr=1e-3`?"})
    EXPECT_NE(several.err.find(part), std::string::npos) << several.err;
  refused({"--bf16", "train.steps=1"}, form + "write train.precision=bf16");
  refused({"--resmue"}, "there is no option `--resmue`; did you mean `--resume`?");
  refused({"steps=3"}, "command line `steps=3`: keys are written section.key=value; did you mean `train.steps=3` or `dump.steps=3`");
  refused({"max_steps=3"}, "command line `max_steps=3`: keys are written section.key=value; it is called train.steps here: write train.steps=3");
}

// The message states the option, the value, and the valid range.
TEST(bad_input, invalid_option_value_error_states_the_valid_range) {
  const auto refused = [](const Words& arguments, const std::string& sentence) {
    const std::string command = arguments[0] + (arguments[0] == "tokenizer" ? " " + arguments[1] : "");
    expect_refused_quietly(arguments, Exit::usage, {"gyrfalcon: " + sentence + " (see gyrfalcon " + command + " --help)"}, {0});
  };
  const auto eval = [&](const Words& option, const std::string& sentence) { refused({"eval", "none.h5", option[0], option[1]}, sentence); };
  eval({"--limit", "-1"}, "--limit -1: must be an integer, 0 or more");
  eval({"--sequences", "many"}, "--limit many: must be an integer, 0 or more");
  eval({"--limit", "1.5"}, "--limit 1.5: must be an integer, 0 or more");
  eval({"--limit", "7x"}, "--limit 7x: must be an integer, 0 or more");
  eval({"--limit", ""}, "--limit : must be an integer, 0 or more");
  eval({"--limit", "9223372036854775808"}, "--limit 9223372036854775808: must be an integer from 0 to 9223372036854775807");
  eval({"--batch", "0"}, "--batch 0: must be an integer, 1 or more");
  eval({"--tensor", "2147483648"}, "--tensor 2147483648: must be an integer from 0 to 2147483647");
  eval({"--precision", "fp8"}, "--precision fp8: must be fp32, fp64 or bf16");
  eval({"--split", "tset"}, "--split tset: must be train, validation or test");
  const auto generate = [&](const Words& option, const std::string& sentence) {
    refused({"generate", "none.h5", "--prompt", "x", option[0], option[1]}, sentence);
  };
  for (const char* p : {"1.5", "-0.1", "nan", "inf", "half"})
    generate({"--top-p", p}, std::string("--top-p ") + p + ": must be a number from 0 to 1");
  for (const char* t : {"-1", "nan", "inf", "warm"})
    generate({"--temperature", t}, std::string("--temperature ") + t + ": must be a number, 0 or more");
  generate({"--seed", "-1"}, "--seed -1: must be an integer, 0 or more");
  refused({"plan", material().deck(), "--ranks", "-3"}, "--ranks -3: must be an integer from 1 to 1048576");
  refused({"diff", "a.h5", "b.h5", "--tolerance", "-1e-3"}, "--tolerance -1e-3: must be a number, 0 or more");
  refused({"tokenizer", "train", "t.json", "t.txt", "--vocab-size", "3.5"}, "--vocab-size 3.5: must be an integer");
  // The limits themselves are valid: the command then fails because the file does not exist.
  for (const Words& option : {Words{"--limit", "0"}, Words{"--batch", "1"}, Words{"--tensor", "2147483647"}})
    expect_refused_quietly({"eval", "none.h5", option[0], option[1]}, Exit::missing, {"none.h5"}, {0});
  for (const char* p : {"0", "1", "1e-3"})
    expect_refused_quietly({"generate", "none.h5", "--prompt", "x", "--top-p", p}, Exit::missing, {"none.h5"}, {0});
}

TEST(bad_input, words_of_other_programs_are_answered_with_ours) {
  const auto refused = [](const Words& words, const std::string& sentence) { expect_refused_quietly(words, Exit::usage, {sentence}, {0}); };
  const std::pair<const char*, const char*> options[] = {{"--max_new_tokens", "it is called `--tokens` here"},
                                                         {"--max-new-tokens=5", "it is called `--tokens` here"},
                                                         {"-n", "it is called `--tokens` here"},
                                                         {"--n-predict", "it is called `--tokens` here"},
                                                         {"--start", "it is called `--prompt` here"},
                                                         {"--num_samples", "repeat --prompt, once for each sample"}};
  for (const auto& [option, ours] : options) {
    const std::string name = std::string(option).substr(0, std::string(option).find('='));
    refused({"generate", "none", "--prompt", "x", option, "5"},
            fmt::format("there is no option `{}`; {} (see gyrfalcon generate --help)", name, ours));
  }
  refused({"export-hf", "none", "x", "--torch_dtype", "bf16"}, "there is no option `--torch_dtype`; it is called `--dtype` here");
  refused({"export-gguf", "none", "x", "--quantize", "q8_0"}, "there is no option `--quantize`; it is called `--dtype` here");
  refused({"train", "none", "--dry-run", "-n", "4"}, "there is no option `-n`; the launcher sets the number of ranks");
  refused({"train", "none", "--ranks", "2"}, "--ranks belongs to --dry-run; start a run on N ranks with mpiexec -n N gyrfalcon train DECK");
  refused({"run", "none"}, "write `gyrfalcon run DECK --ranks INT`");
  refused({"train", "none", "--dry-run", "--cluster", "x"}, "there is no option `--cluster`; `gyrfalcon plan DECK --cluster FILE` predicts");
  refused({"generate", "none", "Once upon"}, "the word `Once upon` is not expected; a prompt is given as --prompt TEXT");
  refused({"data", "build", "t.txt", "p", "--tokenizer", "t.json", "--output-prefix", "x"}, "the PREFIX is the last word");
  for (const auto& [command, ours] : {std::pair{"export", "`export-hf` writes a Hugging Face folder"},
                                      {"convert", "`export-hf` writes a Hugging Face folder, `export-gguf` a file for llama.cpp"},
                                      {"sample", "it is called `generate` here"},
                                      {"chat", "it is called `generate` here"},
                                      {"inference", "it is called `generate` here"},
                                      {"pretrain", "it is called `train` here"},
                                      {"finetune", "`train DECK --init-from DIR` fine-tunes a model"}})
    refused({command, "x"}, fmt::format("there is no command `{}`; {}", command, ours));
  refused({"manual", "train"}, "manual: `train` is a command");
}

TEST(bad_input, missing_data_names_the_command_that_makes_it) {
  const Folder folder;
  const std::string prefix = (folder / "text").string(), tokenizer = (folder / "tokenizer.json").string();
  const std::string makes_tokens = fmt::format("{0}.idx: does not exist; `gyrfalcon data build TEXT {0} --tokenizer FILE` makes token files", prefix);
  expect_refused_quietly(material().train(folder / "out", {"data.prefixes=[" + prefix + "]"}), Exit::missing, {makes_tokens});
  expect_refused_quietly({"data", "info", prefix}, Exit::missing, {makes_tokens}, {0});
  expect_refused_quietly(
      {"data", "build", material().text(), prefix, "--tokenizer", tokenizer}, Exit::missing,
      {tokenizer + ": does not exist; give the tokenizer.json of the model", fmt::format("make one: `gyrfalcon tokenizer train {} TEXT`", tokenizer)},
      {0});
  expect_refused_quietly(material().train(folder / "out", {"train.seq_length=10000000"}), Exit::data,
                         {"a sample needs 10000001. Shorten the samples to at most", "times as much"});
}

TEST(bad_input, flag_with_a_value_is_refused) {
  const Folder folder;
  const std::string out = folder / "out";
  for (const char* word : {"--resume=out/my/checkpoints/step_00000100", "--resume=x", "--anew=1x", "--dry-run=1"})
    expect_refused_quietly(material().train(out, {word}), Exit::usage, {std::string(word) + ": this option takes no value"}, {0});
  expect_refused_quietly({"generate", material().trained(), "--prompt", "ka", "--greedy=hello"}, Exit::usage, {"--greedy=hello: this option takes"},
                         {0});
  expect_refused_quietly({"plan", material().deck(), "--explain-layout=x"}, Exit::usage, {"takes no value; write --explain-layout"}, {0});
  EXPECT_FALSE(fs::exists(out));
}

TEST(bad_input, file_size_limit_of_shell_is_reported) {
  const Folder folder;
  std::string command = "ulimit -f 32768; exec " + program();
  for (const std::string& word : material().train(folder / "out", {"train.steps=2", "model.mlp.intermediate_size=20000", "checkpoint.files=single"}))
    command += " '" + word + "'";
  const Result r = execute({"/bin/bash", "-c", command});
  expect_refused(r, Exit::io, {"step_00000002.tmp"});
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 74")) << output_of(r);
}

TEST(bad_input, supervisor_under_mpiexec_is_refused) {
  const Folder folder;
  Words words = material().train(folder / "out", {"train.steps=2"});
  words[0] = "run";
  for (const char* more : {"-n", "1", "--launcher", "none"}) words.push_back(more);
  const Result r = run(words, {.env = {{"PMI_RANK", "1"}}});
  EXPECT_EQ(r.code, int(Exit::device)) << output_of(r);
  EXPECT_NE(r.err.find("gyrfalcon run starts its ranks itself"), std::string::npos) << r.err;
}

TEST(bad_input, further_words_name_the_option_for_them) {
  expect_refused_quietly({"eval", material().trained(), "my.txt"}, Exit::usage, {"`my.txt` is not expected; text files are given as --text FILE"},
                         {0});
  expect_refused_quietly({"tokenizer", "encode", material().tokenizer(), "a b"}, Exit::usage, {"a text is given as --text TEXT"}, {0});
  expect_refused_quietly({"generate", "--prompt", "x"}, Exit::usage, {"is required: write `gyrfalcon generate CHECKPOINT`"}, {0});
  expect_refused_quietly({"train", "--config", "my.yaml"}, Exit::usage, {"the deck is the first word"}, {0});
  expect_refused_quietly({"train", material().deck(), "--lora"}, Exit::usage, {"train input/lora.yaml --init-from DIR"}, {0});
  expect_refused_quietly({"resume", "out/my"}, Exit::usage, {"`train DECK --resume` continues the run"}, {0});
  expect_refused_quietly({"train", material().deck(), "train.branch=true"}, Exit::config, {"true needs --init-from CHECKPOINT"}, {0});
}

TEST(bad_input, output_folder_that_cannot_be_created_is_refused) {
  const Folder folder;
  put_contents(folder / "file", "in the way");
  expect_refused_quietly(material().train(folder / "file"), Exit::io, {folder / "file"});
  expect_refused_quietly(material().train(folder / "file" / "out"), Exit::io, {folder / "file"});
  expect_refused_quietly({"tokenizer", "train", folder / "file" / "t.json", material().text()}, Exit::io, {folder / "file"}, {0});
}

TEST(bad_input, full_disk_ends_run_and_keeps_older_checkpoints) {
  const Folder folder;
  // The file-size limit also applies to MPI's shared-memory files. The checkpoint is therefore larger than those: 46
  // MB.
  const auto train = [&](const Words& more) {
    Words words = material().train(folder.path(), {"model.mlp.intermediate_size=20000", "checkpoint.files=single"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(run(train({"train.steps=2"})).code, 0);
  const fs::path older = Material::checkpoint(folder.path(), 2);
  const std::string before = contents(Material::shard(older));
  for (const int ranks : {0, 2}) {
    const Result r = run(train({"train.steps=4", "--resume"}), {.ranks = ranks, .limit = 60, .file_limit = 32 << 20});
    expect_refused(r, Exit::io, {"step_00000004.tmp"});
    EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 74")) << output_of(r);
  }
  EXPECT_EQ(contents(Material::shard(older)), before);
  EXPECT_FALSE(fs::exists(Material::checkpoint(folder.path(), 4)));
  EXPECT_EQ(run({"info", older, "--statistics"}).code, 0);
  EXPECT_EQ(run({"eval", older}).code, 0);
  EXPECT_EQ(run(train({"train.steps=4", "--resume"})).code, 0);
  EXPECT_TRUE(fs::exists(Material::checkpoint(folder.path(), 4)));
}

// The message names what the user has set: the variable of the environment or the option.
TEST(bad_input, wrong_restart_count_names_the_variable) {
  const auto refused = [](const Words& words, const std::string& count) {
    return run(Material::get().train("/nonexistent", words), {.env = {{"SLURM_RESTART_COUNT", count}}});
  };
  expect_refused(refused({}, "abc"), Exit::usage, {"the environment variable SLURM_RESTART_COUNT=abc: must be an integer, 0 or more"});
  expect_refused(refused({"--attempt", "x"}, "1"), Exit::usage, {"--attempt x: must be an integer, 0 or more"});
}

}  // namespace gyr::testing::bad_input_suite
