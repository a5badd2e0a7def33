// SPDX-License-Identifier: BSD-3-Clause
// Prompts with fields: how lines are read and built, and the order in which a run visits them.
#include "src/data/prompts.hpp"

#include <map>
#include <random>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/team.hpp"
#include "regression/support/testing.hpp"
#include "src/data/token_writer.hpp"

namespace gyr::testing::prompts_suite {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

Tokenizer with_marks() { return Tokenizer(byte_vocabulary(std::vector<std::string>{"<|endoftext|>", "<|start|>", "<|end|>"})); }

DocumentFormat prompts(const Tokenizer* tokenizer, std::optional<Chat> chat = {}) {
  PromptFormat prompts{tokenizer, {}, "prompt"};
  if (chat) prompts.chat = std::make_shared<ConversationFormat>(ConversationFormat{*chat});
  DocumentFormat format;
  format.rule = DocumentFormat::Rule::json_lines;
  format.prompts = std::make_shared<PromptFormat>(prompts);
  return format;
}

// A builder's options with a fingerprint, as the command sets them.
BuildOptions options_of(const Folder& folder, const std::vector<fs::path>& inputs, const DocumentFormat& format) {
  BuildOptions options{inputs, folder / "prompts", format, {}};
  options.tokenizer = TokenizerMark();
  if (format.prompts && format.prompts->tokenizer) options.tokenizer = TokenizerMark{"t.json", 1, "5", format.prompts->tokenizer->size()};
  return options;
}

const std::string jinja_turns =
    "{% for m in messages %}{{ '<|start|>' + m.role + '\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}";

constexpr const char* endings[] = {".bin", ".idx", "_fields.jsonl", ".json"};

std::map<std::string, std::string> files_of(const fs::path& prefix) {
  std::map<std::string, std::string> files;
  for (const std::string ending : endings) files[ending] = contents(prefix.string() + ending);
  return files;
}

std::string random_text(std::mt19937& random) {
  const std::string letters[] = {"a", "7", " ", "\n", "\"", "\\", "\xc3\xa9", "<|end|>"};
  std::string text;
  for (unsigned n = random() % 12; n > 0; --n) text += letters[random() % std::size(letters)];
  return text;
}

Json random_fields(std::mt19937& random) {
  Json fields = Json::object();
  for (const char* key : {"answer", "level", "z"})
    if (random() % 2) fields[key] = random() % 2 ? Json(random_text(random)) : Json::array({random() % 9, -0.1 * double(random() % 100), nullptr});
  return fields;
}

// A prompt of one prefix, with the id of its text, for tests of the reader.
void write_prompts(const fs::path& prefix, int count, const std::string& fields) {
  TokenWriter writer(prefix, 100);
  for (std::int32_t i = 0; i < count; ++i) writer.add(Ids(std::size_t(i % 3 + 1), i)), writer.end_document();
  writer.finish();
  put_contents(fields_path(prefix), fields);
}

std::string refusal(const std::string& line, const DocumentFormat& format) { return read_prompt(line, *format.prompts).problem; }

}  // namespace

TEST(prompts, files_ignore_rank_count_and_keep_lines) {
  std::mt19937 random(seed_of_run());
  const Folder folder;
  const Tokenizer tokenizer = with_marks();
  std::vector<Ids> tokens;
  std::vector<Json> fields;
  std::vector<fs::path> inputs;
  for (int file = 0; file < 5; ++file) {
    std::string lines;
    for (unsigned n = 1 + random() % 6; n > 0; --n) {
      const std::string text = random_text(random);
      Json line = fields.emplace_back(random_fields(random));
      tokens.push_back(text.empty() ? Ids{*tokenizer.eod()} : tokenizer.encode(text, Tokenizer::Specials::complete));
      if (random() % 2) line["prompt"] = text;
      else line["prompt"] = tokens.back();
      lines += line.dump() + "\n";
    }
    inputs.push_back(folder.write("in" + std::to_string(file) + ".jsonl", lines));
  }
  BuildOptions options = options_of(folder, inputs, prompts(&tokenizer));
  std::map<std::string, std::string> first;
  for (const int ranks : {1, 2, 3, 7}) {
    as_team(ranks, [&](const BuildTeam& team) { build_prompts(options, team); });
    const auto files = files_of(options.prefix);
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << ranks;
    options.overwrite = true;
  }
  const Prompts read({options.prefix}, tokenizer.size());
  ASSERT_EQ(read.size(), std::int64_t(tokens.size()));
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read.tokens(i), tokens[std::size_t(i)]) << i;
    EXPECT_EQ(nlohmann::json(read.fields(i)), nlohmann::json(fields[std::size_t(i)])) << i;
    longest = std::max(longest, std::int64_t(tokens[std::size_t(i)].size()));
  }
  EXPECT_EQ(read.longest(), longest);
}

