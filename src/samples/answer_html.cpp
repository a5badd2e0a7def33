// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/answer_html.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/printable.hpp"
#include "src/page/page.hpp"
#include "src/page/plot.hpp"

namespace gyr {

namespace {

constexpr double scale_quantile = 0.98;
constexpr int value_digits = 4;

const std::vector<Shading> all_shadings{{TokenValue::advantage, "advantage", "advantage"},
                                        {TokenValue::log_prob, "log_prob", "log-probability in generation"},
                                        {TokenValue::gap, "gap", "log-probability in generation - in scoring"},
                                        {TokenValue::divergence, "divergence", "log-probability - that of the reference model"}};

// Value of answer token t; NaN if the rollout does not have it.
double value_of(const KeptAnswer& a, TokenValue value, std::size_t t) {
  const Rollout& r = a.rollout;
  const auto at = [&](const std::vector<double>& values) { return t < values.size() ? values[t] : NAN; };
  switch (value) {
    case TokenValue::advantage: return at(a.advantages);
    case TokenValue::log_prob: return at(r.said);
    case TokenValue::gap: return at(r.said) - at(r.old);
    case TokenValue::divergence: return (r.old.empty() ? at(r.said) : at(r.old)) - at(r.reference);
  }
  return NAN;
}

// Mean advantage of the tokens of a text, and the sums of differences and log-probabilities, which are those of the character.
double value_of(const KeptAnswer& a, TokenValue value, const TokenText& text) {
  double sum = 0;
  for (std::size_t i = text.first; i < text.first + text.count; ++i) sum += value_of(a, value, i - std::size_t(a.rollout.begin));
  return value == TokenValue::advantage ? sum / double(text.count) : sum;
}

// Ranges of tokens [begin, end) that are shown: all of them, or three quarters of the limit from the begin and the rest from the end.
std::vector<std::pair<std::size_t, std::size_t>> shown_ranges(std::size_t begin, std::size_t end, std::size_t most) {
  if (end - begin <= most) return {{begin, end}};
  const std::size_t head = std::max<std::size_t>(1, most - most / 4);
  return {{begin, begin + head}, {end - most / 4, end}};
}

std::string left_out_html(std::size_t tokens) { return fmt::format("<span class=\"left\">&hellip; {} tokens left out &hellip;</span>", tokens); }

std::string reward_text(const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : "none"; }

std::string prompt_html(const Rollout& r, const AnswerForm& form) {
  std::string html;
  std::size_t shown = 0;
  for (const auto& [begin, end] : shown_ranges(0, std::size_t(r.begin), form.most_tokens)) {
    if (begin > shown) html += left_out_html(begin - shown);
    std::string text;
    for (const TokenText& t : token_texts(form.tokenizer, r.tokens, begin, end)) text += t.text;
    html += html_text(text);
    shown = end;
  }
  return html;
}

// The tokens of the answer, each an element. Collects their texts in `all`.
std::string tokens_html(const KeptAnswer& a, const AnswerForm& form, std::vector<TokenText>& all) {
  const Rollout& r = a.rollout;
  const Shading& shading = form.shadings.front();
  std::string html;
  std::size_t shown = std::size_t(r.begin);
  for (const auto& [begin, end] : shown_ranges(shown, r.tokens.size(), form.most_tokens)) {
    if (begin > shown) html += left_out_html(begin - shown);
    for (TokenText& t : token_texts(form.tokenizer, r.tokens, begin, end)) {
      const std::string shade = shade_class(value_of(a, shading.value, t), shading.scale);
      const std::string classes = shade + (t.special ? (shade.empty() ? "special" : " special") : "");
      html += classes.empty() ? "<i>" : fmt::format("<i class=\"{}\">", classes);
      html += html_text(t.text) + "</i>";
      all.push_back(std::move(t));
    }
    shown = end;
  }
  return html;
}

// Rewards, length and end of an answer.
std::string facts_html(const SampledIteration& s, const AnswerFacts& f) {
  std::string html = fmt::format("<span>reward <b>{}</b></span>", reward_text(f.reward));
  for (std::size_t k = 0; k < s.reward_names.size() && k < f.rewards.size(); ++k)
    html += fmt::format("<span>{} {}</span>", html_text(s.reward_names[k]), reward_text(f.rewards[k]));
  html += fmt::format("<span>{} {}, {}</span>", f.length, f.length == 1 ? "token" : "tokens", f.ended ? "ended" : "<b>cut</b>");
  if (f.copies > 1) html += fmt::format("<span>{} identical answers</span>", f.copies);
  if (f.repeated > 0) html += fmt::format("<span>{:.0f} % repeated {}-grams</span>", 100 * f.repeated, repeated_ngram);
  return html;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string html;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\n\t", at), text.size());
    html += escaped(printable(text.substr(at, end - at)));
    if (end < text.size()) html += text[end];
    at = end + 1;
  }
  return html;
}

std::string html_prose(std::string_view text) {
  const std::string plain = html_text(text);
  if (std::count(plain.begin(), plain.end(), '`') % 2 != 0) return plain;
  std::string html;
  bool inside = false;
  for (const char c : plain) {
    if (c == '`') html += (inside = !inside) ? "<code>" : "</code>";
    else html += c;
  }
  return html;
}

std::vector<Shading> shadings_of(const std::vector<SampledIteration>& sampled) {
  std::vector<Shading> shadings;
  for (Shading shading : all_shadings) {
    std::vector<double> magnitudes;
    for (const SampledIteration& s : sampled)
      for (const auto& [number, answer] : s.kept)
        for (std::size_t t = 0; t < std::size_t(answer.rollout.length()); ++t) magnitudes.push_back(std::abs(value_of(answer, shading.value, t)));
    shading.scale = shade_scale(std::move(magnitudes));
    if (shading.scale > 0 || shading.value == TokenValue::advantage) shadings.push_back(shading);
  }
  return shadings;
}

double shade_scale(std::vector<double> magnitudes) {
  std::erase_if(magnitudes, [](double v) { return !(v > 0 && std::isfinite(v)); });
  if (magnitudes.empty()) return 0;
  const auto high = magnitudes.begin() + std::ptrdiff_t(scale_quantile * double(magnitudes.size() - 1));
  std::nth_element(magnitudes.begin(), high, magnitudes.end());
  return *high;
}

std::string shade_class(double value, double scale) {
  if (!std::isfinite(value) || !(scale > 0)) return "";
  const int level = int(std::min(4.0, std::floor(4 * std::abs(value) / scale + 0.5)));
  return level == 0 ? "" : fmt::format("{}{}", value > 0 ? 'p' : 'n', level);
}

std::string anchor_of(const SampledIteration& s, std::size_t answer) {
  return fmt::format("i{}-{}-{}", s.iteration, s.facts[answer].prompt, s.facts[answer].sample);
}

std::string answer_html(const SampledIteration& s, std::size_t answer, const std::string& reasons, const AnswerForm& form, Json& values) {
  const AnswerFacts& facts = s.facts[answer];
  const KeptAnswer& kept = s.kept.at(answer);
  std::vector<TokenText> texts;
  const std::string tokens = tokens_html(kept, form, texts), anchor = anchor_of(s, answer);
  Json of_answer = Json::object();
  for (const Shading& shading : form.shadings) {
    std::vector<double> numbers;
    for (const TokenText& t : texts) numbers.push_back(value_of(kept, shading.value, t));
    if (std::all_of(numbers.begin(), numbers.end(), [](double v) { return std::isnan(v); })) continue;
    const bool equal = std::all_of(numbers.begin(), numbers.end(), [&](double v) { return v == numbers.front(); });
    of_answer[shading.key] = equal ? rounded({numbers.front()}, value_digits) : rounded(numbers, value_digits);
  }
  values[anchor] = std::move(of_answer);
  return fmt::format(
      "<article class=\"panel answer\" id=\"{}\" data-prompt=\"{}\" data-reward=\"{}\">\n"
      "<div class=\"legend\"><b class=\"why\">{}</b><a href=\"#{}\">prompt {}, answer {}</a>{}</div>\n"
      "<div class=\"prompt\">{}</div>\n<div class=\"text\">{}</div>\n</article>\n",
      anchor, facts.prompt, facts.reward ? fmt::format("{:.9g}", *facts.reward) : "", html_text(reasons), anchor, facts.prompt, facts.sample,
      facts_html(s, facts), prompt_html(kept.rollout, form), tokens);
}

}  // namespace gyr
