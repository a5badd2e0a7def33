// SPDX-License-Identifier: BSD-3-Clause
// Training in bf16 with fp32 accumulation and fp32 master weights must reach the loss of fp32: the deck of `make run`,
// on its text, for fewer steps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "regression/support/material.hpp"

namespace gyr::testing::precision_suite {

using namespace gyr::testing;

namespace {

const std::filesystem::path dictionary = "/usr/share/dictd/gcide.dict.dz";

class precision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(dictionary)) GTEST_SKIP() << dictionary << " is not here (Debian package dict-gcide)";
    folder_ = std::filesystem::temp_directory_path() / ("gyrfalcon-precision-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const std::string text = folder_ / "text.txt", tokens = folder_ / "tokenizer.json";
    ASSERT_EQ(std::system(("gzip -dc " + dictionary.string() + " | head -c 6000000 | tail -c 5900000 > " + text).c_str()), 0);
    ASSERT_EQ(run({"tokenizer", "train", tokens, text, "--vocab-size", "4096", "--documents", "separator"}).code, 0);
    ASSERT_EQ(run({"data", "build", text, folder_ / "text", "--tokenizer", tokens, "--documents", "separator"}).code, 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string tokenizer() const { return "data.tokenizer=" + (folder_ / "tokenizer.json").string(); }

  // Loss on held-out text after `steps` steps of the deck.
  double validation_loss(const std::string& name, int steps) {
    const std::string count = std::to_string(steps), output = folder_ / name;
    const Result r = run({"train", GYR_SOURCE_DIR "/input/demo.yaml", "train.precision=" + name, "train.steps=" + count, "train.eval_every=" + count,
                          "data.prefixes=[" + (folder_ / "text").string() + "]", tokenizer(), "data.split=90,10", "output.folder=" + output},
                         {.ranks = 2, .limit = 300});
    EXPECT_EQ(r.code, 0) << r.err;
    const auto validations = metrics(output, "validation");
    return validations.empty() ? NAN : double(validations.back().at("loss"));
  }

  std::filesystem::path folder_;
};

TEST_F(precision, bf16_learns_what_fp32_learns) {
  constexpr int steps = 60;
  const double narrow = validation_loss("bf16", steps), wide = validation_loss("fp32", steps);
  std::printf("validation loss after %d steps: fp32 %.4f, bf16 %.4f\n", steps, wide, narrow);
  EXPECT_LT(wide, 6.5);  // below ln 4096 = 8.3, the loss of an untrained model
  EXPECT_NEAR(narrow, wide, 0.01 * wide);
}

// From the start of the program to the end of the first step, including its checkpoint. CPU time is measured, because
// the machine may be shared.
TEST_F(precision, first_step_of_demo_takes_under_two_seconds) {
  const Result r = run({"train", GYR_SOURCE_DIR "/input/demo.yaml", "train.steps=1", "train.eval_every=0",
                        "data.prefixes=[" + (folder_ / "text").string() + "]", tokenizer(), "output.folder=" + (folder_ / "first").string()},
                       {.ranks = 2});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_LT(r.cpu_seconds / 2, 2 * slowness) << r.seconds << " s by the clock";
}

}  // namespace

}  // namespace gyr::testing::precision_suite
