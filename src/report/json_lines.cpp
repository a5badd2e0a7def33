// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/json_lines.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "kernels/base/error.hpp"
#include "src/base/file_system.hpp"
#include "src/base/json.hpp"

namespace gyr {
namespace {

Json maybe(const std::optional<double>& x) { return x ? Json(*x) : nullptr; }

}  // namespace

std::string json_of(const StepReport& r) {
  Json json = {{"kind", "step"},
               {"time", r.time},
               {"step", r.step},
               {"steps", r.steps},
               {"consumed_samples", r.samples},
               {"consumed_tokens", r.tokens},
               {"global_batch", r.global_batch_size},
               {"seconds", r.seconds},
               {"tokens_per_second", r.tokens_per_second},
               {"tflops_per_rank", r.tflops},
               {"mfu", maybe(r.mfu)},
               {"learning_rate", r.learning_rate},
               {"loss", r.loss},
               {"grad_norm", r.grad_norm},
               {"params_norm", maybe(r.params_norm)},
               {"expert_load", maybe(r.expert_load)},
               {"skipped", r.skipped},
               {"nans", r.nans},
               {"memory_bytes", r.memory_bytes},
               {"seconds_left", r.seconds_left}};
  if (r.dropped_choices) json["dropped_choices"] = *r.dropped_choices;
  if (r.order_loss) json["sentence_order_loss"] = *r.order_loss;
  for (const auto& [name, value] : r.figures) json[name] = value;
  for (const auto& loss : r.mtp_losses) json["mtp_losses"].push_back(maybe(loss));
  return json_text(json);
}

std::string key_of(std::string figure) {
  std::transform(figure.begin(), figure.end(), figure.begin(), [](unsigned char c) { return c == ' ' ? '_' : std::tolower(c); });
  return figure;
}

std::string json_of(const ValidationReport& r) {
  Json json = {{"kind", "validation"},          {"time", r.time}, {"step", r.step},
               {"consumed_samples", r.samples}, {"loss", r.loss}, {"perplexity", r.perplexity()}};
  for (const auto& [name, value] : r.figures) json[key_of(name)] = value;
  return json_text(json);
}

JsonLines::JsonLines(const std::filesystem::path& file) : name_(file.string()), file_(nullptr, std::fclose) {
  const int descriptor = ::open(name_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  require(descriptor >= 0, Exit::io, "{}: cannot be written: {}", name_, why_not_opened(errno));
  file_.reset(::fdopen(descriptor, "ab+"));
  require(is_regular(descriptor), Exit::io, "{}: is not a regular file, so nothing can be appended; remove it", name_);
  require(file_ != nullptr, Exit::io, "{}: cannot be written: {}", name_, std::strerror(errno));
  if (std::fseek(file_.get(), -1, SEEK_END) == 0 && std::fgetc(file_.get()) != '\n') line("");
}

void JsonLines::line(const std::string& json) {
  std::fseek(file_.get(), 0, SEEK_END);
  const std::string text = json + '\n';
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
  require(written, Exit::io, "{}: writing failed: {}", name_, std::strerror(errno));
}

}  // namespace gyr
