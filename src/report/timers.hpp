// SPDX-License-Identifier: BSD-3-Clause
// Named timers, and their table over all ranks at the end of a run.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

class Timers {
 public:
  // All names, in the same order on every rank. The first entry is the total that percentages refer to. Entries may
  // nest; each includes the time of the entries inside it.
  explicit Timers(std::vector<std::string> names);

  // Measures from here to the end of the enclosing block:   auto t = timers.scope("forward");
  class [[nodiscard]] Scope {
   public:
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Timers;
    Scope(Timers& timers, std::size_t entry) : timers_(timers), entry_(entry) {}
    Timers& timers_;
    std::size_t entry_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };
  Scope scope(std::string_view name) { return Scope(*this, find(name)); }
  void add(std::string_view name, double seconds);  // adds one call with this duration

  const std::vector<std::string>& names() const { return names_; }
  Index calls(std::string_view name) const { return entries_[find(name)].calls; }
  double seconds(std::string_view name) const { return entries_[find(name)].seconds; }
  // Calls and seconds of every entry in turn (2 x names values), to be gathered over the ranks.
  std::vector<double> packed() const;
  void reset();

  // Both take the packed values of all ranks, rank by rank. Entries that were never used are omitted.
  static std::string table(std::span<const std::string> names, std::span<const double> packed);
  static std::string json(std::span<const std::string> names, std::span<const double> packed);

 private:
  struct Entry {
    Index calls = 0;
    double seconds = 0;
  };
  std::size_t find(std::string_view name) const;

  std::vector<std::string> names_;
  std::vector<Entry> entries_;
};

}  // namespace gyr
