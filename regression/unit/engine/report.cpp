// SPDX-License-Identifier: BSD-3-Clause
// Reports of a run: log lines that scripts can parse, files that other programs can read, and log files without control
// characters.
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"
#include "src/base/json.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/report/json_lines.hpp"
#include "src/report/open_metrics.hpp"
#include "src/report/progress.hpp"
#include "src/report/summary.hpp"
#include "src/report/tensorboard.hpp"
#include "src/report/timers.hpp"
#include "src/report/transfer.hpp"

namespace gyr::testing::report_suite {

namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  const fs::path path = fs::temp_directory_path() / ("gyr_report_" + std::to_string(getpid()));
};

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

StepReport step(Index n, double time = 1.7e9) {
  StepReport r;
  r.time = time;
  r.step = n;
  r.steps = 500;
  r.samples = 256 * n;
  r.tokens = 256 * 2048 * n;
  r.global_batch_size = 256;
  r.seconds = 1.2345;
  r.tokens_per_second = 424706.0;
  r.tflops = 412.3;
  r.mfu = 0.417;
  r.learning_rate = 1.5e-4;
  r.loss = 2.345678;
  r.grad_norm = 0.1234;
  r.memory_bytes = Index(3) << 20;
  r.seconds_left = 3725;
  return r;
}

// Text that a Progress object has written after `use` has called it.
template <class Use>
std::string written(ProgressStyle style, Use&& use) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  {
    Progress progress(out, style);
    use(progress);
  }
  std::fclose(out);
  const std::string copy(text, size);
  std::free(text);
  return copy;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// ---- minimal reader of TensorBoard event files (protobuf) ----

std::uint64_t read_number(std::string_view& bytes, std::size_t size) {
  if (bytes.size() < size) throw std::runtime_error("the record is truncated");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t(std::uint8_t(bytes[i])) << (8 * i);
  bytes.remove_prefix(size);
  return value;
}

std::uint64_t read_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint64_t byte = read_number(bytes, 1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view read_bytes(std::string_view& bytes, std::size_t size) {
  if (bytes.size() < size) throw std::runtime_error("the record is truncated");
  const std::string_view part = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return part;
}

struct Message {
  std::map<int, std::uint64_t> numbers;
  std::map<int, std::string_view> parts;
  double real(int field) const { return std::bit_cast<double>(numbers.at(field)); }
  float real32(int field) const { return std::bit_cast<float>(std::uint32_t(numbers.at(field))); }
};

Message message(std::string_view bytes) {
  Message m;
  while (!bytes.empty()) {
    const std::uint64_t key = read_varint(bytes);
    switch (key & 7) {
      case 0: m.numbers[int(key >> 3)] = read_varint(bytes); break;
      case 1: m.numbers[int(key >> 3)] = read_number(bytes, 8); break;
      case 2: m.parts[int(key >> 3)] = read_bytes(bytes, read_varint(bytes)); break;
      case 5: m.numbers[int(key >> 3)] = read_number(bytes, 4); break;
      default: throw std::runtime_error("unknown protobuf wire type");
    }
  }
  return m;
}

// Masked CRC-32C of a TensorFlow record, computed from its definition: the CRC with the Castagnoli polynomial bit by
// bit, rotated right by 15 bits, plus a constant.
std::uint32_t record_sum(std::string_view bytes) {
  std::uint32_t remainder = 0xffffffff;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool subtract = (remainder ^ (std::uint8_t(byte) >> bit)) & 1;
      remainder = (remainder >> 1) ^ (subtract ? 0x82f63b78u : 0);
    }
  remainder = ~remainder;
  return (remainder >> 15 | remainder << 17) + 0xa282ead8u;
}

std::vector<Message> events(std::string_view file) {
  std::vector<Message> all;
  while (!file.empty()) {
    const std::string_view length = file.substr(0, 8);
    const std::size_t size = read_number(file, 8);
    EXPECT_EQ(read_number(file, 4), record_sum(length));
    const std::string_view payload = read_bytes(file, size);
    EXPECT_EQ(read_number(file, 4), record_sum(payload));
    all.push_back(message(payload));
  }
  return all;
}

}  // namespace

