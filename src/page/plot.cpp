// SPDX-License-Identifier: BSD-3-Clause
#include "src/page/plot.hpp"

#include <algorithm>

namespace gyr {

void PlotAxis::take(const std::vector<double>& values) {
  for (const double v : values) least = std::min(least, v), most = std::max(most, v);
}

void PlotAxis::widen() {
  if (!(most > least)) least -= 0.5 + std::abs(least) / 100, most += 0.5 + std::abs(most) / 100;
}

// Halves are subtracted, because the difference of two large values may overflow a double.
double PlotAxis::operator()(double value) const { return from + (value / 2 - least / 2) / (most / 2 - least / 2) * (to - from); }

std::vector<double> PlotAxis::ticks(int count, double finest) const {
  const double rough = (most - least) / count, unit = std::pow(10, std::floor(std::log10(rough)));
  double step = unit;
  for (const double times : {2, 5, 10})
    if (step < rough) step = times * unit;
  step = std::max(step, finest);
  std::vector<double> at;
  if (!std::isfinite(step)) return {least, most};
  for (double t = std::ceil(least / step); t * step <= most + 1e-9 * step && at.size() < 20; ++t) at.push_back(t * step);
  return at;
}

std::string path_data(const PlotAxis& x, const PlotAxis& y, const std::vector<double>& at, const std::vector<double>& value, char begin) {
  std::string d;
  for (std::size_t i = 0; i < at.size(); ++i) d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? begin : 'L', x(at[i]), y(value[i]));
  return d;
}

std::string band_data(const PlotAxis& x, const PlotAxis& y, const std::vector<double>& at, const std::vector<double>& least,
                      const std::vector<double>& most) {
  const std::vector<double> back(at.rbegin(), at.rend()), lowest(least.rbegin(), least.rend());
  return path_data(x, y, at, most, 'M') + path_data(x, y, back, lowest, 'L') + "Z";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

}  // namespace gyr
