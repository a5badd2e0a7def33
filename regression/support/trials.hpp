// SPDX-License-Identifier: BSD-3-Clause
// Counts repeated trials of one property. A trial has passed if none of its expectations failed. The final line is the
// input of the table in regression/faults.sh.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

namespace gyr::testing {

class Trials {
 public:
  // `what` is a short description of the disturbance, e.g. the fault that is injected.
  explicit Trials(std::string what) : what_(std::move(what)) {}
  Trials(const Trials&) = delete;
  ~Trials() {
    EXPECT_GT(tried_, 0) << what_;
    std::printf("TRIALS | %s | %d | %d\n", what_.c_str(), tried_, survived_);
    std::fflush(stdout);
  }

  // Runs one trial. A failed ASSERT ends only this trial.
  template <class F>
  void attempt(F&& trial) {
    const int before = failures();
    ++tried_;
    trial();
    survived_ += failures() == before;
  }

 private:
  static int failures() {
    const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
    int count = 0;
    for (int i = 0; i < result.total_part_count(); ++i) count += result.GetTestPartResult(i).failed();
    return count;
  }

  std::string what_;
  int tried_ = 0, survived_ = 0;
};

}  // namespace gyr::testing
