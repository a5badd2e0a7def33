// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/curves_html.hpp"

#include <algorithm>
#include <cmath>

#include "src/history/run_history.hpp"
#include "src/page/page.hpp"
#include "src/page/plot.hpp"
#include "src/samples/answer_html.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_points_of_curve = 300, curve_colours = 10;
// Sizes of a plot and of its margins, in pixels.
constexpr double plot_width = 460, plot_height = 206, plot_left = 48, plot_right = 12, plot_top = 10, plot_bottom = 34;

struct Curve {
  std::string metric, label;
  std::string lowest = {}, highest = {};  // metrics of the limits of a band; "": no band
  bool deviation = false;                 // `lowest` is the distance of both limits
};

struct PlotOfCurves {
  std::string title, unit;
  std::vector<Curve> curves;
};

std::string weight_text(const PolicyRun& run, const std::string& rule) {
  const double weight = run.weight(rule);
  return std::isnan(weight) ? rule : weight == 0 ? rule + " (weight 0, only logged)" : fmt::format("{} (weight {:g})", rule, weight);
}

std::vector<PlotOfCurves> plots_of(const PolicyRun& run) {
  std::vector<Curve> rules;
  for (const std::string& rule : run.rules()) rules.push_back({"rewards." + rule, weight_text(run, rule)});
  return {{"Reward", "mean and standard deviation", {{"reward", "reward", "reward_deviation", "reward_deviation", true}}},
          {"Rules", "mean of each rule", rules},
          {"KL divergence",
           "nats per token",
           {{"kl", "k1, old policy to reference"}, {"kl_k1", "k1, policy to reference"}, {"kl_k3", "k3"}, {"kl_old", "k3, policy to old policy"}}},
          {"Entropy", "nats per token", {{"entropy", "entropy"}}},
          {"Answer length", "tokens: mean, shortest to longest", {{"length", "length", "shortest", "longest"}}},
          {"Ended answers and equal groups", "fraction", {{"ended", "ended answers"}, {"equal_groups", "prompts without spread of rewards"}}},
          {"Gap between generation and scoring",
           "nats per token",
           {{"gap", "mean gap"}, {"largest_gap", "largest gap"}, {"log_ratio", "distance of the new log-probability"}}},
          {"Clipped tokens", "fraction", {{"clipped_low", "clipped low"}, {"clipped_high", "clipped high"}}},
          {"Critic", "explained variance", {{"explained_variance", "explained variance"}}}};
}

// Points of a curve, as means of neighbours if there are many, with the limits of its band.
struct DrawnCurve {
  std::string label;
  std::vector<double> at, value, least, most;
};

DrawnCurve drawn(const PolicyRun& run, const Curve& curve) {
  std::vector<double> at, value, least, most;
  for (const IterationMetrics& m : run.iterations) {
    const auto get = [&](const std::string& name) {
      const auto found = m.values.find(name);
      return found == m.values.end() ? NAN : found->second;
    };
    const double v = get(curve.metric);
    if (std::isnan(v)) continue;
    const double low = curve.lowest.empty() ? v : get(curve.lowest), high = curve.highest.empty() ? v : get(curve.highest);
    at.push_back(double(m.iteration)), value.push_back(v);
    least.push_back(std::isnan(low) ? v : curve.deviation ? v - low : low), most.push_back(std::isnan(high) ? v : curve.deviation ? v + high : high);
  }
  const Thinned thin = thinned(at, value, most_points_of_curve), low = thinned(at, least, most_points_of_curve),
                high = thinned(at, most, most_points_of_curve);
  DrawnCurve d{curve.label, thin.at, thin.mean, low.mean, high.mean};
  if (curve.lowest.empty()) d.least = thin.least, d.most = thin.most;
  return d;
}

std::string curve_colour(std::size_t curve) { return fmt::format("var(--r{})", curve % curve_colours); }

