// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>

#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/base/stopwatch.hpp"
#include "src/base/table.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/train/engine_config.hpp"
#include "src/verify/links.hpp"
#include "src/verify/shrink.hpp"
#include "src/verify/steps.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

namespace {

Identity identity_of(MPI_Comm world) {
  Identity me;
  MPI_Comm_rank(world, &me.rank);
  MPI_Comm_size(world, &me.ranks);
  return me;
}

void print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// Host name of each rank of the job, on the first rank.
std::vector<std::string> hosts_of(Grid& grid) {
  const std::vector<std::string> by_position = gather_texts(grid.world(), host_name());
  std::vector<std::string> hosts(by_position.size());
  for (std::size_t position = 0; position < hosts.size(); ++position)
    hosts[std::size_t(grid.layout().rank_at(int(position)))] = by_position[position];
  return hosts;
}

// Bytes that the full deck needs on this rank. Throws if the deck cannot be planned.
double planned_bytes(const RunConfig& run, Grid& grid, ProgressRecord& progress_record) {
  double bytes = 0;
  collective_check(grid.world(), [&] {
    bytes = double(predicted_capacity(engine_config(run, grid.layout()), grid.layout(), grid.position(), [&] { progress_record.advance(); }).total());
  });
  return bytes;
}

std::string number(double x) { return fmt::format("{:.1e}", x); }

std::string table_of(const std::vector<Law>& in_double, const std::vector<Law>& in_float) {
  Table table({{"relative error against one rank"}, {"double", true}, {"limit", true}, {"float", true}, {"limit", true}, {""}});
  for (std::size_t i = 0; i < in_double.size(); ++i) {
    const Law &a = in_double[i], &b = in_float.at(i);
    table.row({a.what, number(a.error), number(a.limit), number(b.error), number(b.limit), a.holds() && b.holds() ? "" : "BROKEN"});
  }
  return table.str();
}

std::string table_of(const std::vector<Law>& in_bf16) {
  Table table({{"in bf16", false, 60}, {"against one rank", true}, {"limit", true}, {""}});
  for (const Law& law : in_bf16)
    table.row({law.what, fmt::format("{:.3g}", law.error), fmt::format("{:.3g}", law.limit), law.holds() ? "" : "BROKEN"});
  return table.str();
}

void require_all(const std::vector<Law>& laws) {
  std::vector<Law> broken;
  std::copy_if(laws.begin(), laws.end(), std::back_inserter(broken), [](const Law& law) { return !law.holds(); });
  if (broken.empty()) return;
  const auto excess = [](const Law& law) { return law.error / law.limit; };
  const Law& worst = *std::max_element(broken.begin(), broken.end(), [&](const Law& a, const Law& b) { return excess(a) < excess(b); });
  fail(Exit::unequal,
       "results of this layout differ here from those of one rank: {} of {} comparisons exceed their limit, worst {} with {:.1e}, limit {:.1e}. Try "
       "other axes (parallel.*), another MPI library or another build, and report it",
       broken.size(), laws.size(), worst.what, worst.error, worst.limit);
}

}  // namespace

void verify(const RunConfig& run, double seconds_of_start, MPI_Comm world) {
  const Identity me = identity_of(world);
  Watch watch(run.watch, me, [world](int code) { MPI_Abort(world, code); });
  const WaitPolicy patience = wait_policy_of(world);
  double seconds_of_grid = 0;
  std::optional<Grid> made;
  {
    const Stopwatch stopwatch(seconds_of_grid);
    made.emplace(layout_of(run, me.ranks), world, patience, &watch.progress_record());
  }
  Grid& grid = *made;
  const bool lead = grid.position() == 0;
  const double bytes = grid.world().max(planned_bytes(run, grid, watch.progress_record())), start = grid.world().max(seconds_of_start),
               grids = grid.world().max(seconds_of_grid);
  const std::vector<std::string> hosts = hosts_of(grid);
  Shrunk small = shrunk(run, grid.layout());
  small.run.train.fp8 = Fp8Recipe::none;  // a value near a tie may get another code in each layout
  if (lead) {
    print(
        fmt::format("grid {}, {} on {}; startup {}, communicators {}\non these ranks, the full deck would need {} on the one with the most memory\n",
                    grid.layout().text(), counted(me.ranks, "rank"), counted(Index(std::set<std::string>(hosts.begin(), hosts.end()).size()), "host"),
                    time_text(start), time_text(grids), bytes_text(bytes)));
    print(shrunk_table(run, grid.layout(), small) +
          "unchanged from the deck: axes and their order, schedule, shard level, recomputation, biases, norms, frozen weights, documents\n" +
          (run.train.fp8 == Fp8Recipe::none
               ? ""
               : "train.fp8 is none in this comparison, because a value near a tie may get another code on each layout\n"));
  }

  Grid small_grid(layout_of(small.run, me.ranks), world, patience, &watch.progress_record());
  std::vector<Law> laws = compare_with_one_rank(small.run, DType::f64, small_grid, patience);
  const std::vector<Law> in_float = compare_with_one_rank(small.run, DType::f32, small_grid, patience);
  if (lead) print(table_of(laws, in_float));
  laws.insert(laws.end(), in_float.begin(), in_float.end());
  if (precision_of(run.train.precision) == DType::bf16) {
    const std::vector<Law> in_bf16 = compare_with_one_rank(small.run, DType::bf16, small_grid, patience);
    if (lead) print(table_of(in_bf16));
    laws.insert(laws.end(), in_bf16.begin(), in_bf16.end());
  }
  const MachineRates rates = measure(small_grid, precision_of(run.train.precision));
  if (lead) print(text_of(rates, hosts));
  collective_check(grid.world(), [&] { require_all(laws); });
}

}  // namespace gyr
