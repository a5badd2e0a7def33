// SPDX-License-Identifier: BSD-3-Clause
// Projects of Megatron-LM: samples have the neighbours of the folder that the deck names, with the tokens that Megatron-LM reads, by a plain
// loop over its rule. The files are written as h5py writes them. Other runs, blocks and ids are refused.
#include "src/retro/megatron_project.hpp"

#include <hdf5.h>

#include <random>

#include "regression/support/retro.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/neighbours.hpp"

namespace gyr::testing::megatron_project_suite {
namespace {

namespace fs = std::filesystem;

constexpr Index chunk = 4, k = 3, saved = 5, samples = 40, chunks_of_sample = 3, block = 50;
constexpr std::int32_t end_token = 40;  // above those of the documents

// A contiguous dataset, which h5py's create_dataset(name, data=...) makes.
template <class T>
void add_dataset(hid_t file, const char* name, hid_t type, std::vector<hsize_t> extents, const std::vector<T>& values) {
  const hid_t space = H5Screate_simple(int(extents.size()), extents.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  if (!values.empty()) H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(dataset), H5Sclose(space);
}
template <class Fill>
void write_hdf5(const fs::path& path, const Fill& fill) {
  fs::create_directories(path.parent_path());
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  fill(file);
  H5Fclose(file);
}

class Drawn {
 public:
  explicit Drawn(std::mt19937& random) : project(folder / "m") {
    fs::create_directories(project / "data" / "part");
    lists = {drawn_documents(random, 60, 40, 30), drawn_documents(random, 40, 60, 30)};
    const fs::path a = project / "data" / "a", b = project / "data" / "part" / "b";
    write_token_files(a, lists[0], TokenType::u16), write_token_files(b, lists[1], TokenType::i32);
    const RetroProject own(folder / "own", plain_settings({a, b}, chunk, 50));  // only its chunks are used
    chunks = own.database->rows(0, own.database->size());
    for (retro::ChunkRow& row : chunks) row.terms = std::uint32_t(random() % 256);  // tokens of BERT
    for (Index i = 0; i < samples * chunks_of_sample * saved; ++i) ids.push_back(std::int64_t(random() % (chunks.size() + 1)) - 1);
    ids[0] = -1, ids[1] = std::int64_t(chunks.size()) - 1;
    write();
    std::vector<std::string> specials(end_token);
    for (std::size_t i = 0; i < specials.size(); ++i) specials[i] = fmt::format("<{}>", i);
    specials.push_back("<|endoftext|>");
    Tokenizer(byte_vocabulary(specials)).save(folder / "tokenizer.json");
    run.model.pattern = "R", run.model.retrieval = {chunk, k, "X"}, run.model.vocab_size = 300;
    run.data.prefixes = {a, b}, run.data.weights = {0.5, 0.5}, run.data.split = "90,10,0", run.data.order = "megatron";
    run.data.separate = false, run.data.seed = 1234, run.data.tokenizer = folder / "tokenizer.json";
    run.train.seq_length = chunks_of_sample * chunk, run.train.steps = 10, run.train.global_batch_size = 4;
    run.retro.project = project, run.retro.neighbours = found();
  }
  fs::path found() const { return project / "query" / "train_0123"; }
  fs::path file(Index b) const {
    return found() / fmt::format("{:0>6}-{:0>6}.hdf5", b * block, std::min((b + 1) * block, samples * chunks_of_sample));
  }
  void write() const {
    fs::create_directories(project / "db");
    put_contents(project / "config.json", R"({"retro_gpt_chunk_length": 4, "retro_gpt_seq_length": 12, "retro_gpt_seed": 1234,
      "retro_gpt_split": "90,10,0", "retro_block_size": 50})");
    put_contents(project / "db" / "indexed_dataset_infos.json",
                 fmt::format(R"([{{"ratio": 0.5, "prefix": "a", "n_docs": {}}}, {{"ratio": 0.5, "prefix": "part/b", "n_docs": {}}}])",
                             lists[0].size(), lists[1].size()));
    write_database();
    for (Index b = 0; b * block < samples * chunks_of_sample; ++b) write_block(b);
  }
  void write_database() const {
    std::vector<std::uint32_t> rows;
    for (const retro::ChunkRow& c : chunks) rows.insert(rows.end(), {c.corpus, c.document, c.first, c.last, c.terms});
    write_hdf5(project / "db" / "merged" / "train.hdf5", [&](hid_t f) {
      add_dataset(f, "chunks", H5T_STD_U32LE, {chunks.size(), 5}, rows);
      add_dataset(f, "doc_offsets", H5T_STD_U64LE, {1, 3}, std::vector<std::uint64_t>{0, 0, chunks.size()});
      add_dataset(f, "n_written", H5T_STD_U64LE, {1}, std::vector<std::uint64_t>{chunks.size()});
    });
  }
  void write_block(Index b, hsize_t columns = saved) const {
    const Index first = b * block, last = std::min(first + block, samples * chunks_of_sample);
    write_hdf5(file(b), [&](hid_t f) {
      add_dataset(f, "neighbors", H5T_STD_I64LE, {hsize_t(last - first), columns},
                  std::vector<std::int64_t>(ids.begin() + first * saved, ids.begin() + first * saved + (last - first) * Index(columns)));
    });
  }

  Dataset dataset() const {
    DatasetOptions o;
    o.corpora = {{run.data.prefixes[0], 0.5}, {run.data.prefixes[1], 0.5}};
    o.split = run.data.split, o.seq_length = run.train.seq_length, o.order = SampleOrder::megatron, o.samples = samples;
    return Dataset(o);
  }
  std::vector<std::int32_t> text(const retro::ChunkRow& c) const {
    const auto& document = lists[c.corpus][c.document];
    return {document.begin() + c.first, document.begin() + c.last};
  }
  // DBDataset and RetroDataset of core_v0.9.0: two records from the id on, modulo their number, each filled with end tokens.
  std::vector<std::int32_t> as_in_megatron(std::int64_t id) const {
    const auto n = std::int64_t(chunks.size());
    std::vector<std::int32_t> all;
    for (const std::int64_t i : {id, id + 1}) {
      std::vector<std::int32_t> record = text(chunks[std::size_t((i % n + n) % n)]);
      record.resize(chunk, end_token);
      all.insert(all.end(), record.begin(), record.end());
    }
    return all;
  }
  // The rule of other projects: the next chunk follows a full one of the same document, and nothing is padded.
  std::vector<std::int32_t> within_document(std::int64_t id) const {
    if (id < 0) return {};
    const retro::ChunkRow& c = chunks[std::size_t(id)];
    const auto& document = lists[c.corpus][c.document];
    const std::size_t end = c.last - c.first < chunk ? c.last : std::min<std::size_t>(document.size(), c.first + 2 * chunk);
    return {document.begin() + c.first, document.begin() + std::ptrdiff_t(end)};
  }

  Folder folder;
  fs::path project;
  std::vector<TokenLists> lists;
  std::vector<retro::ChunkRow> chunks;
  std::vector<std::int64_t> ids;  // [chunk of sample, saved]
  RunConfig run;
};

std::vector<std::int32_t> neighbour_of(const Sample& s, Index i) {
  const auto begin = s.neighbours.begin() + i * 2 * chunk;
  return {begin, begin + s.neighbour_lengths[std::size_t(i)]};
}

TEST(megatron_project, samples_have_neighbours_of_named_folder) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random);
  for (const bool megatron : {true, false}) {
    drawn.run.retro.continuation = megatron ? Continuation::database : Continuation::document;
    drawn.run.retro.padding = megatron ? NeighbourPadding::seen : NeighbourPadding::unseen;
    Dataset data = drawn.dataset();
    add_neighbours(drawn.run, Split::train, data);
    for (Index number = 0; number < samples; ++number) {
      const Sample sample = data.sample(number);
      ASSERT_EQ(Index(sample.neighbour_lengths.size()), chunks_of_sample * k);
      for (Index i = 0; i < chunks_of_sample * k; ++i) {
        const std::int64_t id = drawn.ids[std::size_t((number * chunks_of_sample + i / k) * saved + i % k)];
        EXPECT_EQ(neighbour_of(sample, i), megatron ? drawn.as_in_megatron(id) : drawn.within_document(id)) << "sample " << number << " " << i;
      }
    }
  }
}