std::string axes_svg(const PlotAxis& x, const PlotAxis& y) {
  std::string svg;
  for (const double t : y.ticks(4, 0))
    svg += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--grid)\"/><text class=\"y\" x=\"{:.1f}\" "
        "y=\"{:.1f}\">{:.4g}</text>\n",
        x.from, x.to, y(t), y(t), x.from - 6, y(t) + 4, std::abs(t) < 1e-12 * (y.most - y.least) ? 0 : t);
  for (const double t : x.ticks(6, 1))
    svg += fmt::format("<text class=\"x\" x=\"{:.1f}\" y=\"{:.1f}\">{:.0f}</text>\n", std::min(x(t), plot_width - 14), y.from + 15, t);
  return svg + fmt::format(
                   "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--line)\"/>"
                   "<text class=\"x\" x=\"{:.1f}\" y=\"{:.1f}\">iteration</text>\n",
                   x.from, x.to, y.from, y.from, (x.from + x.to) / 2, plot_height - 4);
}

std::string curve_svg(const DrawnCurve& c, const PlotAxis& x, const PlotAxis& y, std::size_t number) {
  std::string svg;
  if (c.least != c.value || c.most != c.value)
    svg += fmt::format("<path fill=\"{}\" fill-opacity=\".17\" d=\"{}\"/>\n", curve_colour(number), band_data(x, y, c.at, c.least, c.most));
  const char* dot = c.at.size() == 1 ? "h0" : "";  // a zero-length line, whose round end shows as a dot
  return svg + fmt::format("<path fill=\"none\" stroke=\"{}\" stroke-width=\"1.7\" stroke-linejoin=\"round\" stroke-linecap=\"round\" d=\"{}{}\"/>\n",
                           curve_colour(number), path_data(x, y, c.at, c.value, 'M'), dot);
}

std::string plot_html(const PlotOfCurves& plot, const std::vector<DrawnCurve>& curves, Json& plots) {
  PlotAxis x{.from = plot_left, .to = plot_width - plot_right}, y{.from = plot_height - plot_bottom, .to = plot_top};
  for (const DrawnCurve& c : curves) x.take(c.at), y.take(c.least), y.take(c.most);
  x.widen(), y.widen();
  std::string legend, svg = axes_svg(x, y);
  Json points = Json::array();
  for (std::size_t i = 0; i < curves.size(); ++i) {
    svg += curve_svg(curves[i], x, y, i);
    legend += fmt::format("<span><span class=\"square\" style=\"background:{}\"></span>{}</span>", curve_colour(i), html_text(curves[i].label));
    points.push_back({{"label", curves[i].label}, {"at", rounded(curves[i].at)}, {"value", rounded(curves[i].value)}});
  }
  plots.push_back({{"left", plot_left},
                   {"right", plot_width - plot_right},
                   {"top", plot_top},
                   {"bottom", plot_height - plot_bottom},
                   {"low", x.least},
                   {"high", x.most},
                   {"curves", std::move(points)}});
  return fmt::format(
      "<div class=\"panel\"><h3>{0}</h3><div class=\"legend\"><span>{1}</span>{2}</div>\n"
      "<svg viewBox=\"0 0 {3} {4}\" role=\"img\" aria-label=\"{0} over the iterations\">\n{5}</svg></div>\n",
      html_text(plot.title), html_text(plot.unit), plot.curves.size() > 1 || plot.title == "Rules" ? legend : "", plot_width, plot_height, svg);
}

}  // namespace

std::string curves_html(const PolicyRun& run, Json& plots) {
  std::string html;
  for (const PlotOfCurves& plot : plots_of(run)) {
    std::vector<DrawnCurve> curves;
    for (const Curve& curve : plot.curves)
      if (DrawnCurve d = drawn(run, curve); !d.at.empty()) curves.push_back(std::move(d));
    // Zero throughout, as with one optimizer step per iteration, shows nothing.
    const auto is_zero = [](const DrawnCurve& c) { return std::ranges::all_of(c.value, [](double v) { return v == 0; }); };
    if (!std::ranges::all_of(curves, is_zero)) html += plot_html(plot, curves, plots);
  }
  return html;
}

}  // namespace gyr