TEST(report, log_lines_keep_the_field_order_for_scripts) {
  StepReport r = step(100);
  r.params_norm = 99.9;
  const std::regex order(R"( \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] iteration +100/ +500 \| consumed samples: +25600 \|)"
                         R"( elapsed time per iteration \(ms\): 1234\.5 \| throughput per GPU \(TFLOP/s/GPU\): 412\.300 \|)"
                         R"( learning rate: 1\.500000E-04 \| global batch size: +256 \| lm loss: 2\.345678E\+00 \|)"
                         R"( loss scale: 1\.0 \| grad norm: 0\.123 \| params norm: 99\.900 \|)"
                         R"( number of skipped iterations: +0 \| number of nan iterations: +0 \|)"
                         R"( tokens per second: 424706\.0 \| MFU \(%\): 41\.70 \| memory \(MiB\): 3\.0 \|)"
                         R"( time left: 1:02:05 \|)");
  EXPECT_TRUE(std::regex_match(megatron_line(r), order)) << megatron_line(r);
  r.params_norm.reset();
  r.mfu.reset();
  EXPECT_EQ(megatron_line(r).find("params norm"), std::string::npos);
  EXPECT_EQ(megatron_line(r).find("MFU"), std::string::npos);
  EXPECT_EQ(validation_line({.time = 0, .step = 100, .samples = 1, .loss = 2.0}, LogFormat::megatron),
            " validation loss at iteration 100 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 |");
  EXPECT_EQ(
      validation_line({.time = 0, .step = 100, .samples = 1, .loss = 2.0, .figures = {{"accuracy", 0.5}, {"macro F1", 0.25}, {"micro F1", 0.75}}},
                      LogFormat::megatron),
      " validation loss at iteration 100 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | accuracy: 0.5000 | macro F1: 0.2500 |"
      " micro F1: 0.7500 |");
}

// The MTP loss of a depth has no value if every document is too short for a target token at that depth.
TEST(report, mtp_loss_without_target_tokens_is_none) {
  StepReport r = step(300);
  r.mtp_losses = {1.5, std::nullopt};
  EXPECT_NE(megatron_line(r).find("| mtp_1 loss: 1.500000E+00 | mtp_2 loss: none |"), std::string::npos) << megatron_line(r);
  r.mfu.reset();  // leaves room for one more field
  EXPECT_TRUE(short_line(r).ends_with("left 1:02:05  mtp_1 loss 1.5000")) << short_line(r);
  const Folder folder;
  TensorBoard(folder.path / "tb", 1.7e9, std::nullopt).write(r);
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path))
    if (entry.is_regular_file()) all += content(entry.path());
  EXPECT_NE(all.find("mtp_1 loss"), std::string::npos);
  EXPECT_EQ(all.find("mtp_2 loss"), std::string::npos);
}

TEST(report, log_file_has_no_control_characters) {
  const std::string log = written({.every = 10, .format = LogFormat::megatron}, [](Progress& p) {
    for (Index n = 1; n <= 25; ++n) p.show(step(n));
    p.show(ValidationReport{.time = 0, .step = 25, .samples = 1, .loss = 3});
    p.print_line("saved");
    StepReport last = step(500);
    last.loss = NAN;
    p.show(last);
  });
  for (const char c : log) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int(c);
  EXPECT_EQ(count(log, "\n"), 6u) << log;  // lines for steps 1, 10, 20 and 500, the validation and "saved"
  EXPECT_TRUE(log.starts_with("step 1/500  ")) << "scripts for Megatron-LM's log pass over the line against silence: " << log;
  EXPECT_EQ(count(log, "] iteration "), 3u);
  EXPECT_NE(log.find("lm loss: NAN"), std::string::npos) << log;
}

