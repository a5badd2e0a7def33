// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/profile.hpp"

#include <cmath>
#include <filesystem>
#include <sstream>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"

namespace gyr {

namespace {

constexpr const char* title = "kernel precision flops bytes seconds";

std::string name_of_curve(std::string_view kernel, std::string_view precision) { return fmt::format("{} {}", kernel, precision); }

double work_of(double flops, double bytes) { return flops + bytes; }

}  // namespace

void Profile::add(const Entry& e) {
  entries_.push_back(e);
  const std::string name = name_of_curve(e.kernel, e.precision);
  exact_[name][{e.flops, e.bytes}] = e.seconds;
  auto& [seconds, entries] = curves_[name][work_of(e.flops, e.bytes)];
  seconds = (seconds * entries + e.seconds) / (entries + 1);
  ++entries;
}

double Profile::seconds_of(const LaunchShape& shape, DType precision) const {
  const std::string name = name_of_curve(shape.kernel, gyr::name_of(precision));
  const auto known = exact_.find(name);
  if (known == exact_.end()) return 0;
  if (const auto found = known->second.find({shape.flops, shape.bytes}); found != known->second.end()) return found->second;
  const Curve& curve = curves_.at(name);
  const double work = work_of(shape.flops, shape.bytes);
  const auto above = curve.lower_bound(work);
  if (above == curve.end()) return std::prev(above)->second.first * work / std::prev(above)->first;
  if (above == curve.begin() || above->first == work) return above->second.first * (above->first > 0 ? work / above->first : 1);
  const auto below = std::prev(above);
  if (below->first <= 0) return above->second.first * work / above->first;
  const double part = std::log(work / below->first) / std::log(above->first / below->first);
  return below->second.first * std::pow(above->second.first / below->second.first, part);
}

std::string Profile::text() const {
  std::string text = std::string(title) + "\n";
  for (const Entry& e : entries_) text += fmt::format("{} {} {:.17g} {:.17g} {:.6g}\n", e.kernel, e.precision, e.flops, e.bytes, e.seconds);
  return text;
}

Profile Profile::parse(const std::string& text, const std::string& origin) {
  Profile profile;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  require(line == title, Exit::config, "{}:1: not a kernel profile: its first line must be `{}`; write one with gyrfalcon profile DECK --out FILE",
          origin, title);
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    Entry e;
    std::string more;
    const bool complete = bool(words >> e.kernel >> e.precision >> e.flops >> e.bytes >> e.seconds) && !(words >> more);
    require(complete && e.flops >= 0 && e.bytes >= 0 && e.seconds > 0 && std::isfinite(e.flops + e.bytes + e.seconds), Exit::config,
            "{}:{}: not a valid line of kernel, precision, flops, bytes and seconds; write the file again with gyrfalcon profile DECK --out FILE",
            origin, number);
    profile.add(e);
  }
  require(!profile.entries_.empty(), Exit::config, "{}: the profile contains no kernel; write it again with gyrfalcon profile DECK --out FILE",
          origin);
  return profile;
}

Profile Profile::read(const std::string& file) {
  std::error_code ignored;
  require(std::filesystem::exists(file, ignored), Exit::missing, "{}: profile not found; write one with gyrfalcon profile DECK --out FILE", file);
  return parse(text_of_file(file, std::size_t(64) << 20), file);
}

}  // namespace gyr
