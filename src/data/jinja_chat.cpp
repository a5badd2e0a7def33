// SPDX-License-Identifier: BSD-3-Clause
// Renders conversations and finds the targets of the loss in them.
#include "src/data/jinja_chat.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/jinja/problem.hpp"

namespace gyr {
namespace {

using jinja::Text;
using jinja::Value;

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

// First byte at or after `from` with an origin in [first, last]; npos if there is none.
std::size_t find_origin(const Text& text, std::uint32_t first, std::uint32_t last, std::size_t from) {
  std::size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    if (run.end > from && run.origin.source >= first && run.origin.source <= last) return std::max(begin, from);
    begin = run.end;
  }
  return std::string::npos;
}
// End of the last byte of this origin; 0 if there is none.
std::size_t end_of_origin(const Text& text, std::uint32_t source) {
  std::size_t end = 0;
  for (const Text::Run& run : text.runs())
    if (run.origin.source == source) end = run.end;
  return end;
}

// Length of the common prefix, without a part of a character.
std::size_t common_prefix(std::string_view a, std::string_view b) {
  std::size_t length = std::size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (length > 0 && length < b.size() && (static_cast<unsigned char>(b[length]) & 0xc0) == 0x80) --length;
  return length;
}

void add_text(std::vector<Utterance>& utterances, std::string_view text, bool learned) {
  if (text.empty()) return;
  if (utterances.empty() || utterances.back().special || utterances.back().learned != learned) utterances.push_back({"", {}, learned});
  utterances.back().text += text;
}

}  // namespace

JinjaChat::JinjaChat(jinja::Template source, const std::map<std::string, std::string>& tokens, std::time_t now, const Tokenizer& tokenizer)
    : source_(std::move(source)), now_(now), specials_(tokenizer) {
  for (const auto& [name, token] : tokens) tokens_.emplace_back(name, jinja::text_value(token));
  for (const std::string& literal : source_.literals()) add_unknown_marks(literal, tokenizer, unknown_marks_);
  probe();
}

Text JinjaChat::render(const ChatInput& input, std::size_t messages, bool generation_prompt) const {
  jinja::Variables variables = tokens_;
  const auto set = [&](const std::string& name, Value value) {
    const auto place = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
    if (place == variables.end()) variables.emplace_back(name, std::move(value));
    else place->second = std::move(value);
  };
  set("tools", {jinja::None{}}), set("documents", {jinja::None{}});
  for (const auto& [name, value] : input.variables) set(name, value);
  set("messages", jinja::list_value({input.messages.begin(), input.messages.begin() + std::ptrdiff_t(messages)}));
  set("add_generation_prompt", {generation_prompt});
  return source_.render(std::move(variables), now_, input.bytes);
}

std::optional<Text> JinjaChat::try_render(const ChatInput& input, std::size_t messages, bool generation_prompt) const {
  try {
    return render(input, messages, generation_prompt);
  } catch (const jinja::Problem&) {
    return std::nullopt;
  }
}

// Finds, with a short conversation, whether the template has a generation prompt, and the special token after a reply.
void JinjaChat::probe() {
  const ChatInput input{{message_of("user", "Hello", 0), message_of("assistant", "Hi", 1)}};
  const auto plain = try_render(input, 1, false), prompt = try_render(input, 1, true), reply = try_render(input, 2, false);
  if (!reply) return;
  const std::size_t end = end_of_origin(*reply, 2);
  for (const auto& place : specials_.places_in(*reply))
    if (place.begin >= end && end > 0 && !closing_mark_) closing_mark_ = place.id;
  if (!plain || !prompt || plain->bytes() != prompt->bytes()) return;
  has_prompt_ = false;
  const std::size_t begin = find_origin(*reply, 2, 2, 0);
  if (begin == std::string::npos || begin < plain->size() || !reply->bytes().starts_with(plain->bytes())) return;
  header_ = reply->bytes().substr(plain->size(), begin - plain->size());
  if (is_blank(header_)) header_.clear();
}

std::vector<Utterance> JinjaChat::question(std::string_view prompt, std::string_view) const {
  ChatInput input{{message_of("user", prompt, 0)}};
  input.bytes = prompt.size();
  try {
    return question(input);
  } catch (const jinja::Problem& problem) {
    fail(Exit::data, "{}: the chat template cannot format the prompt: {}; give the format with --template", source_.origin(), problem.what());
  }
}

std::vector<Utterance> JinjaChat::question(const ChatInput& input) const {
  Text text = render(input, input.messages.size(), true);
  text.append(header_);
  return utterances_of(rendered(std::move(text)), {});
}

JinjaChat::Rendered JinjaChat::rendered(Text text) const {
  auto specials = specials_.places_in(text);
  return {std::move(text), std::move(specials)};
}

JinjaChat::Rendered JinjaChat::complete(const ChatInput& input) const {
  try {
    return rendered(render(input, input.messages.size(), false));
  } catch (const jinja::Problem& problem) {
    jinja::refuse("cannot be rendered: {}", problem.what());
  }
}