// Each rule alone: the next record follows a full chunk of any document, and end tokens fill the chunks of a document.
TEST(megatron_project, continuation_and_padding_are_independent) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random);
  const auto first_samples = [&](Continuation continuation, NeighbourPadding padding, const auto& expected) {
    drawn.run.retro.continuation = continuation, drawn.run.retro.padding = padding;
    Dataset data = drawn.dataset();
    add_neighbours(drawn.run, Split::train, data);
    for (Index number = 0; number < samples; ++number)
      for (Index i = 0; i < chunks_of_sample * k; ++i) {
        const std::int64_t id = drawn.ids[std::size_t((number * chunks_of_sample + i / k) * saved + i % k)];
        if (id < 0) continue;
        EXPECT_EQ(neighbour_of(data.sample(number), i), expected(id)) << "sample " << number << " " << i;
      }
  };
  first_samples(Continuation::database, NeighbourPadding::unseen, [&](std::int64_t id) {
    const std::vector<std::int32_t> own = drawn.text(drawn.chunks[std::size_t(id)]);
    std::vector<std::int32_t> all = own, next = drawn.text(drawn.chunks[std::size_t(id + 1) % drawn.chunks.size()]);
    if (own.size() == chunk) all.insert(all.end(), next.begin(), next.end());
    return all;
  });
  first_samples(Continuation::document, NeighbourPadding::seen, [&](std::int64_t id) {
    std::vector<std::int32_t> all = drawn.within_document(id);
    all.resize(2 * chunk, end_token);
    return all;
  });
}

