// SPDX-License-Identifier: BSD-3-Clause
// Named timers, and their table over all ranks at the end of a run.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

class Timers {
 public:
  // All names, in the same order on every rank. The first entry is that of a step. Entries may nest in it, and each
  // includes the time of the entries inside it. A scope inside any other entry is not measured: an evaluation is one
  // entry, and its forward passes are not among those of steps.
  explicit Timers(std::vector<std::string> names);

  // Measures from here to the end of the enclosing block:   auto t = timers.scope("forward");
  class [[nodiscard]] Scope {
   public:
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Timers;
    Scope(Timers& timers, std::size_t entry);
    Timers& timers_;
    std::size_t entry_;
    bool outermost_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };
  Scope scope(std::string_view name) { return Scope(*this, find(name)); }

  const std::vector<std::string>& names() const { return names_; }
  Index calls(std::string_view name) const { return entries_[find(name)].calls; }
  double seconds(std::string_view name) const { return entries_[find(name)].seconds; }
  // Calls and seconds of every entry in turn (2 x names values), to be gathered over the ranks.
  std::vector<double> packed() const;
  void reset();

  // Both take the packed values of all ranks, rank by rank. Entries that were never used are omitted. The table shows
  // parts of `wall` seconds, the duration of the run: the `parts` entries after the first are parts of a step, all later
  // ones are outside steps. It omits entries below 0.05 %, and has one column of times if the ranks agree within 1 %.
  static std::string table(std::span<const std::string> names, std::span<const double> packed, double wall, std::size_t parts);
  static std::string json(std::span<const std::string> names, std::span<const double> packed);

 private:
  struct Entry {
    Index calls = 0;
    double seconds = 0;
  };
  std::size_t find(std::string_view name) const;

  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::optional<std::size_t> outermost_;  // entry of the outermost open scope
};

}  // namespace gyr
