// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon selftest: tests memory, arithmetic, links and file system of all ranks, and names the faulty ones.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/command.hpp"
#include "src/commands/runtime.hpp"
#include "src/report/transfer.hpp"
#include "src/selftest/exchanges.hpp"
#include "src/selftest/measurement.hpp"
#include "src/selftest/verdict.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

namespace {

struct SelftestArguments {
  std::string out, against, folder, fault;
  bool overwrite = false;
  double megabytes = 256, seconds = 5;
  long seed = 1;
};

std::vector<selftest::Findings> findings_of_file(const std::string& file) {
  const Json json = json_of_file(file);
  require(json.is_object() && json.contains("ranks") && json["ranks"].is_array(), Exit::data,
          "{}: is not a file of gyrfalcon selftest --out, or is damaged", file);
  std::vector<selftest::Findings> all;
  for (const Json& rank : json["ranks"]) all.push_back(selftest::findings_in(rank, file));
  return all;
}

// Findings of all ranks on rank 0, in rank order; elsewhere empty. Collective.
std::vector<selftest::Findings> gathered(const Runtime& runtime, const selftest::Findings& mine) {
  const std::string text = json_text(selftest::json_of(mine));
  const int length = int(text.size());
  std::vector<int> lengths(std::size_t(runtime.ranks())), begins(std::size_t(runtime.ranks()));
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, runtime.world());
  int all = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) begins[r] = all, all += lengths[r];
  std::string texts(std::size_t(all), ' ');
  MPI_Gatherv(text.data(), length, MPI_CHAR, texts.data(), lengths.data(), begins.data(), MPI_CHAR, 0, runtime.world());
  std::vector<selftest::Findings> findings;
  if (runtime.rank() == 0)
    for (std::size_t r = 0; r < lengths.size(); ++r)
      findings.push_back(selftest::findings_in(json_in(texts.substr(std::size_t(begins[r]), std::size_t(lengths[r]))), "a rank's findings"));
  return findings;
}

selftest::Findings measured(const SelftestArguments& a, const Runtime& runtime, const selftest::Fault& fault, const Crowd& crowd) {
  selftest::Findings f;
  f.host = host_name(), f.place = crowd.place;
  StatusLine line(stderr, 1);
  const auto show = [&](const std::string& text) {
    if (runtime.rank() == 0) line.show(text);
  };
  show("memory and arithmetic");
  selftest::Effort effort;
  effort.memory_bytes = Index(a.megabytes * 1e6);
  MPI_Barrier(runtime.world());
  measure_device(effort, fault, runtime.rank(), f);
  if (!a.folder.empty() && crowd.place == 0) show("file"), measure_file(effort, a.folder, runtime.rank(), f);
  MPI_Barrier(runtime.world());
  exchange_in_pairs(runtime.world(), {.seconds = a.seconds, .seed = std::uint64_t(a.seed)}, fault, f,
                    [&](int done, int all) { show(fmt::format("exchanges in pairs: round {} of {}", done, all)); });
  exchange_together(runtime.world(), f);
  return f;
}

// Lowest, median and highest rate of all ranks.
std::string rates_table(const std::vector<selftest::Findings>& all) {
  Table table({{"rate"}, {"lowest", true}, {"of rank", true}, {"median", true}, {"highest", true}});
  const auto row = [&](const char* name, double selftest::Findings::*rate, const char* unit) {
    std::vector<std::pair<double, int>> rates;
    for (std::size_t r = 0; r < all.size(); ++r)
      if (all[r].*rate > 0) rates.emplace_back(all[r].*rate, int(r));
    std::sort(rates.begin(), rates.end());
    if (rates.empty()) return;
    table.row({name, metric_text(rates.front().first, unit), fmt::format("{}", rates.front().second),
               metric_text(rates[rates.size() / 2].first, unit), metric_text(rates.back().first, unit)});
  };
  row("memory", &selftest::Findings::memory_rate, "B/s");
  row("GEMM, fp32", &selftest::Findings::gemm_rate, "FLOP/s");
  row("file", &selftest::Findings::file_rate, "B/s");
  return table.str();
}

std::string blames_table(const std::vector<selftest::Findings>& all, const std::vector<selftest::Blame>& blames) {
  Table table({{"rank", true}, {"host"}, {"verdict"}, {"finding", false, 40}});
  for (const selftest::Blame& b : blames)
    table.row({fmt::format("{}", b.rank), all[std::size_t(b.rank)].host, b.grade == selftest::Grade::bad ? "bad" : "slow", b.why});
  return table.str();
}

