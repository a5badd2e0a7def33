// SPDX-License-Identifier: BSD-3-Clause
// How prompts and responses are written down, as options of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "kernels/error.hpp"
#include "src/data/conversation.hpp"
#include "src/data/mapped_file.hpp"

namespace gyr {

class TemplateOption {
 public:
  // `text_key`, the key of plain text, has no meaning beside a template.
  void add(CLI::App& command, CLI::Option* text_key) {
    template_ = command.add_option("--template", text_,
                                   "Fine-tuning data: JSONL of prompts and responses, written down as this text (@FILE: as that file has it, "
                                   "without its last line end). {prompt} and {response}, or for lists of messages {role} and {content}, which "
                                   "is filled once per message. \\n, \\t, \\r, \\\\ are escapes, {{ and }} braces; special tokens count here, in the "
                                   "data they are text. Only responses, with the special token that closes them, are marked for learning, "
                                   "in PREFIX_mask.bin and .idx");
    template_->excludes(text_key);
    add_key(command, "--prompt-key", prompt_, "Key of the prompt", false);
    add_key(command, "--response-key", response_, "Key of the response", false);
    add_key(command, "--messages-key", messages_, "Key of the list of messages", true);
    add_key(command, "--role-key", role_, "Key of a message's role", true);
    add_key(command, "--content-key", content_, "Key of a message's text", true);
    add_key(command, "--assistant", assistant_, "Role whose messages are learned", true);
  }

  // Null without a template. Exit::usage for a bad one, and for keys of the other kind; Exit::missing for a file that is not there.
  std::shared_ptr<const ConversationFormat> format(const Tokenizer& tokenizer) const {
    if (template_->count() == 0) return nullptr;
    const ChatTemplate text(whole_text(), tokenizer);
    for (const auto& [option, of_turns] : keys_)
      require(option->count() == 0 || of_turns == text.of_turns(), Exit::usage, "{} has no meaning for a template of {}", option->get_name(),
              text.of_turns() ? "{role} and {content}" : "{prompt} and {response}");
    return std::make_shared<ConversationFormat>(ConversationFormat{text, prompt_, response_, messages_, role_, content_, assistant_});
  }

 private:
  void add_key(CLI::App& command, const std::string& name, std::string& key, const std::string& help, bool of_turns) {
    CLI::Option* option = command.add_option(name, key, help)->capture_default_str()->needs(template_);
    keys_.emplace_back(option, of_turns);
  }
  std::string whole_text() const {
    if (!text_.starts_with('@')) return text_;
    std::string text(MappedFile(text_.substr(1)).text());
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
  }

  std::string text_;
  std::string prompt_ = "prompt", response_ = "response", messages_ = "messages", role_ = "role", content_ = "content",
              assistant_ = "assistant";
  CLI::Option* template_ = nullptr;
  std::vector<std::pair<CLI::Option*, bool>> keys_;  // and whether they belong to templates of turns
};

}  // namespace gyr
