// SPDX-License-Identifier: BSD-3-Clause
// Accuracy and F1 equal those of direct counting on random rows. Classes that no row has or is assigned to are left out
// of the macro mean.
#include "src/evaluation/class_counts.hpp"

#include <gtest/gtest.h>

#include <random>

#include "modules/objectives/classes.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::class_counts_suite {
namespace {

TEST(class_counts, accuracy_and_f1_equal_direct_counting) {
  const unsigned seed = seed_of_run();
  std::mt19937 random(seed);
  for (const Index classes : {2, 5, 40}) {
    ClassCounts counts(numbered_classes(classes));
    std::vector<std::pair<Index, Index>> rows;
    for (int r = 0; r < 100; ++r) {
      const Index is = random() % classes;
      rows.emplace_back(is, random() % 2 ? is : Index(random() % classes));
      counts.add(rows.back().first, rows.back().second);
    }
    double right = 0, sum = 0, met = 0;
    for (const auto& [is, taken] : rows) right += is == taken;
    for (Index c = 0; c < classes; ++c) {
      double true_positives = 0, false_positives = 0, false_negatives = 0;
      for (const auto& [is, taken] : rows)
        true_positives += is == c && taken == c, false_positives += is != c && taken == c, false_negatives += is == c && taken != c;
      const double all = true_positives + (false_positives + false_negatives) / 2, f1 = all > 0 ? true_positives / all : 0;
      EXPECT_DOUBLE_EQ(counts.f1(c), f1) << "seed " << seed;
      sum += f1, met += all > 0;
    }
    EXPECT_DOUBLE_EQ(counts.accuracy(), right / 100) << "seed " << seed;
    EXPECT_DOUBLE_EQ(counts.macro_f1(), sum / met) << "seed " << seed;
    EXPECT_DOUBLE_EQ(counts.micro_f1(), right / 100) << "seed " << seed;
    setenv("COLUMNS", "400", 1);  // titles wrap in narrower tables
    EXPECT_EQ(counts.text().find("predicted as") != std::string::npos, classes <= 16);
    unsetenv("COLUMNS");
  }
}

TEST(class_counts, absent_class_is_left_out_of_mean) {
  ClassCounts counts({"a", "b", "c"});
  counts.add(0, 0), counts.add(0, 1);
  EXPECT_DOUBLE_EQ(counts.f1(0), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.macro_f1(), (2.0 / 3 + 0) / 2);
  EXPECT_NE(counts.text().find("accuracy 0.500000"), std::string::npos) << counts.text();
}

}  // namespace
}  // namespace gyr::testing::class_counts_suite