std::string tested_text(const std::vector<selftest::Findings>& all, const SelftestArguments& a, bool rates) {
  std::set<std::string> hosts;
  std::size_t exchanges = 0;
  for (const selftest::Findings& f : all) hosts.insert(f.host), exchanges += f.exchanges.size();
  std::string text = fmt::format("{} on {}: memory, GEMMs, {}, all-reduce and all-to-all{}\n", counted(Index(all.size()), "rank"),
                                 counted(Index(hosts.size()), "host"), counted(Index(exchanges / 2), "exchange in pairs", "exchanges in pairs"),
                                 a.folder.empty() ? "; no file (--folder DIR)" : ", a file of each host");
  if (all.size() == 1) text += "Links were not tested: there is one rank\n";
  if (!rates) text += "Rates were not compared: ranks share processor cores\n";
  return text;
}

std::string hosts_of(const std::vector<selftest::Findings>& all, const selftest::Verdict& v) {
  std::set<std::string> hosts;
  for (const selftest::Blame& b : v.blames) hosts.insert(all[std::size_t(b.rank)].host);
  return fmt::format("{}", fmt::join(hosts, ", "));
}

// Prints the verdict and writes --out. Exit::device with the hosts unless all ranks are healthy.
void conclude(const SelftestArguments& a, const std::vector<selftest::Findings>& all, bool rates) {
  selftest::Verdict v = selftest::verdict_of(all, rates);
  if (!a.against.empty())
    for (const selftest::Blame& b : selftest::slower_than(findings_of_file(a.against), all)) v.blames.push_back(b);
  std::printf("%s%s", prose(tested_text(all, a, rates)).c_str(), rates_table(all).c_str());
  if (!v.blames.empty()) std::printf("\n%s", blames_table(all, v.blames).c_str());
  for (const std::string& text : v.open) std::printf("%s\n", text.c_str());
  if (!a.out.empty()) {
    Json json{{"kind", "selftest"}, {"ranks", Json::array()}};
    for (const selftest::Findings& f : all) json["ranks"].push_back(selftest::json_of(f));
    OutputFile file(a.out);
    file.append(json_text(json) + "\n");
    file.commit();
  }
  std::fflush(stdout);
  require(v.blames.empty(), Exit::device, "the self-test blames {} on {}; leave these hosts out, or repeat the test if they were busy",
          counted(Index(v.blames.size()), "finding"), hosts_of(all, v));
  require(v.open.empty(), Exit::device, "the self-test failed, and no single rank explains it: {}", v.open.front());
}

int run_selftest(const SelftestArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const selftest::Fault fault = selftest::fault_in(a.fault, runtime.ranks());
        runtime.shared_text([&] {
          if (!a.overwrite) check_new(a.out);
          if (!a.against.empty()) findings_of_file(a.against);
          std::error_code no;
          require(a.folder.empty() || std::filesystem::is_directory(a.folder, no), Exit::missing,
                  "--folder {}: is not a folder; name one that every host can write to, such as output.folder", a.folder);
          return std::string();
        });
        const Crowd crowd = machine_load_of(runtime.world());
        const int shares = crowd.ranks > crowd.cores;
        int any_shares = 0;
        MPI_Allreduce(&shares, &any_shares, 1, MPI_INT, MPI_MAX, runtime.world());
        const std::vector<selftest::Findings> all = gathered(runtime, measured(a, runtime, fault, crowd));
        runtime.shared_text([&] {
          conclude(a, all, !any_shares);
          return std::string();
        });
      },
      LastLine::always);
}

}  // namespace

void add_selftest(Command& app, Action& action) {
  auto a = std::make_shared<SelftestArguments>();
  Command* c =
      app.add_command("selftest", "Test memory, arithmetic, links and file system of all ranks under mpiexec, and name faulty or slow ranks");
  c->add_option("--out", a->out, "Write all findings to this file, as JSON");
  c->add_flag("--overwrite", a->overwrite, "Replace an existing file of --out");
  c->add_option("--against", a->against, "File of an earlier self-test on the same hosts: also report ranks below 0.8 of their earlier rates");
  c->add_option("--folder", a->folder, "Also write, read and remove a file of 64 MiB in this folder, from one rank of each host");
  c->add_option("--megabytes", a->megabytes, "Memory that each rank writes and reads in four patterns, twice")->between(1, 1e6)->show_default();
  c->add_option("--seconds", a->seconds, "Time limit of the exchange between two ranks")->between(0.01, 3600)->show_default();
  c->add_option("--seed", a->seed, "Seed of the 32 rounds of exchanges that are drawn if there are more than 33 ranks")
      ->not_negative()
      ->show_default();
  c->add_option("--fault", a->fault, "Pretend a fault on a rank, to see what the test reports: KIND:RANK with a kind of " + selftest::fault_kinds());
  c->footer([] {
    return "\nA wrong bit, or an exchange beyond the time limit, is bad. A rate below 0.8 of the median of ranks with equal processors is slow, if "
           "it is "
           "also more than three median absolute deviations below it. A rank is blamed for links if most of its exchanges fail and its partners "
           "reach "
           "each other. Exit code 69 if a rank is blamed.";
  });
  c->callback([a, &action] { action = [a] { return run_selftest(*a); }; });
}

}  // namespace gyr
