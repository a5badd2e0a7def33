// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/corpus_advice.hpp"

#include <algorithm>
#include <bit>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"
#include "src/data/dataset.hpp"

namespace gyr {

namespace {

constexpr const char* default_split = "949,50,1";  // of data.split
constexpr std::int64_t suggested_batch = 8, suggested_length = 256, step_tokens = suggested_batch * suggested_length;
constexpr std::int64_t bytes_per_vocabulary_entry = 4000;
// A BPE tokenizer with more than the 256 bytes merges most of the text that it was trained for.
constexpr std::int64_t least_vocabulary = 512;
constexpr double least_bytes_per_token = 1.2;

}  // namespace

std::int64_t suggested_vocabulary(std::int64_t bytes) {
  return std::int64_t(std::bit_floor(std::uint64_t(std::clamp<std::int64_t>(bytes / bytes_per_vocabulary_entry, 512, 32768))));
}

namespace {

SequenceRange validation_range(const BuildReport& report, const char* split = default_split) {
  return split_range(split, Split::validation, report.documents);
}

bool has_validation_split(const BuildReport& report, const char* split = default_split) {
  const SequenceRange validation = validation_range(report, split);
  return validation.first != validation.last;
}

// Remark on few documents of which a deck with a larger proportion validates some; empty if it does not either.
std::string text_of_larger_split(const BuildReport& report) {
  constexpr const char* larger = "90,10,0";  // of input/pretrain.yaml
  if (!has_validation_split(report, larger)) return "";
  const SequenceRange range = validation_range(report, larger);
  return fmt::format(" by the default data.split, {} ({} takes {} of them)", default_split, larger, range.last - range.first);
}

const char* remedy_for_few(DocumentSource documents) {
  switch (documents) {
    case DocumentSource::undivided:
      return ": --documents page divides a text into documents of 4 KiB, separator at blank lines, and line at each line end";
    case DocumentSource::pages: return "; give more text, or set train.eval_every=0";
    case DocumentSource::examples: break;
  }
  return "; give more examples, or set train.eval_every=0";
}

}  // namespace

std::vector<std::string> corpus_warnings(const BuildReport& report, std::int64_t vocab_size, DocumentSource documents) {
  std::vector<std::string> warnings;
  if (!has_validation_split(report))
    warnings.push_back(fmt::format("{} {} too few for a validation split{}{}", counted(report.documents, "document"),
                                   report.documents == 1 ? "is" : "are", text_of_larger_split(report), remedy_for_few(documents)));
  const double bytes_per_token = double(report.bytes) / double(std::max<std::int64_t>(1, report.tokens));
  if (documents != DocumentSource::examples && vocab_size >= least_vocabulary && bytes_per_token < least_bytes_per_token)
    warnings.push_back(
        fmt::format("{:.2f} bytes per token with {} tokens in the vocabulary: the tokenizer does not fit this text; train one on it with `gyrfalcon "
                    "tokenizer train`, and check the language and the encoding (UTF-8) of the text",
                    bytes_per_token, vocab_size));
  return warnings;
}

std::string validation_text(const BuildReport& report) {
  if (!has_validation_split(report)) return "";
  const SequenceRange range = validation_range(report);
  return fmt::format(
      "documents {} to {} of {}, in the order of the files, with the default data.split; mix documents of different kinds before, as with shuf",
      range.first + 1, range.last, report.documents);
}

// Short corpora are read four times, long ones once.
std::string suggested_settings(const BuildReport& report) {
  const std::int64_t epoch = std::max<std::int64_t>(1, report.tokens / step_tokens);
  const std::int64_t steps = std::max<std::int64_t>(50, epoch < 1000 ? std::min<std::int64_t>(1000, 4 * epoch) : epoch);
  const std::int64_t validation = report.tokens / 20 / step_tokens;
  const SequenceRange range = validation_range(report);
  const double validation_tokens = double(report.tokens) * double(range.last - range.first) / double(std::max<std::int64_t>(1, report.documents));
  const std::string evaluation =
      has_validation_split(report) && validation_tokens > suggested_length
          ? fmt::format("train.eval_every={} train.eval_batches={}", std::max<std::int64_t>(1, steps / 5), std::clamp<std::int64_t>(validation, 1, 8))
          : "train.eval_every=0";
  return fmt::format("train.steps={} optimizer.warmup_steps={} {}", steps, std::clamp<std::int64_t>(steps / 20, 1, 2000), evaluation) +
         fmt::format(" (steps of {} x {} tokens; one epoch of all documents is {})", suggested_batch, suggested_length, counted(epoch, "step"));
}

}  // namespace gyr
