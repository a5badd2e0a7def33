// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/inspect.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/checkpoint/header.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/report/table.hpp"

namespace gyr {

namespace {

// A tensor's numbers in slabs of whole chunks.
class Slabs {
 public:
  explicit Slabs(const hdf5::Dataset& dataset)
      : dataset_(dataset), row_(elements(dataset.shape()) / dataset.shape()[0]), rows_(dataset.shape()[0]),
        step_(hdf5::chunk_rows(dataset.dtype(), dataset.shape()) * 8) {}

  Index rows() const { return rows_; }
  Index step() const { return step_; }
  std::vector<double> read(Index first, Index count) const {
    std::vector<std::byte> stored(count * row_ * size_of(dataset_.dtype()));
    std::vector<double> numbers(count * row_);
    dataset_.read_rows(first, count, stored.data());
    convert_numbers(dataset_.dtype(), stored.data(), Index(numbers.size()), numbers.data(), dataset_.name());
    return numbers;
  }

 private:
  const hdf5::Dataset& dataset_;
  Index row_, rows_, step_;
};

struct Statistics {
  double low = std::numeric_limits<double>::infinity(), high = -low, squares = 0;
  Index not_finite = 0;
};

Statistics statistics_of(const hdf5::Dataset& dataset) {
  const Slabs slabs(dataset);
  Statistics s;
  for (Index first = 0; first < slabs.rows(); first += slabs.step())
    for (const double x : slabs.read(first, std::min(slabs.step(), slabs.rows() - first))) {
      if (!std::isfinite(x)) {
        ++s.not_finite;
        continue;
      }
      s.low = std::min(s.low, x), s.high = std::max(s.high, x);
      s.squares += x * x;
    }
  return s;
}

std::string header_text(const CheckpointHeader& h) {
  Table table({{"", false, 24}, {"", false, 92}});
  table.row({"format", "checkpoint, version " + printable(h.version)});
  table.row({"written", printable(h.created + " by " + h.writer)});
  table.row({"step", fmt::format("{}", h.step)});
  table.row({"tokens seen", fmt::format("{}", h.tokens)});
  table.row({"samples seen", fmt::format("{}", h.samples)});
  table.row({"seed", fmt::format("{}", h.seed)});
  table.row({"precision", printable(h.precision)});
  table.row({"layout", fmt::format("{} rank{}: {}", h.world, h.world == 1 ? "" : "s", printable(h.layout))});
  table.row({"provenance", printable(h.provenance)});
  return table.str(false);
}

}  // namespace

std::string describe_checkpoint(const std::filesystem::path& path, bool statistics) {
  const hdf5::File file = hdf5::File::open(path);
  const CheckpointHeader header = read_header(file);
  std::vector<TableColumn> columns{{"tensor", false, 80}, {"shape", true}, {"type", false}};
  if (statistics) columns.insert(columns.end(), {{"min", true}, {"max", true}, {"rms", true}, {"not finite", true}});
  Table table(columns);
  Index numbers = 0, weights = 0;
  for (const std::string& name : file.datasets()) {
    const hdf5::Dataset dataset = file.dataset(name);
    const Index count = elements(dataset.shape());
    numbers += count;
    if (name.starts_with("/model/")) weights += count;
    std::vector<std::string> cells{printable(name), text_of(dataset.shape()), std::string(name_of(dataset.dtype()))};
    if (statistics) {
      const Statistics s = statistics_of(dataset);
      const Index finite = count - s.not_finite;
      for (const double x : {s.low, s.high, std::sqrt(s.squares / double(finite))})
        cells.push_back(finite ? fmt::format("{:.4g}", x) : "-");
      cells.push_back(fmt::format("{}", s.not_finite));
    }
    table.row(std::move(cells));
  }
  return fmt::format("{}\n{}\n{} numbers, {} of them weights\n", header_text(header), table.str(), numbers, weights);
}

namespace {

struct Distance {
  double absolute = 0, largest = 0;
  double relative() const { return absolute == 0 ? 0 : std::isinf(absolute) ? absolute : absolute / largest; }
};

Distance distance(const hdf5::Dataset& a, const hdf5::Dataset& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Slabs slabs_a(a), slabs_b(b);
  Distance d;
  for (Index first = 0; first < slabs_a.rows(); first += slabs_a.step()) {
    const Index count = std::min(slabs_a.step(), slabs_a.rows() - first);
    const auto x = slabs_a.read(first, count), y = slabs_b.read(first, count);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) {
        if (std::isfinite(x[i])) d.largest = std::max(d.largest, std::abs(x[i]));
      } else if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
        d.absolute = infinity;
      } else {
        d.largest = std::max({d.largest, std::abs(x[i]), std::abs(y[i])});
        d.absolute = std::max(d.absolute, std::abs(x[i] - y[i]));
      }
    }
  }
  return d;
}

}  // namespace

Difference diff_checkpoints(const std::filesystem::path& path_a, const std::filesystem::path& path_b, double tolerance) {
  const hdf5::File a = hdf5::File::open(path_a), b = hdf5::File::open(path_b);
  const CheckpointHeader ha = read_header(a), hb = read_header(b);
  const auto names_a = a.datasets(), names_b = b.datasets();
  std::vector<std::string> all;
  std::set_union(names_a.begin(), names_a.end(), names_b.begin(), names_b.end(), std::back_inserter(all));
  Table table({{"tensor", false, 80}, {"absolute", true}, {"relative", true}, {"", false, 60}});
  Index equal = 0, beyond = 0;
  for (const std::string& name : all) {
    const bool in_a = std::binary_search(names_a.begin(), names_a.end(), name);
    const bool in_b = std::binary_search(names_b.begin(), names_b.end(), name);
    if (!in_a || !in_b) {
      ++beyond;
      table.row({printable(name), "", "", in_a ? "only in the first" : "only in the second"});
      continue;
    }
    const hdf5::Dataset da = a.dataset(name), db = b.dataset(name);
    if (da.shape() != db.shape()) {
      ++beyond;
      table.row({printable(name), "", "", fmt::format("{} against {}", text_of(da.shape()), text_of(db.shape()))});
      continue;
    }
    const Distance d = distance(da, db);
    if (d.absolute == 0) {
      ++equal;
      continue;
    }
    const bool far = d.relative() > tolerance;
    beyond += far;
    table.row({printable(name), fmt::format("{:.3e}", d.absolute), fmt::format("{:.3e}", d.relative()), far ? "beyond the tolerance" : ""});
  }
  std::string text = fmt::format("step {} against step {}\n", ha.step, hb.step);
  if (equal < Index(all.size())) text += table.str();
  text += fmt::format("{} tensors: {} equal, {} beyond a relative tolerance of {:g}\n", all.size(), equal, beyond, tolerance);
  return {text, beyond == 0};
}

}  // namespace gyr