TEST(report, terminal_line_is_redrawn_ten_times_a_second) {
  const auto run = [](Progress& p) {
    for (Index n = 1; n <= 500; ++n) p.show(step(n, 1.7e9 + 0.01 * double(n)));  // 500 steps in 5 seconds
  };
  const std::string screen = written({.live = true, .colour = true, .width = 100}, run);
  EXPECT_EQ(count(screen, "\n"), 1u);
  EXPECT_LE(count(screen, "\r"), 52u);
  EXPECT_GE(count(screen, "\r"), 40u);
  EXPECT_NE(screen.find("step 500/500"), std::string::npos);
  EXPECT_EQ(count(screen, "\x1b[32m") + 1, count(screen, "\r"));               // the plain line of the last step replaces the live one
  EXPECT_EQ(count(written({.live = true, .width = 100}, run), "\x1b[3"), 0u);  // no colour codes
}

TEST(report, other_lines_do_not_break_the_live_line) {
  const std::string screen = written({.live = true, .width = 100}, [](Progress& p) {
    p.show(step(1));
    p.print_line("saved");
  });
  const std::string line = live_line(step(1), 100, false), erase = "\r\x1b[K";
  EXPECT_EQ(screen, erase + line + erase + "saved\n" + line + "\n");
}

TEST(report, last_step_replaces_the_live_line) {
  const std::string screen = written({.live = true, .width = 100}, [](Progress& p) {
    p.show(step(499));
    p.show(step(500, 1.7e9 + 0.01));
    p.print_line("table");
  });
  const std::string erase = "\r\x1b[K";
  EXPECT_EQ(screen, erase + live_line(step(499), 100, false) + erase + short_line(step(500)) + "\ntable\n");
}

TEST(report, live_line_fits_the_terminal_width) {
  for (int width = 0; width < 200; ++width) EXPECT_LT(int(live_line(step(77), width, false).size()), std::max(width, 1));
  for (const char* part : {"step 77/500 [====>", "loss 2.3457", "425k tokens/s", "MFU 41.7%", "left 1:02:05"})
    EXPECT_NE(live_line(step(77), 140, false).find(part), std::string::npos) << part;
}

TEST(report, narrow_terminals_show_the_most_important_fields) {
  EXPECT_NE(live_line(step(77), 140, false).find("tokens  loss 2.3457  norm 0.123  lr 1.50e-04  425k tokens/s  MFU 41.7%  1.23 s  left 1:02:05"),
            std::string::npos)
      << live_line(step(77), 140, false);
  const std::string narrow = live_line(step(77), 80, false);
  for (const char* part : {"[==>", "loss 2.3457", "425k tokens/s", "left 1:02:05"}) EXPECT_NE(narrow.find(part), std::string::npos) << narrow;
  EXPECT_EQ(narrow.find("norm"), std::string::npos) << narrow;
}

