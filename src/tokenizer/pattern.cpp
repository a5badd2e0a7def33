// SPDX-License-Identifier: BSD-3-Clause
// Regular expressions by PCRE2, with its JIT compiler if available.
#include "src/tokenizer/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

// Far more steps than a sensible pattern needs at one position. A runaway pattern reaches the limit in well under a
// second.
constexpr std::uint32_t match_limit = 20'000'000;
constexpr std::size_t jit_stack_bytes = std::size_t(8) << 20;
// PCRE2 applies the match limit to each start position separately. Long texts are therefore searched in windows of
// start positions, with a check of the processor time between windows, so that many slow failures cannot add up
// unnoticed.
constexpr std::size_t long_text = std::size_t(16) << 10, tried_at_once = 1024;
constexpr double seconds_at_least = 1, seconds_per_byte = 2e-6;

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

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

}  // namespace

struct Pattern::Scratch::State {
  std::unique_ptr<pcre2_match_context_8, Release<pcre2_match_context_free_8>> context{pcre2_match_context_create_8(nullptr)};
  std::unique_ptr<pcre2_jit_stack_8, Release<pcre2_jit_stack_free_8>> stack{pcre2_jit_stack_create_8(32 << 10, jit_stack_bytes, nullptr)};
  std::unique_ptr<pcre2_match_data_8, Release<pcre2_match_data_free_8>> match{pcre2_match_data_create_8(1, nullptr)};
  double start = 0, allowed = seconds_at_least;
  std::uint32_t searches = 0;  // number of searches since the last check of the time limit

  State() {
    ensure(context && stack && match, "PCRE2 is out of memory");
    pcre2_set_match_limit_8(context.get(), match_limit);
    pcre2_jit_stack_assign_8(context.get(), nullptr, stack.get());
  }

  void check_clock(std::size_t at, std::size_t size) {
    searches = 0;
    require(processor_seconds() - start < allowed, Exit::data,
            "a regular expression of the tokenizer was stopped at byte {} of {} of the text: it took more than {:.0f} s", at, size, allowed);
  }
};

Pattern::Scratch::Scratch() : state_(std::make_unique<State>()) {}
Pattern::Scratch::Scratch(Scratch&&) noexcept = default;
Pattern::Scratch::~Scratch() = default;

void Pattern::Scratch::allow(std::size_t bytes) {
  state_->start = processor_seconds();
  state_->allowed = seconds_at_least + seconds_per_byte * double(bytes);
}

struct Pattern::Code {
  std::unique_ptr<pcre2_code_8, Release<pcre2_code_free_8>> code;
};

Pattern::Pattern(std::string_view pcre, std::string_view shown) : code_(std::make_unique<Code>()) {
  const std::unique_ptr<pcre2_compile_context_8, Release<pcre2_compile_context_free_8>> context(pcre2_compile_context_create_8(nullptr));
  ensure(context != nullptr, "PCRE2 is out of memory");
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto* code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pcre.data()), pcre.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context.get());
  require(code != nullptr, Exit::data, "the pattern '{}' does not compile: {}", shown, message_of(error));
  code_->code.reset(code);
  pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE);  // without JIT, PCRE2 interprets the pattern: slower, but with the same matches
}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

bool Pattern::may_be_empty() const {
  std::uint32_t empty = 0;
  pcre2_pattern_info_8(code_->code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

std::optional<Pattern::Match> Pattern::find(std::string_view subject, std::size_t from, Scratch& scratch) const {
  Scratch::State& s = *scratch.state_;
  const bool in_windows = subject.size() - from > long_text;
  if (++s.searches % 4096 == 0) s.check_clock(from, subject.size());
  for (std::size_t at = from;;) {
    const std::size_t last = in_windows ? at + tried_at_once : PCRE2_UNSET;  // last start position of this window
    pcre2_set_offset_limit_8(s.context.get(), last);
    const int rc = pcre2_match_8(code_->code.get(), reinterpret_cast<PCRE2_SPTR8>(subject.data()), subject.size(), at, PCRE2_NO_UTF_CHECK,
                                 s.match.get(), s.context.get());
    if (rc >= 0) {
      const PCRE2_SIZE* found = pcre2_get_ovector_pointer_8(s.match.get());
      return Match{found[0], found[1]};
    }
    require(rc == PCRE2_ERROR_NOMATCH, Exit::data, "a regular expression of the tokenizer was stopped at byte {} of {} of the text: {}", at,
            subject.size(), message_of(rc));
    if (!in_windows || last >= subject.size()) return std::nullopt;
    at = last + 1;
    while (at < subject.size() && (static_cast<unsigned char>(subject[at]) & 0xc0) == 0x80) ++at;
    s.check_clock(at, subject.size());
  }
}

}  // namespace gyr
