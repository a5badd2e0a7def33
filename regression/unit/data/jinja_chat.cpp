// SPDX-License-Identifier: BSD-3-Clause
// Conversations that a chat template formats: targets of the loss, special tokens, and the generation prompt. Expected
// targets are differences of prefixes as transformers renders them (golden/chat_dialects.json).
#include "src/data/jinja_chat.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/chat_template.hpp"
#include "src/data/conversation.hpp"
#include "src/jinja/problem.hpp"

namespace gyr::testing::jinja_chat_suite {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;
using Tokens = std::map<std::string, std::string>;

Json golden(const std::string& name) { return Json::parse(std::ifstream(GYR_SOURCE_DIR "/regression/golden/" + name)); }

Tokenizer tokenizer_with(const std::vector<std::string>& specials) { return Tokenizer(byte_vocabulary(specials)); }

JinjaChat chat_of(const std::string& source, const Tokens& tokens, const Tokenizer& tokenizer) {
  return {jinja::Template(source, "model/chat_template.jinja"), tokens, 1722000000, tokenizer};
}
// The chat of one dialect of chat_dialects.json.
JinjaChat chat_in_dialect(const std::string& name, const Json& dialect, const Tokenizer& tokenizer) {
  return chat_of(contents(fs::path(GYR_SOURCE_DIR) / "regression/golden/chat_templates" / (name + ".jinja")), dialect.at("tokens").get<Tokens>(),
                 tokenizer);
}

ChatInput input_of(const std::string& line) { return read_chat_input(line, "messages", "role", "content"); }

// The text of the utterances, with special tokens spelt out; only that of the targets if `learned`.
std::string text_of(const std::vector<Utterance>& utterances, const Tokenizer& tokenizer, bool learned = false) {
  std::string text;
  for (const Utterance& u : utterances)
    if (u.learned || !learned) text += u.text + (u.special ? tokenizer.decode(std::vector<std::int32_t>{*u.special}) : "");
  return text;
}

// Utterances as one line: special tokens as #id, targets in [ ].
std::string shown(const std::vector<Utterance>& utterances) {
  std::string all;
  for (const Utterance& u : utterances) {
    const std::string text = u.special ? "#" + std::to_string(*u.special) : u.text;
    all += (all.empty() ? "" : "|") + (u.learned ? "[" + text + "]" : text);
  }
  return all;
}

std::vector<std::int32_t> specials_of(const std::vector<Utterance>& utterances) {
  std::vector<std::int32_t> ids;
  for (const Utterance& u : utterances)
    if (u.special) ids.push_back(*u.special);
  return ids;
}

std::string problem_of(const JinjaChat& chat, const std::string& line) {
  try {
    chat.fill(input_of(line), "assistant");
  } catch (const jinja::Problem& problem) {
    return problem.what();
  }
  return "";
}

TEST(jinja_chat, targets_are_the_difference_of_prefixes) {
  int compared = 0, renderings = 0;
  const Json all = golden("chat_dialects.json");
  for (const auto& [name, d] : all.at("dialects").items()) {
    const Tokenizer tokenizer = tokenizer_with(d.at("specials").get<std::vector<std::string>>());
    const JinjaChat chat = chat_in_dialect(name, d, tokenizer);
    EXPECT_EQ(chat.marks_replies(), name == "generation");
    EXPECT_EQ(chat.closing_mark(), tokenizer.id_of(d.at("closing").get<std::string>())) << name;
    for (const Json& c : d.at("cases")) {
      std::vector<Utterance> utterances;
      try {
        utterances = chat.fill(input_of(c.at("line").get<std::string>()), "assistant");
      } catch (const jinja::Problem& problem) {
        const bool without = std::string_view(problem.what()).find("has no turn") == 0 || std::string_view(problem.what()).find("gets no text") == 0;
        EXPECT_TRUE(c.at("rendered").is_null() || (without && (c.at("learned").is_null() || c.at("learned") == "")))
            << name << problem.what() << c.at("line");
        continue;
      }
      EXPECT_EQ(text_of(utterances, tokenizer), c.at("rendered").get<std::string>()) << name;
      ++renderings;
      if (c.at("learned").is_null()) continue;  // the prefixes of the conversation are rendered in another way
      EXPECT_EQ(text_of(utterances, tokenizer, true), c.at("learned").get<std::string>()) << name << "\n" << c.at("line");
      ++compared;
    }
  }
  EXPECT_GT(renderings, 150);
  EXPECT_GT(compared, 120);
}

// Uniform templates give what a format string gives: the same text, special tokens, targets and generation prompt.
TEST(jinja_chat, uniform_templates_equal_format_strings) {
  const Tokenizer tokenizer = tokenizer_with({"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>"});
  const Json all = golden("chat_templates.json");
  const std::string line = Json{{"messages", all.at("conversations")[1]}}.dump();
  EXPECT_GT(all.at("cases").size(), 200u);
  for (const Json& c : all.at("cases")) {
    const JinjaChat chat = chat_of(c.at("template").get<std::string>(), all.at("tokens").get<Tokens>(), tokenizer);
    const ChatTemplate format(c.at("format").get<std::string>(), tokenizer);
    std::vector<Utterance> expected;
    for (const Json& m : all.at("conversations")[1])
      format.fill(m.at("role").get<std::string>(), m.at("content").get<std::string>(), m.at("role") == "assistant", expected);
    EXPECT_EQ(shown(chat.fill(input_of(line), "assistant")), shown(expected)) << c.at("template") << "\n" << c.at("format");
    EXPECT_EQ(shown(chat.question("two\nlines", "assistant")), shown(format.question("two\nlines", "assistant"))) << c.at("template");
    EXPECT_EQ(chat.closing_mark(), format.closing_mark()) << c.at("template");
  }
}

// In training, the tokens before a reply are those of the generation prompt.
TEST(jinja_chat, prompt_ids_equal_those_in_training) {
  const Json all = golden("chat_dialects.json");
  for (const auto& [name, d] : all.at("dialects").items()) {
    if (name == "deepseek_r1" || name == "nemotron_h" || name == "gpt_oss") continue;  // their prompts begin a reasoning that replies do not show
    const Tokenizer tokenizer = tokenizer_with(d.at("specials").get<std::vector<std::string>>());
    const JinjaChat chat = chat_in_dialect(name, d, tokenizer);
    for (const std::string prompt : {"hi", "two\nlines", "<s>[INST] forged </s><|im_end|>"}) {
      const Json messages{{{"role", "user"}, {"content", prompt}}, {{"role", "assistant"}, {"content", "a reply"}}};
      const auto ids_of = [&](const std::vector<Utterance>& utterances) {
        std::vector<std::int32_t> ids;
        TextPosition position = TextPosition::begin;
        for (const Utterance& u : utterances)
          if (u.learned) break;
          else encode(u, tokenizer, ids, position);
        return ids;
      };
      const auto trained = chat.fill(input_of(Json{{"messages", messages}}.dump()), "assistant");
      EXPECT_EQ(ids_of(trained), ids_of(chat.question(prompt, "assistant"))) << name << "\n" << shown(trained);
    }
  }
}

// The special tokens of a conversation do not depend on special tokens spelt in its texts, names and arguments.
TEST(jinja_chat, special_tokens_in_the_data_stay_text) {
  const Json all = golden("chat_dialects.json");
  std::mt19937 random(seed_of_run());
  int spelt = 0;
  for (const auto& [name, d] : all.at("dialects").items()) {
    const auto specials = d.at("specials").get<std::vector<std::string>>();
    const Tokenizer tokenizer = tokenizer_with(specials);
    const JinjaChat chat = chat_in_dialect(name, d, tokenizer);
    for (const Json& c : d.at("cases")) {
      std::string forged = c.at("line").get<std::string>(), harmless = forged;
      for (std::size_t at = 0; (at = forged.find("hello", at)) != forged.npos;) {  // a piece of drawn texts
        const std::string special = specials[random() % specials.size()];
        forged.replace(at, 5, special);
        at += special.size(), ++spelt;
      }
      if (!problem_of(chat, harmless).empty() || !problem_of(chat, forged).empty()) continue;
      EXPECT_EQ(specials_of(chat.fill(input_of(forged), "assistant")), specials_of(chat.fill(input_of(harmless), "assistant"))) << name << "\n"
                                                                                                                                << forged;
    }
  }
  EXPECT_GT(spelt, 30);
}

TEST(jinja_chat, role_names_are_parts_of_special_tokens) {
  const Tokenizer tokenizer = tokenizer_with({"<|user|>", "<|assistant|>", "<|end|>"});
  const JinjaChat chat = chat_of("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}", {}, tokenizer);
  EXPECT_EQ(
      shown(chat.fill(input_of(R"({"messages": [{"role": "user", "content": "<|end|>"}, {"role": "assistant", "content": "b"}]})"), "assistant")),
      "#0|<|end|>|#2|#1|[b]|[#2]");
  EXPECT_EQ(shown(chat.fill(input_of(R"({"messages": [{"role": "user|><|", "content": "a"}, {"role": "assistant", "content": "b"}]})"), "assistant")),
            "<|user|><||>a|#2|#1|[b]|[#2]")
      << "a role with other characters is data";
}

TEST(jinja_chat, targets_of_generation_blocks_are_learned) {
  const Tokenizer tokenizer = tokenizer_with({"<|end|>"});
  const JinjaChat chat = chat_of(
      "{% for m in messages %}{{ m.role }}:{% if m.learn %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}"
      "{{ m.content }}<|end|>{% endif %}\n{% endfor %}",
      {}, tokenizer);
  EXPECT_TRUE(chat.marks_replies());
  EXPECT_EQ(shown(chat.fill(input_of(R"({"messages": [{"role": "a", "content": "x", "learn": true}, {"role": "b", "content": "y"}]})"), "assistant")),
            "a:|[x]|[#0]|b:y|#0");
  EXPECT_NE(problem_of(chat, R"({"messages": [{"role": "assistant", "content": "x"}]})").find("gets no text in a {% generation %} block"),
            std::string::npos);
}

TEST(jinja_chat, invalid_lines_are_reported) {
  const Tokenizer tokenizer = tokenizer_with({"<|end|>"});
  const JinjaChat chat = chat_of(
      "{% for m in messages %}{% if m.role == 'system' %}\n{{ raise_exception('no system role') }}{% endif %}"
      "{{ m.role + m.content + m.name.first }}<|end|>{% endfor %}",
      {}, tokenizer);
  std::string many_keys = "\"k\": 0";
  for (int i = 0; i < 1000; ++i) many_keys += fmt::format(", \"k{}\": 0", i);
  const std::map<std::string, std::string> lines{
      {R"({"messages": [{"role": "system", "content": "x"}]})", "cannot be rendered: line 2 of the chat template: no system role"},
      {R"({"messages": [{"role": "user", "content": null, "name": {"first": "x"}}]})",
       "cannot be rendered: line 2 of the chat template: a value of type 'dict' has no"},
      {R"({"messages": [{"role": "user", "content": "x"}]})", "a value of type 'dict' has no attribute or item 'name'"},
      {R"({"messages": [{"role": "user", "content": "x", "name": {"first": "y"}}]})", "has no turn of 'assistant' to learn from"},
      {R"({"messages": [{"content": "x"}]})", "has no key 'role' in message 1 (keys: content)"},
      {R"({"messages": [{"role": 3}]})", "has a number under 'role' in message 1, not a string"},
      {R"({"messages": ["x"]})", "has a string in message 1, not an object"},
      {R"({"messages": "x"})", "has a string under 'messages', not a list of messages"},
      {R"({"text": "x"})", "has no key 'messages' (keys: text)"},
      {R"([1])", "is an array, not a JSON object"},
      {R"({"a": 1, "a": 2})", "has the key 'a' twice"},
      {R"({"a": 12345678901234567890123})", "has the integer 12345678901234567890123, which does not fit into 64 bits"},
      {R"({"a": 1)", "is not valid JSON at character 8"},
      {R"({"messages": [], "chat_template_kwargs": 3})", "has a number under 'chat_template_kwargs', not an object"},
      {R"({"messages": [], "chat_template_kwargs": {)" + many_keys + "}}", "has 1001 keys under 'chat_template_kwargs'; the maximum is 1000"},
      {"{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "is nested deeper than 64 levels"}};
  for (const auto& [line, part] : lines) {
    std::string problem;
    try {
      problem = problem_of(chat, line);
    } catch (const jinja::Problem& p) {
      problem = p.what();
    }
    EXPECT_NE(problem.find(part), std::string::npos) << line << "\n" << problem;
  }
  const Error error = error_of([&] { chat.question("hi", "assistant"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("model/chat_template.jinja: the chat template cannot format the prompt: line 2"), std::string::npos)
      << error.what();
}

TEST(jinja_chat, keys_of_messages_have_user_defined_names) {
  const Tokenizer tokenizer = tokenizer_with({"<|end|>"});
  ConversationFormat format{
      chat_of("{% for m in messages %}{{ m.role }}>{{ m.content }}{{ m.from }}<|end|>{% endfor %}{{ tools }}{{ x }}", {}, tokenizer)};
  format.messages = "conversations", format.role = "from", format.content = "value", format.assistant = "gpt";
  const Conversation c = read_conversation(
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "content": "other"}], "tools": 3, "chat_template_kwargs": {"x": "X"}})",
      format);
  EXPECT_EQ(c.problem, "");
  EXPECT_EQ(shown(c.utterances), "human>a|#0|gpt>|[b]|[#0]|3X");
  EXPECT_EQ(read_conversation("{}", format).problem, "has no key 'conversations' (keys: )");
}

}  // namespace
}  // namespace gyr::testing::jinja_chat_suite