TEST(report, short_line_has_at_most_120_characters) {
  StepReport r = step(100);
  r.tokens = 26214400;
  EXPECT_EQ(short_line(r), "step 100/500  26.2M tokens  loss 2.3457  norm 0.123  lr 1.50e-04  425k tokens/s  MFU 41.7%  1.23 s  left 1:02:05");
  r.step = 999999, r.steps = 1000000, r.tokens = 15700000000000, r.loss = 12.3456, r.grad_norm = 12345.6, r.seconds_left = 4 * 86400 + 3600;
  r.skipped = 1234, r.mtp_losses = {1.5, 2.5, 3.5}, r.expert_load = 1.25;
  const std::string line = short_line(r);
  EXPECT_LE(line.size(), 120u) << line;
  for (const char* part : {"step 999999/1000000 ", "15.7T tokens", "loss 12.346", "norm 1.23e+04", "lr ", "tokens/s", "MFU", "left 4d 01:00:00"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
}

// Under mpiexec, standard output of the first rank is a pipe.
TEST(report, pipe_shows_progress_every_30_seconds) {
  const std::string log = written({.every = 1000}, [](Progress& p) {
    for (Index n = 1; n <= 100; ++n) p.show(step(n, 1.7e9 + double(n)));
  });
  EXPECT_EQ(count(log, "\n"), 4u) << log;
  for (const char* part : {"step 1/500 ", "step 31/500 ", "step 61/500 ", "step 91/500 "}) EXPECT_EQ(count(log, part), 1u) << log;
  const std::string often = written({.every = 20}, [](Progress& p) {
    for (Index n = 1; n <= 100; ++n) p.show(step(n, 1.7e9 + double(n)));
  });
  EXPECT_EQ(count(often, "\n"), 6u) << "step 1 and every 20th: " << often;
}

TEST(report, unknown_progress_style_is_refused) {
  setenv("GYR_PROGRESS", "banana", 1);
  try {
    progress_style(stdout, 1);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::usage);
    EXPECT_NE(std::string(error.what()).find("GYR_PROGRESS=banana: must be live or plain"), std::string::npos) << error.what();
  }
  unsetenv("GYR_PROGRESS");
}

TEST(report, quantities_have_units_that_suit_the_value) {
  EXPECT_EQ(time_text(0.0605), "60.5 ms");
  EXPECT_EQ(time_text(1.7604), "1.76 s");
  EXPECT_EQ(time_text(1.7604, 4), "1.760 s");
  EXPECT_EQ(time_text(0.9996), "1.00 s");
  EXPECT_EQ(time_text(9.996e-6), "10.0 us");
  EXPECT_EQ(time_text(0), "0.00 s");
  EXPECT_EQ(time_text(323.69), "324 s");
  EXPECT_EQ(time_text(NAN), "-");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(3.1 * (1 << 30)), "3.1 GiB");
  EXPECT_EQ(bytes_text(double((1 << 20) - 1)), "1.0 MiB");
  EXPECT_EQ(metric_text(1.12e6, " tokens/s"), "1.12 M tokens/s");
  EXPECT_EQ(metric_text(850, " tokens/s"), "850 tokens/s");
  EXPECT_EQ(metric_text(2.09178e17, "FLOP"), "209 PFLOP");
  EXPECT_EQ(metric_text(4.4e15, "FLOP"), "4.40 PFLOP");
  EXPECT_EQ(metric_text(12.5, "B/s"), "12.5 B/s");
  EXPECT_EQ(short_count(1638400), "1.64M");
  const Unit unit = time_unit(0.25);
  EXPECT_EQ(unit(0.0012) + " " + unit.name, "1 ms");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "micro-batch", "micro-batches"), "0 micro-batches");
}

TEST(report, pipes_and_files_are_not_terminals) {
  unsetenv("GYR_PROGRESS");
  std::FILE* file = std::tmpfile();
  EXPECT_FALSE(progress_style(file, 1).live);
  setenv("GYR_PROGRESS", "live", 1);
  EXPECT_TRUE(progress_style(file, 1).live);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(progress_style(file, 1).colour);
  setenv("GYR_PROGRESS", "plain", 1);
  EXPECT_FALSE(progress_style(file, 1).live);
  unsetenv("GYR_PROGRESS");
  unsetenv("NO_COLOR");
  std::fclose(file);
}

TEST(report, durations_are_formatted_as_clock_times) {
  EXPECT_EQ(duration(0), "0:00:00");
  EXPECT_EQ(duration(59.6), "0:01:00");
  EXPECT_EQ(duration(3725), "1:02:05");
  EXPECT_EQ(duration(4 * 86400 + 3725), "4d 01:02:05");
  EXPECT_EQ(duration(NAN), "unknown");
  EXPECT_EQ(duration(-1), "unknown");
  EXPECT_EQ(duration(INFINITY), "unknown");
}

TEST(report, json_accepts_any_bytes_and_discards_truncated_lines) {
  EXPECT_EQ(json_text({{"file",
                        "a\xff"
                        "b"},
                       {"loss", std::nan("")},
                       {"step", 3}}),
            "{\"file\":\"a\xef\xbf\xbd"
            "b\",\"loss\":null,\"step\":3}");
  const double third = 1.0 / 3;
  EXPECT_EQ(json_in(json_text({{"x", third}})).at("x").get<double>(), third);
  EXPECT_TRUE(json_in("{\"step\": 3, \"lo").is_discarded());
  EXPECT_TRUE(json_of_file("not there").is_discarded());
}

