// SPDX-License-Identifier: BSD-3-Clause
// Reward `regex`: 1 if the pattern is found in the answer (search) or matches the complete answer (match), else 0. There
// is no value if the search needs more than `most_steps` steps. A step is one item of the pattern that is tried at one
// place, counted by PCRE2's callouts. PCRE2's own match limit restarts at each place of the text, so that a slow pattern
// would take a time that grows with the text.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/policy/rewards/rules.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

constexpr std::uint32_t most_heap_kib = 64 << 10;

struct FreePattern {
  void operator()(pcre2_code_8* p) const { pcre2_code_free_8(p); }
  void operator()(pcre2_match_data_8* p) const { pcre2_match_data_free_8(p); }
  void operator()(pcre2_match_context_8* p) const { pcre2_match_context_free_8(p); }
};
template <class T>
using OwnedPattern = std::unique_ptr<T, FreePattern>;

PCRE2_SPTR8 units(const std::string& text) { return reinterpret_cast<PCRE2_SPTR8>(text.data()); }

int count_step(pcre2_callout_block_8*, void* left) { return --*static_cast<Index*>(left) < 0 ? PCRE2_ERROR_MATCHLIMIT : 0; }

class RegexReward : public AnswerRule {
 public:
  explicit RegexReward(const RewardConfig& c) : AnswerRule(c) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::uint32_t whole = c.whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
    code_.reset(pcre2_compile_8(units(c.pattern), c.pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT | whole,
                                &error, &offset, nullptr));
    PCRE2_UCHAR8 why[256] = {};
    if (!code_) pcre2_get_error_message_8(error, why, sizeof why);
    require(code_ != nullptr, Exit::config, "{} = {} is no regular expression: {} at character {}", key_of_reward(c, "pattern"), printable(c.pattern),
            reinterpret_cast<const char*>(why), offset);
    match_.reset(pcre2_match_data_create_8(1, nullptr)), context_.reset(pcre2_match_context_create_8(nullptr));
    ensure(match_ && context_, "PCRE2 is out of memory");
    pcre2_set_heap_limit_8(context_.get(), most_heap_kib);
  }

 private:
  std::optional<double> value(const Answer& a) const override {
    Index left = config_.most_steps;
    pcre2_set_callout_8(context_.get(), &count_step, &left);
    const std::string text = lossy_utf8(a.text);
    const int rc = pcre2_match_8(code_.get(), units(text), text.size(), 0, 0, match_.get(), context_.get());
    if (rc >= 0) return 1;
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    const bool limit = rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_RECURSELOOP;
    ensure(limit, "PCRE2 fails with code {} for reward {}", rc, config_.name);
    return std::nullopt;
  }

  OwnedPattern<pcre2_code_8> code_;
  OwnedPattern<pcre2_match_data_8> match_;
  OwnedPattern<pcre2_match_context_8> context_;
};

}  // namespace

std::unique_ptr<Reward> regex_reward(const RewardConfig& c) { return std::make_unique<RegexReward>(c); }

}  // namespace gyr
