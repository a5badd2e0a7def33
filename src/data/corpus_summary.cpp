// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/corpus_summary.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/table.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/loss_mask.hpp"

namespace gyr {

namespace {

constexpr std::int64_t bar_width = 40;

std::int64_t length_of(const TokenFile& file, std::int64_t document) {
  return file.first_token(file.first_sequence(document + 1)) - file.first_token(file.first_sequence(document));
}

// Number of nonzero values in the file: target tokens of a loss mask, or labelled tokens of a label file.
std::int64_t marked(const TokenFile& file) {
  std::vector<std::int32_t> block(std::size_t(1) << 16);
  std::int64_t count = 0;
  for (std::int64_t at = 0; at < file.tokens(); at += std::int64_t(block.size())) {
    const std::span<std::int32_t> part(block.data(), std::size_t(std::min<std::int64_t>(std::int64_t(block.size()), file.tokens() - at)));
    file.read_stream(at, part);
    count += std::count_if(part.begin(), part.end(), [](std::int32_t x) { return x != 0; });
  }
  return count;
}

void add_companion_row(Table& table, const TokenFile& tokens, const std::filesystem::path& prefix, const char* what, const char* counts) {
  if (!std::filesystem::exists(index_path(prefix))) return;
  const TokenFile file(prefix);
  require_same_sequences(file, tokens, what);
  const std::int64_t count = marked(file);
  table.row({what, fmt::format("{} {} ({:.1f} %)", count, counts, tokens.tokens() > 0 ? 100.0 * double(count) / double(tokens.tokens()) : 0.0)});
}

void add_fingerprint_rows(Table& table, const Fingerprint& f, const TokenFile& file) {
  require_described(file, f);
  const TokenizerMark& t = f.tokenizer;
  if (t.sum.empty()) table.row({"tokenizer", "none: the sources hold token ids"});
  else table.row({"tokenizer", fmt::format("{}: {} tokens, {} bytes, XXH3 {}", printable(t.file), t.tokens, t.bytes, printable(t.sum))});
  std::int64_t bytes = 0;
  for (const auto& source : f.sources) bytes += source.second;
  const std::string first = f.sources.empty() ? "" : ": " + printable(f.sources.front().first) + (f.sources.size() > 1 ? ", ..." : "");
  table.row({"sources", fmt::format("{} file{}, {:.1f} MB{}", f.sources.size(), f.sources.size() == 1 ? "" : "s", double(bytes) / 1e6, first)});
  std::string options;
  for (const auto& [name, value] : f.options) options += (options.empty() ? "" : " ") + name + (value.empty() ? "" : " " + value);
  table.row({"built by", printable(f.program) + (options.empty() ? "" : " with " + printable(options))});
}

}  // namespace

std::vector<LengthBin> length_bins(const TokenFile& file) {
  std::vector<LengthBin> bins(65);  // [bit width of the length]: the bin of these lengths
  for (std::int64_t d = 0; d < file.documents(); ++d) {
    const std::int64_t length = length_of(file, d);
    LengthBin& bin = bins[std::size_t(std::bit_width(std::uint64_t(length)))];
    ++bin.documents, bin.tokens += length;
  }
  for (std::size_t bits = 1; bits < 64; ++bits) bins[bits].least = std::int64_t(1) << (bits - 1), bins[bits].most = 2 * bins[bits].least - 1;
  const auto filled = [](const LengthBin& bin) { return bin.documents > 0; };
  bins.erase(std::find_if(bins.rbegin(), bins.rend(), filled).base(), bins.end());
  bins.erase(bins.begin(), std::find_if(bins.begin(), bins.end(), filled));
  return bins;
}

std::string corpus_summary(const std::filesystem::path& prefix) {
  const auto described = fingerprint_of(prefix);
  const TokenFile file(prefix);
  std::vector<std::int64_t> lengths(std::size_t(file.documents()));
  for (std::size_t d = 0; d < lengths.size(); ++d) lengths[d] = length_of(file, std::int64_t(d));
  std::sort(lengths.begin(), lengths.end());
  const auto part = [&](double p) { return lengths.empty() ? 0 : lengths[std::min(lengths.size() - 1, std::size_t(p * double(lengths.size())))]; };
  Table facts({{""}, {"", false, 90}});
  facts.row({"corpus", printable(prefix.string())});
  facts.row({"tokens", fmt::format("{} of {} bytes each, {:.1f} MB; the largest id is {}", file.tokens(), bytes_of(file.type()),
                                   double(file.tokens() * bytes_of(file.type())) / 1e6, file.check_tokens())});
  facts.row({"documents",
             fmt::format("{}{}", file.documents(), file.sequences() == file.documents() ? "" : fmt::format(" of {} sequences", file.sequences()))});
  if (!lengths.empty())
    facts.row({"tokens per document", fmt::format("shortest {}, median {}, mean {:.1f}, 90 % below {}, 99 % below {}, longest {}", lengths.front(),
                                                  part(0.5), double(file.tokens()) / double(lengths.size()), part(0.9), part(0.99), lengths.back())});
  add_companion_row(facts, file, mask_prefix(prefix), "loss mask", "target tokens");
  add_companion_row(facts, file, labels_prefix(prefix), "labels", "labelled tokens");
  if (described) add_fingerprint_rows(facts, *described, file);
  const std::vector<LengthBin> bins = length_bins(file);
  std::int64_t largest_rank = 1;
  for (const LengthBin& bin : bins) largest_rank = std::max(largest_rank, bin.documents);
  Table histogram({{"tokens", true}, {"documents", true}, {"", false, std::size_t(bar_width)}, {"% of all tokens", true}});
  for (const LengthBin& bin : bins) {
    std::string bar;
    for (std::int64_t i = 0; i < (bin.documents * bar_width + largest_rank - 1) / largest_rank; ++i) bar += '#';
    histogram.row({bin.least == bin.most ? fmt::format("{}", bin.least) : fmt::format("{} to {}", bin.least, bin.most),
                   fmt::format("{}", bin.documents), bar,
                   fmt::format("{:.1f}", file.tokens() > 0 ? 100.0 * double(bin.tokens) / double(file.tokens()) : 0.0)});
  }
  std::string text = facts.str(false);
  if (!bins.empty()) text.append("\n").append(histogram.str());
  return text;
}

}  // namespace gyr