TEST(report, json_lines_hold_the_reported_values) {
  const Folder folder;
  const fs::path file = folder.path / "steps.jsonl";
  std::ofstream(file) << R"({"kind":"step","step":1,"lo)";  // truncated last line of a killed run
  {
    JsonLines lines(file);
    StepReport r = step(2);
    r.loss = NAN;
    r.grad_norm = INFINITY;
    lines.write(r);
    EXPECT_EQ(count(content(file), "\n"), 2u);  // each line is flushed at once
    r.loss = 0.1 + 0.2;
    r.mtp_losses = {1.5, std::nullopt};
    lines.write(r);
    lines.write(
        ValidationReport{.time = 1, .step = 2, .samples = 512, .loss = 1, .figures = {{"accuracy", 0.5}, {"macro F1", 0.25}, {"micro F1", 0.75}}});
  }
  std::istringstream in(content(file));
  std::string truncated, first, second, third;
  std::getline(in, truncated), std::getline(in, first), std::getline(in, second), std::getline(in, third);
  const auto a = nlohmann::json::parse(first), b = nlohmann::json::parse(second), c = nlohmann::json::parse(third);
  EXPECT_TRUE(a["loss"].is_null() && a["grad_norm"].is_null() && a["params_norm"].is_null());
  EXPECT_EQ(b["loss"].get<double>(), 0.1 + 0.2);  // equal to the last bit
  EXPECT_EQ(b["consumed_tokens"].get<Index>(), 2 * 256 * 2048);
  EXPECT_EQ(b["mfu"].get<double>(), 0.417);
  EXPECT_EQ(b["mtp_losses"], nlohmann::json::parse("[1.5, null]"));
  EXPECT_FALSE(a.contains("mtp_losses"));
  EXPECT_EQ(b["step"].get<Index>(), 2);
  EXPECT_EQ(c["kind"], "validation");
  EXPECT_EQ(c["perplexity"].get<double>(), std::exp(1.0));
  EXPECT_EQ(c["accuracy"].get<double>(), 0.5);
  EXPECT_EQ(c["macro_f1"].get<double>(), 0.25);
  EXPECT_THROW(JsonLines(folder.path / "no" / "such" / "folder"), Error);
}

TEST(report, write_to_a_full_disk_is_an_error) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  try {
    JsonLines("/dev/full").line("{}");
    ADD_FAILURE() << "a write to a full disk reported no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::io);
  }
}

TEST(report, crc32c_agrees_with_published_vectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
  std::string ascending, descending;
  for (char byte = 0; byte < 32; ++byte) ascending += byte, descending.insert(descending.begin(), byte);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);   // RFC 3720, B.4
  EXPECT_EQ(crc32c(descending), 0x113fdb5cu);  // RFC 3720, B.4
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
}

TEST(report, tensorboard_files_decode_to_what_was_written) {
  const Folder folder;
  TensorBoard board(folder.path / "tb", 1.7e9, std::nullopt);
  board.write(step(300));
  board.write(ValidationReport{.time = 2, .step = 300, .samples = 5, .loss = 1});
  std::map<std::string, std::pair<Index, float>> scalars;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path)) {  // read while `board` is still open
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_NE(entry.path().filename().string().find(".tfevents."), std::string::npos);
    const std::string bytes = content(entry.path());
    const auto all = events(bytes);
    EXPECT_EQ(all.at(0).parts.at(3), "brain.Event:2");
    EXPECT_EQ(all.at(0).real(1), 1.7e9);
    for (std::size_t i = 1; i < all.size(); ++i) {
      EXPECT_FALSE(all[i].parts.contains(7));
      const Message value = message(message(all[i].parts.at(5)).parts.at(1));
      scalars[std::string(value.parts.at(1))] = {Index(all[i].numbers.at(2)), value.real32(2)};
    }
  }
  EXPECT_EQ(files, 2);
  const std::map<std::string, std::pair<Index, float>> expected = {
      {"lm loss", {300, 2.345678f}},       {"lm loss vs samples", {76800, 2.345678f}},
      {"learning-rate", {300, 1.5e-4f}},   {"grad-norm", {300, 0.1234f}},
      {"batch-size", {300, 256.0f}},       {"throughput", {300, 412.3f}},
      {"iteration-time", {300, 1.2345f}},  {"mfu", {300, 0.417f}},
      {"lm loss validation", {300, 1.0f}}, {"lm loss validation ppl", {300, float(std::exp(1.0))}}};
  for (const auto& [tag, value] : expected) EXPECT_EQ(scalars[tag], value) << tag;
}

