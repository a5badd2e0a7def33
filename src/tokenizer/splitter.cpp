// SPDX-License-Identifier: BSD-3-Clause
// Cuts text into the pieces inside which tokens are merged, by PCRE2 patterns compiled to machine code.
#include "src/tokenizer/splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/error.hpp"
#include "src/tokenizer/byte_alphabet.hpp"

namespace gyr {
namespace {

// Far above what any sensible pattern needs on a megabyte, and reached in well under a second by a runaway one.
constexpr std::uint32_t match_limit = 20'000'000;
constexpr std::size_t jit_stack_bytes = std::size_t(8) << 20;

std::string message_of(int error) {
  PCRE2_UCHAR8 text[256];
  pcre2_get_error_message_8(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

template <auto release>
struct Release {
  template <class T>
  void operator()(T* p) const {
    release(p);
  }
};

// Length of the valid character at the start of `s`, or 0. Table 3-7 of the Unicode standard.
std::size_t character_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? unsigned(static_cast<unsigned char>(s[i])) : 0u; };
  const auto within = [&](std::size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return s.empty() ? 0 : 1;
  if (lead >= 0xc2 && lead <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const std::size_t length = character_length(text.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

struct Splitter::Step {
  std::unique_ptr<pcre2_code_8, Release<pcre2_code_free_8>> code;
  bool on_letters;
};

struct Splitter::Scratch::State {
  std::unique_ptr<pcre2_match_context_8, Release<pcre2_match_context_free_8>> context{
      pcre2_match_context_create_8(nullptr)};
  std::unique_ptr<pcre2_jit_stack_8, Release<pcre2_jit_stack_free_8>> stack{
      pcre2_jit_stack_create_8(32 << 10, jit_stack_bytes, nullptr)};
  std::unique_ptr<pcre2_match_data_8, Release<pcre2_match_data_free_8>> match{pcre2_match_data_create_8(1, nullptr)};
  std::vector<std::size_t> before, after;  // piece ends inside one valid run, before and after a step
  std::string letters;
  std::vector<std::size_t> letter_ends;

  State() {
    ensure(context && stack && match, "PCRE2 is out of memory");
    pcre2_set_match_limit_8(context.get(), match_limit);
    pcre2_jit_stack_assign_8(context.get(), nullptr, stack.get());
  }

  // Appends to `ends` the end (plus `start`) of every match in `subject` and of every stretch between two matches.
  void cut(const pcre2_code_8* code, std::string_view subject, std::size_t start, std::vector<std::size_t>& ends) {
    const auto* text = reinterpret_cast<PCRE2_SPTR8>(subject.data());
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer_8(match.get());
    std::size_t at = 0;
    while (at < subject.size()) {
      const int rc = pcre2_match_8(code, text, subject.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(),
                                   context.get());
      if (rc == PCRE2_ERROR_NOMATCH) break;
      require(rc >= 0, Exit::data, "splitting text: the pre-tokenizer's pattern gave up at byte {} of {}: {}", at,
              subject.size(), message_of(rc));
      // \K inside a lookahead may report a match that begins before `at` or ends before it begins: it cuts nothing.
      if (found[0] < at || found[1] <= found[0]) break;
      if (found[0] > at) ends.push_back(start + found[0]);
      ends.push_back(start + found[1]);
      at = found[1];
    }
    if (at < subject.size()) ends.push_back(start + subject.size());
  }

  // The same on the letters of `subject`, with the ends counted in bytes of `subject`: one letter is one byte.
  void cut_letters(const pcre2_code_8* code, std::string_view subject, std::size_t start,
                   std::vector<std::size_t>& ends) {
    letters = to_letters(subject);
    letter_ends.clear();
    cut(code, letters, 0, letter_ends);
    std::size_t at = 0, bytes = start;
    for (const std::size_t end : letter_ends) {
      for (; at < end; ++at) bytes += (static_cast<unsigned char>(letters[at]) & 0xc0) != 0x80;
      ends.push_back(bytes);
    }
  }
};

Splitter::Scratch::Scratch(const Splitter&) : state_(std::make_unique<State>()) {}
Splitter::Scratch::Scratch(Scratch&&) noexcept = default;
Splitter::Scratch::~Scratch() = default;

Splitter::Splitter(const std::vector<SplitStep>& steps) {
  for (const SplitStep& step : steps) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    auto* code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(step.pattern.data()), step.pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
    require(code != nullptr, Exit::data, "the pre-tokenizer's pattern '{}' is wrong at character {}: {}", step.pattern,
            offset, message_of(error));
    steps_.push_back(Step{decltype(Step::code)(code), step.on_letters});
    pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter runs: slower, same pieces
  }
}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, std::vector<std::size_t>& ends, Scratch& scratch) const {
  ends.clear();
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t valid = valid_utf8_prefix(text.substr(at));
    if (valid > 0) split_valid(text.substr(at, valid), at, ends, scratch);
    at += valid;
    const std::size_t invalid = at;
    while (at < text.size() && character_length(text.substr(at, 4)) == 0) ++at;
    if (at > invalid) ends.push_back(at);
  }
}

void Splitter::split_valid(std::string_view run, std::size_t start, std::vector<std::size_t>& ends,
                           Scratch& scratch) const {
  auto& before = scratch.state_->before;
  auto& after = scratch.state_->after;
  before.assign(1, run.size());
  for (const Step& step : steps_) {
    after.clear();
    std::size_t at = 0;
    for (const std::size_t end : before) {
      const std::string_view piece = run.substr(at, end - at);
      if (step.on_letters) {
        scratch.state_->cut_letters(step.code.get(), piece, at, after);
      } else {
        scratch.state_->cut(step.code.get(), piece, at, after);
      }
      at = end;
    }
    before.swap(after);
  }
  for (const std::size_t end : before) ends.push_back(start + end);
}

}  // namespace gyr