// A prompt equals the conversation that is learnt in fine-tuning up to its last reply.
TEST(prompts, conversation_ends_where_the_answer_begins) {
  const Tokenizer tokenizer = with_marks();
  for (const Chat& chat : {Chat(ChatTemplate("<|start|>{role}\\n{content}<|end|>\\n", tokenizer)),
                           Chat(JinjaChat(jinja::Template(jinja_turns, "chat_template.jinja"), {}, 0, tokenizer))}) {
    const DocumentFormat format = prompts(&tokenizer, chat);
    Json messages = Json::array({{{"role", "user"}, {"content", "1+1?"}}, {{"role", "assistant"}, {"content", "2"}}});
    messages.push_back({{"role", "user"}, {"content", "and <|end|> 2+2?"}});
    for (const char* key : {"messages", "prompt"}) {
      const PromptLine prompt = read_prompt(Json{{key, messages}, {"target", 4}}.dump(), *format.prompts);
      ASSERT_EQ(prompt.problem, "");
      EXPECT_EQ(prompt.fields, "{\"target\":4}");
      Json full = messages;
      full.push_back({{"role", "assistant"}, {"content", "4"}});
      const Conversation learnt = read_conversation(Json{{"messages", full}}.dump(), *format.prompts->chat);
      Ids expected, mask;
      TextPosition position = TextPosition::begin;
      for (const Utterance& u : learnt.utterances) encode(u, tokenizer, expected, position), mask.resize(expected.size(), u.learned);
      std::size_t begin = mask.size();
      while (begin > 0 && !mask[begin - 1]) --begin;
      while (begin > 0 && mask[begin - 1]) --begin;
      EXPECT_EQ(prompt.tokens, Ids(expected.begin(), expected.begin() + std::ptrdiff_t(begin))) << key;
      EXPECT_EQ(std::count(prompt.tokens.begin(), prompt.tokens.end(), *tokenizer.id_of("<|end|>")), 3) << "marks in a message stay text";
    }
    const PromptLine one = read_prompt(R"({"prompt": "2+2?"})", *format.prompts);
    EXPECT_EQ(tokenizer.decode(one.tokens), "<|start|>user\n2+2?<|end|>\n<|start|>assistant\n");
  }
}

TEST(prompts, prompt_gets_the_begin_of_text_token) {
  Vocabulary vocabulary = byte_vocabulary(std::vector<std::string>{"<s>"});
  vocabulary.templates = {{{0}, {}}};
  const Tokenizer tokenizer(std::move(vocabulary));
  const auto tokens = [&](const char* line) { return read_prompt(line, *prompts(&tokenizer).prompts).tokens; };
  EXPECT_EQ(tokens(R"({"prompt": ""})"), Ids{0});
  EXPECT_EQ(tokens(R"({"prompt": "a"})"), (Ids{0, *tokenizer.id_of("a")}));
  EXPECT_EQ(tokens(R"({"prompt": [5, 0]})"), (Ids{5, 0}));
}

