// SPDX-License-Identifier: BSD-3-Clause
// How prompts and responses are written down, as options of commands.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/base/mapped_file.hpp"
#include "src/commands/command_line.hpp"
#include "src/data/conversation.hpp"
#include "src/huggingface/jinja_template.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

// --template: a format string, or a file that holds one.
class TemplateOption {
 public:
  Option* add(Command& command, const std::string& help) {
    return option_ = command.add_option(
               "--template", text_,
               help +
                   " Or @FILE: as that file has it, without its last line end; of a file .jinja, or @FOLDER of a model or "
                   "checkpoint, its chat template, where that writes every turn in one form. {prompt} and {response}, or for lists of "
                   "messages {role} and {content}; \\n, \\t, \\r, \\\\ are escapes, {{ and }} braces; special tokens "
                   "count in the template and are text elsewhere");
  }
  bool given() const { return option_->given(); }
  // Exit::usage for a bad one, Exit::missing for a file that is not there, Exit::data for a model's that cannot be taken.
  ChatTemplate read(const Tokenizer& tokenizer) const {
    if (!text_.starts_with('@')) return {text_, tokenizer};
    const std::filesystem::path file = text_.substr(1);
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) return of_model(file, tokenizer);
    std::string text(MappedFile(file).text());
    if (file.extension() == ".jinja") return {format_of(JinjaTemplate{std::move(text), file.string(), {}}), tokenizer};
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return {text, tokenizer};
  }
  // The model's own.
  static ChatTemplate of_model(const std::filesystem::path& model, const Tokenizer& tokenizer) {
    const auto jinja = chat_template_in(companions_of(model), model.string());
    require(jinja.has_value(), Exit::data, "{}: has no chat template; write one with --template", model.string());
    return {format_of(*jinja), tokenizer};
  }

 private:
  std::string text_;
  Option* option_ = nullptr;
};

// The template and the names that JSONL gives to what fills it.
class ConversationOption {
 public:
  // `text_key`, the key of plain text, has no meaning beside a template.
  void add(Command& command, Option* text_key) {
    Option* option = template_.add(command,
                                   "Fine-tuning data: JSONL of prompts and responses, written down as this text, one of turns once per message. "
                                   "Only responses and the special token that closes them are marked for learning, in PREFIX_mask.bin and .idx.");
    option->excludes(text_key);
    const auto add_key = [&](const char* name, std::string& key, const char* help, bool of_turns) {
      keys_.emplace_back(command.add_option(name, key, help)->show_default()->needs(option), of_turns);
    };
    add_key("--prompt-key", prompt_, "Key of the prompt", false);
    add_key("--response-key", response_, "Key of the response", false);
    add_key("--messages-key", messages_, "Key of the list of messages", true);
    add_key("--role-key", role_, "Key of a message's role", true);
    add_key("--content-key", content_, "Key of a message's text", true);
    add_key("--assistant", assistant_, "Role whose messages are learned", true);
  }

  // Null without a template. Exit::usage for keys of the other kind of template, and what reading the template finds.
  std::shared_ptr<const ConversationFormat> format(const Tokenizer& tokenizer) const {
    if (!template_.given()) return nullptr;
    const ChatTemplate text = template_.read(tokenizer);
    for (const auto& [option, of_turns] : keys_)
      require(!option->given() || of_turns == text.of_turns(), Exit::usage, "{} has no meaning for a template of {}", option->name(),
              text.of_turns() ? "{role} and {content}" : "{prompt} and {response}");
    return std::make_shared<ConversationFormat>(ConversationFormat{text, prompt_, response_, messages_, role_, content_, assistant_});
  }

 private:
  TemplateOption template_;
  std::string prompt_ = "prompt", response_ = "response", messages_ = "messages", role_ = "role", content_ = "content", assistant_ = "assistant";
  std::vector<std::pair<Option*, bool>> keys_;  // and whether they belong to templates of turns
};

}  // namespace gyr
