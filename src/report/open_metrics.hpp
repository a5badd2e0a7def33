// SPDX-License-Identifier: BSD-3-Clause
// Latest metrics of a running training as a text file in the OpenMetrics format, for the textfile collector of Prometheus'
// node_exporter. The file uses only what the older text format of Prometheus has too. It is replaced as a whole, so that a
// collector reads a complete file.
//   gyrfalcon_loss{run="3f2a",output="out/my"} 3.8798
// Source: OpenMetrics 1.0, prometheus.io/docs/specs/om.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/step_report.hpp"

namespace gyr {

// Name and value of every label of a sample.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// All metrics of the reports that are present; ends with "# EOF".
std::string open_metrics_text(const MetricLabels&, const std::optional<StepReport>&, const std::optional<ValidationReport>&);

class OpenMetricsFile {
 public:
  // Writes a file without steps. Exit::io, Exit::missing if the folder does not exist.
  OpenMetricsFile(std::filesystem::path, MetricLabels);

  // Keep the report, and replace the file at most once per second and at the last step. Return the reason if it cannot be
  // written, otherwise an empty text: training does not depend on this file.
  std::string write(const StepReport&);
  std::string write(const ValidationReport&);

 private:
  void replace() const;
  std::string replace_if_due(double time, bool last);

  std::filesystem::path path_;
  MetricLabels labels_;
  std::optional<StepReport> step_;
  std::optional<ValidationReport> validation_;
  double written_at_ = -1e300;  // seconds since 1970
};

}  // namespace gyr
