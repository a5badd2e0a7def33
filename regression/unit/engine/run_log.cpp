// SPDX-License-Identifier: BSD-3-Clause
// Rates in the run log. Tokens per second count the tokens of all ranks, FLOP/s are per rank, and MFU is the FLOP/s as
// a fraction of the peak of a rank.
#include "src/train/run_log.hpp"

#include <fstream>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/base/json.hpp"

namespace gyr::testing::run_log_suite {
namespace {

Json logged(const Folder& folder, int ranks) {
  const std::filesystem::path output = folder / std::to_string(ranks);
  std::filesystem::create_directories(output);
  const std::vector<std::string> changes{"output.folder=" + output.string()};
  Deck deck = Deck::parse("train: {seq_length: 50, steps: 9}\nmodel: {pattern: P x 2, hidden_size: 64}\n", "test.yaml", changes);
  const RunConfig run = read_run_config(deck);
  deck.finish();
  StepReport report;
  report.step = 9, report.steps = 9, report.global_batch_size = 12, report.seconds = 0.25, report.loss = 1;
  CheckpointHeader at;
  at.step = 8, at.samples = 96;
  RunLog(run, at, {ranks, 3e12, 0}).step(report);
  std::ifstream lines(output / "metrics.jsonl");
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(json_in(line).at("kind"), "start");
  EXPECT_EQ(json_in(line).at("ranks"), ranks);
  std::getline(lines, line);
  const double each = training_flops(run.model, 50, {}) * 12 * 50 / 0.25 / ranks;
  const Json json = json_in(line);
  EXPECT_NEAR(json.at("tflops_per_rank").get<double>() * 1e12, each, 1e-9 * each);
  EXPECT_NEAR(json.at("mfu").get<double>(), each / 3e12, 1e-9 * each / 3e12);
  return json;
}

TEST(run_log, flops_are_per_rank_and_tokens_are_global) {
  const Folder folder;
  const Json one = logged(folder, 1), six = logged(folder, 6);
  EXPECT_EQ(one.at("tokens_per_second").get<double>(), 2400);
  EXPECT_EQ(six.at("tokens_per_second").get<double>(), 2400);
  EXPECT_NEAR(one.at("mfu").get<double>(), 6 * six.at("mfu").get<double>(), 1e-9);
}

TEST(run_log, rate_above_the_peak_gives_no_mfu) {
  for (const double part : {0.9, 1.1}) {  // peak divided by the rate of the steps
    const Folder folder;
    const std::vector<std::string> changes{"output.folder=" + folder.path().string()};
    Deck deck = Deck::parse("train: {seq_length: 50, steps: 9}\nmodel: {pattern: P x 2, hidden_size: 64}\n", "test.yaml", changes);
    const RunConfig run = read_run_config(deck);
    StepReport report;
    report.step = 1, report.steps = 9, report.global_batch_size = 12, report.seconds = 0.25, report.loss = 1;
    RunLog log(run, {}, {1, part * training_flops(run.model, 50, {}) * 12 * 50 / 0.25, 0});
    ::testing::internal::CaptureStdout();
    log.step(report), log.step(report);
    const std::string text = ::testing::internal::GetCapturedStdout();
    const auto note = text.find("more than the GEMM rate");
    EXPECT_EQ(note != text.npos, part < 1) << text;
    EXPECT_TRUE(note == text.npos || text.find("more than the GEMM rate", note + 1) == text.npos) << "logged once";
    EXPECT_EQ(text.find("MFU 90.9%") != text.npos, part > 1) << text;
    EXPECT_EQ(text.find("MFU 111"), text.npos) << text;
  }
}

}  // namespace
}  // namespace gyr::testing::run_log_suite