TEST(prompts, invalid_lines_are_refused_with_their_reason) {
  const Tokenizer tokenizer = with_marks(), without_end(byte_vocabulary({}));
  const DocumentFormat text = prompts(&tokenizer), ids = prompts(nullptr), no_end = prompts(&without_end);
  const DocumentFormat turns = prompts(&tokenizer, ChatTemplate("{role}: {content}\\n", tokenizer));
  const DocumentFormat pairs = prompts(&tokenizer, ChatTemplate("Q: {prompt} A: {response}\\n", tokenizer));
  const std::tuple<const DocumentFormat*, const char*, const char*> cases[] = {
      {&text, R"({"question": "a"})", "has no key 'prompt' and no key 'messages' (keys: question); name the key of the prompt with --key"},
      {&text, R"({"prompt": 5})", "has a number under 'prompt', not a text or a list of token ids"},
      {&text, R"({"prompt": "a", "prompt": "b"})", "has the key 'prompt' twice"},
      {&text, R"({"prompt": "a", "messages": []})", "has a prompt under 'prompt' and under 'messages'; leave out one of them"},
      {&text, R"({"prompt": []})", "has a prompt of no tokens under 'prompt'"},
      {&no_end, R"({"prompt": ""})", "has a prompt of no tokens under 'prompt'"},
      {&text, R"({"prompt": [1, 259]})", "has the token id 259 under 'prompt', but the ids are 0 to 258"},
      {&text, R"({"prompt": [-1]})", "has the token id -1 under 'prompt', but the ids are 0 to 258"},
      {&ids, R"({"prompt": [2147483647]})", "has the token id 2147483647 under 'prompt', but the ids are 0 to 2147483646"},
      {&text, R"({"prompt": [1, 2.5]})", "has a number as token 2 under 'prompt', not a token id"},
      {&text, R"({"prompt": [1, true]})", "has a boolean as token 2 under 'prompt', not a token id"},
      {&ids, R"({"prompt": "a"})", "has a text under 'prompt', which is encoded with a tokenizer; give --tokenizer"},
      {&text, R"({"messages": [{"role": "user", "content": "a"}]})", "give --template, as in --template @FOLDER of the model"},
      {&turns, R"({"prompt": [1]})", "has token ids under 'prompt', which a template cannot format; leave out --template"},
      {&turns, R"({"messages": []})", "has no message under 'messages'"},
      {&turns, R"({"messages": ["a"]})", "has a string in message 1, not an object"},
      {&turns, R"({"messages": [{"role": "user"}]})", "has no key 'content' in message 1 (keys: role)"},
      {&turns, R"({"messages": [{"role": "assistant", "content": "a"}]})", "ends with a message of 'assistant'"},
      {&pairs, R"({"messages": [{"role": "user", "content": "a"}]})", "but the template has {prompt}; write {role} and {content} in it"},
      {&text, R"({"prompt": "a", "x": 18446744073709551616})",
       "has the integer 18446744073709551616, which has more than 64 bits; write it as a string"},
      {&text, R"({"prompt": "a", "x": -9223372036854775809})", "has the integer 9223372036854775809, which has more than 64 bits"},
      {&text, R"({"prompt": "a", "x": 1e999})", "has a number that is too large"}};
  for (const auto& [format, line, expected] : cases)
    EXPECT_NE(refusal(line, *format).find(expected), std::string::npos) << line << refusal(line, *format);
  for (const char* line :
       {R"({"prompt": "a", "x": [18446744073709551615, -9223372036854775808, 1e30, "99999999999999999999\""]})", R"({"prompt": [0, 258]})"})
    EXPECT_EQ(refusal(line, text), "");
}

TEST(prompts, stale_fields_block_or_are_removed) {
  const Folder folder;
  const auto input = folder.write("in.jsonl", "{\"prompt\": [1, 2]}\n");
  put_contents(folder / "prompts_fields.jsonl", "somebody's");
  BuildOptions options = options_of(folder, {input}, prompts(nullptr));
  EXPECT_EQ(error_of([&] { build_prompts(options); }).code, Exit::usage);
  EXPECT_EQ(contents(folder / "prompts_fields.jsonl"), "somebody's");
  options.overwrite = true;
  build_prompts(options);
  EXPECT_EQ(contents(folder / "prompts_fields.jsonl"), "{}\n");
  EXPECT_EQ(Prompts({options.prefix}, 3).tokens(0), (Ids{1, 2}));
  options.format = DocumentFormat(), options.inputs = {folder.write("in.txt", "some text")};
  build_corpus(with_marks(), options);
  EXPECT_FALSE(fs::exists(folder / "prompts_fields.jsonl"));
  const Error missing = error_of([&] { Prompts({options.prefix}, 300); });
  EXPECT_EQ(missing.code, Exit::missing);
  EXPECT_NE(std::string(missing.what()).find("prompts_fields.jsonl: does not exist"), std::string::npos) << missing.what();
}

