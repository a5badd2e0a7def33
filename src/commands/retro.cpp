// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon retro build-db|index|query|search|page|inspect|check: a database of text chunks, its index, and the neighbours
// of the chunks that a training run reads. Under mpiexec the ranks share the work.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/retro_encoder.hpp"
#include "src/commands/retro_page.hpp"
#include "src/commands/runtime.hpp"
#include "src/job/run_lock.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/parallel/grid.hpp"
#include "src/report/transfer.hpp"
#include "src/retro/check.hpp"
#include "src/retro/database_build.hpp"
#include "src/retro/project_settings.hpp"
#include "src/retro/summary.hpp"
#include "src/retro/vectors/vector_search.hpp"
#include "src/train/neighbours.hpp"

namespace gyr {

namespace {

struct RetroArguments {
  std::string project, database = "train", split = "949,50,1", tokenizer, text, retriever = "bm25", index = "flat";
  std::vector<std::string> prefixes;
  DeckArguments deck;
  Index chunk = 64, block = 100'000, candidates = 200, saved = 20, overlap = 0, most = 5, shown_chunk = -1, probes = 16;
  double common = 0.1, share = 0.01;
  std::uint64_t seed = 1;
  RetroPageOptions page;
};

// A project that a command works on.
struct Project {
  const RetroArguments& arguments;
  Runtime& runtime;
  Communicator& world;
  retro::ProjectSettings settings = {};
  std::optional<retro::Corpora> corpora = {};
  std::optional<retro::Database> database = {};
  std::unique_ptr<RetroEncoder> encoder = {};

  bool first() const { return world.rank() == 0; }
  const std::string& folder() const { return arguments.project; }
  std::string name() const { return printable(folder()); }

  // Opens an existing project and its corpora. Collective.
  void open() {
    collective_check(world, [&] {
      settings = retro::read_settings(folder());
      corpora.emplace(settings);
      for (std::size_t c = 0; first() && c < corpora->size(); ++c)
        retro::require_unchanged(settings.corpora[c], corpora->file(c), retro::config_path(folder()));
    });
  }
  void open_database() {
    collective_check(world, [&] { database.emplace(folder(), settings, *corpora); });
  }
};

// Runs `body` on all ranks. The first rank holds the lock of the project while it is written to.
enum class Access { read, write, create };
int on_project(const RetroArguments& a, Access access, const std::function<void(Project&)>& body) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        Grid grid(grid_layout(runtime.ranks(), 1, 1, {{0, 1}}), runtime.world(), wait_policy_of(runtime.world()));
        Project project{a, runtime, grid.world()};
        std::optional<RunLock> lock;
        collective_check(grid.world(), [&] {
          if (access == Access::read || runtime.rank() != 0) return;
          if (access == Access::create) retro::prepare_folder(a.project);
          else retro::read_settings(a.project);  // a folder that is no project gets no lock
          LockSettings settings;
          settings.notify = print_note, settings.choice = "PROJECT";
          lock.emplace(a.project, settings);
        });
        body(project);
      },
      LastLine::never);
}

retro::ProjectOptions options_of(const RetroArguments& a, const Runtime& runtime) {
  retro::ProjectOptions options{a.prefixes, a.tokenizer, a.split, a.chunk, a.block, a.database == "all"};
  if (a.deck.deck.empty()) {
    const auto fractions = split_fractions(a.split);
    require(fractions && (options.all || (*fractions)[0] > 0), Exit::usage,
            "--split {}: give the proportions of train, validation and test documents, the first above 0, as in 949,50,1", a.split);
    return options;
  }
  std::string effective;
  const RunConfig run = read_deck(a.deck, runtime, effective);
  options.prefixes = run.data.prefixes, options.split = run.data.split;
  if (options.tokenizer.empty()) options.tokenizer = run.data.tokenizer;
  return options;
}

void build_database(Project& p) {
  const retro::ProjectOptions options = options_of(p.arguments, p.runtime);
  p.runtime.shared_text([&] {
    retro::make_project(p.folder(), retro::settings_of(options, print_note));
    return std::string();
  });
  p.open();
  const retro::DatabaseCounts counts = retro::build_database(p.folder(), p.settings, *p.corpora, p.world);
  p.open_database();
  if (!p.first()) return;
  std::printf("%s: %s from %s; %s left out, because no token is a target of the loss or all are special\n", p.name().c_str(),
              counted(counts.chunks, "chunk").c_str(), counted(counts.documents, "document").c_str(), counted(counts.left_out, "piece").c_str());
  std::printf("%s, %ld of them from an earlier call\n", counted(counts.blocks, "block file").c_str(), long(counts.kept));
  if (counts.chunks == 0) print_note(p.name() + ": the database is empty, so no chunk has a neighbour");
}

