// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/samples_page.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/quantity.hpp"
#include "src/page/page.hpp"
#include "src/page/plot.hpp"
#include "src/policy/rollout_file.hpp"
#include "src/samples/answer_html.hpp"
#include "src/samples/curves_html.hpp"
#include "src/samples_page_html.hpp"

namespace gyr {

namespace {

constexpr std::uint64_t seed_of_draws = 1;
constexpr std::size_t longest_excerpt = 4096, shortest_excerpt = 16;  // range of the limit of the tokens of an answer

SampledIteration read_iteration(const PolicyRun& run, std::int64_t iteration) {
  const std::filesystem::path file = rollout_path(run.folder, iteration);
  std::string damage;
  try {
    const Rollouts rollouts = read_rollouts(file);
    require(rollouts.iteration == iteration && !rollouts.all.empty(), Exit::data, "{}: contains {} answers of iteration {}", file.string(),
            rollouts.all.size(), rollouts.iteration);
    return sampled(rollouts, run.config.advantage, seed_of_draws);
  } catch (const Error& error) {
    fail(error.code, "{}. To make a page of the other iterations, move this file to another folder", error.what());
  }
}

std::optional<Tokenizer> tokenizer_of_run(const PolicyRun& run, const std::string& given) {
  const std::string& file = given.empty() ? run.tokenizer : given;
  if (file.empty()) return {};
  std::error_code ignored;
  require(std::filesystem::exists(file, ignored), Exit::missing, "{}: does not exist{}; pass --tokenizer FILE", file,
          given.empty() ? ", but data.tokenizer of the run's deck names it" : "");
  return Tokenizer::load(file);
}

// The answers of an iteration that are shown, with the reasons why, in the order of the page.
using ShownAnswers = std::vector<std::pair<std::size_t, std::string>>;

void add_reason(ShownAnswers& shown, std::size_t answer, const std::string& reason) {
  const auto known = std::ranges::find(shown, answer, &ShownAnswers::value_type::first);
  if (known == shown.end()) shown.emplace_back(answer, reason);
  else if (known->second.find(reason) == std::string::npos) known->second += ", " + reason;
}

class SamplesBody {
 public:
  SamplesBody(const PolicyRun& run, const std::vector<SampledIteration>& sampled, const SuspectFindings& findings)
      : run_(run), sampled_(sampled), findings_(findings), shown_(sampled.size()) {
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      for (const std::size_t a : sampled[i].best) add_reason(shown_[i], a, "best");
      for (const std::size_t a : sampled[i].worst) add_reason(shown_[i], a, "worst");
      for (const std::size_t a : sampled[i].drawn) add_reason(shown_[i], a, "drawn");
    }
    for (const Suspect& suspect : findings.suspects)
      for (const AnswerPlace& place : suspect.evidence) add_reason(shown_[place.iteration], place.answer, "suspect");
  }

  std::size_t answers() const {
    std::size_t count = 0;
    for (const ShownAnswers& some : shown_) count += some.size();
    return count;
  }

  std::string page(const AnswerForm& form) const {
    Json data{{"plots", Json::array()}, {"shadings", Json::array()}, {"answers", Json::object()}};
    for (const Shading& s : form.shadings) data["shadings"].push_back({{"key", s.key}, {"name", s.name}, {"scale", s.scale}});
    std::string body = header(form) + "<h2>Suspects</h2>\n" + suspects() + "<h2>Curves</h2>\n<div class=\"plots curves\">\n" +
                       curves_html(run_, data["plots"]) + "</div>\n<h2>Answers</h2>\n" + bar(form) + "<div id=\"answers\">\n";
    for (std::size_t i = 0; i < sampled_.size(); ++i) body += section(i, form, data["answers"]);
    return page_of(samples_page_html, body + "</div>\n", data);
  }

 private:
  static std::string fact(const std::string& name, const std::string& html) {
    return html.empty() ? "" : fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, html);
  }

  std::string header(const AnswerForm& form) const {
    std::error_code ignored;
    const PolicyConfig& c = run_.config;
    std::string rules, shown;
    for (const std::string& rule : run_.rules()) rules += fmt::format("{}{}", rules.empty() ? "" : ", ", html_text(rule_text(rule)));
    for (const SampledIteration& s : sampled_) shown += fmt::format("{}{}", shown.empty() ? "" : ", ", s.iteration);
    return fmt::format("<header id=\"header\"><h1>{}<span class=\"state\">policy training</span></h1>\n<dl class=\"facts\">\n",
                       html_text(run_.name)) +
           fact("path", html_text(std::filesystem::absolute(run_.folder, ignored).string())) +
           fact("answers", fmt::format("{} x {} per iteration, at most {}", counted(c.prompts, "prompt"), counted(c.group, "answer"),
                                       counted(c.max_new_tokens, "token"))) +
           fact("iterations", fmt::format("{} of {} finished, numbered from 0", run_.iterations.size(), c.iterations)) +
           fact("shown", fmt::format("iterations {}, of {} with rollouts", shown, run_.stored.size())) + fact("rules", rules) +
           fact("text", form.tokenizer ? "" : "token ids, because data.tokenizer of the deck is empty") + "</dl>\n</header>\n";
  }

  std::string rule_text(const std::string& rule) const {
    const double weight = run_.weight(rule);
    return std::isnan(weight) ? rule : fmt::format("{} (weight {:g}{})", rule, weight, weight == 0 ? ", only logged" : "");
  }

  std::string link(const AnswerPlace& place) const {
    const SampledIteration& s = sampled_[place.iteration];
    const AnswerFacts& f = s.facts[place.answer];
    return fmt::format("<a href=\"#{}\">iteration {}, prompt {}, answer {}</a>", anchor_of(s, place.answer), s.iteration, f.prompt, f.sample);
  }

