// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/class_counts.hpp"

#include <numeric>

#include "kernels/base/printable.hpp"
#include "src/base/table.hpp"

namespace gyr {

ClassCounts::ClassCounts(std::vector<std::string> names) : names_(std::move(names)), counts_(std::size_t(count() * (shown() ? 3 + count() : 3))) {}

void ClassCounts::add(Index is, Index taken_for) {
  ensure(is >= 0 && is < count() && taken_for >= 0 && taken_for < count(), "class {} predicted as {} of {}", is, taken_for, count());
  counts_[is] += 1, counts_[count() + taken_for] += 1;
  if (is == taken_for) counts_[2 * count() + is] += 1;
  if (shown()) counts_[(3 + is) * count() + taken_for] += 1;
}

double ClassCounts::rows() const { return std::accumulate(counts_.begin(), counts_.begin() + count(), 0.0); }
double ClassCounts::accuracy() const { return std::accumulate(counts_.begin() + 2 * count(), counts_.begin() + 3 * count(), 0.0) / rows(); }

double ClassCounts::f1(Index c) const {
  const double both = is(c) + taken(c);
  return both > 0 ? 2 * hits(c) / both : 0;
}

double ClassCounts::macro_f1() const {
  double sum = 0, classes = 0;
  for (Index c = 0; c < count(); ++c) sum += f1(c), classes += is(c) + taken(c) > 0;
  return sum / classes;
}

double ClassCounts::micro_f1() const {
  double sum = 0, all = 0;
  for (Index c = 0; c < count(); ++c) sum += hits(c), all += is(c) + taken(c);
  return 2 * sum / all;
}

std::string ClassCounts::text() const {
  std::string text = fmt::format("accuracy {:.6f} | macro F1 {:.6f} | micro F1 {:.6f} | {} labels of {} classes", accuracy(), macro_f1(), micro_f1(),
                                 Index(rows()), count());
  if (!shown()) return text;
  std::vector<TableColumn> columns{{"class"}};
  for (const std::string& name : names_) columns.push_back({"predicted as " + printable(name), true});
  columns.push_back({"F1", true});
  Table table(columns);
  for (Index c = 0; c < count(); ++c) {
    std::vector<std::string> row{printable(names_[c])};
    for (Index other = 0; other < count(); ++other) row.push_back(fmt::format("{}", Index(both(c, other))));
    row.push_back(fmt::format("{:.4f}", f1(c)));
    table.row(row);
  }
  return text + "\n" + table.str();
}

Json ClassCounts::results() const {
  Json json{{"accuracy", accuracy()}, {"macro_f1", macro_f1()}, {"micro_f1", micro_f1()}, {"labels", rows()}};
  for (Index c = 0; c < count(); ++c) json["classes"].push_back({{"name", names_[c]}, {"labels", is(c)}, {"taken", taken(c)}, {"f1", f1(c)}});
  for (Index c = 0; shown() && c < count(); ++c) {
    Json row;
    for (Index other = 0; other < count(); ++other) row.push_back(both(c, other));
    json["confusion"].push_back(row);
  }
  return json;
}

}  // namespace gyr
