// SPDX-License-Identifier: BSD-3-Clause
// Applies the steps of a decoder, each to a list of strings.
#include "src/tokenizer/decoder.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/normalizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

using DecoderKind = DecoderStep::Kind;

std::string stripped(std::string_view token, const DecoderStep& step) {
  const std::string& c = step.text;
  for (std::size_t i = 0; i < step.left && token.starts_with(c); ++i) token.remove_prefix(c.size());
  for (std::size_t i = 0; i < step.right && token.ends_with(c); ++i) token.remove_suffix(c.size());
  return std::string(token);
}

std::string with_all(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// The clean-up replacements of `tokenizers`, in its order.
std::string cleaned_up(std::string token) {
  constexpr std::array<std::array<std::string_view, 2>, 11> all{{{" .", "."},
                                                                 {" ?", "?"},
                                                                 {" !", "!"},
                                                                 {" ,", ","},
                                                                 {" ' ", "'"},
                                                                 {" n't", "n't"},
                                                                 {" 'm", "'m"},
                                                                 {" do not", " don't"},
                                                                 {" 's", "'s"},
                                                                 {" 've", "'ve"},
                                                                 {" 're", "'re"}}};
  for (const auto& [from, to] : all) token = with_all(std::move(token), from, to);
  return token;
}

void join_words(std::vector<std::string>& tokens, const std::string& prefix) {
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].starts_with(prefix)) tokens[i].erase(0, prefix.size());
    else tokens[i].insert(tokens[i].begin(), ' ');
  }
}

// The byte of a token such as "<0xC4>". As in `tokenizers`, a sign and one digit count as two digits.
std::optional<unsigned char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const char* first = token.data() + 3;
  const char* const last = token.data() + 5;
  if (*first == '+') ++first;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(first, last, byte, 16);
  return error == std::errc() && end == last ? std::optional(byte) : std::nullopt;
}

std::vector<std::string> with_bytes_joined(std::vector<std::string> tokens) {
  std::vector<std::string> result;
  std::string run;
  const auto flush = [&] {
    const bool valid = valid_utf8_prefix(run) == run.size();
    if (!run.empty() && valid) result.push_back(run);
    for (std::size_t i = 0; i < run.size() && !valid; ++i) result.emplace_back("\xef\xbf\xbd");
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      run += char(*byte);
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  return result;
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace

Decoder::Decoder(const std::vector<DecoderStep>& steps) {
  for (const DecoderStep& step : steps) {
    steps_.push_back({step, std::nullopt});
    if (step.kind == DecoderKind::replace) steps_.back().pattern.emplace(step.pattern, step.pattern);
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  Pattern::Scratch scratch;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const DecoderStep& what = steps_[i].what;
    switch (what.kind) {
      case DecoderKind::byte_level:
        for (std::string& token : tokens) token = bytes_of_spelling(token);
        tokens = {joined(tokens)};
        if (i + 1 < steps_.size()) tokens[0] = lossy_utf8(tokens[0]);
        break;
      case DecoderKind::fuse: tokens = {joined(tokens)}; break;
      case DecoderKind::byte_fallback: tokens = with_bytes_joined(std::move(tokens)); break;
      case DecoderKind::word_pieces: join_words(tokens, what.text); break;
      case DecoderKind::spaces:
        for (std::size_t t = 1; t < tokens.size(); ++t) tokens[t].insert(tokens[t].begin(), ' ');
        break;
      case DecoderKind::marks:
        for (std::size_t t = 0; t < tokens.size(); ++t) tokens[t] = with_all(std::move(tokens[t]), what.text, t == 0 && what.left > 0 ? "" : " ");
        break;
      case DecoderKind::clean_up:
        for (std::string& token : tokens) token = cleaned_up(std::move(token));
        break;
      case DecoderKind::strip:
        for (std::string& token : tokens) token = stripped(token, what);
        break;
      case DecoderKind::replace:
        for (std::string& token : tokens) {
          scratch.allow(token.size());
          token = replaced(token, *steps_[i].pattern, what.text, scratch);
        }
        break;
    }
  }
  return joined(tokens);
}

}  // namespace gyr
