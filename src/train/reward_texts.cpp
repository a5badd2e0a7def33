// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/reward_texts.hpp"

#include <algorithm>

#include "src/base/file_system.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/config/placed_models.hpp"
#include "src/data/fingerprint.hpp"
#include "src/jinja/problem.hpp"
#include "src/policy/rewards/field.hpp"
#include "src/pretrained/chat_source.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

namespace {

// Date that a chat template may write: 26 July 2024, the default of Llama 3. A resumed run must read the same texts.
constexpr std::time_t date_of_templates = 1721952000;

const FurtherModel& model_of(const RunConfig& run, const RewardConfig& rule) {
  const auto found = std::find_if(run.models.begin(), run.models.end(), [&](const FurtherModel& m) { return m.name == rule.model; });
  ensure(found != run.models.end(), "reward {}: the run has no model {}", rule.name, rule.model);
  return *found;
}

bool is_file(const std::string& path) {
  std::error_code no;
  return std::filesystem::is_regular_file(path, no);
}

bool other_tokenizer(const RunConfig& run, const std::string& own) {
  return is_file(own) && is_file(run.data.tokenizer) && SummedFile(own).sum() != SummedFile(run.data.tokenizer).sum();
}

// The format of the deck, or else the chat template of the model.
Chat chat_of(const RunConfig& run, const RewardConfig& rule, const FurtherModel& model, const std::string& own, const Tokenizer& tokenizer) {
  const std::string key = key_of_reward(rule, "template");
  if (rule.text_format.empty()) {
    std::optional<Chat> chat = chat_of_model(model.init_from, tokenizer, date_of_templates);
    require(chat.has_value(), Exit::config,
            "models.{}: its tokenizer {} is not that of the policy, {}, and {} has no chat template; write the format of its texts in {}, such as "
            "\"{{prompt}}{{response}}\"",
            model.name, own, run.data.tokenizer, model.init_from, key);
    return *std::move(chat);
  }
  try {
    return read_chat(rule.text_format, tokenizer, date_of_templates);
  } catch (const Error& error) {
    fail(error.code == Exit::usage ? Exit::config : error.code, "{}: {}", key, error.what());
  }
}

// Prompts that were formatted for the policy would be formatted twice.
void require_plain_prompts(const RunConfig& run, const RewardConfig& rule) {
  for (const std::string& prefix : run.data.prefixes)
    if (const auto fingerprint = fingerprint_of(prefix); fingerprint && rule.field.empty())
      for (const auto& [option, value] : fingerprint->options)
        require(option != "--template", Exit::config,
                "{}: its prompts have the format of the policy (--template {}), which models.{} does not read; add the text or the messages of a "
                "prompt to its line under another key, and name this key in {}",
                prefix, value, rule.model, key_of_reward(rule, "field"));
}

// The rule would be ignored otherwise.
void check_reader_of_ids(const RunConfig& run, const RewardConfig& rule, const FurtherModel& model) {
  check_token_ids(model, run);
  require(rule.field.empty(), Exit::config, "{} is {}, but models.{} reads the token ids of the policy; remove this key, or give {}",
          key_of_reward(rule, "field"), rule.field, rule.model, key_of_reward(rule, "template"));
}

bool ends_with_special(const std::vector<Utterance>& utterances) { return !utterances.empty() && utterances.back().special.has_value(); }

}  // namespace

std::optional<RewardTexts> RewardTexts::of(const RunConfig& run, const RewardConfig& rule) {
  const FurtherModel& model = model_of(run, rule);
  if (model.init_from.empty()) return {};  // a run that is only planned
  std::string own = defaults_of(model.init_from).tokenizer;
  const bool differs = other_tokenizer(run, own);
  if (rule.text_format.empty() && !differs) {
    check_reader_of_ids(run, rule, model);
    return {};
  }
  require_plain_prompts(run, rule);
  if (!is_file(own)) own = run.data.tokenizer;
  Tokenizer tokenizer = Tokenizer::load(own);
  require(tokenizer.size() <= model.model->vocab_size, Exit::data,
          "models.{}: the tokenizer {} has {} tokens, but the model in {} has a vocabulary of {}; put the model's tokenizer.json into its folder",
          model.name, own, tokenizer.size(), model.init_from, model.model->vocab_size);
  Chat chat = chat_of(run, rule, model, own, tokenizer);
  return RewardTexts(rule, std::move(tokenizer), std::move(chat));
}

// The conversation as a line of fine-tuning data.
Json RewardTexts::line_of(const Answer& answer) const {
  const Json prompt = rule_.field.empty() ? Json(answer.prompt_text) : field_of(answer, rule_);
  const bool of_messages = format_.text.of_messages();
  if (!prompt.is_string() && !(prompt.is_array() && of_messages))
    refuse_field(answer, rule_, of_messages ? "a text or a list of messages" : "a text, because the template has {prompt}");
  if (!of_messages) return {{format_.prompt, prompt}, {format_.response, answer.text}};
  Json messages = prompt.is_array() ? prompt : Json::array({{{format_.role, "user"}, {format_.content, prompt}}});
  messages.push_back({{format_.role, format_.assistant}, {format_.content, answer.text}});
  return {{format_.messages, messages}};
}

std::vector<Utterance> RewardTexts::utterances_of(const Answer& answer) const {
  const std::string line = json_text(line_of(answer));
  std::string problem;
  try {
    if (const JinjaChat* jinja = format_.text.jinja()) return jinja->text(read_chat_input(line, format_.messages, format_.role, format_.content));
    Conversation conversation = read_conversation(line, format_);
    if (conversation.problem.empty()) return std::move(conversation.utterances);
    problem = conversation.problem;
  } catch (const jinja::Problem& refused) {
    problem = refused.what();
  }
  fail(Exit::data, "reward `{}`, rollout {}: the conversation {}; correct {} of models.{}, or the prompt in {}", rule_.name, id_of(answer), problem,
       rule_.text_format.empty() ? "the chat template" : key_of_reward(rule_, "template"), rule_.model, answer.place);
}

std::vector<std::int32_t> RewardTexts::tokens(const Answer& answer) const {
  const std::vector<Utterance> utterances = utterances_of(answer);
  std::vector<std::int32_t> ids;
  TextPosition position = TextPosition::begin;
  for (const Utterance& utterance : utterances) encode(utterance, tokenizer_, ids, position);
  const bool closes = !format_.text.jinja() && answer.ended && !ends_with_special(utterances);
  if (closes && tokenizer_.eod()) ids.push_back(*tokenizer_.eod());
  require(!ids.empty(), Exit::data, "reward `{}`, rollout {}: its text has no token for models.{}; give {} some text besides prompt and answer",
          rule_.name, id_of(answer), rule_.model, key_of_reward(rule_, "template"));
  return ids;
}

}  // namespace gyr
