// SPDX-License-Identifier: BSD-3-Clause
// Tests of how ranks are launched: jobscripts pass the user's words on, ranks of a launcher of another MPI are refused,
// and so are impossible values of environment variables.
//   GYR_SEED sets the seed of the draws
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::launch_suite {

namespace fs = std::filesystem;

namespace {

const Material& material() { return Material::get(); }

// An imitated launcher that writes its words to a file, one per line, and prints the last line of a successful run.
fs::path recorder(const Folder& folder) {
  const fs::path script = folder / "launcher";
  put_contents(script, "#!/bin/sh\nprintf '%s\\n' \"$@\" > '" + (folder / "words").string() + "'\necho RUN OK\n");
  fs::permissions(script, fs::perms::owner_all);
  return script;
}

// A program without a version, so that the scripts for GPUs do not take it for one that is built for CPUs.
fs::path program_of_any_device(const Folder& folder) {
  const fs::path script = folder / "gyrfalcon";
  put_contents(script, "#!/bin/sh\n[ \"$1\" != version ] || exit 0\nexec '" + program() + "' \"$@\"\n");
  fs::permissions(script, fs::perms::owner_all);
  return script;
}

// Runs a jobscript with these overrides of the deck, as the scheduler would; returns the words after `train DECK`.
Words words_of_job(const std::string& script, const Words& overrides) {
  const Folder folder;
  const bool pbs = script.starts_with("pbs");
  std::string changes;
  for (const std::string& word : overrides) changes += " " + word;
  std::map<std::string, std::string> env{
      {"LAUNCHER", recorder(folder)}, {"GYRFALCON", program_of_any_device(folder)}, {"RANKS", "2"}, {"THREADS", "1"}};
  if (pbs) env.insert({{"PBS_JOBID", "1.x"}, {"PBS_O_WORKDIR", GYR_SOURCE_DIR}, {"DECK", "input/demo.yaml"}, {"CHANGES", changes}});
  else env.insert({{"SLURM_JOB_ID", "1"}, {"SLURM_SUBMIT_DIR", GYR_SOURCE_DIR}});
  Words command{"/bin/bash", std::string(GYR_SOURCE_DIR) + "/jobscripts/" + script};
  if (!pbs) command.push_back("input/demo.yaml"), command.insert(command.end(), overrides.begin(), overrides.end());
  const Result r = execute(command, {.env = env});
  EXPECT_EQ(r.code, 0) << script << output_of(r);
  Words words = lines_of(contents(folder / "words"));
  const auto train = std::find(words.begin(), words.end(), "train");
  if (words.end() - train < 3) return {"no train DECK among the words"};
  EXPECT_EQ(*(train + 1), "input/demo.yaml");
  return {train + 2, words.end()};
}

Result refused_start(const std::map<std::string, std::string>& env, const Folder& folder) {
  return run(material().train(folder / "out", {"train.steps=1"}), {.env = env, .limit = 60});
}

}  // namespace

TEST(launch, jobscripts_pass_only_the_users_overrides) {
  std::mt19937 random(seed_of_run());
  const Words known{"parallel.tensor=4", "parallel.pipeline=2", "parallel.context=2", "train.steps=7", "optimizer.lr=1e-3", "data.split=1,2,3"};
  for (const char* script : {"slurm-cpu.sh", "slurm-gpu.sh", "slurm-array.sh", "pbs-cpu.sh", "pbs-gpu.sh"})
    for (int draw = 0; draw < 2; ++draw) {
      Words overrides;
      for (unsigned n = draw * (1 + random() % 3); n > 0; --n) overrides.push_back(known[random() % known.size()]);
      Words expected = overrides;
      expected.push_back("--resume");
      EXPECT_EQ(words_of_job(script, overrides), expected) << script;
    }
}

// The variables are those that the mpiexec of Open MPI, the mpiexec of MVAPICH and srun set. No launcher serves this
// process.
TEST(launch, lone_rank_of_several_is_refused) {
  std::mt19937 random(seed_of_run());
  const std::pair<const char*, const char*> variables[] = {
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"}, {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  for (const auto& [size, rank] : variables) {
    const unsigned ranks = 2 + random() % 1000;
    const Folder folder;
    const Result r = refused_start(
        {{size, std::to_string(ranks)}, {rank, std::to_string(random() % ranks)}, {"SLURM_NTASKS", "3"}, {"SLURM_STEP_ID", "0"}}, folder);
    EXPECT_EQ(r.code, int(Exit::device)) << output_of(r);
    for (const std::string& part :
         {fmt::format("{}={}", size, ranks), std::string("each process would be a single-rank run"), std::string("mpiexec")})
      EXPECT_NE(r.err.find(part), std::string::npos) << part << output_of(r);
    EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 69")) << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "out")) << size;
  }
}

// The supervisor starts ranks itself, so that it refuses all processes of a launcher, the first one included. A batch script is none.
TEST(launch, supervisor_is_started_once) {
  const std::map<std::string, std::string> ompi = {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  for (const std::string own : {"none", ""}) {
    const Folder folder;
    Words words = material().train(folder / "out", {"train.steps=1"});
    words.front() = "run";
    words.insert(words.end(), {"-n", "1"});
    if (!own.empty()) words.insert(words.end(), {"--launcher", own});
    const Result r = run(words, {.env = ompi, .limit = 60});
    EXPECT_EQ(r.code, int(Exit::device)) << output_of(r);
    EXPECT_EQ(lines_of(r.err).size(), 1u) << output_of(r);
    EXPECT_NE(r.err.find("start it once, without mpiexec or srun"), std::string::npos) << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "out")) << output_of(r);
    const Result in_script = run(words, {.env = {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, .limit = 60});
    EXPECT_EQ(in_script.code, 0) << output_of(in_script);
  }
}

TEST(launch, supervisor_refuses_resume_option) {
  const Folder folder;
  Words words = material().train(folder / "out", {"train.steps=1"});
  words.front() = "run";
  words.insert(words.end(), {"-n", "1", "--resume"});
  const Result r = run(words);
  EXPECT_EQ(r.code, int(Exit::usage)) << output_of(r);
  EXPECT_NE(r.err.find("`gyrfalcon run` always resumes: repeat the command without --resume"), std::string::npos) << output_of(r);
  EXPECT_EQ(r.err.find("train --resume"), std::string::npos) << output_of(r);
}

// The first of two numbers of ranks would start launchers, each of which starts all ranks.
TEST(launch, launcher_with_own_number_of_ranks_is_refused) {
  const auto started_by = [](const std::string& name, const fs::path& out) {
    Words words = material().train(out, {"train.steps=1"});
    words.front() = "run";
    words.insert(words.end(), {"-n", "1", "--launcher", name});
    return run(words);
  };
  std::mt19937 random(seed_of_run());
  const std::string ranks = std::to_string(1 + random() % 100);
  for (const auto& [name, option] : {std::pair<std::string, std::string>{"mpiexec ", "-n " + ranks},
                                     {"/opt/bin/mpirun ", "-np " + ranks},
                                     {"nice -n 5 mpiexec -l ", "-n " + ranks},
                                     {"srun ", "-n" + ranks},
                                     {"srun ", "--ntasks=" + ranks}}) {
    const Folder folder;
    const Result r = started_by(name + option, folder / "out");
    EXPECT_EQ(r.code, int(Exit::device)) << name << option << output_of(r);
    EXPECT_NE(r.err.find("the launcher takes -n RANKS PROGRAM after it; leave out " + option + ", "), std::string::npos) << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "out")) << name << option;
  }
  const Folder folder;
  std::string plain = "nice -n 5";
  for (const std::string& word : launcher()) plain += " " + word;
  EXPECT_EQ(started_by(plain, folder / "out").code, 0);
}