std::vector<Utterance> JinjaChat::text(const ChatInput& input) const { return utterances_of(complete(input), {}); }

std::vector<Utterance> JinjaChat::fill(const ChatInput& input, const std::string& assistant) const {
  const Rendered all = complete(input);
  const std::vector<Region> learned = marks_replies() ? generated_regions(all.text) : reply_regions(input, all, assistant);
  if (learned.empty() && marks_replies()) jinja::refuse("gets no text in a {{% generation %}} block of the chat template");
  if (learned.empty()) jinja::refuse("has no turn of '{}' to learn from", assistant);
  return utterances_of(all, learned);
}

std::vector<JinjaChat::Region> JinjaChat::generated_regions(const Text& text) {
  std::vector<Region> regions;
  std::size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    if (run.origin.generated) {
      if (!regions.empty() && regions.back().end == begin) regions.back().end = run.end;
      else regions.push_back({begin, run.end});
    }
    begin = run.end;
  }
  return regions;
}

std::vector<JinjaChat::Region> JinjaChat::reply_regions(const ChatInput& input, const Rendered& all, const std::string& assistant) const {
  std::vector<Region> regions;
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    const Value* role = input.messages[i].dict()->find("role");
    if (!role || !role->string() || role->string()->text.bytes() != assistant) continue;
    const std::size_t floor = regions.empty() ? 0 : regions.back().end;
    const std::size_t begin = std::max(begin_of_reply(input, i, all), floor), end = end_of_reply(input, i, all, begin);
    if (begin < end) regions.push_back({begin, end});
  }
  return regions;
}

// Place at which the model begins to reply with this message: the end of the conversation before it, rendered with the
// generation prompt. If the rendered text differs there, the reply begins where they differ, or with its own first text.
std::size_t JinjaChat::begin_of_reply(const ChatInput& input, std::size_t message, const Rendered& all) const {
  const Text& text = all.text;
  const auto source = origin_of(message).source;
  const std::size_t mapped = std::min(find_origin(text, source, source, 0), text.size());
  const auto prompt = try_render(input, message, true);
  if (!prompt) return mapped;
  const std::size_t common = common_prefix(prompt->bytes(), text.bytes());
  if (!has_prompt_) {
    if (common < prompt->size()) return mapped;
    if (text.bytes().compare(common, header_.size(), header_) == 0) return common + header_.size();
    return mapped >= common && !is_blank(std::string_view(text.bytes()).substr(common, mapped - common)) ? mapped : common;
  }
  if (common == prompt->size()) return common;
  const auto before = try_render(input, message, false);
  if (!before || common < before->size()) return mapped;
  std::size_t begin = std::min(common, mapped);
  for (const auto& place : all.specials)
    if (place.begin < begin && begin < place.end) begin = place.begin;
  return begin;
}

// Place after the special token that closes the message which begins at `begin`.
std::size_t JinjaChat::end_of_reply(const ChatInput& input, std::size_t message, const Rendered& all, std::size_t begin) const {
  const Text& text = all.text;
  const auto source = origin_of(message).source;
  const std::size_t mapped = std::max(end_of_origin(text, source), begin);
  const bool last_message = message + 1 == input.messages.size();
  const auto part = last_message ? std::optional(text) : try_render(input, message + 1, false);
  const bool exact = part && part->size() >= mapped && text.bytes().starts_with(part->bytes());
  const std::size_t later = find_origin(text, source + 1, std::uint32_t(input.messages.size()), mapped);
  const std::size_t bound = exact ? part->size() : std::min(later, text.size());
  std::optional<std::size_t> first, last;
  for (const auto& place : all.specials) {
    if (place.begin < mapped || place.end > bound) continue;
    if (place.id == closing_mark_) return place.end;
    if (!first) first = place.end;
    last = place.end;
  }
  if (first) return exact ? *last : *first;
  return exact ? bound : mapped;
}

std::vector<Utterance> JinjaChat::utterances_of(const Rendered& all, const std::vector<Region>& learned) {
  std::vector<Utterance> utterances;
  const std::string_view bytes = all.text.bytes();
  auto region = learned.begin();
  const auto learns = [&](std::size_t at) {
    while (region != learned.end() && region->end <= at) ++region;
    return region != learned.end() && region->begin <= at;
  };
  const auto add_until = [&](std::size_t at, std::size_t end) {
    while (at < end) {
      const bool now = learns(at);
      const std::size_t next = region == learned.end() ? end : std::min(end, now ? region->end : region->begin);
      add_text(utterances, bytes.substr(at, next - at), now);
      at = next;
    }
  };
  std::size_t done = 0;
  for (const auto& place : all.specials) {
    add_until(done, place.begin);
    utterances.push_back({"", place.id, learns(place.begin)});
    done = place.end;
  }
  add_until(done, bytes.size());
  return utterances;
}

}  // namespace gyr
