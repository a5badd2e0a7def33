// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/neighbours_page.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/quantity.hpp"
#include "src/neighbours_page_html.hpp"
#include "src/page/page.hpp"
#include "src/samples/answer_html.hpp"

namespace gyr {

namespace {

// Values by which the tokens of the text are shaded.
enum class LossShade { gain, with, without };
struct LossShading {
  LossShade value;
  const char *key, *name;
  double scale = 0;  // magnitude from which a token has the darkest shade
};
constexpr LossShading loss_shadings[] = {{LossShade::gain, "gain", "gain by neighbours (loss without - loss with)"},
                                         {LossShade::with, "with", "loss with neighbours"},
                                         {LossShade::without, "without", "loss without neighbours"}};

class NeighboursBody {
 public:
  NeighboursBody(const ShownText& text, const Tokenizer* tokenizer) : text_(text), tokenizer_(tokenizer) {
    if (text.model.empty()) return;
    for (LossShading shading : loss_shadings) {
      std::vector<double> magnitudes;
      for (std::size_t t = 0; t < text.tokens.size(); ++t) magnitudes.push_back(std::abs(value(shading.value, t)));
      shading.scale = shade_scale(std::move(magnitudes));
      shadings_.push_back(shading);
    }
  }

  std::string page() const {
    Json data{{"shadings", Json::array()}, {"chunks", Json::array()}};
    for (const LossShading& s : shadings_) data["shadings"].push_back({{"key", s.key}, {"name", s.name}, {"scale", s.scale}});
    std::string body = header() + figures() + bar();
    for (std::size_t c = 0; c < text_.chunks.size(); ++c) body += section(c, data["chunks"]);
    return page_of(neighbours_page_html, body, data);
  }

 private:
  double value(LossShade shade, std::size_t t) const {
    switch (shade) {
      case LossShade::gain: return text_.without[t] - text_.with[t];
      case LossShade::with: return text_.with[t];
      case LossShade::without: return text_.without[t];
    }
    return NAN;
  }
  // Sum over the tokens of a character.
  double value(LossShade shade, const TokenText& t) const {
    double sum = 0;
    for (std::size_t i = t.first; i < t.first + t.count; ++i) sum += value(shade, i);
    return sum;
  }

  static std::string row(const std::string& name, const std::string& text) {
    return text.empty() ? "" : fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, html_text(text));
  }
  std::string header() const {
    const std::string first = text_.read == 1 ? "neighbour" : fmt::format("{} neighbours", text_.read);
    const std::string reads =
        text_.model.empty() ? "" : fmt::format("windows of {}, and the first {} of each chunk", counted(Index(text_.window), "token"), first);
    return fmt::format("<header id=\"header\"><h1>{}<span class=\"state\">neighbours</span></h1>\n<dl class=\"facts\">\n", html_text(text_.name)) +
           row("project", text_.project) + row("model", text_.model) + row("reads", reads) +
           row("left out", text_.left_out == 0 ? "" : counted(Index(text_.left_out), "token") + " after those below") +
           row("text", tokenizer_ ? "" : "token ids, because the tokenizer is not known") + "</dl>\n</header>\n";
  }

  static std::string figure(const std::string& number, const char* name) {
    return fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", number, name);
  }
  std::string figures() const {
    std::size_t found = 0;
    for (const ShownChunk& c : text_.chunks) found += c.neighbours.size();
    std::string html = "<div class=\"figures\">\n" + figure(fmt::format("{}", text_.tokens.size()), "tokens") +
                       figure(fmt::format("{}", text_.chunks.size()), "chunks") + figure(fmt::format("{}", found), "neighbours");
    if (!text_.model.empty()) {
      const double with = mean_loss(text_.with), without = mean_loss(text_.without);
      html += figure(loss_text(with), "loss per token with neighbours, in nats") + figure(loss_text(without), "loss without neighbours") +
              figure(loss_text(without - with), "gain");
    }
    return html + "</div>\n";
  }
  static std::string loss_text(double loss) { return std::isnan(loss) ? "-" : fmt::format("{:.4f}", loss); }

  std::string bar() const {
    std::string html =
        "<p class=\"legend\"><span><mark>marked</mark>: tokens that a neighbour shares with the chunk</span>"
        "<span><span class=\"after\">grey</span>: continuation of the neighbour</span></p>\n";
    if (shadings_.empty()) return html;
    std::string options;
    for (std::size_t i = 0; i < shadings_.size(); ++i) options += fmt::format("<option value=\"{}\">{}</option>", i, shadings_[i].name);
    html +=
        "<p class=\"faint\">The neighbours of a chunk are seen from its last token on: they change the loss of the tokens of the next chunk.</p>\n";
    return html + fmt::format(
                      "<div class=\"bar\" id=\"bar\" hidden><label>shade by <select id=\"shading\">{}</select></label></div>\n"
                      "<p class=\"legend\" id=\"shades\"><span><i class=\"n4\">&nbsp;&nbsp;</i><i class=\"n2\">&nbsp;&nbsp;</i> negative</span>"
                      "<span><i class=\"p2\">&nbsp;&nbsp;</i><i class=\"p4\">&nbsp;&nbsp;</i> positive</span>"
                      "<span id=\"shade_name\">{}, darkest from {:.3g} on</span></p>\n",
                      options, shadings_.front().name, shadings_.front().scale);
  }