// Opens the index of the project. Collective.
std::unique_ptr<retro::ChunkSearch> open_index(Project& p) {
  if (!retro::has_vectors(p.folder())) return std::make_unique<retro::Retriever>(p.folder(), *p.database, p.world);
  retro::VectorSettings stored;
  collective_check(p.world, [&] { stored = retro::read_vector_settings(p.folder()); });
  p.encoder = std::make_unique<RetroEncoder>(stored.encoder.string(), p.settings, p.runtime);
  collective_check(p.world, [&] {
    retro::require_same(stored.values(), p.encoder->settings(p.settings).values(), retro::vectors_folder(p.folder()) / "config.json",
                        "restore the encoder, or remove the folder and run `gyrfalcon retro index` again");
  });
  return std::make_unique<retro::VectorSearch>(p.folder(), *p.database, stored, p.encoder->encode(), p.world);
}

void build_bm25(Project& p) {
  const retro::IndexCounts counts = retro::build_index(p.folder(), *p.database, p.arguments.common, p.world, [&](const retro::IndexCounts& planned) {
    std::printf("%s: lists of %s with %s, about %s; %s in more than %g of the chunks have no list\n", p.name().c_str(),
                counted(planned.terms - planned.dropped, "token").c_str(), counted(planned.postings, "entry", "entries").c_str(),
                metric_text(double(planned.bytes(p.database->size())), "B").c_str(), counted(planned.dropped, "token").c_str(), p.arguments.common);
    std::fflush(stdout);
  });
  if (p.first()) std::printf("%s, %ld of them from an earlier call\n", counted(counts.blocks, "block file").c_str(), long(counts.kept));
}

// Settings of the approximate index that the options ask for, if they ask for one.
std::optional<retro::CodeSettings> codes_of(Project& p, const retro::VectorSettings& vectors) {
  const std::string& index = p.arguments.index;
  const std::filesystem::path config = retro::codes_folder(p.folder()) / "config.json";
  if (index == "flat") {
    if (!retro::has_codes(p.folder())) return {};
    fail(Exit::config, "{}: the project has an approximate index; give --index {} to continue, or remove the folder", config.parent_path().string(),
         retro::read_code_settings(p.folder()).factory);
  }
  const retro::CodeSettings settings = retro::code_settings(index, p.arguments.probes, vectors, p.database->size());
  if (retro::has_codes(p.folder()))
    retro::require_same(retro::read_code_settings(p.folder()).values(), settings.values(), config, "give the same options, or remove the folder");
  return settings;
}

void build_codes(Project& p, const retro::VectorSettings& vectors, const retro::CodeSettings& settings) {
  collective_check(p.world, [&] {
    if (!p.first()) return;
    retro::make_folder(retro::codes_folder(p.folder()));
    retro::write_code_settings(p.folder(), settings);
  });
  const retro::CodeCounts counts = retro::build_codes(p.folder(), *p.database, vectors, settings, p.world);
  if (!p.first()) return;
  std::printf("%s: %s, trained with %s, %s, %ld of them from an earlier call\n", p.name().c_str(), printable(settings.factory).c_str(),
              counted(settings.sample, "vector").c_str(), counted(counts.blocks, "block file").c_str(), long(counts.kept));
  std::printf("recall@%ld with %s: %.4f of exact search, %s\n", long(retro::recall_most), counted(settings.probes, "probe").c_str(),
              counts.recall.share, counted(counts.recall.queries, "query", "queries").c_str());
}

