// SPDX-License-Identifier: BSD-3-Clause
// `make planner`: compares the planner with published step times, and measures the speed of a layout search. `--fit`
// fits the constants of each cluster again, and prints the error on held-out steps too; `--fit-only` omits these.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "regression/planner/published.hpp"
#include "src/base/table.hpp"
#include "src/planner/search/search.hpp"

namespace gyr::testing {
namespace {

// Published steps by cluster file. `file_of` returns the file of a source: cluster_file, or earlier_cluster_file for
// steps that later software ran on the same machine.
std::map<std::string, std::vector<PlannedStep>> steps_by_cluster(std::string (*file_of)(const std::string& source)) {
  std::map<std::string, std::vector<PlannedStep>> all;
  for (const PublishedStep& step : published_steps())
    if (const std::string file = file_of(step.source); !file.empty()) all[file].emplace_back(step, read_cluster(file));
  return all;
}

std::string constants_of(const Cluster& c) {
  return fmt::format("products {:.4g}, fused {:.4g}, memory {:.4g}, links {:.4g}, step {:.4g} ms", c.fit.gemms, c.fit.fused, c.fit.memory,
                     c.fit.links, 1e3 * c.fit.step);
}

void show(const std::string& file, const std::vector<PlannedStep>& steps, const char* what) {
  const Cluster cluster = read_cluster(file);
  Table table({{"step", false, 60},
               {"published s", true},
               {"predicted s", true},
               {"error %", true},
               {"micro-batch / virtual stages"},
               {"compute %", true},
               {"tensor/context comm %", true},
               {"pipeline comm %", true},
               {"data-parallel comm %", true},
               {"rest %", true}});
  double sum = 0, worst = 0;
  for (const PlannedStep& step : steps) {
    const Prediction p = step.prediction(cluster);
    const double error = p.seconds / step.published().seconds - 1;
    sum += std::abs(error), worst = std::max(worst, std::abs(error));
    std::vector<std::string> row{step.published().name(), fmt::format("{:.4g}", step.published().seconds), fmt::format("{:.4g}", p.seconds),
                                 fmt::format("{:+.1f}", 100 * error), step.fastest(cluster)};
    for (const double part : {p.compute, p.transfers, p.messages, p.buckets, p.rest}) row.push_back(fmt::format("{:.1f}", 100 * part / p.seconds));
    table.row(row);
  }
  std::printf("\n%s, %s: %s\n%s mean error %.2f %%, worst %.2f %%\n", cluster.name.c_str(), what, constants_of(cluster).c_str(), table.str().c_str(),
              100 * sum / double(steps.size()), 100 * worst);
}

// Alternates between choosing the fastest way of each step and fitting the constants. Step number `without` is left out
// of the fit.
Cluster fit(const Cluster& from, std::vector<PlannedStep>& steps, std::size_t without, int times, int rounds) {
  Cluster cluster = from;
  for (int time = 0; time < times; ++time) {
    std::vector<const PlannedStep*> some;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i].predict_seconds(cluster);
      if (i != without) some.push_back(&steps[i]);
    }
    cluster = fitted(cluster, some, rounds);
  }
  return cluster;
}

void fit_and_show(const std::string& file, std::vector<PlannedStep>& steps, bool leave_out) {
  Cluster start = read_cluster(file);
  if (start.fit.gemms == 1) start.fit = {0.7, 0.5, 0.8, 0.8, 0.1};
  const Cluster all = fit(start, steps, steps.size(), 2, 6);
  double sum = 0;
  for (const PlannedStep& step : steps) {
    const double error = error_of(step, all);
    std::printf("  %-40s %+.1f %%\n", step.published().name().c_str(), 100 * error);
    sum += std::abs(error);
  }
  std::printf("%s\n  %s\n  mean error %.2f %%\n", file.c_str(), constants_of(all).c_str(), 100 * sum / double(steps.size()));
  if (!leave_out) return;
  double out = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) out += std::abs(error_of(steps[i], fit(all, steps, i, 1, 3)));
  std::printf("  mean error on held-out steps %.2f %%\n", 100 * out / double(steps.size()));
}

// Prints the speed of layout searches, and the number of layouts that a search has to predict.
void show_searches() {
  struct Asked {
    const char *deck, *cluster;
    int ranks;
  };
  constexpr Asked all[] = {
      {"falcon-h1-34b", "h100", 4608}, {"falcon-h1-34b", "h200", 4608}, {"falcon-h1-7b", "h100", 512}, {"llama-3.2-1b", "h100", 64}};
  Table table({{"search", false, 60},
               {"layouts", true},
               {"allowed", true},
               {"predicted", true},
               {"dry runs", true},
               {"s", true},
               {"layouts/s", true},
               {"fastest", false, 80},
               {"s per step", true},
               {"GiB", true}});
  for (const Asked& a : all) {
    Deck deck = Deck::read(fmt::format("{}/input/{}.yaml", GYR_SOURCE_DIR, a.deck));
    const RunConfig run = read_run_config(deck);
    deck.finish();
    const SearchResult r = search(run, a.ranks, read_cluster(fmt::format("{}/input/clusters/{}.yaml", GYR_SOURCE_DIR, a.cluster)));
    const double allowed = r.layouts - r.by_rules.layouts();
    table.row({fmt::format("{} on {} ranks of {}", a.deck, a.ranks, a.cluster), fmt::format("{:.0f}", r.layouts), fmt::format("{:.0f}", allowed),
               fmt::format("{}", r.predicted), fmt::format("{}", r.dry_runs), fmt::format("{:.2f}", r.seconds),
               fmt::format("{:.3g}", allowed / r.seconds), r.best.empty() ? "none fits" : r.best.front().choice.text(),
               r.best.empty() ? "" : fmt::format("{:.4g}", r.best.front().prediction.seconds),
               r.best.empty() ? "" : fmt::format("{:.1f}", double(r.best.front().bytes) / double(1 << 30))});
  }
  std::printf(
      "\nSearches for the ten fastest layouts; layouts/s counts those that no rule excludes. ctest -R search proves that no layout is lost\n%s",
      table.str().c_str());
}

}  // namespace
}  // namespace gyr::testing

int main(int argc, char** argv) {
  using namespace gyr;
  using namespace gyr::testing;
  MPI_Init(&argc, &argv);
  {
    const Kokkos::ScopeGuard kokkos;
    const std::string_view word = argc > 1 ? argv[1] : "", which = argc > 2 ? argv[2] : "";
    const auto begin = std::chrono::steady_clock::now();
    for (auto& [file, steps] : steps_by_cluster(cluster_file)) {
      if (file.find(which) == std::string::npos) continue;
      if (word.starts_with("--fit")) fit_and_show(file, steps, word != "--fit-only");
      else show(file, steps, "constants fitted to these steps");
    }
    if (!word.starts_with("--fit"))
      for (const auto& [file, steps] : steps_by_cluster(earlier_cluster_file)) show(file, steps, "the same constants, for steps of later software");
    if (!word.starts_with("--fit")) show_searches();
    std::printf("%.1f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  MPI_Finalize();
}
