// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon profile DECK: times the GEMMs of a deck with every GEMM library of this build. With --out, it times all
// kernels for plan --profile.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/ops/gemm.hpp"
#include "src/base/limits.hpp"
#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/engine/gemm_choice/gemm_times.hpp"
#include "src/planner/machine/measured_kernels.hpp"
#include "src/report/summary.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

struct ProfileArguments : DeckArguments {
  int ranks = 0;
  std::string out;
  bool overwrite = false;
};

// Times the kernels of a run with two layers of each type, on the ranks of this job, and writes the profile.
void write_profile(RunConfig run, Runtime& runtime, const std::string& file) {
  run.model = with_each_layer_twice(run.model, run.parallel.stages());
  run.parallel.layers.clear();
  const Layout layout = layout_of(run, runtime.ranks());
  EngineConfig config = engine_config(run, layout);
  config.micros = std::min(config.micros, 2);
  const Profile profile = measured_kernels(config, layout, runtime.world());
  if (runtime.rank() != 0) return;
  OutputFile out(file);
  out.append(profile.text());
  out.commit();
  std::printf("wrote %s (%zu kernels and shapes)\n", file.c_str(), profile.entries().size());
}

std::string shape_text(const GemmShape& s) {
  return fmt::format("{} x {} x {}  {}{}{}", s.m, s.n, s.k, s.transpose_a ? "T" : "N", s.transpose_b ? "T" : "N", s.adds ? " +" : "");
}

// Sum over all GEMM calls of a step, where `of` gives the seconds (or FLOPs) of one call.
template <class Of>
double seconds_of_all(const std::vector<GemmTime>& times, const Of& of) {
  double sum = 0;
  for (const GemmTime& t : times) sum += double(t.calls) * of(t);
  return sum;
}
double by_choice(const GemmTime& t) { return t.by_choice(); }

// Unit of the rates of all libraries.
Unit rate_unit(const std::vector<GemmTime>& times) {
  double most = 0;
  for (const GemmTime& t : times)
    for (const double seconds : t.seconds) most = std::max(most, t.flops() / seconds);
  return metric_unit(most, "FLOP/s");
}

std::string table_of(std::vector<GemmTime> times, const std::vector<NamedLibrary>& libraries) {
  const double all = seconds_of_all(times, by_choice);
  std::sort(times.begin(), times.end(),
            [](const GemmTime& a, const GemmTime& b) { return double(a.calls) * a.by_choice() > double(b.calls) * b.by_choice(); });
  const Unit time = time_unit(times.empty() ? 0 : double(times.front().calls) * times.front().by_choice()), rate = rate_unit(times);
  std::vector<TableColumn> columns = {
      {"kernel"},         {"m x n x k  transA/transB, + adds", false, 60}, {"input"}, {"output"}, {"calls", true}, {"total " + time.name, true},
      {"% of time", true}};
  for (const NamedLibrary& each : libraries) columns.push_back({each.name, true});
  columns.push_back({"auto"});
  Table table(columns);
  for (const GemmTime& t : times) {
    std::vector<std::string> row = {std::string(t.shape.kernel),
                                    shape_text(t.shape),
                                    std::string(name_of(t.shape.in)),
                                    std::string(name_of(t.shape.out)),
                                    fmt::format("{}", t.calls),
                                    time(double(t.calls) * t.by_choice()),
                                    fmt::format("{:.1f}", 100 * double(t.calls) * t.by_choice() / all)};
    for (const double seconds : t.seconds) row.push_back(rate(t.flops() / seconds));
    row.push_back(libraries[t.chosen].name);
    table.row(row);
  }
  return table.str();
}

std::string summary_of(const std::vector<GemmTime>& times, const std::vector<NamedLibrary>& libraries) {
  const double flops = seconds_of_all(times, [](const GemmTime& t) { return t.flops(); });
  Table table({{"train.products"}, {"time", true}, {"rate", true}});
  const auto row = [&](const std::string& name, double seconds) { table.row({name, time_text(seconds), metric_text(flops / seconds, "FLOP/s")}); };
  row("auto", seconds_of_all(times, by_choice));
  for (std::size_t i = 0; i < libraries.size(); ++i) row(libraries[i].name, seconds_of_all(times, [&](const GemmTime& t) { return t.seconds[i]; }));
  row("fastest for each shape", seconds_of_all(times, [](const GemmTime& t) { return t.least(); }));
  return table.str();
}

int profile(const ProfileArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        std::string effective;
        const RunConfig run = read_deck(a, runtime, effective);
        if (runtime.rank() == 0 && !a.overwrite) check_new(a.out);
        if (!a.out.empty()) return write_profile(run, runtime, a.out);
        const Layout layout = layout_of(run, planned_ranks(run, a.ranks, runtime));
        EngineConfig config = engine_config(run, layout);
        config.micros = 1;
        const GemmCounts counts = plan_rank(config, layout, runtime.rank() % layout.ranks()).gemms;
        const std::vector<GemmTime> times = time_gemms(counts, [&](std::size_t done) {
          if (runtime.rank() == 0) std::fprintf(stderr, "\r%zu of %zu shapes%s", done, counts.size(), done == counts.size() ? "\n" : "");
        });
        if (runtime.rank() != 0) return;
        const std::vector<NamedLibrary> libraries = gemm_libraries();
        std::printf("%s\nGEMMs of one micro-batch on rank 0 of %d: %s; %s of each library, on %s at a time\n%s\n%s", blas_version().c_str(),
                    layout.ranks(), layout.text().c_str(), rate_unit(times).name.c_str(), counted(runtime.ranks(), "rank").c_str(),
                    table_of(times, libraries).c_str(), summary_of(times, libraries).c_str());
      },
      LastLine::never);
}

}  // namespace

void add_profile(Command& app, Action& action) {
  auto a = std::make_shared<ProfileArguments>();
  Command* c = app.add_command("profile", "Time the GEMMs of a deck with each GEMM library of this build, or every kernel by shape (--out)");
  add_deck(*c, *a);
  c->add_option("--ranks", a->ranks, "Number of ranks of the run whose GEMMs are timed; default: the ranks started, or those of the deck's grid")
      ->between(1, double(most_ranks));
  c->add_option(
      "--out", a->out,
      "Instead, run a few steps with two layers of each type on the ranks started, and write the time of every kernel by shape to this file, for "
      "plan --profile");
  c->add_flag("--overwrite", a->overwrite, "Replace an existing file of --out");
  c->footer(
      "\nA dry run of a step lists its GEMMs. Each one is timed for a few milliseconds with each GEMM library of this build, on operands that "
      "stay in cache if they fit; in a step some of them come from memory. `auto` chooses by processor type and shape, never by measured time, so "
      "that runs on equal processors have the same bits every time; train.products selects another library. Under mpiexec all ranks compute at the "
      "same time.\n"
      "Keys of the deck: gyrfalcon keys.\n\n" +
      exit_codes());
  c->callback([a, &action] { action = [a] { return profile(*a); }; });
}

}  // namespace gyr
