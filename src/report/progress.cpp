// SPDX-License-Identifier: BSD-3-Clause
// Each line is composed as text and written in one call.
#include "src/report/progress.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

namespace gyr {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr const char *erase = "\r\x1b[K", *green = "\x1b[32m", *red = "\x1b[31m", *plain = "\x1b[0m";

std::string date(double time) {
  const std::time_t seconds = std::time_t(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

// Abbreviates a count: 1234567 -> "1.23M".
std::string short_count(double x) {
  static constexpr const char* letters[] = {"", "k", "M", "G", "T"};
  int power = 0;
  for (; x >= 999.5 && power < 4; ++power) x /= 1000;
  return fmt::format("{:.{}f}{}", x, power == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, letters[power]);
}

// Progress bar as text: "[====>     ]".
std::string bar(double part, int width) {
  const int inside = width - 2;
  const int filled = int(std::clamp(part, 0.0, 1.0) * inside);
  std::string text(std::size_t(filled), '=');
  if (filled < inside) text += '>';
  text.resize(std::size_t(inside), ' ');
  return "[" + text + "]";
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "unknown";
  const Index s = Index(std::llround(seconds)), days = s / 86400;
  const std::string hours = fmt::format("{}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
  return days > 0 ? fmt::format("{}d {:0>8}", days, hours) : hours;
}

std::string step_line(const StepReport& r) {
  std::string line = fmt::format(" [{}] iteration {:8}/{:8} |", date(r.time), r.step, r.steps);
  const auto field = [&](std::string_view name, const std::string& value) { line += fmt::format(" {}: {} |", name, value); };
  field("consumed samples", fmt::format("{:12}", r.samples));
  field("elapsed time per iteration (ms)", fmt::format("{:.1f}", r.seconds * 1000));
  field("throughput per GPU (TFLOP/s/GPU)", fmt::format("{:.3f}", r.tflops));
  field("learning rate", fmt::format("{:.6E}", r.learning_rate));
  field("global batch size", fmt::format("{:5}", r.global_batch_size));
  field("lm loss", fmt::format("{:.6E}", r.loss));
  if (r.order_loss) field("sop loss", fmt::format("{:.6E}", *r.order_loss));
  for (std::size_t k = 0; k < r.mtp_losses.size(); ++k)
    field(fmt::format("mtp_{} loss", k + 1), r.mtp_losses[k] ? fmt::format("{:.6E}", *r.mtp_losses[k]) : "none");
  field("loss scale", "1.0");  // constant: bf16 needs no loss scaling
  field("grad norm", fmt::format("{:.3f}", r.grad_norm));
  if (r.params_norm) field("params norm", fmt::format("{:.3f}", *r.params_norm));
  field("number of skipped iterations", fmt::format("{:3}", r.skipped));
  field("number of nan iterations", fmt::format("{:3}", r.nans));
  field("tokens per second", fmt::format("{:.1f}", r.tokens_per_second));  // this and the following fields do not exist in Megatron-LM
  if (r.expert_load) field("max expert load", fmt::format("{:.3f}", *r.expert_load));
  if (r.dropped_choices) field("dropped choices (%)", fmt::format("{:.3f}", *r.dropped_choices * 100));
  if (r.mfu) field("MFU (%)", fmt::format("{:.2f}", *r.mfu * 100));
  field("memory (MiB)", fmt::format("{:.1f}", double(r.memory_bytes) / (1 << 20)));
  field("time left", duration(r.seconds_left));
  return line;
}

std::string validation_line(const ValidationReport& r) {
  std::string line = fmt::format(" validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} |", r.step, r.loss, r.perplexity());
  for (const auto& [name, value] : r.figures) line += fmt::format(" {}: {:.4f} |", name, value);
  return line;
}

std::string live_line(const StepReport& r, int width, bool colour) {
  constexpr int longest_bar = 32, shortest_bar = 7;
  const std::string before = fmt::format("step {}/{} ", r.step, r.steps);
  std::string after = fmt::format(" loss {:.4f}  {} tokens/s", r.loss, short_count(r.tokens_per_second));
  if (r.mfu) after += fmt::format("  MFU {:.1f}%", *r.mfu * 100);
  after += fmt::format("  left {}", duration(r.seconds_left));

  const int columns_left = width - 1 - int(before.size() + after.size());  // the last column stays free: terminals wrap there
  if (columns_left < shortest_bar) return (before + after).substr(0, std::size_t(std::max(width - 1, 0)));
  const std::string middle = bar(r.steps > 0 ? double(r.step) / double(r.steps) : 0, std::min(columns_left, longest_bar));
  if (!colour) return before + middle + after;
  return before + (std::isfinite(r.loss) ? green : red) + middle + plain + after;
}

ProgressStyle progress_style(std::FILE* out, Index every) {
  ProgressStyle style;
  style.every = std::max<Index>(every, 1);
  const std::string_view wanted = environment("GYR_PROGRESS"), terminal = environment("TERM");
  const bool can = isatty(fileno(out)) && !terminal.empty() && terminal != "dumb";
  style.live = wanted == "live" || (can && wanted != "plain");
  style.colour = style.live && environment("NO_COLOR").empty();
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

void Progress::write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out_);  // output that can no longer be written must not end the training
  std::fflush(out_);
}

void Progress::clear() {
  if (!drawn_.empty()) write("\n");
  drawn_.clear();
}

void Progress::show(const StepReport& r) {
  const bool last = r.step >= r.steps;
  if (!style_.live) {
    if (last || r.step % style_.every == 0) write(step_line(r) + '\n');
    return;
  }
  if (!last && std::abs(r.time - drawn_at_) < redraw_seconds) return;
  drawn_at_ = r.time;
  drawn_ = live_line(r, style_.width, style_.colour);
  write(erase + drawn_);
}

void Progress::show(const ValidationReport& r) { print_line(validation_line(r)); }

void Progress::print_line(std::string_view line) {
  std::string text = drawn_.empty() ? "" : erase;
  text.append(line).append("\n").append(drawn_);
  write(text);
}

}  // namespace gyr