void build_vectors(Project& p, const std::string& model) {
  collective_check(p.world, [&] {
    if (p.arguments.index != "flat") retro::require_faiss();
  });
  p.encoder = std::make_unique<RetroEncoder>(model, p.settings, p.runtime);
  const retro::VectorSettings settings = p.encoder->settings(p.settings);
  std::optional<retro::CodeSettings> codes;
  collective_check(p.world, [&] {
    codes = codes_of(p, settings);
    if (retro::has_vectors(p.folder()))
      retro::require_same(retro::read_vector_settings(p.folder()).values(), settings.values(), retro::vectors_folder(p.folder()) / "config.json",
                          "give the same encoder, or remove the folder");
  });
  std::optional<StatusLine> shown;
  collective_check(p.world, [&] {
    if (!p.first()) return;
    std::printf("%s: vectors of %s with %ld elements, %s\n", p.name().c_str(), counted(p.database->size(), "chunk").c_str(), long(settings.width),
                metric_text(4.0 * double(p.database->size()) * double(settings.width), "B").c_str());
    std::fflush(stdout);
    retro::make_folder(retro::vectors_folder(p.folder()));
    retro::write_vector_settings(p.folder(), settings);
    shown.emplace(stdout, 30);
  });
  const retro::VectorCounts counts =
      retro::build_vectors(p.folder(), *p.database, settings, p.encoder->encode(), p.world, [&](std::int64_t done, std::int64_t all) {
        if (!shown->due()) return;
        const double rate = double(done) / shown->seconds();
        shown->show(fmt::format("encoded {} of {} chunks of rank 0  {:.0f} chunks/s  left {}", done, all, rate, duration(double(all - done) / rate)));
      });
  shown.reset();
  if (p.first()) std::printf("%s, %ld of them from an earlier call\n", counted(counts.blocks, "block file").c_str(), long(counts.kept));
  if (codes) build_codes(p, settings, *codes);
}

// Makes the index of the project. A project has one index, so that a training run knows by which its neighbours were found.
void build_index(Project& p) {
  const std::string& retriever = p.arguments.retriever;
  const std::string encoder = retriever.starts_with("encoder:") ? retriever.substr(8) : "";
  require(retriever == "bm25" || !encoder.empty(), Exit::usage, "--retriever {}: give bm25, or encoder:MODEL with a checkpoint or a folder",
          retriever);
  require(!encoder.empty() || p.arguments.index == "flat", Exit::usage,
          "--index {}: indexes vectors, and --retriever bm25 has none; give --retriever encoder:MODEL, or leave it out", p.arguments.index);
  p.open();
  p.open_database();
  collective_check(p.world, [&] {
    const std::filesystem::path other = encoder.empty() ? retro::vectors_folder(p.folder()) : retro::index_folder(p.folder());
    std::error_code error;
    require(!std::filesystem::exists(other, error), Exit::config,
            "{}: the project has this index already, which --retriever {} continues; remove the folder to make another index", other.string(),
            encoder.empty() ? "encoder:MODEL" : "bm25");
  });
  if (encoder.empty()) build_bm25(p);
  else build_vectors(p, encoder);
}

void print_neighbours(const retro::NeighbourCounts& counts, const std::filesystem::path& folder, std::int64_t samples) {
  std::printf("%s: neighbours of %s in %s\n", printable(folder.string()).c_str(), counted(counts.chunks, "chunk").c_str(),
              counted(samples, "sample").c_str());
  std::printf("%s, %ld of them from an earlier call\n", counted(counts.blocks, "block file").c_str(), long(counts.kept));
  const double share = counts.chunks > 0 ? double(counts.without_two) / double(counts.chunks) : 0;
  if (share > 0.05) std::printf("note: %.1f %% of the chunks have fewer than two neighbours\n", 100 * share);
}

std::vector<std::filesystem::path> prefixes_of(const retro::QuerySettings& s) {
  std::vector<std::filesystem::path> prefixes;
  for (const retro::CorpusMark& corpus : s.corpora) prefixes.push_back(corpus.prefix);
  return prefixes;
}

// Finds the neighbours of the training or validation samples of a run.
void find_neighbours_of(Project& p, const RunConfig& run, Split split, retro::ChunkSearch& index) {
  retro::QuerySettings settings;
  std::optional<retro::QuerySamples> samples;
  std::filesystem::path folder;
  collective_check(p.world, [&] {
    settings = query_settings_of(run, p.settings, index.mark(), split);
    settings.candidates = p.arguments.candidates, settings.saved = p.arguments.saved, settings.overlap = p.arguments.overlap;
    folder = retro::neighbours_folder(p.folder(), settings);
    samples.emplace(settings, p.settings, folder / "config.json");
    std::error_code error;
    const bool exists = std::filesystem::exists(folder / "config.json", error);
    // Settings that exist differ in the places of the token files only.
    if (!p.first() || (exists && prefixes_of(retro::read_query_settings(folder)) == prefixes_of(settings))) return;
    retro::make_folder(folder);
    retro::write_query_settings(folder, settings);
  });
  if (p.first() && samples->foreign_corpora() > 0)
    print_note(fmt::format("{} of {} corpora of the deck are not in the database", samples->foreign_corpora(), settings.corpora.size()));
  std::optional<StatusLine> shown;
  if (p.first()) shown.emplace(stdout, 30);
  std::int64_t begun = -1;  // chunks that an earlier call has searched
  const retro::NeighbourCounts counts =
      retro::build_neighbours(folder, settings, *samples, index, p.database->size(), p.world, [&](std::int64_t done, std::int64_t total) {
        if (begun < 0) begun = done;
        if (done == begun || !shown->due()) return;
        const double rate = double(done - begun) / shown->seconds();
        shown->show(fmt::format("searched {} of {} chunks  {:.0f} chunks/s  left {}", done, total, rate, duration(double(total - done) / rate)));
      });
  shown.reset();
  if (p.first()) print_neighbours(counts, folder, samples->size());
}