  std::string suspects() const {
    std::string html;
    for (const Suspect& s : findings_.suspects) {
      std::string links;
      for (const AnswerPlace& place : s.evidence) links += (links.empty() ? "See " : "; ") + link(place);
      html += fmt::format("<div class=\"panel suspect\"><h3 class=\"bad\">{}</h3><p><b>{}</b></p><p>{}</p><p>{}</p></div>\n", html_prose(s.title),
                          html_prose(s.figure), html_prose(s.sentence), links);
    }
    if (html.empty()) html = "<div class=\"panel\"><span class=\"good\">No suspect was found.</span></div>\n";
    html +=
        "<div class=\"panel scroll checks\"><table><thead><tr><th scope=\"col\">check</th><th scope=\"col\" class=\"text\">figure</th>"
        "<th scope=\"col\" class=\"text\">threshold</th><th scope=\"col\">result</th></tr></thead><tbody>\n";
    for (const SuspectCheck& c : findings_.checks)
      html += fmt::format("<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{}</td></tr>\n", html_prose(c.name),
                          html_prose(c.figure), html_prose(c.threshold), c.found ? "<span class=\"bad\">suspect</span>" : "-");
    return html + "</tbody></table></div>\n";
  }

  // Filters, which a script shows.
  std::string bar(const AnswerForm& form) const {
    std::string iterations, shadings;
    for (const SampledIteration& s : sampled_) iterations += fmt::format("<option value=\"{0}\">{0}</option>", s.iteration);
    for (std::size_t i = 0; i < form.shadings.size(); ++i) shadings += fmt::format("<option value=\"{}\">{}</option>", i, form.shadings[i].name);
    return fmt::format(
        "<div class=\"bar choice\" id=\"bar\" hidden>\n<label>iteration <select id=\"iteration\"><option value=\"\">all</option>{}</select></label>\n"
        "<label>prompt or text <input type=\"search\" id=\"search\" placeholder=\"number or words\"></label>\n"
        "<label>reward from <input type=\"number\" step=\"any\" id=\"least\"></label> <label>to <input type=\"number\" step=\"any\" "
        "id=\"most\"></label>\n"
        "<label>shade by <select id=\"shading\">{}</select></label>\n<button id=\"reset\">reset</button>\n"
        "<span class=\"faint\" id=\"count\" role=\"status\"></span></div>\n"
        "<p class=\"legend\" id=\"shades\"><span><i class=\"n4\">&nbsp;&nbsp;</i><i class=\"n2\">&nbsp;&nbsp;</i> negative</span>"
        "<span><i class=\"p2\">&nbsp;&nbsp;</i><i class=\"p4\">&nbsp;&nbsp;</i> positive</span><span id=\"shade_name\">advantage, darkest from "
        "{:.3g} on</span></p>\n",
        iterations, shadings, form.shadings.front().scale);
  }

  std::string section(std::size_t number, const AnswerForm& form, Json& values) const {
    const SampledIteration& s = sampled_[number];
    std::string html = fmt::format("<section data-iteration=\"{0}\"><h3>Iteration {0} <span class=\"faint\">{1}, weights of step {2}</span></h3>\n",
                                   s.iteration, counted(Index(s.facts.size()), "answer"), s.version);
    for (const auto& [answer, reasons] : shown_[number]) html += answer_html(s, answer, reasons, form, values);
    return html + "</section>\n";
  }

  const PolicyRun& run_;
  const std::vector<SampledIteration>& sampled_;
  const SuspectFindings& findings_;
  std::vector<ShownAnswers> shown_;
};

// The page with answers as long as the limit allows.
std::string fitted_page(const SamplesBody& body, AnswerForm& form, double megabytes) {
  const double limit = megabytes * 1e6;
  for (form.most_tokens = longest_excerpt;;) {
    std::string html = body.page(form);
    const double bytes = double(html.size());
    if (bytes <= limit) return html;
    require(form.most_tokens > shortest_excerpt, Exit::usage,
            "the page of {} answers has {:.2f} MB with {} tokens of each, and its limit is {:g} MB; lower --iterations or raise --page-megabytes",
            body.answers(), bytes / 1e6, form.most_tokens, megabytes);
    form.most_tokens = std::max(shortest_excerpt, std::size_t(double(form.most_tokens) * std::min(0.7, 0.95 * limit / bytes)));
  }
}

}  // namespace

SamplesPage samples_page(const std::filesystem::path& output, const SamplesOptions& options, const Note& progress) {
  const PolicyRun run = read_policy_run(output);
  const std::optional<Tokenizer> tokenizer = tokenizer_of_run(run, options.tokenizer);
  std::vector<SampledIteration> sampled;
  const std::vector<std::int64_t> chosen = chosen_iterations(run.stored, options.iterations);
  for (const std::int64_t iteration : chosen) {
    progress(fmt::format("reading answers of iteration {}, {} of {}", iteration, sampled.size() + 1, chosen.size()));
    sampled.push_back(read_iteration(run, iteration));
  }
  SuspectFindings findings = suspects_of(run, sampled);
  const SamplesBody body(run, sampled, findings);
  AnswerForm form{tokenizer ? &*tokenizer : nullptr, shadings_of(sampled)};
  progress(fmt::format("writing {}", counted(Index(body.answers()), "answer")));
  std::string html = fitted_page(body, form, options.megabytes);
  return {std::move(html), sampled.size(), body.answers(), std::move(findings.suspects)};
}

}  // namespace gyr
