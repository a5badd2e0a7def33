// SPDX-License-Identifier: BSD-3-Clause
// Search of the retrieval database, one rank, in processor seconds:
//   search_benchmark bm25 FOLDER     index of the chunks in FOLDER/database.bin, and the ten best ones for each text of FOLDER/queries.bin, whose
//                                    scores go to FOLDER/scores.bin (f64). regression/bench/search.sh compares bm25s.
//   search_benchmark vectors [COUNT] recall@10, seconds and queries/s of approximate indexes of drawn vectors in clusters, against exact search
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>

#include "kernels/base/error.hpp"
#include "kernels/base/threads.hpp"
#include "src/commands/runtime.hpp"
#include "src/parallel/grid.hpp"
#include "src/retro/database_build.hpp"
#include "src/retro/project_settings.hpp"
#include "src/retro/retriever.hpp"
#include "src/retro/vectors/coded_shard.hpp"
#include "src/retro/vectors/flat_shard.hpp"

using namespace gyr;

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most = 10;  // neighbours of a query

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

template <class Run>
double seconds_of(const Run& run) {
  const double begin = processor_seconds();
  run();
  return processor_seconds() - begin;
}

std::vector<std::vector<std::int32_t>> texts_of(const fs::path& prefix) {
  const TokenFile file(prefix);
  std::vector<std::vector<std::int32_t>> texts;
  for (std::int64_t s = 0; s < file.sequences(); ++s) {
    texts.emplace_back(std::size_t(file.length(s)));
    file.read(s, 0, texts.back());
  }
  return texts;
}

void search_tokens(const fs::path& folder, Communicator& world) {
  const fs::path project = folder / "project";
  fs::remove_all(project);
  retro::ProjectOptions options;
  options.prefixes = {folder / "database"}, options.all = true;
  std::unique_ptr<retro::Corpora> corpora;
  std::unique_ptr<retro::Database> database;
  std::unique_ptr<retro::Retriever> retriever;
  const retro::ProjectSettings settings = retro::settings_of(options, {});
  const double index = seconds_of([&] {
    retro::prepare_folder(project);
    retro::make_project(project, settings);
    corpora = std::make_unique<retro::Corpora>(settings);
    retro::build_database(project, settings, *corpora, world);
    database = std::make_unique<retro::Database>(project, settings, *corpora);
    retro::build_index(project, *database, 1, world, [](const retro::IndexCounts&) {});  // all tokens have a list
    retriever = std::make_unique<retro::Retriever>(project, *database, world);
  });
  const auto texts = texts_of(folder / "queries");
  std::vector<std::vector<retro::Candidate>> found;
  const double search = seconds_of([&] { found = retriever->nearest(texts, most, 0); });
  std::ofstream scores(folder / "scores.bin", std::ios::binary);
  for (const auto& list : found)
    for (const retro::Candidate& c : list) scores.write(reinterpret_cast<const char*>(&c.score), sizeof c.score);
  std::printf("index seconds: %.3f\nqueries/s: %.1f\n", index, double(texts.size()) / search);
}

// Vectors whose elements are those of one of 1000 centres plus noise of the same size, both normally distributed.
class Clusters {
 public:
  static constexpr std::size_t width = 64;
  std::vector<float> draw(std::int64_t count) {
    std::vector<float> vectors;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t centre = random_() % (centres_.size() / width);
      for (std::size_t e = 0; e < width; ++e) vectors.push_back(centres_[centre * width + e] + normal_(random_));
    }
    return vectors;
  }

 private:
  std::mt19937_64 random_{1234};
  std::normal_distribution<float> normal_;
  std::vector<float> centres_ = [&] {
    std::vector<float> all(1000 * width);
    for (float& x : all) x = normal_(random_);
    return all;
  }();
};