// TensorBoard drops all events at or after the step of a START message. A resumed run therefore sends START with its
// first new step.
TEST(report, resumed_run_sends_its_start_step_to_tensorboard) {
  const Folder folder;
  EventFile file(folder.path, 5, 120);
  const std::string bytes = content(file.name());
  const auto all = events(bytes);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].numbers.at(2), 121u);
  EXPECT_EQ(message(all[1].parts.at(7)).numbers.at(1), 1u);
  EXPECT_THROW(EventFile(folder.path, 5, 120), Error);  // a second file of the same name is refused, so nothing is overwritten
}

// Samples of a text in the OpenMetrics format by name and labels. Expects a TYPE line before the samples of each family, no
// second family of the same name, and "# EOF" at the end.
std::map<std::string, std::string> open_metrics_in(const std::string& text) {
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(text);
  bool ended = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(ended) << line;
    ended = line == "# EOF";
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << line;
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(family + "{") || line.starts_with(family + " ")) << line;
      const auto space = line.rfind(' ');
      EXPECT_TRUE(samples.emplace(line.substr(0, space), line.substr(space + 1)).second) << line;
    }
  }
  EXPECT_TRUE(ended) << text;
  return samples;
}

TEST(report, open_metrics_have_values_of_the_latest_step) {
  const Folder folder;
  const fs::path file = folder.path / "run.prom";
  OpenMetricsFile metrics(file, {{"run", "a\"b\\c\nd"}});
  const std::string labels = R"({run="a\"b\\c\nd"})";
  EXPECT_EQ(open_metrics_in(content(file)), (std::map<std::string, std::string>{{"gyrfalcon_run" + labels, "1"}}));
  StepReport first = step(298), second = step(299), last = step(300);
  first.time = 1000, second.time = 1000.5, last.time = 1000.6, last.steps = 300, last.figures = {{"kl", 0.25}};
  last.grad_norm = std::numeric_limits<double>::infinity(), last.mfu.reset();
  EXPECT_EQ(metrics.write(first), "");
  EXPECT_EQ(metrics.write(second), "");
  EXPECT_EQ(open_metrics_in(content(file)).at("gyrfalcon_step" + labels), "298") << "one file per second";
  EXPECT_EQ(metrics.write(last), "");
  EXPECT_EQ(metrics.write(ValidationReport{.time = 1000.7, .step = 300, .samples = 5, .loss = 1.5}), "");
  const auto samples = open_metrics_in(content(file));
  EXPECT_EQ(samples.at("gyrfalcon_step" + labels), "300");
  EXPECT_EQ(std::stod(samples.at("gyrfalcon_loss" + labels)), last.loss);
  EXPECT_EQ(samples.at("gyrfalcon_grad_norm" + labels), "+Inf");
  EXPECT_EQ(samples.at(R"(gyrfalcon_figure{run="a\"b\\c\nd",name="kl"})"), "0.25");
  EXPECT_EQ(samples.at("gyrfalcon_validation_loss" + labels), "1.5");
  EXPECT_FALSE(samples.contains("gyrfalcon_mfu_ratio" + labels));
  fs::remove_all(folder.path / "run.prom");
  fs::create_directory(file);
  EXPECT_NE(metrics.write(last).find("run.prom"), std::string::npos) << "a folder of this name cannot be replaced";
}

