// SPDX-License-Identifier: BSD-3-Clause
// Trials of one law, counted: a trial that no expectation failed in has survived. At the end a line says how many, of which
// regression/faults.sh makes a table.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

namespace gyr::testing {

class Trials {
 public:
  // What is done to a run or to a file, in a few words.
  explicit Trials(std::string what) : what_(std::move(what)) {}
  Trials(const Trials&) = delete;
  ~Trials() {
    EXPECT_GT(tried_, 0) << what_;
    std::printf("TRIALS | %s | %d | %d\n", what_.c_str(), tried_, survived_);
    std::fflush(stdout);
  }

  // An ASSERT in it ends this trial, not the next ones.
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