struct Tried {
  const char* factory;
  std::int64_t probes;
};
constexpr Tried tried[] = {{"IVF256,Flat", 4},  {"IVF256,Flat", 16}, {"IVF1024,Flat", 16}, {"IVF1024,Flat", 64},
                           {"IVF1024,SQ8", 64}, {"IVF256,PQ16", 16}, {"IVF256,PQ32", 64},  {"OPQ16_64,IVF256,PQ16", 64}};

using Lists = std::vector<std::vector<retro::Candidate>>;

double recall_of(const Lists& found, const Lists& exact) {
  std::size_t common = 0, all = 0;
  for (std::size_t q = 0; q < exact.size(); ++q)
    for (const retro::Candidate& wanted : exact[q]) {
      ++all;
      common += std::any_of(found[q].begin(), found[q].end(), [&](const retro::Candidate& c) { return c.id == wanted.id; });
    }
  return double(common) / double(all);
}

Lists best_of(Lists lists) {
  for (auto& list : lists) retro::keep_best(list, most);
  return lists;
}

void print_row(const char* name, const std::string& probes, double train, double encode, std::int64_t bytes, double rate, double recall) {
  std::printf("%-22s %6s %9.2f %9.2f %6lld %11.0f %10.3f\n", name, probes.c_str(), train, encode, static_cast<long long>(bytes), rate, recall);
}

void search_vectors(std::int64_t count) {
  constexpr std::int64_t queries = 1000;
  Clusters clusters;
  const std::vector<float> vectors = clusters.draw(count), asked = clusters.draw(queries);
  const std::vector<std::uint32_t> none(static_cast<std::size_t>(count));
  std::printf("%lld vectors of %zu elements, %lld queries; processor seconds\n", static_cast<long long>(count), Clusters::width,
              static_cast<long long>(queries));
  std::printf("%-22s %6s %9s %9s %6s %11s %10s\n", "index", "probes", "train s", "encode s", "bytes", "queries/s", "recall@10");
  retro::FlatVectorShard flat(Clusters::width);
  const double filled = seconds_of([&] { flat.add(0, vectors, none, none); });
  Lists exact;
  const double searched = seconds_of([&] { exact = best_of(flat.search(asked, most)); });
  print_row("flat", "", 0, filled, 4 * Clusters::width, queries / searched, 1);
  if (retro::faiss_version().empty()) std::printf("this build has no faiss (libfaiss-dev), and therefore no approximate index\n");
  for (const Tried& t : retro::faiss_version().empty() ? std::span<const Tried>() : std::span<const Tried>(tried)) {
    const std::int64_t sample = std::min(count, std::max<std::int64_t>(16'384, 64 * retro::size_of_quantizer(t.factory, Clusters::width).lists));
    std::shared_ptr<const retro::ListQuantizer> quantizer;
    const double train = seconds_of([&] {
      quantizer = retro::train_quantizer(t.factory, Clusters::width, std::span(vectors).first(std::size_t(sample) * Clusters::width), 1234);
    });
    retro::CodedShard shard(quantizer, t.probes);
    const double encode = seconds_of([&] { shard.add(0, quantizer->encode(vectors), none, none); });
    Lists found;
    const double search = seconds_of([&] { found = best_of(shard.search(asked, most)); });
    print_row(t.factory, std::to_string(t.probes), train, encode, quantizer->code_bytes(), queries / search, recall_of(found, exact));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  prepare_threads(argv);
  return run_on_all_ranks(
      [&](Runtime&) {
        require((mode == "bm25" && argc == 3) || (mode == "vectors" && argc <= 3), Exit::usage,
                "usage: search_benchmark bm25 FOLDER, or search_benchmark vectors [COUNT]");
        Grid grid(grid_layout(1, 1, 1, {{0, 1}}), MPI_COMM_SELF, WaitPolicy::spin);
        if (mode == "bm25") search_tokens(argv[2], grid.world());
        else search_vectors(argc > 2 ? std::atoll(argv[2]) : 100'000);
      },
      LastLine::never);
}
