// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rewards/reward_config.hpp"

#include <algorithm>
#include <array>

namespace gyr {

namespace {

using Words = std::vector<std::string>;

const Words type_names{"exact", "regex", "choice", "number", "format", "length", "repetition", "tokens", "process", "model"};

// Declares the keys of one reward. A key that the type requires must be given; a key of another type must not be.
class RewardReader {
 public:
  RewardReader(Section& s, const std::string& name) : s_(s) { r_.name = name; }

  RewardConfig read() {
    read_common();
    read_texts();
    read_counts();
    read_process();
    read_model();
    return r_;
  }

 private:
  bool is(std::initializer_list<RewardType> types) const { return std::find(types.begin(), types.end(), r_.type) != types.end(); }

  // Text or list that only these types have, and that they require.
  template <class T>
  T required(const char* key, std::initializer_list<RewardType> types, const char* help) {
    if (is(types)) return s_.need<T>(key, help).not_empty().value();
    return only<T>(key, T(), types, help).value();
  }
  // Setting that only these types have.
  template <class T>
  auto only(const char* key, T fallback, std::initializer_list<RewardType> types, const char* help) {
    auto setting = s_.get(key, fallback, help);
    require(is(types) || setting.value() == fallback, Exit::config,
            "{}: type {} does not read {}; remove it from the deck, or on the command line with '~rl.rewards.{}.{}'", s_.settings_text({key, "type"}),
            type_names[std::size_t(r_.type)], key, r_.name, key);
    return setting;
  }

  void read_common() {
    const std::string type = s_.need<std::string>("type", "rule that values an answer").one_of(type_names);
    r_.type = RewardType(std::find(type_names.begin(), type_names.end(), type) - type_names.begin());
    r_.weight = s_.get("weight", 1.0, "factor of the values in the reward of an answer, the sum over all rules; 0: the rule is only logged").finite();
    auto clip = s_.get("clip", std::vector<double>{}, "[low, high]: values are limited to this range, before the weight; []: no limits").finite();
    const std::vector<double> limits = clip.value();
    r_.clip = clip.must("[] or [low, high] with low <= high", limits.empty() || (limits.size() == 2 && limits[0] <= limits[1])).value();
    using enum RewardType;
    const char* const help =
        "exact, choice, number, tokens: key of the prompt's line (PREFIX_fields.jsonl) with the right answer; model: with the prompt that its "
        "template formats, a text or a list of messages (empty: the decoded prompt)";
    r_.field = is({model}) ? s_.get("field", "", help).value() : required<std::string>("field", {exact, choice, number, tokens}, help);
  }

  void read_texts() {
    using enum RewardType;
    const Words steps{"strip", "lower", "spaces", "punctuation"};
    r_.normalize =
        only<Words>("normalize", {"strip"}, {exact},
                    "exact: changes of both texts before they are compared: strip (white space at both ends), lower (case), spaces (any white "
                    "space becomes one space), punctuation (removed)")
            .one_of(steps)
            .value();
    r_.pattern = required<std::string>("pattern", {regex}, "regex: regular expression in PCRE2 syntax, for UTF-8");
    r_.whole = only<std::string>("mode", "search", {regex}, "regex: search finds the pattern anywhere, match compares it with the complete answer")
                   .one_of({"search", "match"})
                   .value() == "match";
    r_.most_steps = only<Index>("most_steps", 1'000'000, {regex}, "regex: maximum number of steps of a search; above it, there is no value")
                        .unit("steps")
                        .at_least(1)
                        .at_most(1'000'000'000);
    r_.options = required<Words>("options", {choice}, "choice: possible answers; the last of them in the answer counts");
    r_.whole_words = only<bool>("whole_words", false, {choice}, "choice: an option inside of a word does not count");
    r_.tags = required<Words>("tags", {format}, "format: names of the tags that must enclose text, in this order, as in [think, answer]");
  }

  void read_counts() {
    using enum RewardType;
    r_.tolerance = only<double>("tolerance", 0.0, {number}, "number: maximum relative difference; 0: the numbers are compared as exact rationals")
                       .finite()
                       .at_least(0);
    auto target = only<std::optional<Index>>("target", {}, {length}, "length: number of tokens; the value is -|tokens - target| / scale");
    auto most = only<std::optional<Index>>("most", {}, {length}, "length: maximum number of tokens; the value is 1 up to it, else 0");
    r_.target = target.at_least(0).unit("tokens").value(), r_.most = most.at_least(0).unit("tokens").value();
    require(!is({length}) || r_.target.has_value() != r_.most.has_value(), Exit::config,
            "{}: type length needs either target or most; give one of them", s_.settings_text({"type", "target", "most"}));
    r_.scale = only<double>("scale", 1.0, {length, model},
                            "length: number of tokens by which an answer with value -1 differs from target; model: factor on its value - shift")
                   .finite()
                   .above(0);
    r_.ngram = only<Index>("ngram", 3, {repetition}, "repetition: tokens of an n-gram; the value is -(fraction of n-grams that occurred before)")
                   .unit("tokens")
                   .at_least(1)
                   .at_most(1'000'000);
  }

  void read_process() {
    using enum RewardType;
    r_.command =
        required<Words>("command", {process},
                        "process: [program, arguments], which reads a JSON line per answer and writes one per reward. It has the rights of the "
                        "user; isolate it if it runs generated code, as in [bwrap, ...]");
    r_.processes = only<Index>("processes", 1, {process}, "process: number of processes").at_least(1).at_most(1024).effect(Effect::none);
    r_.timeout_seconds = only<double>("timeout_seconds", 30.0, {process}, "process: maximum time from sending an answer to its reward")
                             .unit("s")
                             .finite()
                             .above(0)
                             .at_most(1e6);
    r_.on_failure = std::array{OnFailure::stop, OnFailure::none, OnFailure::zero}[std::size_t(on_failure())];
    r_.restarts =
        only<Index>("restarts", 10, {process}, "process: maximum number of new starts in a run").at_least(0).at_most(1'000'000).effect(Effect::none);
  }

  void read_model() {
    using enum RewardType;
    r_.model = required<std::string>("model", {model},
                                     "model: name of a reward model in section models, which values prompt and answer at the answer's last token");
    r_.text_format =
        only<std::string>("template", "", {model},
                          "model: format of prompt and answer, as --template of data build: the model reads this text, encoded with its own "
                          "tokenizer, instead of the token ids of the policy; empty: its chat template if it has another tokenizer")
            .value();
    r_.shift = only<double>("shift", 0.0, {model}, "model: subtracted from its value").finite();
  }

  std::ptrdiff_t on_failure() {
    const Words words{"stop", "none", "zero"};
    const std::string word =
        only<std::string>("on_failure", "stop", {RewardType::process},
                          "process: value of an answer whose reward is late or invalid: stop ends the run, none is no value, zero is 0")
            .one_of(words);
    return std::find(words.begin(), words.end(), word) - words.begin();
  }

  Section& s_;
  RewardConfig r_;
};

}  // namespace

std::string key_of_reward(const RewardConfig& r, const std::string& key) { return fmt::format("rl.rewards.{}.{}", r.name, key); }

std::vector<RewardConfig> read_rewards(Section& rewards) {
  std::vector<RewardConfig> all;
  for (const std::string& name : rewards.names())
    all.push_back(RewardReader(rewards.section(name, "a rule that values the answers; the reward of an answer is their weighted sum"), name).read());
  return all;
}

bool needs_text(const RewardConfig& r) {
  using enum RewardType;
  return (r.type != tokens && r.type != length && r.type != repetition && r.type != model) || !r.text_format.empty();
}

}  // namespace gyr