void find_neighbours(Project& p) {
  std::string effective;
  const RunConfig run = read_deck(p.arguments.deck, p.runtime, effective);
  p.open();
  p.open_database();
  const std::unique_ptr<retro::ChunkSearch> index = open_index(p);
  find_neighbours_of(p, run, Split::train, *index);
  if (run.train.eval_every > 0) find_neighbours_of(p, run, Split::validation, *index);
}

void search(Project& p) {
  p.open();
  p.open_database();
  const std::unique_ptr<retro::ChunkSearch> index = open_index(p);
  std::optional<Tokenizer> tokenizer;
  collective_check(p.world, [&] {
    tokenizer = retro::tokenizer_of(p.settings, p.arguments.tokenizer);
    require(tokenizer.has_value(), Exit::missing, "{}: its tokenizer {} does not exist; name it with --tokenizer FILE", p.folder(),
            p.settings.tokenizer.file.empty() ? "is not known, or" : p.settings.tokenizer.file);
  });
  const auto found = index->nearest({tokenizer->encode(p.arguments.text)}, p.arguments.most, 0);
  if (!p.first()) return;
  if (found[0].empty()) std::printf("no chunk has a token of the text in a list of the index\n");
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    const retro::ChunkRow row = p.database->rows(found[0][i].id, 1)[0];
    std::printf("%zu. chunk %ld, score %.4f: %s\n   %s\n", i + 1, long(found[0][i].id), found[0][i].score, place_text(p.settings, row).c_str(),
                chunk_text(*p.database, row, tokenizer, 400).c_str());
  }
}

void page(Project& p) {
  p.open();
  p.open_database();
  write_retro_page(p.arguments.page, p.folder(), *open_index(p), p.runtime);
}

