// SPDX-License-Identifier: BSD-3-Clause
// What kernels have taken on a machine, by shape: the table that `gyrfalcon profile DECK --out FILE` writes and `gyrfalcon plan --profile FILE`
// reads. Of a kernel that was measured in other shapes than the wanted one, seconds follow a power of its work between the two nearest, and beyond
// all of them grow with the work.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

class Profile {
 public:
  struct Entry {
    std::string kernel, precision;
    double flops, bytes, seconds;  // of a launch
  };

  void add(const Entry&);
  // Of a launch; 0: the kernel was not measured in this precision.
  double seconds_of(const LaunchShape&, DType precision) const;
  const std::vector<Entry>& entries() const { return entries_; }

  std::string text() const;
  // Exit::missing, or Exit::config with file:line.
  static Profile read(const std::string& file);
  static Profile parse(const std::string& text, const std::string& origin);

 private:
  // By work: flops and bytes together, as a kernel is bound by the one or the other.
  using Curve = std::map<double, std::pair<double, int>>;  // seconds, and of how many entries they are the mean
  std::vector<Entry> entries_;
  std::map<std::string, Curve> curves_;                                       // by kernel and precision
  std::map<std::string, std::map<std::pair<double, double>, double>> exact_;  // the same: by flops and bytes
};

}  // namespace gyr
