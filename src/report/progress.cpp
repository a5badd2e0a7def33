// SPDX-License-Identifier: BSD-3-Clause
// Each line is composed as text and written in one call.
#include "src/report/progress.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/terminal.hpp"

namespace gyr {
namespace {

constexpr double redraw_seconds = 0.1, silent_seconds = 30;
constexpr std::size_t longest_line = 120;
constexpr const char *erase = "\r\x1b[K", *green = "\x1b[32m", *red = "\x1b[31m", *plain = "\x1b[0m";

std::string date(double time) {
  const std::time_t seconds = std::time_t(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
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

// A loss with five significant digits, at most four of them after the point.
std::string loss_text(double loss) {
  const double size = std::abs(loss);
  return size < 1e5 ? fmt::format("{:.{}f}", loss, size < 10 ? 4 : size < 100 ? 3 : size < 1000 ? 2 : 1) : fmt::format("{:.3g}", loss);
}

struct Field {
  std::string text;
  int importance;  // narrow terminals show the most important fields only; 0: the least important
};

// The same fields, in the same order, in the short line and in the live line.
std::vector<Field> fields_of(const StepReport& r) {
  std::vector<Field> fields{{short_count(double(r.tokens)) + " tokens", 1},
                            {"loss " + loss_text(r.loss), 7},
                            {fmt::format("norm {:.3g}", r.grad_norm), 0},
                            {fmt::format("lr {:.2e}", r.learning_rate), 2},
                            {short_count(r.tokens_per_second) + " tokens/s", 5}};
  if (r.mfu) fields.push_back({fmt::format("MFU {:.1f}%", *r.mfu * 100), 4});
  fields.push_back({time_text(r.seconds), 3});
  fields.push_back({"left " + duration(r.seconds_left), 6});
  return fields;
}

std::size_t length_of(const std::vector<Field>& fields) {
  std::size_t size = 0;
  for (const Field& field : fields) size += 2 + field.text.size();
  return size;
}

// Fields that have a value in some runs only; the most important one first.
std::vector<std::string> further_fields(const StepReport& r) {
  std::vector<std::string> fields;
  if (r.skipped > 0) fields.push_back(fmt::format("skipped {}", r.skipped));
  if (r.nans > 0) fields.push_back(fmt::format("not finite {}", r.nans));
  if (r.order_loss) fields.push_back("sop loss " + loss_text(*r.order_loss));
  for (std::size_t k = 0; k < r.mtp_losses.size(); ++k)
    fields.push_back(fmt::format("mtp_{} loss {}", k + 1, r.mtp_losses[k] ? loss_text(*r.mtp_losses[k]) : "none"));
  if (r.expert_load) fields.push_back(fmt::format("expert load {:.2f}", *r.expert_load));
  if (r.dropped_choices) fields.push_back(fmt::format("dropped {:.1f}%", *r.dropped_choices * 100));
  return fields;
}

}  // namespace

std::string megatron_line(const StepReport& r) {
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

std::string short_line(const StepReport& r) {
  std::string line = fmt::format("step {}/{}", r.step, r.steps);
  const std::vector<Field> fields = fields_of(r);
  const std::string_view separator = line.size() + length_of(fields) <= longest_line ? "  " : " ";
  const auto append = [&](const std::string& field) {
    if (line.size() + separator.size() + field.size() <= longest_line) line.append(separator).append(field);
  };
  for (const Field& field : fields) append(field.text);
  for (const std::string& field : further_fields(r)) append(field);
  return line;
}

std::string validation_line(const ValidationReport& r, LogFormat format) {
  if (format == LogFormat::megatron) {
    std::string line =
        fmt::format(" validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} |", r.step, r.loss, r.perplexity());
    for (const auto& [name, value] : r.figures) line += fmt::format(" {}: {:.4f} |", name, value);
    return line;
  }
  // The loss of pairs and rewards, which have a margin, is no loss of tokens.
  const bool of_pairs = std::any_of(r.figures.begin(), r.figures.end(), [](const auto& figure) { return figure.first == "margin"; });
  std::string line = fmt::format("validation at step {}: loss {}", r.step, loss_text(r.loss));
  if (!of_pairs) line += fmt::format(", perplexity {:.4g}", r.perplexity());
  for (const auto& [name, value] : r.figures) line += fmt::format(", {} {:.4f}", name, value);
  return line;
}

std::string live_line(const StepReport& r, int width, bool colour) {
  constexpr int longest_bar = 32, shortest_bar = 7;
  const int columns = std::max(width - 1, 0);  // the last column stays free: terminals wrap there
  const std::string before = fmt::format("step {}/{} ", r.step, r.steps);
  std::vector<Field> fields = fields_of(r);
  while (fields.size() > 1 && int(before.size() + length_of(fields)) > columns - shortest_bar)
    fields.erase(std::min_element(fields.begin(), fields.end(), [](const Field& a, const Field& b) { return a.importance < b.importance; }));
  std::string after;
  for (const Field& field : fields) after.append(after.empty() ? " " : "  ").append(field.text);
  const int columns_left = columns - int(before.size() + after.size());
  if (columns_left < shortest_bar) return (before + after.substr(1)).substr(0, std::size_t(columns));
  const std::string middle = bar(r.steps > 0 ? double(r.step) / double(r.steps) : 0, std::min(columns_left, longest_bar));
  if (!colour) return before + middle + after;
  return before + (std::isfinite(r.loss) ? green : red) + middle + plain + after;
}

ProgressStyle progress_style(std::FILE* out, Index every, LogFormat format) {
  ProgressStyle style;
  style.every = std::max<Index>(every, 1);
  style.format = format;
  const std::string_view wanted = environment("GYR_PROGRESS"), terminal = environment("TERM");
  require(wanted.empty() || wanted == "live" || wanted == "plain", Exit::usage, "GYR_PROGRESS={}: must be live or plain; unset it for the default",
          printable(wanted));
  const bool can = isatty(fileno(out)) && !terminal.empty() && terminal != "dumb";
  style.live = wanted == "live" || (can && wanted != "plain");
  style.colour = style.live && environment("NO_COLOR").empty();
  style.width = output_width(out, style.width);
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

std::string Progress::log_line(const StepReport& r) const { return style_.format == LogFormat::megatron ? megatron_line(r) : short_line(r); }

// Between the lines of log.format: megatron, the lines against silence stay short, so that scripts for that format pass
// over them.
void Progress::show(const StepReport& r) {
  const bool last = r.step >= r.steps, logged = last || (!style_.live && r.step % style_.every == 0);
  if (logged) {
    drawn_at_ = r.time;
    write((drawn_.empty() ? "" : erase) + log_line(r) + '\n');
    drawn_.clear();
  } else if (std::abs(r.time - drawn_at_) >= (style_.live ? redraw_seconds : silent_seconds)) {
    drawn_at_ = r.time;
    if (style_.live) write(erase + (drawn_ = live_line(r, style_.width, style_.colour)));
    else write(short_line(r) + '\n');
  }
}

void Progress::show(const ValidationReport& r) { print_line(validation_line(r, style_.format)); }

void Progress::print_line(std::string_view line) {
  std::string text = drawn_.empty() ? "" : erase;
  text.append(line).append("\n").append(drawn_);
  write(text);
}

}  // namespace gyr