TEST(megatron_project, damaged_or_foreign_files_are_refused) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random);
  const auto refused = [&](Exit code, const std::vector<std::string>& parts, const std::function<void(RunConfig&)>& change = {}) {
    RunConfig run = drawn.run;
    if (change) change(run);
    const Error error = error_of([&] {
      Dataset data = drawn.dataset();
      add_neighbours(run, Split::train, data);
      for (Index number = 0; number < samples; ++number) data.sample(number);
    });
    EXPECT_EQ(error.code, code) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is not in: " << error.what();
  };
  const auto damaged = [&](const std::vector<std::string>& parts, const std::function<void()>& damage, Exit code = Exit::data) {
    damage();
    refused(code, parts);
    fs::remove_all(drawn.found());
    drawn.write();
  };
  refused(Exit::ok, {});
  refused(Exit::config, {"retro.neighbors is empty"}, [](RunConfig& run) { run.retro.neighbours.clear(); });
  refused(Exit::config, {"set data.order to megatron"}, [](RunConfig& run) { run.data.order = "shuffled"; });
  refused(Exit::config, {"data.documents to joined"}, [](RunConfig& run) { run.data.separate = true; });
  refused(Exit::config, {"data.seed = 5", "made with 1234"}, [](RunConfig& run) { run.data.seed = 5; });
  refused(Exit::config, {"data.split = 8,2,0", "made with 90,10,0"}, [](RunConfig& run) { run.data.split = "8,2,0"; });
  refused(Exit::config, {"train.seq_length = 16", "made with 12"}, [](RunConfig& run) { run.train.seq_length = 16; });
  refused(Exit::config, {"neighbours of 120 chunks", "reads 44 samples of 3"}, [](RunConfig& run) { run.train.steps = 11; });
  refused(Exit::config, {"holds 5 of each chunk"}, [](RunConfig& run) { run.model.retrieval.neighbours = 6; });
  refused(Exit::config, {"is no project of Megatron-LM"}, [&](RunConfig& run) { run.retro.project = drawn.folder / "own"; });
  refused(Exit::config, {"set data.tokenizer to a tokenizer"},
          [](RunConfig& run) { run.retro.padding = NeighbourPadding::seen, run.data.tokenizer.clear(); });
  refused(Exit::missing, {"has no block files"}, [&](RunConfig& run) { run.retro.neighbours = drawn.project / "query" / "none"; });
  damaged({"000050-000100.hdf5:neighbors: row 3 names chunk", "restore the file"}, [&] {
    drawn.ids[53 * saved + 1] = std::int64_t(drawn.chunks.size());
    drawn.write_block(1);
    drawn.ids[53 * saved + 1] = 0;
  });
  damaged({"000050-000100.hdf5:neighbors: has 4 columns instead of 5"}, [&] { drawn.write_block(1, 4); });
  damaged({"000000-000050.hdf5", "neighbors: has 1 dimensions instead of 2"},
          [&] { write_hdf5(drawn.file(0), [&](hid_t f) { add_dataset(f, "neighbors", H5T_STD_I64LE, {50}, std::vector<std::int64_t>(50)); }); });
  damaged({"neighbors: its elements are not int64"}, [&] {
    write_hdf5(drawn.file(1), [&](hid_t f) { add_dataset(f, "neighbors", H5T_STD_I32LE, {50, saved}, std::vector<std::int32_t>(50 * saved)); });
  });
  damaged({"neighbors: has 20 rows, but its name has the rows 0 to 50"},
          [&] { fs::copy_file(drawn.file(2), drawn.file(0), fs::copy_options::overwrite_existing); });
  damaged({"000050-000100.hdf5"}, [&] { fs::resize_file(drawn.file(1), fs::file_size(drawn.file(1)) / 2); });
  damaged({"rows 50 to 100 is absent"}, [&] { fs::remove(drawn.file(1)); });
  damaged({"is no name of a block"}, [&] { put_contents(drawn.found() / "all.hdf5", ""); });
  damaged({"train.hdf5:chunks: row 2", "is no chunk of at most 4"}, [&] {
    retro::ChunkRow& row = drawn.chunks[2];
    const retro::ChunkRow before = row;
    row.last = row.first + 5;
    drawn.write_database();
    for (Index i = 0; i < samples * chunks_of_sample; ++i) drawn.ids[std::size_t(i * saved)] = 2;
    for (Index b = 0; b < 3; ++b) drawn.write_block(b);
    row = before;
  });
  damaged({"indexed_dataset_infos.json: is damaged"}, [&] { put_contents(drawn.project / "db" / "indexed_dataset_infos.json", "{}"); });
  damaged({"config.json: is damaged", "retro_gpt_chunk_length"},
          [&] { put_contents(drawn.project / "config.json", R"({"retro_gpt_chunk_length": 0})"); });
  fs::remove(index_path(drawn.run.data.prefixes[0]));
  const Error lost = error_of([&] { retro::read_megatron_project(drawn.project); });
  EXPECT_EQ(lost.code, Exit::missing) << lost.what();
}

}  // namespace
}  // namespace gyr::testing::megatron_project_suite
