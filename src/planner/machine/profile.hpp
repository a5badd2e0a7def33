// SPDX-License-Identifier: BSD-3-Clause
// Measured kernel times of a machine, by shape: the table that `gyrfalcon profile DECK --out FILE` writes and
// `gyrfalcon plan --profile FILE` reads. For a shape that was not measured, seconds are interpolated between the two
// nearest shapes by a power law of the work. Outside the measured range, seconds are proportional to the work.
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
    double flops, bytes, seconds;  // of one launch: floating-point operations, bytes moved, seconds
  };

  void add(const Entry&);
  // Seconds of one launch; 0 if the kernel was not measured in this precision.
  double seconds_of(const LaunchShape&, DType precision) const;
  const std::vector<Entry>& entries() const { return entries_; }

  std::string text() const;
  // Throws Exit::missing, or Exit::config with file:line.
  static Profile read(const std::string& file);
  static Profile parse(const std::string& text, const std::string& origin);

 private:
  // Seconds by work. Work is flops + bytes, because a kernel is bound by one or the other.
  using Curve = std::map<double, std::pair<double, int>>;  // mean seconds, and the number of entries in the mean
  std::vector<Entry> entries_;
  std::map<std::string, Curve> curves_;                                       // times by kernel and precision
  std::map<std::string, std::map<std::pair<double, double>, double>> exact_;  // by kernel and precision, then by flops and bytes
};

}  // namespace gyr