TEST(launch, single_processes_of_any_launcher_run) {
  const std::map<std::string, std::string> environments[] = {
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
      {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "3"}},
      {{"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}},                                            // in a batch script
      {{"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "64"}},  // in salloc's shell
      {{"OMPI_COMM_WORLD_SIZE", "many"}}};
  for (const auto& env : environments) {
    const Folder folder;
    const Result r = run({"eval", material().trained(), "--sequences", "2"}, {.env = env});
    EXPECT_EQ(r.code, 0) << output_of(r);
  }
}

TEST(launch, impossible_thread_variables_are_refused_at_once) {
  std::mt19937 random(seed_of_run());
  const Words bad{"x", "0", "-3", "1.5", "30000", "100000", "99999999999999999999", "4x", std::string(5000, '7')};
  for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KOKKOS_DEVICE_ID", "KOKKOS_NUMA", "KOKKOS_NUM_DEVICES"})
    for (int draw = 0; draw < 4; ++draw) {
      const bool is_count = std::string(name).ends_with("_THREADS");
      const std::string value = draw == 0 ? "x" : !is_count ? bad[7 + random() % 2] : draw == 1 ? "100000" : bad[random() % bad.size()];
      const Folder folder;
      const Result r = refused_start({{name, value}}, folder);
      EXPECT_EQ(r.code, int(Exit::usage)) << name << "=" << value << output_of(r);
      EXPECT_NE(r.err.find(name), std::string::npos) << output_of(r);
      const Words lines = lines_of(r.err);
      const auto is_own = [](const std::string& line) { return !line.empty() && !line.starts_with("libgomp:"); };
      EXPECT_EQ(std::count_if(lines.begin(), lines.end(), is_own), 1) << output_of(r);
      EXPECT_LT(r.err.size(), 600u) << output_of(r);
      EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 64")) << output_of(r);
      EXPECT_LT(r.seconds, 5 * slowness) << name << "=" << value;
    }
}

TEST(launch, more_threads_than_processors_give_a_warning) {
  const auto sentence = [](int ranks, int threads) {
    return fmt::format("warning: {} rank{} x {} threads run on ", ranks, ranks > 1 ? "s" : "", threads);
  };
  const int threads = int(std::thread::hardware_concurrency()) + 1;
  const auto count = [&](const Result& r, int ranks) {
    const std::string text = r.out + r.err, part = sentence(ranks, threads);
    const auto at = text.find(part);
    EXPECT_TRUE(at == text.npos || text.find(" and slow each other down; set OMP_NUM_THREADS=", at) != text.npos) << output_of(r);
    return (at != text.npos) + (at != text.npos && text.find(part, at + 1) != text.npos);
  };
  const Folder folder;
  const std::map<std::string, std::string> many{{"OMP_NUM_THREADS", std::to_string(threads)}};
  EXPECT_EQ(count(run(material().train(folder / "out", {"train.steps=1"}), {.env = many}), 1), 1);
  EXPECT_EQ(count(run({"eval", material().trained(), "--sequences", "2"}, {.ranks = 2, .env = many}), 2), 1);
  EXPECT_EQ(count(run({"generate", material().trained(), "--prompt", "x", "--tokens", "1"}, {.env = many}), 1), 1);
  EXPECT_EQ(run({"eval", material().trained(), "--sequences", "2"}).err.find("warning"), std::string::npos);
}

TEST(launch, usual_thread_variables_are_accepted) {
  for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    for (const char* value : {"1", "3", "2,1"}) {
      if (std::string(value) == "2,1" && std::string(name) != "OMP_NUM_THREADS") continue;
      const Result r = run({"eval", material().trained(), "--sequences", "2"}, {.env = {{name, value}}});
      EXPECT_EQ(r.code, 0) << name << "=" << value << output_of(r);
    }
  EXPECT_EQ(run({"eval", material().trained(), "--sequences", "2"}, {.env = {{"OMP_NUM_THREADS", ""}}}).code, 0);
}

}  // namespace gyr::testing::launch_suite
