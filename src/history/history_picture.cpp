// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/history_picture.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/page/plot.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_line_points = 200, most_circles = 40;  // limits of points per line, and of validation circles per line
// sizes of the picture, its plot and its margins, in pixels
constexpr double picture_width = 760, plot_height = 240, left = 52, right = 52, bottom = 34;
constexpr const char* colours[] = {"#2f7fc4", "#d0631b", "#2f9550", "#c04a94", "#8468c8", "#9a7a24", "#1593a5", "#c04444"};
constexpr const char* dashes[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 4\""};  // of runs beyond the number of colours
constexpr std::size_t longest_name = 40, most_last_values = 12;

struct LossCurve {
  std::string name;
  Thinned training, validation;
  bool thinned;  // true if a point represents several steps
};

template <class Steps>
Thinned points_of(const Steps& steps, std::size_t most, std::size_t& points) {
  std::vector<double> at, loss;
  for (const auto& s : steps)
    if (!s.overtaken && std::isfinite(s.loss)) at.push_back(double(s.step)), loss.push_back(s.loss);
  points = loss.size();
  return gyr::thinned(at, loss, most);
}

LossCurve curve_of(const RunHistory& run) {
  std::size_t points = 0, validations = 0;
  LossCurve c{printable(run.name), points_of(run.steps, most_line_points, points), points_of(run.validations, most_circles, validations), false};
  c.thinned = points > most_line_points;
  return c;
}

// First characters of a long name; multi-byte characters are not split.
std::string shortened(const std::string& name) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < name.size(); ++i)
    if ((name[i] & 0xC0) != 0x80 && ++characters > longest_name) return name.substr(0, i) + "...";
  return name;
}

const char* colour_of(std::size_t run) { return colours[run % std::size(colours)]; }
std::string stroke_of(std::size_t run) {
  return fmt::format("stroke=\"{}\"{}", colour_of(run), dashes[run / std::size(colours) % std::size(dashes)]);
}

std::string drawing_of(const LossCurve& c, const PlotAxis& x, const PlotAxis& y, std::size_t run) {
  std::string svg;
  const char* colour = colour_of(run);
  if (c.thinned) {
    svg += fmt::format("<path class=\"band\" fill=\"{}\" d=\"{}\"/>\n", colour, band_data(x, y, c.training.at, c.training.least, c.training.most));
  }
  const char* dot = c.training.at.size() == 1 ? "h0" : "";  // a zero-length line, whose round end shows as a dot
  if (!c.training.at.empty())
    svg += fmt::format("<path class=\"line\" {} d=\"{}{}\"/>\n", stroke_of(run), path_data(x, y, c.training.at, c.training.mean, 'M'), dot);
  for (std::size_t i = 0; i < c.validation.at.size(); ++i)
    svg += fmt::format("<circle stroke=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", colour, x(c.validation.at[i]), y(c.validation.mean[i]));
  return svg;
}

// Last value of each curve, at its end. Values that would overlap are moved apart; there are none for many runs.
std::string last_values_of(const std::vector<LossCurve>& curves, const PlotAxis& x, const PlotAxis& y) {
  constexpr double line = 13;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < curves.size(); ++i)
    if (!curves[i].training.mean.empty()) order.push_back(i);
  if (order.size() > most_last_values) return "";
  const auto height_of = [&](std::size_t i) { return y(curves[i].training.mean.back()); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return height_of(a) < height_of(b); });
  std::string svg;
  double lowest = y.to - line;
  for (std::size_t n = 0; n < order.size(); ++n) {
    const double highest = y.from - line * double(order.size() - 1 - n);  // leaves space for the values below
    lowest = std::max(lowest + line, std::min(height_of(order[n]), highest));
    const Thinned& t = curves[order[n]].training;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{}\">{:.4g}</text>\n", x(t.at.back()) + 6, lowest + 4, colour_of(order[n]),
                       t.mean.back());
  }
  return svg;
}

// Legend: the run names, each after a piece of its line, in rows next to the description of the picture.
struct Legend {
  std::string svg;
  double height = 24;
};
Legend legend_of(const std::vector<LossCurve>& curves) {
  constexpr double line = 18, stroke = 22, letter = 7.5, gap = 18, of_what = 210;
  Legend legend;
  double at = left;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::string name = shortened(curves[i].name);
    const double needed = stroke + letter * double(name.size()) + gap;
    if (at > left && at + needed > picture_width - right - of_what) at = left, legend.height += line;
    const double y = legend.height - 15;
    legend.svg += fmt::format("<path class=\"line\" {} d=\"M{:.1f} {:.0f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", stroke_of(i), at, y,
                              at + 16, at + stroke, y + 4, escaped(name));
    at += needed;
  }
  return legend;
}

std::string frame_of(const PlotAxis& x, const PlotAxis& y) {
  std::string svg;
  for (const double t : y.ticks(5, 0))
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text class=\"y\" x=\"{:.1f}\" y=\"{:.1f}\">{:.4g}</text>\n", x.from, y(t),
                       x.to, x.from - 6, y(t) + 4, t);
  for (const double t : x.ticks(8, 1)) {
    const std::string step = fmt::format("{:.0f}", t);
    const double half = 3.5 * double(step.size());
    svg += fmt::format("<text class=\"x\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", std::min(x(t), picture_width - half), y.from + 16, step);
  }
  const double middle = (y.from + y.to) / 2;
  return svg + fmt::format("<text class=\"x\" transform=\"rotate(-90 12 {0:.1f})\" x=\"12\" y=\"{0:.1f}\">loss</text>\n", middle) +
         fmt::format("<text class=\"x\" x=\"{:.1f}\" y=\"{:.1f}\">step</text>\n", (x.from + x.to) / 2, y.from + 30);
}

}  // namespace

std::string picture_of(const std::vector<RunHistory>& runs) {
  std::vector<LossCurve> curves;
  PlotAxis x{.from = left, .to = picture_width - right}, y;
  bool validated = false;
  for (const RunHistory& run : runs) {
    const LossCurve c = curves.emplace_back(curve_of(run));
    for (const Thinned* t : {&c.training, &c.validation}) x.take(t->at), y.take(t->least), y.take(t->most);
    validated = validated || !c.validation.at.empty();
  }
  require(y.least <= y.most, Exit::data, "{}: no step has a finite loss", runs.front().folder);
  x.widen(), y.widen();
  const Legend legend = legend_of(curves);
  const double height = legend.height + plot_height + bottom;
  y.from = height - bottom, y.to = legend.height;

  std::string drawings;
  for (std::size_t i = 0; i < curves.size(); ++i) drawings += drawing_of(curves[i], x, y, i);
  drawings += last_values_of(curves, x, y);
  const std::string what = validated ? "training loss; circles: validation" : "training loss";
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{} over steps">
<metadata>generator: gyrfalcon</metadata>
<style>
  text {{ fill: #808790; font: 12px system-ui, sans-serif; }}
  .x {{ text-anchor: middle; }}
  .y, .what {{ text-anchor: end; }}
  .grid {{ stroke: #808790; stroke-opacity: .25; }}
  .line {{ fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }}
  .band {{ fill-opacity: .22; }}
  circle {{ fill: none; stroke-width: 1.6; }}
</style>
<text class="what" x="{}" y="13">{}</text>
)",
                     picture_width, height, what, picture_width - right, what) +
         legend.svg + frame_of(x, y) + drawings + "</svg>\n";
}

}  // namespace gyr
