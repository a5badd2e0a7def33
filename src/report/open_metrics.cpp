// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/open_metrics.hpp"

#include <cmath>

#include "kernels/base/error.hpp"
#include "src/base/output_file.hpp"

namespace gyr {

namespace {

constexpr double seconds_between_files = 1;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') result += "\\n";
    else if (c == '"' || c == '\\') (result += '\\') += c;
    else result += c;
  }
  return result;
}

std::string text_of(const MetricLabels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value));
  return text.empty() ? "" : "{" + text + "}";
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Families of samples: a head of each family, then its samples.
class Families {
 public:
  explicit Families(const MetricLabels& labels) : labels_(labels) {}

  // A family with one sample. A unit is the last word of the name.
  void gauge(const char* name, const char* unit, const char* help, std::optional<double> value) {
    if (!value) return;
    begin(name, unit, help), sample(labels_, *value);
  }
  // A family with a sample for each named value.
  void gauges(const char* name, const char* label, const char* help, const std::vector<std::pair<std::string, double>>& values) {
    if (values.empty()) return;
    begin(name, "", help);
    for (const auto& [key, value] : values) {
      MetricLabels labels = labels_;
      labels.emplace_back(label, key);
      sample(labels, value);
    }
  }
  std::string text() const { return text_ + "# EOF\n"; }

 private:
  void begin(const char* name, const std::string& unit, const char* help) {
    name_ = fmt::format("gyrfalcon_{}{}{}", name, unit.empty() ? "" : "_", unit);
    text_ += fmt::format("# TYPE {0} gauge\n", name_);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name_, unit);
    text_ += fmt::format("# HELP {} {}\n", name_, help);
  }
  void sample(const MetricLabels& labels, double value) { text_ += fmt::format("{}{} {}\n", name_, text_of(labels), number(value)); }

  const MetricLabels& labels_;
  std::string name_, text_;
};

void add_step(Families& all, const StepReport& r) {
  all.gauge("updated", "seconds", "End of the latest step since 1970", r.time);
  all.gauge("step", "", "Optimizer steps done", double(r.step));
  all.gauge("last_step", "", "Optimizer steps of the run", double(r.steps));
  all.gauge("consumed_tokens", "", "Tokens consumed since the start of the training", double(r.tokens));
  all.gauge("consumed_samples", "", "Samples consumed since the start of the training", double(r.samples));
  all.gauge("batch_samples", "", "Global batch size in samples", double(r.global_batch_size));
  all.gauge("loss", "", "Mean training loss per token, natural logarithm", r.loss);
  all.gauge("learning_rate", "", "Learning rate", r.learning_rate);
  all.gauge("grad_norm", "", "Gradient norm before clipping", r.grad_norm);
  all.gauge("params_norm", "", "Norm of all weights", r.params_norm);
  all.gauge("step", "seconds", "Duration of the latest step", r.seconds);
  all.gauge("tokens_per_second", "", "Throughput of all ranks together", r.tokens_per_second);
  all.gauge("flops_per_second", "", "Model FLOPs per second and rank", r.tflops * 1e12);
  all.gauge("mfu", "ratio", "Model FLOPs utilisation: part of the peak GEMM rate", r.mfu);
  all.gauge("memory", "bytes", "Device memory in use, maximum over ranks", double(r.memory_bytes));
  all.gauge("remaining", "seconds", "Estimated time until the end of the run", r.seconds_left);
  all.gauge("skipped_steps", "", "Steps whose update was not applied", double(r.skipped));
  all.gauge("nonfinite_steps", "", "Steps with a loss or gradient that is not finite", double(r.nans));
  all.gauge("expert_load", "ratio", "Maximum expert load of a layer, relative to an even distribution", r.expert_load);
  all.gauge("dropped_choices", "ratio", "Part of the expert choices above the capacity", r.dropped_choices);
  all.gauges("figure", "name", "Metrics of the objective by name", r.figures);
}

void add_validation(Families& all, const ValidationReport& r) {
  all.gauge("validation_step", "", "Step of the latest validation", double(r.step));
  all.gauge("validation_loss", "", "Mean validation loss per token, natural logarithm", r.loss);
  all.gauges("validation_figure", "name", "Metrics of model quality by name", r.figures);
}

}  // namespace

std::string open_metrics_text(const MetricLabels& labels, const std::optional<StepReport>& step, const std::optional<ValidationReport>& validation) {
  Families all(labels);
  all.gauge("run", "", "1 while this file describes a run", 1);
  if (step) add_step(all, *step);
  if (validation) add_validation(all, *validation);
  return all.text();
}

OpenMetricsFile::OpenMetricsFile(std::filesystem::path path, MetricLabels labels) : path_(std::move(path)), labels_(std::move(labels)) { replace(); }

void OpenMetricsFile::replace() const {
  OutputFile file(path_);
  file.append(open_metrics_text(labels_, step_, validation_));
  file.publish();
}

std::string OpenMetricsFile::replace_if_due(double time, bool last) {
  if (!last && time >= written_at_ && time - written_at_ < seconds_between_files) return "";
  written_at_ = time;
  try {
    replace();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string OpenMetricsFile::write(const StepReport& report) {
  step_ = report;
  return replace_if_due(report.time, report.step == report.steps);
}

std::string OpenMetricsFile::write(const ValidationReport& report) {
  validation_ = report;
  return replace_if_due(report.time, true);
}

}  // namespace gyr
