// SPDX-License-Identifier: BSD-3-Clause
// Conversations formatted by a model's chat template (Jinja), with the places that are targets of the loss.
//
// Special tokens are recognised where the template writes them. Spelt in the conversation they stay text, so that data
// cannot forge a turn.
//
// The targets come from {% generation %} blocks if the template has any. Otherwise they are differences of prefixes: a
// reply begins where the conversation before it ends when rendered with add_generation_prompt, and it ends with the
// special token that closes a reply.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/chat_input.hpp"
#include "src/data/chat_template.hpp"
#include "src/data/written_specials.hpp"
#include "src/jinja/template.hpp"

namespace gyr {

class JinjaChat {
 public:
  // `tokens`: special tokens that the template may name ("bos_token", ...). `now`: the time for strftime_now().
  JinjaChat(jinja::Template source, const std::map<std::string, std::string>& tokens, std::time_t now, const Tokenizer& tokenizer);

  // The generation prompt: everything before the model's reply to `prompt`. Exit::data if the template cannot render it.
  std::vector<Utterance> question(std::string_view prompt, std::string_view assistant) const;
  // The same for a conversation: everything before the next reply. jinja::Problem if it cannot be rendered.
  std::vector<Utterance> question(const ChatInput& input) const;
  // The special token that ends a reply; empty if there is none.
  std::optional<std::int32_t> closing_mark() const { return closing_mark_; }
  const std::vector<std::string>& unknown_marks() const { return unknown_marks_; }
  bool marks_replies() const { return source_.has_generation(); }  // true: the targets come from {% generation %} blocks

  // The rendered conversation without targets. jinja::Problem if it cannot be rendered.
  std::vector<Utterance> text(const ChatInput& input) const;
  // The rendered conversation with its targets: replies of the role `assistant`. jinja::Problem if it cannot be rendered
  // or has no target.
  std::vector<Utterance> fill(const ChatInput& input, const std::string& assistant) const;

 private:
  struct Region {
    std::size_t begin, end;
  };
  struct Rendered {
    jinja::Text text;
    std::vector<WrittenSpecials::Place> specials;
  };
  Rendered rendered(jinja::Text text) const;
  Rendered complete(const ChatInput& input) const;
  jinja::Text render(const ChatInput& input, std::size_t messages, bool generation_prompt) const;
  std::optional<jinja::Text> try_render(const ChatInput& input, std::size_t messages, bool generation_prompt) const;
  void probe();
  static std::vector<Region> generated_regions(const jinja::Text& text);
  std::vector<Region> reply_regions(const ChatInput& input, const Rendered& all, const std::string& assistant) const;
  std::size_t begin_of_reply(const ChatInput& input, std::size_t message, const Rendered& all) const;
  std::size_t end_of_reply(const ChatInput& input, std::size_t message, const Rendered& all, std::size_t begin) const;
  static std::vector<Utterance> utterances_of(const Rendered& all, const std::vector<Region>& learned);

  jinja::Template source_;
  jinja::Variables tokens_;
  std::time_t now_;
  WrittenSpecials specials_;
  std::vector<std::string> unknown_marks_;
  std::optional<std::int32_t> closing_mark_;
  bool has_prompt_ = true;  // false: the template ignores add_generation_prompt
  std::string header_;      // text before a reply, if the template ignores add_generation_prompt; empty if it is white space
};

}  // namespace gyr