void inspect(Project& p) {
  p.open();
  p.open_database();
  if (!p.first()) return;
  const Index id = p.arguments.shown_chunk;
  if (id < 0) {
    std::printf("%s", retro::project_summary(p.folder(), *p.database, retro::vectors_text(p.folder())).c_str());
    return;
  }
  require(id < p.database->size(), Exit::usage, "--chunk {}: the database has {} chunks, numbered from 0", id, p.database->size());
  const retro::ChunkRow row = p.database->rows(id, 1)[0];
  std::printf("chunk %ld: %s, %u of them compared\n%s\n", long(id), place_text(p.settings, row).c_str(), row.terms,
              chunk_text(*p.database, row, retro::tokenizer_of(p.settings, p.arguments.tokenizer), 100'000).c_str());
}

void check(Project& p) {
  p.open();
  p.open_database();
  const retro::CheckCounts counts =
      retro::check_project(p.folder(), *p.database, p.arguments.share, p.arguments.seed, p.world, [&] { return open_index(p); });
  if (!p.first()) return;
  std::printf("%s: no difference in %s and %s\n", p.name().c_str(), counted(counts.documents, "document").c_str(),
              counted(counts.queries, "query", "queries").c_str());
  if (counts.missing_blocks > 0)
    print_note(fmt::format("{} of {} block files of neighbours do not exist and were not checked; `gyrfalcon retro query` with the deck finds them",
                           counts.missing_blocks, counts.blocks));
}

using Arguments = std::shared_ptr<RetroArguments>;

Command* add(Command& parent, const Arguments& a, const char* name, const char* help, Access access, void (*body)(Project&), Action& action) {
  Command* const c = parent.add_command(name, help);
  c->add_option("project", a->project, "PROJECT: folder of the database, its index and neighbours")->required();
  c->callback([a, access, body, &action] { action = [a, access, body] { return on_project(*a, access, body); }; });
  return c;
}

void add_tokenizer_option(Command& c, const Arguments& a, const char* fallback) {
  c.add_option("--tokenizer", a->tokenizer, std::string("tokenizer.json of the token files; default: ") + fallback);
}

void add_build(Command& retro, const Arguments& a, Action& action) {
  Command* const c = add(retro, a, "build-db", "Cut the documents of token files into chunks", Access::create, build_database, action);
  Option* const deck = c->add_option("deck", a->deck.deck, "Deck whose data.prefixes, data.split and data.tokenizer are used; or --data");
  c->add_option("overrides", a->deck.overrides, "Overrides of deck keys");
  Option* const data = c->add_option("--data", a->prefixes, "PREFIX of PREFIX.bin and PREFIX.idx; several are numbered in this order");
  data->excludes(deck);
  c->add_option("--split", a->split, "Proportions of train, validation and test documents for --data")->needs(data)->show_default();
  c->add_option("--database", a->database, "Documents of the database: train (those of the training split) or all")
      ->one_of({"train", "all"})
      ->show_default();
  c->add_option("--chunk", a->chunk, "Tokens of a chunk")->between(1, double(retro::most_chunk))->show_default();
  c->add_option("--block", a->block, "Rows of a block file: documents of the database, chunks of the index and of queries")
      ->between(1, double(retro::most_block))
      ->show_default();
  add_tokenizer_option(*c, a, "the one that the deck or PREFIX.json names");
}

void add_query(Command& retro, const Arguments& a, Action& action) {
  Command* const c =
      add(retro, a, "query", "Find the neighbours of every chunk of the training samples of a deck", Access::write, find_neighbours, action);
  c->add_option("deck", a->deck.deck, "Deck of the training run")->required();
  c->add_option("overrides", a->deck.overrides, "Overrides of deck keys");
  c->add_option("--candidates", a->candidates, "Best chunks of the database, from which those of the sample's own documents are removed")
      ->between(1, double(retro::most_candidates))
      ->show_default();
  c->add_option("--saved", a->saved, "Neighbours to keep of the candidates; at most --candidates")->positive()->show_default();
  c->add_option("--overlap", a->overlap,
                "Leave out neighbours that have a run of this number of tokens in common with the chunk's own continuation; 0: keep them")
      ->between(0, double(retro::most_chunk))
      ->show_default();
  c->callback([a, &action] {
    require(a->saved <= a->candidates, Exit::usage, "--saved {} exceeds --candidates {}; give at most that number", a->saved, a->candidates);
    action = [a] { return on_project(*a, Access::write, find_neighbours); };
  });
}

}  // namespace

void add_retro(Command& app, Action& action) {
  const auto a = std::make_shared<RetroArguments>();
  Command* const c = app.add_command("retro", "Build and search a database of text chunks (RETRO)");
  c->require_command();
  add_build(*c, a, action);
  Command* const index = add(*c, a, "index", "Make the index of the database", Access::write, build_index, action);
  index->add_option("--retriever", a->retriever, "bm25; or encoder:MODEL for vectors by a bidirectional model, a checkpoint or a Hugging Face folder")
      ->show_default();
  index
      ->add_option("--index", a->index,
                   "Index of the vectors: flat, exact search; or an approximate one of faiss by the name of its factory, such as IVF1024,Flat")
      ->show_default();
  index->add_option("--probes", a->probes, "Lists of an approximate index that a search reads (nprobe)")->between(1, 1 << 20)->show_default();
  index->add_option("--common", a->common, "A token in more than this fraction of the chunks has no list, if there are over 1000 chunks")
      ->between(0, 1)
      ->show_default();
  add_query(*c, a, action);
  Command* const find = add(*c, a, "search", "Find the chunks that are nearest to a text", Access::read, search, action);
  find->add_option("--text", a->text, "Text to search for")->required();
  find->add_option("-k,--most", a->most, "Maximum number of chunks to print")->between(1, double(retro::most_candidates))->show_default();
  add_tokenizer_option(*find, a, "the one of the project");
  a->page.add(*add(*c, a, "page", "Write an HTML page of a text with its neighbours", Access::read, page, action));
  Command* const show = add(*c, a, "inspect", "Show the counts of a project, or one chunk", Access::read, inspect, action);
  show->add_option("--chunk", a->shown_chunk, "Id of the chunk to show")->not_negative();
  add_tokenizer_option(*show, a, "the one of the project");
  Command* const verify = add(*c, a, "check", "Compare a share of documents and neighbours with new results", Access::read, check, action);
  verify->add_option("--share", a->share, "Fraction of the documents and of the queries to check")->between(0, 1)->show_default();
  verify->add_option("--seed", a->seed, "Seed that chooses them")->show_default();
}

}  // namespace gyr
