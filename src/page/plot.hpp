// SPDX-License-Identifier: BSD-3-Clause
// Parts of plots that are drawn as SVG without a script: axes with round ticks, paths, and text that is safe in HTML and SVG.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// An axis: the range of its values, and the range of positions in the picture.
struct PlotAxis {
  double least = INFINITY, most = -INFINITY, from = 0, to = 0;

  void take(const std::vector<double>& values);
  void widen();  // gives a range to an axis whose values are all equal
  double operator()(double value) const;
  // About `count` round values for the labels of the axis, at a distance of `finest` or more.
  std::vector<double> ticks(int count, double finest) const;
};

// Path data through the points, which begins with the command `begin`.
std::string path_data(const PlotAxis& x, const PlotAxis& y, const std::vector<double>& at, const std::vector<double>& value, char begin);
// Path data of the closed area between two curves over the same points.
std::string band_data(const PlotAxis& x, const PlotAxis& y, const std::vector<double>& at, const std::vector<double>& least,
                      const std::vector<double>& most);

// Replaces the characters & < > " by entities, so that text becomes no markup, neither in an element nor in an attribute.
std::string escaped(std::string_view text);

}  // namespace gyr
