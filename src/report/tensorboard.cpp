// SPDX-License-Identifier: BSD-3-Clause
// Protobuf messages of an event file, by field number:
//   Event      { 1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary, 7: SessionLog }
//   Summary    { 1: repeated Value }      Value { 1: string tag, 2: float simple_value }
//   SessionLog { 1: enum status, START = 1 }
#include "src/report/tensorboard.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

constexpr auto crc_table = [] {
  constexpr std::uint32_t polynomial = 0x82f63b78;  // Castagnoli polynomial, bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t c = byte;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? (c >> 1) ^ polynomial : c >> 1;
    table[byte] = c;
  }
  return table;
}();

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += char(value >> (8 * i) & 0xff);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += char((value & 0x7f) | 0x80);
  return bytes += char(value);
}

// Encoding of one protobuf field: field number, wire type, value.
enum Wire { as_varint = 0, as_64_bits = 1, as_bytes = 2, as_32_bits = 5 };
std::string key(int number, Wire wire) { return varint(std::uint64_t(number) << 3 | wire); }
std::string field(int number, Index value) { return key(number, as_varint) + varint(std::uint64_t(value)); }
std::string field(int number, double value) { return key(number, as_64_bits) + little_endian(std::bit_cast<std::uint64_t>(value)); }
std::string field(int number, float value) { return key(number, as_32_bits) + little_endian(std::bit_cast<std::uint32_t>(value)); }
std::string field(int number, std::string_view bytes) { return key(number, as_bytes).append(varint(bytes.size())).append(bytes); }

std::string file_name(double time) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("events.out.tfevents.{:010}.{}.{}", Index(time), host.data(), getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t c = ~0u;
  for (const char byte : bytes) c = crc_table[(c ^ std::uint8_t(byte)) & 0xff] ^ (c >> 8);
  return ~c;
}

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

EventFile::EventFile(const std::filesystem::path& folder, double time, std::optional<Index> resumed)
    : name_(folder / file_name(time)), file_(nullptr, std::fclose) {
  std::error_code wrong;
  std::filesystem::create_directories(folder, wrong);
  file_.reset(std::fopen(name_.c_str(), "wbx"));  // x: never overwrites the file of another run
  require(file_ != nullptr, Exit::io, "{}: cannot be written: {}", name_.string(), std::strerror(errno));
  record(field(1, time) + field(3, std::string_view("brain.Event:2")));
  const Index start = 1;  // SessionLog status START: TensorBoard discards earlier events at or after its step
  if (resumed) record(field(1, time) + field(2, *resumed + 1) + field(7, field(1, start)));
  flush();
}

void EventFile::scalar(double time, Index step, std::string_view tag, double value) {
  const std::string summary = field(1, field(1, tag) + field(2, float(value)));
  record(field(1, time) + field(2, step) + field(5, summary));
}

void EventFile::record(const std::string& payload) {
  const std::string length = little_endian(std::uint64_t(payload.size()));
  const std::string bytes = length + little_endian(masked_crc32c(length)) + payload + little_endian(masked_crc32c(payload));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
  require(written, Exit::io, "{}: writing failed: {}", name_.string(), std::strerror(errno));
}

void EventFile::flush() { require(std::fflush(file_.get()) == 0, Exit::io, "{}: writing failed: {}", name_.string(), std::strerror(errno)); }

TensorBoard::TensorBoard(const std::filesystem::path& folder, double time, std::optional<Resumed> resumed)
    : steps_(folder, time, resumed ? std::optional(resumed->step) : std::nullopt),
      samples_(folder / "vs_samples", time, resumed ? std::optional(resumed->samples) : std::nullopt) {}

void TensorBoard::write(const StepReport& r) {
  const auto both = [&](const std::string& tag, double value) {
    steps_.scalar(r.time, r.step, tag, value);
    samples_.scalar(r.time, r.samples, tag + " vs samples", value);
  };
  both("lm loss", r.loss);
  if (r.order_loss) both("sop loss", *r.order_loss);
  for (const auto& [name, value] : r.figures) both(name, value);
  for (std::size_t k = 0; k < r.mtp_losses.size(); ++k)
    if (r.mtp_losses[k]) both("mtp_" + std::to_string(k + 1) + " loss", *r.mtp_losses[k]);
  both("learning-rate", r.learning_rate);
  both("batch-size", double(r.global_batch_size));
  both("grad-norm", r.grad_norm);
  if (r.params_norm) both("params-norm", *r.params_norm);
  if (r.expert_load) steps_.scalar(r.time, r.step, "expert-load", *r.expert_load);
  if (r.dropped_choices) steps_.scalar(r.time, r.step, "dropped-choices", *r.dropped_choices);
  steps_.scalar(r.time, r.step, "iteration-time", r.seconds);
  steps_.scalar(r.time, r.step, "throughput", r.tflops);
  steps_.scalar(r.time, r.step, "tokens-per-second", r.tokens_per_second);
  if (r.mfu) steps_.scalar(r.time, r.step, "mfu", *r.mfu);
  steps_.scalar(r.time, r.step, "mem-max-allocated-bytes", double(r.memory_bytes));
  steps_.flush();
  samples_.flush();
}

void TensorBoard::write(const ValidationReport& r) {
  steps_.scalar(r.time, r.step, "lm loss validation", r.loss);
  steps_.scalar(r.time, r.step, "lm loss validation ppl", r.perplexity());
  samples_.scalar(r.time, r.samples, "lm loss validation vs samples", r.loss);
  for (const auto& [name, value] : r.figures) steps_.scalar(r.time, r.step, name + " validation", value);
  steps_.flush();
  samples_.flush();
}

}  // namespace gyr
