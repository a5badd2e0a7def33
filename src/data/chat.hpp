// SPDX-License-Identifier: BSD-3-Clause
// The format of a chat: a format string, or a model's chat template.
#pragma once

#include <utility>
#include <variant>

#include "src/data/chat_template.hpp"
#include "src/data/jinja_chat.hpp"

namespace gyr {

class Chat {
 public:
  Chat(ChatTemplate format) : of_(std::move(format)) {}  // NOLINT: a template is a chat format
  Chat(JinjaChat source) : of_(std::move(source)) {}     // NOLINT

  // The content if the chat has this kind of format, otherwise null.
  const ChatTemplate* format() const { return std::get_if<ChatTemplate>(&of_); }
  const JinjaChat* jinja() const { return std::get_if<JinjaChat>(&of_); }

  bool of_messages() const { return jinja() || format()->of_messages(); }  // false: one prompt and one response per example
  // The generation prompt: everything before the model's reply to `prompt`.
  std::vector<Utterance> question(std::string_view prompt, std::string_view assistant) const {
    return std::visit([&](const auto& chat) { return chat.question(prompt, assistant); }, of_);
  }
  // The special token that ends a reply, used as stop token; empty if there is none.
  std::optional<std::int32_t> closing_mark() const {
    return std::visit([](const auto& chat) { return chat.closing_mark(); }, of_);
  }
  // Strings of the form <|...|> in the template that are not special tokens of the tokenizer.
  const std::vector<std::string>& unknown_marks() const {
    return std::visit([](const auto& chat) -> const std::vector<std::string>& { return chat.unknown_marks(); }, of_);
  }

 private:
  std::variant<ChatTemplate, JinjaChat> of_;
};

}  // namespace gyr