TEST(prompts, invalid_files_are_refused_with_their_place) {
  const Folder folder;
  const auto refused = [&](const std::string& fields, std::int64_t vocab_size) {
    write_prompts(folder / "p", 3, fields);
    const Error error = error_of([&] { Prompts({folder / "p"}, vocab_size); });
    EXPECT_EQ(error.code, Exit::data);
    return std::string(error.what());
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refused("{}\n{}\n", 3), "p_fields.jsonl: has 2 lines, but"));
  EXPECT_TRUE(has(refused("{}\n{}\n{}\n\n", 3), "p_fields.jsonl: has 4 lines, but"));
  EXPECT_TRUE(has(refused("{}\n[]\n{}\n", 3), "line 2 of "));
  EXPECT_TRUE(has(refused("{}\n{}\n{\"a\": \n", 3), "line 3 of "));
  EXPECT_TRUE(has(refused("{}\n{}\n{}\n", 2), "p.bin: byte 6: token id 2 is not in the vocabulary of 2 tokens"));
  write_prompts(folder / "p", 3, "{}\n{}\n{}");
  EXPECT_EQ(Prompts({folder / "p"}, 3).size(), 3) << "the last line end is optional";
}

TEST(prompts, damaged_files_are_read_or_refused) {
  Mutation mutation(seed_of_run());
  const Tokenizer tokenizer = with_marks();
  const DocumentFormat formats[] = {prompts(&tokenizer), prompts(nullptr), prompts(&tokenizer, ChatTemplate("{role}: {content}\\n", tokenizer)),
                                    prompts(&tokenizer, JinjaChat(jinja::Template(jinja_turns, "chat_template.jinja"), {}, 0, tokenizer))};
  const std::string lines = R"({"prompt": "2+2", "target": 4})"
                            "\n"
                            R"({"prompt": [1, 2], "a": {"b": [1, null]}})"
                            "\n"
                            R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "t"}]})"
                            "\n";
  int built = 0, refused = 0;
  const auto expect_refusal = [&](const Error& error, const std::string& what) {
    ++refused;
    EXPECT_TRUE(error.code == Exit::data || error.code == Exit::missing || error.code == Exit::io) << what << ": " << error.what();
  };
  for (int i = 0; i < 400; ++i) {
    const Folder folder;
    DocumentFormat format = formats[mutation.up_to(3)];
    format.invalid = DocumentFormat::Invalid(mutation.up_to(1));
    const BuildOptions options = options_of(folder, {folder.write("in.jsonl", lines)}, format);
    std::string what = mutation.damage(folder / "in.jsonl");
    try {
      build_prompts(options);
      what += "; fields " + mutation.damage(folder / "prompts_fields.jsonl");
      const Prompts read({options.prefix}, TokenFile::max_vocab);
      for (std::int64_t p = 0; p < read.size(); ++p) EXPECT_TRUE(read.fields(p).is_object() && !read.tokens(p).empty()) << what;
      ++built;
    } catch (const Error& error) {
      expect_refusal(error, what);
    }
  }
  EXPECT_GT(built, 20);
  EXPECT_GT(refused, 20);
}

TEST(prompts, prefixes_follow_each_other_with_their_places) {
  const Folder folder;
  write_prompts(folder / "a", 2, "{\"n\": 0}\n{\"n\": 1}\n");
  write_prompts(folder / "b", 3, "{\"n\": 2}\n{\"n\": 3}\n{\"n\": 4}\n");
  const Prompts all({folder / "a", folder / "b"}, 100);
  ASSERT_EQ(all.size(), 5);
  EXPECT_EQ(all.longest(), 3);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(all.fields(i).at("n"), i);
  EXPECT_EQ(all.place(1), "line 2 of " + (folder / "a_fields.jsonl").string());
  EXPECT_EQ(all.place(2), "line 1 of " + (folder / "b_fields.jsonl").string());
  EXPECT_EQ(all.tokens(4), (Ids{2, 2, 2}));
}

TEST(prompts, every_epoch_visits_each_prompt_once) {
  std::mt19937 random(seed_of_run());
  const Folder folder;
  for (const int count : {1, 2, 3, 17, 64}) {
    std::string fields;
    for (int i = 0; i < count; ++i) fields += "{}\n";
    write_prompts(folder / "p", count, fields);
    const Prompts all({folder / "p"}, 100);
    const std::uint64_t seed = random();
    std::set<std::vector<std::int64_t>> orders;  // of four epochs with a seed, and of the first epoch with the next seed
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < count; ++i) order.push_back(epoch < 4 ? all.line_of(epoch * count + i, seed) : all.line_of(i, seed + 1));
      orders.insert(order);
      std::sort(order.begin(), order.end());
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(order[std::size_t(i)], i) << count;
    }
    if (count > 16) {
      EXPECT_EQ(orders.size(), 5u) << "each epoch and each seed has an order of its own";
    }
  }
}

}  // namespace gyr::testing::prompts_suite
