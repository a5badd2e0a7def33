// SPDX-License-Identifier: BSD-3-Clause
// Command-line options for prompt templates, and for the JSON keys of the texts that fill them.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/commands/command_line.hpp"
#include "src/data/conversation.hpp"
#include "src/pretrained/chat_source.hpp"

namespace gyr {

// --template: a format string, a file that contains one, or a model's chat template.
class TemplateOption {
 public:
  Option* add(Command& command, const std::string& help) {
    return option_ = command.add_option(
               "--template", text_,
               help +
                   " @FILE reads the template from a file, without its last newline. @FILE.jinja or @FOLDER (model or checkpoint) uses a chat "
                   "template (Jinja). Placeholders are {prompt} and {response}, or for lists of messages {role} and {content}. "
                   "\\n, \\t, \\r and \\\\ are escapes, {{ and }} are braces. Special tokens are recognised in the template only, not in the "
                   "data");
  }
  bool given() const { return option_->given(); }
  const std::string& text() const { return text_; }  // as on the command line
  // `now`: the time that a chat template may ask for. Exit::usage for an invalid template, Exit::missing if the file does
  // not exist, Exit::data for a chat template that cannot be read.
  Chat read(const Tokenizer& tokenizer, std::time_t now) const { return read_chat(text_, tokenizer, now); }

 private:
  std::string text_;
  Option* option_ = nullptr;
};

// --template for training data, and the options for the JSON keys of the texts that fill it.
class ConversationOption {
 public:
  // `text_key`: option for the key of plain text; it cannot be combined with --template.
  void add(Command& command, Option* text_key) {
    Option* option =
        template_.add(command,
                      "Fine-tuning data: JSONL of prompts and responses, or of messages, formatted with this template. Only responses and "
                      "the special token that ends them are targets of the loss (PREFIX_mask.bin and .idx); in a chat template, the text in "
                      "{% generation %} blocks if there are any. A chat template also gets the line's keys tools, documents and "
                      "chat_template_kwargs.");
    option->excludes(text_key);
    const auto add_key = [&](const char* name, std::string& key, const char* help, bool of_messages) {
      keys_.emplace_back(command.add_option(name, key, help)->show_default()->needs(option), of_messages);
    };
    add_key("--prompt-key", prompt_, "JSON key of the prompt", false);
    add_key("--response-key", response_, "JSON key of the response", false);
    add_key("--messages-key", messages_, "JSON key of the list of messages", true);
    add_key("--role-key", role_, "JSON key of a message's role", true);
    add_key("--content-key", content_, "JSON key of a message's text", true);
    add_key("--assistant", assistant_, "Role whose messages are targets of the loss", true);
  }

  const std::string& text() const { return template_.text(); }
  // Null without --template. Exit::usage for key options that do not fit the template, and the errors of reading it.
  std::shared_ptr<const ConversationFormat> format(const Tokenizer& tokenizer, std::time_t now) const {
    if (!template_.given()) return nullptr;
    const Chat text = template_.read(tokenizer, now);
    for (const auto& [option, of_messages] : keys_)
      require(!option->given() || of_messages == text.of_messages(), Exit::usage, "{} does not apply to a template of {}", option->name(),
              text.of_messages() ? "{role} and {content}" : "{prompt} and {response}");
    return std::make_shared<ConversationFormat>(ConversationFormat{text, prompt_, response_, messages_, role_, content_, assistant_});
  }

 private:
  TemplateOption template_;
  std::string prompt_ = "prompt", response_ = "response", messages_ = "messages", role_ = "role", content_ = "content", assistant_ = "assistant";
  std::vector<std::pair<Option*, bool>> keys_;  // option, and true if it applies to templates of turns ({role} and {content})
};

}  // namespace gyr