TEST(report, nested_timers_count_calls_and_seconds) {
  Timers timers({"step", "forward", "unused"});
  for (int i = 0; i < 3; ++i) {
    auto step_scope = timers.scope("step");
    auto inner = timers.scope("forward");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(timers.calls("step"), 3);
  EXPECT_GE(timers.seconds("forward"), 0.006);
  EXPECT_GE(timers.seconds("step"), timers.seconds("forward"));
  EXPECT_EQ(timers.packed().size(), 6u);
  EXPECT_EQ(timers.packed()[2], 3.0);
  EXPECT_THROW(static_cast<void>(timers.scope("forwards")), Error);
  timers.reset();
  EXPECT_EQ(timers.seconds("step"), 0.0);
}

TEST(report, timers_measure_no_scope_inside_an_evaluation) {
  Timers timers({"step", "forward", "evaluate"});
  {
    auto evaluation = timers.scope("evaluate");
    auto inner = timers.scope("forward");
  }
  EXPECT_EQ(timers.calls("forward"), 0);
  EXPECT_EQ(timers.calls("evaluate"), 1);
  { auto alone = timers.scope("forward"); }
  EXPECT_EQ(timers.calls("forward"), 1);
}

TEST(report, timer_table_shows_parts_of_the_run) {
  const std::vector<std::string> names = {"step", "forward", "pipeline wait", "unused", "evaluate"};
  std::vector<double> all;
  for (const double seconds : {2.0, 6.0, 1.0}) all.insert(all.end(), {1, 10, 2, seconds, 9, 0.001, 0, 0, 1, 8});
  EXPECT_EQ(Timers::table(names, all, 20, 3),
            "section    calls  min s  mean s  max s  slowest rank  % of run\n"
            "step           1   10.0    10.0   10.0             0      50.0\n"
            "  forward      2    1.0     3.0    6.0             1      15.0\n"
            "evaluate       1    8.0     8.0    8.0             0      40.0\n"
            "rest                2.0     2.0    2.0                    10.0\n"
            "run                20.0    20.0   20.0                   100.0\n");
  const auto json = nlohmann::json::parse(Timers::json(names, all))["sections"];
  ASSERT_EQ(json.size(), 4u) << "JSON has every section that was used";
  EXPECT_EQ(json[1]["max_seconds"].get<double>(), 6.0);
  EXPECT_EQ(json[1]["part"].get<double>(), 0.3);
  all.pop_back();
  EXPECT_THROW(Timers::table(names, all, 20, 3), Error);
}

TEST(report, timer_table_folds_ranks_that_agree) {
  const std::vector<double> all{4, 0.5, 4, 0.3, 4, 0.502, 4, 0.302};
  EXPECT_EQ(Timers::table(std::vector<std::string>{"step", "forward"}, all, 0.6, 1),
            "section    calls   ms  % of run\n"
            "step           4  501      83.5\n"
            "  forward      4  301      50.2\n"
            "rest               99      16.5\n"
            "run               600     100.0\n");
}

TEST(report, tables_are_aligned_and_wrap_long_cells) {
  Table table({{"name", false, 10}, {"value", true, 6}});
  table.row({"a", "1"});
  table.row({"several words that wrap", "22"});
  table.row({"averyveryverylongword", "333"});
  table.row({"\xc3\xa9\xc3\xa9", "4"});
  const std::string text = table.str();
  EXPECT_EQ(text,
            "name        value\n"
            "a               1\n"
            "several        22\n"
            "  words\n"
            "  that\n"
            "  wrap\n"
            "averyver      333\n"
            "  yverylon\n"
            "  gword\n"
            "\xc3\xa9\xc3\xa9              4\n");
}

TEST(report, wrapped_names_stay_below_their_indentation) {
  Table table({{"operator", false, 14}, {"state"}});
  table.row({"  branch", "whole"});
  table.row({"    queries, keys", "units"});
  EXPECT_EQ(table.str(),
            "operator        state\n"
            "  branch        whole\n"
            "    queries,    units\n"
            "      keys\n");
}

TEST(report, sentences_are_no_wider_than_columns) {
  const char* const before = std::getenv("COLUMNS");
  const std::string saved = before ? before : "", text = "The first sentence has many words.\nshort\n";
  setenv("COLUMNS", "20", 1);
  EXPECT_EQ(prose(text), "The first sentence\nhas many words.\nshort\n");
  EXPECT_EQ(prose("a b"), "a b");
  EXPECT_EQ(prose("\nThe first sentence has many"), "\nThe first sentence\nhas many");
  unsetenv("COLUMNS");
  if (!isatty(1)) {
    EXPECT_EQ(prose(text), text) << "files and pipes get complete lines";
  }
  before ? setenv("COLUMNS", saved.c_str(), 1) : unsetenv("COLUMNS");
}

TEST(report, further_lines_of_table_entries_are_indented) {
  const std::string text = "\nOne task per run:\n  --data  Loss and perplexity of all files.\n    gyrfalcon verify DECK and more words\n";
  EXPECT_EQ(with_hanging_lines(text, 32),
            "\nOne task per run:\n  --data  Loss and perplexity of\n          all files.\n    gyrfalcon verify DECK and\n    more words\n");
  EXPECT_EQ(with_hanging_lines(text, 100), text);
  EXPECT_EQ(with_hanging_lines("", 100), "");
}

TEST(report, status_lines_of_pipes_keep_their_interval) {
  std::FILE* file = std::tmpfile();
  {
    StatusLine line(file, 0);
    EXPECT_TRUE(line.due());
    line.show("searching: 3 layouts found");
    line.show("searching: 4 layouts found");
    StatusLine rare(file, 1000);
    EXPECT_FALSE(rare.due());
    Transfer transfer(file, "export", 1000);
    transfer.add(500);
  }
  std::rewind(file);
  std::string text(200, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, "searching: 3 layouts found\nsearching: 4 layouts found\n");
}

TEST(report, wide_table_wraps_titles_and_text_first) {
  Table table({{"layer"}, {"a long title", true}, {"text", false, 60}});
  table.row({"  1", "22", "words of a sentence that is long"});
  EXPECT_EQ(table.str(true, 100),
            "layer  a long title  text\n"
            "  1              22  words of a sentence that is long\n");
  EXPECT_EQ(table.str(true, 36),
            "layer      a  text\n"
            "        long\n"
            "       title\n"
            "  1       22  words of a sentence\n"
            "              that is long\n");
}

TEST(report, table_never_exceeds_the_width) {
  Table table({{"stage", true}, {"rank", true}, {"first value", true}, {"second value", true}, {"third", true}}, 2);
  table.row({"1", "0-3", "1000000", "2000000", "3000000"});
  EXPECT_EQ(table.str(true, 30),
            "stage  rank    first   second\n"
            "               value    value\n"
            "    1   0-3  1000000  2000000\n"
            "\n"
            "stage  rank    third\n"
            "    1   0-3  3000000\n");
  for (std::size_t width = 30; width < 60; ++width) {
    std::istringstream lines(table.str(true, width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << table.str(true, width);
  }
}

TEST(report, text_of_a_split_table_is_not_narrowed) {
  Table table({{""}, {"text", false, 40}, {"first", true}, {"second", true}});
  table.row({"1", "words that take thirty columns", "1000000000", "2000000000"});
  EXPECT_EQ(table.str(true, 40),
            "   text\n"
            "1  words that take thirty columns\n"
            "\n"
            "        first      second\n"
            "1  1000000000  2000000000\n");
}

TEST(report, width_of_output_follows_columns_variable) {
  std::FILE* file = std::tmpfile();
  const char* const before = std::getenv("COLUMNS");
  const std::string saved = before ? before : "";
  unsetenv("COLUMNS");
  EXPECT_EQ(output_width(file), 100);
  for (const char* wrong : {"", "0", "-7", "wide", "80x"}) {
    setenv("COLUMNS", wrong, 1);
    EXPECT_EQ(output_width(file), 100) << wrong;
  }
  setenv("COLUMNS", "72", 1);
  EXPECT_EQ(output_width(file), 72);
  before ? setenv("COLUMNS", saved.c_str(), 1) : unsetenv("COLUMNS");
  std::fclose(file);
}

TEST(report, last_line_reports_the_exit_status) {
  EXPECT_EQ(last_line(Exit::ok), "RUN OK");
  EXPECT_EQ(last_line(Exit::config), "RUN FAILED 78 (invalid deck)");
  EXPECT_TRUE(last_line(Exit::again).starts_with("RUN STOPPED 75 "));
  const std::vector<std::pair<std::string, std::string>> facts = {{"git", "1a2b3c4"}, {"compiler", "g++ 12"}};
  EXPECT_EQ(banner("0.1.0", facts), "Gyrfalcon 0.1.0\ngit       1a2b3c4\ncompiler  g++ 12\n");
}

}  // namespace gyr::testing::report_suite
