// SPDX-License-Identifier: BSD-3-Clause
// Where the time went: named stopwatches, and the table over ranks at the end of a run.
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
  // All names, in the same order on every rank. The first is the whole: percentages refer to it. Names may nest in each
  // other; each counts all the time inside it.
  explicit Timers(std::vector<std::string> names);

  // Counts from here to the end of the enclosing block:   auto t = timers.scope("forward");
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
  void add(std::string_view name, double seconds);  // one call that took so long

  const std::vector<std::string>& names() const { return names_; }
  Index calls(std::string_view name) const { return entries_[find(name)].calls; }
  double seconds(std::string_view name) const { return entries_[find(name)].seconds; }
  // calls and seconds of every name in turn: 2 x names numbers, to be gathered over the ranks.
  std::vector<double> packed() const;
  void reset();

  // Both from the packed numbers of all ranks, one rank after the other: names never used are left out.
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