  std::span<const std::int32_t> tokens_of(const ShownChunk& c) const { return std::span(text_.tokens).subspan(c.first, c.last - c.first); }
  std::set<std::int32_t> shared(const ShownChunk& c, const ShownNeighbour& n) const {
    return shared_tokens(tokens_of(c), std::span(n.tokens).first(n.chunk), text_.special);
  }
  static bool contains(const std::set<std::int32_t>& some, std::span<const std::int32_t> tokens, const TokenText& t) {
    return std::ranges::any_of(tokens.subspan(t.first, t.count), [&](std::int32_t token) { return some.contains(token); });
  }

  std::string section(std::size_t number, Json& chunks) const {
    const ShownChunk& c = text_.chunks[number];
    std::string neighbours;
    std::set<std::int32_t> of_any;
    for (std::size_t n = 0; n < c.neighbours.size(); ++n) {
      const std::set<std::int32_t> some = shared(c, c.neighbours[n]);
      neighbours += neighbour(n, c.neighbours[n], some);
      of_any.insert(some.begin(), some.end());
    }
    if (neighbours.empty()) neighbours = "<p class=\"faint\">no neighbour</p>\n";
    return fmt::format(
        "<section id=\"c{0}\"><div class=\"panel\"><h3>Chunk {0} <span class=\"faint\">tokens {1} to {2}{3}</span></h3>\n"
        "<div class=\"text\">{4}</div></div>\n<div class=\"panel\">{5}</div></section>\n",
        number, c.first, c.last, losses(c), chunk(c, of_any, chunks), neighbours);
  }
  std::string losses(const ShownChunk& c) const {
    if (text_.model.empty()) return "";
    const auto mean = [&](const std::vector<double>& all) { return loss_text(mean_loss(std::span(all).subspan(c.first, c.last - c.first))); };
    return fmt::format(", loss {} with and {} without neighbours", mean(text_.with), mean(text_.without));
  }
  // The tokens of a chunk, each an element, and their values for the script.
  std::string chunk(const ShownChunk& c, const std::set<std::int32_t>& of_any, Json& chunks) const {
    const std::vector<TokenText> texts = token_texts(tokenizer_, text_.tokens, c.first, c.last);
    std::string html;
    for (const TokenText& t : texts) {
      std::string classes = shadings_.empty() ? "" : shade_class(value(LossShade::gain, t), shadings_.front().scale);
      if (t.special) classes += classes.empty() ? "special" : " special";
      const std::string text = html_text(t.text);
      html += (classes.empty() ? "<i>" : fmt::format("<i class=\"{}\">", classes)) +
              (contains(of_any, text_.tokens, t) ? "<mark>" + text + "</mark>" : text) + "</i>";
    }
    Json values = Json::object();
    for (const LossShading& s : shadings_) {
      std::vector<double> of_shading;
      for (const TokenText& t : texts) of_shading.push_back(value(s.value, t));
      values[s.key] = rounded(of_shading, 4);
    }
    chunks.push_back(std::move(values));
    return html;
  }
  std::string neighbour(std::size_t number, const ShownNeighbour& n, const std::set<std::int32_t>& some) const {
    const auto html_of = [&](std::size_t begin, std::size_t end, bool marks) {
      std::string html;
      for (const TokenText& t : token_texts(tokenizer_, n.tokens, begin, end))
        html += marks && contains(some, n.tokens, t) ? "<mark>" + html_text(t.text) + "</mark>" : html_text(t.text);
      return html;
    };
    return fmt::format(
        "<article><div class=\"legend\"><b>{}. {}</b><span>chunk {}</span><span>score {:.4f}</span><span>{}</span></div>\n"
        "<div class=\"text\">{}<span class=\"after\">{}</span></div></article>\n",
        number + 1, html_text(n.place), n.id, n.score, counted(Index(some.size()), "shared token"), html_of(0, n.chunk, true),
        html_of(n.chunk, n.tokens.size(), false));
  }

  const ShownText& text_;
  const Tokenizer* tokenizer_;
  std::vector<LossShading> shadings_;  // empty without a model
};

}  // namespace

double mean_loss(std::span<const double> losses) {
  double sum = 0, count = 0;
  for (const double loss : losses)
    if (!std::isnan(loss)) sum += loss, count += 1;
  return count > 0 ? sum / count : NAN;
}

std::set<std::int32_t> shared_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b, const std::set<std::int32_t>& special) {
  const std::set<std::int32_t> of_a(a.begin(), a.end());
  std::set<std::int32_t> shared;
  for (const std::int32_t token : b)
    if (of_a.contains(token) && !special.contains(token)) shared.insert(token);
  return shared;
}

std::string neighbours_page(const ShownText& text, const Tokenizer* tokenizer) { return NeighboursBody(text, tokenizer).page(); }

}  // namespace gyr
