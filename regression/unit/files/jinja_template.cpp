// SPDX-License-Identifier: BSD-3-Clause
// Chat templates in Jinja: a supported template renders the same text as in transformers (golden/chat_templates.json,
// written by chat_templates.py). All others are refused with an error that names the unsupported construct.
#include "src/huggingface/jinja_template.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/data/chat_template.hpp"

namespace gyr::testing::jinja_template_suite {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json all = Json::parse(std::ifstream(GYR_SOURCE_DIR "/regression/golden/chat_templates.json"));
  return all;
}

const Tokenizer& tokenizer() {
  static const Tokenizer own(byte_vocabulary(std::vector<std::string>{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start|>"}));
  return own;
}

std::string text_of(const std::vector<Utterance>& utterances) {
  std::string text;
  for (const Utterance& u : utterances) text += u.text + (u.special ? tokenizer().decode(std::vector<std::int32_t>{*u.special}) : "");
  return text;
}

JinjaTemplate jinja(const std::string& text) { return {text, "model/chat_template.jinja", golden().at("tokens")}; }

// The rendered conversation, without and with the generation prompt.
std::pair<std::string, std::string> written(const std::string& format, const Json& conversation) {
  const ChatTemplate chat(format, tokenizer());
  std::vector<Utterance> utterances;
  for (const Json& m : conversation) chat.fill(m.at("role").get<std::string>(), m.at("content").get<std::string>(), false, utterances);
  const std::string turns = text_of(utterances), asked = text_of(chat.question("?", "assistant"));
  std::vector<Utterance> question;
  chat.fill("user", "?", false, question);
  return {turns, turns + asked.substr(text_of(question).size())};
}

TEST(jinja_template, output_matches_transformers) {
  EXPECT_GT(golden().at("cases").size(), 200u);
  int prompts = 0;
  for (const Json& c : golden().at("cases")) {
    const std::string text = c.at("template");
    std::string format;
    ASSERT_NO_THROW(format = format_of(jinja(text))) << text;
    for (std::size_t i = 0; i < golden().at("conversations").size(); ++i) {
      const auto [turns, prompted] = written(format, golden().at("conversations")[i]);
      EXPECT_EQ(turns, c.at("rendered")[i].get<std::string>()) << text << "\n" << format;
      if (c.at("prompted")[i] == c.at("rendered")[i]) continue;  // this template ignores add_generation_prompt
      EXPECT_EQ(prompted, c.at("prompted")[i].get<std::string>()) << text << "\n" << format;
      ++prompts;
    }
  }
  EXPECT_GT(prompts, 200);
}

TEST(jinja_template, unsupported_constructs_are_named) {
  const std::string loop = "{% for message in messages %}", turn = "{{ message['role'] + ': ' + message['content'] }}", end = "{% endfor %}";
  const std::map<std::string, std::string> refused{
      {"{{ bos_token }}" + loop + turn + end, "character 1: `bos_token` is written before the first message"},
      {"Hello" + loop + turn + end, "`Hello` is written before the first message"},
      {"", "the end of the template is not `for message in messages`"},
      {"{% for message in messages[1:] %}" + turn + end, "`for message in messages[1:]` is not `for message in messages`"},
      {"{%- if tools %}{{ tools }}{% endif %}" + loop + turn + end, "`if tools` is not"},
      {"{% set x = 1 %}" + loop + turn + end, "`set x = 1` is not"},
      {loop + "{{ message['content'] | trim }}" + end, "`message['content'] | trim` is not a concatenation"},
      {loop + "{{ raise_exception('no') }}" + end, "raise_exception"},
      {loop + "{% if loop.first %}a{% endif %}" + turn + end, "`if loop.first` is not supported in the loop"},
      {loop + "{{ message['content'] + message['role'] }}" + end, "does not write role and then content"},
      {loop + "{{ message['role'] }}" + end, "does not write role and then content"},
      {loop + turn + turn + end, "does not write role and then content"},
      {loop + turn, "the end of the template is not supported in the loop"},
      {loop + turn + end + "bye", "`bye` is not supported"},
      {loop + turn + end + "{% if add_generation_prompt %}bot: {% endif %}", "a generation prompt that differs"},
      {loop + turn + end + "{% if add_generation_prompt %}{{ message['role'] }}{% endif %}", "a role or content in the generation prompt"},
      {loop +
           "{% if message['role'] == 'user' %}<user>{{ message['content'] }}{% elif message['role'] == 'assistant' %}[assistant]"
           "{{ message['content'] }}{% endif %}" +
           end,
       "whose form differs from that of the previous branch"},
      {loop + "{% if message['role'] == 'user' %}<user>{{ message['content'] }}{% else %}<assistant>{{ message['content'] }}{% endif %}" + end,
       "`else` is not a branch on one role"},
      {loop + "{% if message['role'] == 'user' %}<user>{{ message['content'] }}{% endif %}" + end, "without one for the assistant"},
      {loop + "{{ 'a", "a tag is not closed"},
      {loop + "{{ 'a\\x41' + message['role'] + message['content'] }}" + end, "an escape that is not supported"},
      {loop + "{{ eos_token + pad_token }}" + end, "is not a concatenation of strings"}};
  for (const auto& [text, part] : refused) {
    const Error error = error_of([text = text] { format_of(jinja(text)); });
    EXPECT_EQ(error.code, Exit::data) << text;
    EXPECT_TRUE(std::string(error.what()).starts_with("model/chat_template.jinja: the chat template cannot be converted: character "))
        << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << "\n" << error.what();
  }
}

// Every text is either converted to a valid format string or refused with Exit::data.
TEST(jinja_template, damaged_templates_are_converted_or_refused) {
  for (const Json& c : golden().at("cases")) {
    const std::string text = c.at("template");
    for (std::size_t cut = 0; cut < text.size(); cut += 3) {
      std::string other = text;
      other.erase(cut, 1 + cut % 4);
      try {
        ChatTemplate(format_of(jinja(other)), tokenizer());
      } catch (const Error& error) {
        EXPECT_EQ(error.code, Exit::data) << other << "\n" << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace gyr::testing::jinja_template_suite
