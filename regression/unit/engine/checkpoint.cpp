// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints restore every bit or report what is wrong. Whatever happens during a save, the previous checkpoint stays
// valid.
#include "src/checkpoint/checkpoint.hpp"
#include "src/base/file_system.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>

#include "kernels/base/sanitizer.hpp"
#include "regression/support/file_size_limit.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/trials.hpp"
#include "src/checkpoint/chosen_checkpoint.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/checkpoint/reshard.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/checkpoint/writer.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::checkpoint_suite {
namespace {

namespace fs = std::filesystem;

bool mentions(const Error& error, const std::string& part) { return std::string(error.what()).find(part) != std::string::npos; }

template <class T>
struct Single : Rig<T> {
  explicit Single(const ModelConfig& model) : Rig<T>(config_of(model), single_rank_grid(model.layers())) {}
  static EngineConfig config_of(const ModelConfig& model) {
    EngineConfig c;
    c.model = model;
    c.seq_length = 4;
    return c;
  }
};

CheckpointHeader header_at(std::int64_t step) {
  CheckpointHeader h;
  h.step = step, h.samples = 8 * step, h.tokens = 80 * step, h.seed = 0xfedcba9876543210u;
  h.deck = "model:\n  width: 32\n", h.provenance = R"({"git": "abc"})";
  return h;
}

template <class T>
class checkpoint : public ::testing::Test {};
using Precisions = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(checkpoint, Precisions);

TYPED_TEST(checkpoint, restores_every_bit_of_training_state) {
  for (const char* name : {"T2", "T5", "T7", "T11"}) {
    const Folder folder;
    Single<TypeParam> a(named(name).model), b(named(name).model);
    set_state(a.engine, 1);
    const Saved saved = save_checkpoint(folder.path(), header_at(10), a.engine);
    EXPECT_EQ(saved.path, folder / "step_00000010");
    const CheckpointHeader h = load_checkpoint(saved.path, b.engine, LoadWhat::everything);
    expect_state(b.engine, 1, name);
    EXPECT_EQ(h.step, 10);
    EXPECT_EQ(h.samples, 80);
    EXPECT_EQ(h.tokens, 800);
    EXPECT_EQ(h.seed, 0xfedcba9876543210u);
    EXPECT_EQ(h.deck, header_at(0).deck);
    EXPECT_EQ(h.provenance, header_at(0).provenance);
    EXPECT_EQ(h.precision, name_of(dtype_of<TypeParam>()));
    EXPECT_EQ(h.world, 1);
  }
}

TYPED_TEST(checkpoint, shows_full_tensors_under_plain_names) {
  const Folder folder;
  Single<TypeParam> rig(named("T11").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const hdf5::File file = hdf5::File::open(path / "index.h5");
  for (const char* name : {"/model/embed_tokens/weight", "/model/layers/1/mamba/in_proj/weight", "/model/layers/0/mamba/A_log",
                           "/model/final_layernorm/weight", "/model/lm_head/weight", "/optimizer/second_moment/layers/1/mamba/D"})
    EXPECT_NO_THROW(file.dataset(name)) << name;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    const auto dataset = file.dataset(path_of(Content::weight, p->weight.name));
    EXPECT_EQ(dataset.shape(), p->weight.shape);
    EXPECT_EQ(dataset.dtype(), p->dtype());
    EXPECT_EQ(dataset.text("hf_name"), p->weight.name);
    std::vector<double> bytes(p->weight.size());
    dataset.read_rows(0, p->weight.shape[0], bytes.data());
    const WeightValues values(p->weight);
    for (Index i = 0; i < p->weight.size(); ++i) {
      const double wanted = values(i);
      const bool same = dataset.dtype() == DType::f64   ? bytes[i] == wanted
                        : dataset.dtype() == DType::f32 ? reinterpret_cast<float*>(bytes.data())[i] == float(wanted)
                                                        : reinterpret_cast<bf16*>(bytes.data())[i].bits == bf16(wanted).bits;
      ASSERT_TRUE(same) << p->weight.name << " " << i;
    }
  }
}

// Weights are converted to any precision from their most exact copy: the master weight if there is one. A new optimizer
// starts from them.
TEST(checkpoint, converts_between_precisions) {
  const Folder folder;
  const ModelConfig model = named("T2").model;
  Single<float> f32(model);
  Single<bf16> b16(model);
  Single<double> f64(model);
  set_state(f32.engine, 1), set_state(b16.engine, 2);
  const fs::path wide = save_checkpoint(folder / "wide", header_at(1), f32.engine).path;
  const fs::path narrow = save_checkpoint(folder / "narrow", header_at(1), b16.engine).path;
  load_checkpoint(wide, b16.engine, LoadWhat::weights);
  load_checkpoint(narrow, f64.engine, LoadWhat::weights);
  for (const auto& p : b16.engine.stage().parameters().all()) {
    const auto value = [&](int salt, Content content, Index i) { return float(state_value(salt, content, p->weight.name, i)); };
    const bool master = b16.engine.optimizer().has_master(*p);
    const Parameter& q = *f64.engine.stage().parameters().all()[&p - &b16.engine.stage().parameters().all()[0]];
    for (Index i = 0; i < p->size(); ++i) {
      if (master) {
        ASSERT_EQ(p->vector<bf16>()(i).bits, bf16(value(1, Content::weight, i)).bits);
        ASSERT_EQ(b16.engine.optimizer().master(*p).values.as<float>()(i), value(1, Content::weight, i));
      } else {
        ASSERT_EQ(p->vector<float>()(i), value(1, Content::weight, i));
      }
      ASSERT_EQ(b16.engine.optimizer().state(*p, "first_moment").values.as<float>()(i), 0);
      ASSERT_EQ(q.vector<double>()(i), double(value(2, master ? Content::master : Content::weight, i)));
    }
  }
}

TEST(checkpoint, weights_load_into_stage_without_optimizer) {
  const Folder folder;
  const ModelConfig model = named("T5").model;
  Single<float> rig(model);
  set_state(rig.engine, 3);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  Grid& grid = single_rank_grid(model.layers());
  Stage stage(model, DType::f64, grid);
  Arena weights(Memory::weights, 1 << 20), none(Memory::gradients, 0);
  stage.parameters().allocate(weights, none, Gradients::none);
  load_weights(path, grid, stage.config(), stage.parameters().all());
  for (const auto& p : stage.parameters().all())
    for (Index i = 0; i < p->size(); ++i)
      ASSERT_EQ(p->vector<double>()(i), double(float(state_value(3, Content::weight, p->weight.name, i)))) << p->weight.name;
}

TEST(checkpoint, mismatched_model_is_refused_naming_the_weight) {
  const Folder folder;
  const ModelConfig model = named("T2").model;
  Single<float> rig(model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const auto loaded = [&](auto change) {
    ModelConfig other = model;
    change(other);
    Single<float> b(other);
    return error_of([&] { load_checkpoint(path, b.engine, LoadWhat::weights); });
  };
  const Error taller = loaded([](ModelConfig& m) { m.pattern = "PPP"; });
  EXPECT_EQ(taller.code, Exit::config);
  EXPECT_TRUE(mentions(taller, "model.layers.2.")) << taller.what();
  const Error shorter = loaded([](ModelConfig& m) { m.pattern = "P"; });
  EXPECT_EQ(shorter.code, Exit::config);
  EXPECT_TRUE(mentions(shorter, "/model/layers/1/")) << shorter.what();
  const Error wider = loaded([](ModelConfig& m) { m.mlp.intermediate_size = 64; });
  EXPECT_EQ(wider.code, Exit::config);
  EXPECT_TRUE(mentions(wider, "gate_proj") && mentions(wider, "48 x 32") && mentions(wider, "64 x 32")) << wider.what();
  const Error tied = loaded([](ModelConfig& m) { m.tie_word_embeddings = true; });
  EXPECT_EQ(tied.code, Exit::config);
  EXPECT_TRUE(mentions(tied, "lm_head")) << tied.what();
  const Error missing = error_of([&] { load_checkpoint(folder / "step_00000099", rig.engine, LoadWhat::weights); });
  EXPECT_EQ(missing.code, Exit::missing);
}

// HDF5 also searches the current folder for the files that index.h5 refers to. In this test, another checkpoint has
// files of the same names there.
TEST(checkpoint, index_shows_no_values_of_another_checkpoint) {
  const Folder folder;
  Single<float> rig(named("T1").model);
  const fs::path a = save_checkpoint(folder / "a", header_at(1), rig.engine).path;
  set_state(rig.engine, 4);
  const fs::path b = save_checkpoint(folder / "b", header_at(1), rig.engine).path;
  const auto stored_values = [&](const fs::path& checkpoint) {
    const hdf5::File index = hdf5::File::open(checkpoint / "index.h5");
    const auto dataset = index.dataset("/model/final_layernorm/weight");
    std::vector<float> read(std::size_t(elements(dataset.shape())));
    dataset.read_rows(0, dataset.shape()[0], read.data());
    return read;
  };
  const fs::path before = fs::current_path();
  fs::current_path(b);
  const auto complete = stored_values(a), second = stored_values(b);
  fs::remove(a / "shard_00000.h5");
  const auto missing = stored_values(a);
  fs::current_path(before);
  EXPECT_NE(complete, second);
  EXPECT_TRUE(std::all_of(complete.begin(), complete.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(std::all_of(missing.begin(), missing.end(), [](float x) { return std::isnan(x); }));
}

// Position of `needle` in `hay`, where it must occur exactly once.
std::size_t only_place(const std::string& hay, const std::string& needle) {
  const std::size_t at = hay.find(needle);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(hay.find(needle, at + 1), std::string::npos);
  return at;
}

TEST(checkpoint, flipped_bit_is_reported_with_its_tensor) {
  const Folder folder;
  Single<float> rig(named("T1").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path, shard = path / "shard_00000.h5";
  const std::string complete = contents(shard);
  for (const auto& p : rig.engine.stage().parameters().all()) {
    if (p->weight.name.find("in_proj") == std::string::npos) continue;
    std::string bytes = complete;
    const char* row = reinterpret_cast<const char*>(p->vector<float>().data() + 5);
    bytes[only_place(bytes, std::string(row, 16)) + 2] ^= 1;
    put_contents(shard, bytes);
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::weights); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_TRUE(mentions(error, shard.string()) && mentions(error, path_of(Content::weight, p->weight.name))) << error.what();
  }
}

// After a bit flip anywhere in a file of a checkpoint, the error names the file. index.h5 is for people only: a run
// does not read it, but check_index() verifies it.
TEST(checkpoint, flipped_bit_anywhere_is_detected) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  set_state(rig.engine, 4);
  const fs::path path = save_checkpoint(folder.path(), header_at(7), rig.engine).path;
  std::mt19937 random(1);
  for (const char* name : {"shard_00000.h5", "manifest.json", "index.h5"}) {
    const std::string complete = contents(path / name);
    Trials trials(fmt::format("flipped bit anywhere in {}", name));
    for (int trial = 0; trial < 100; ++trial)
      trials.attempt([&] {
        std::string bytes = complete;
        bytes[random() % bytes.size()] ^= char(1 << random() % 8);
        put_contents(path / name, bytes);
        const Error error = error_of([&] {
          load_checkpoint(path, rig.engine, LoadWhat::everything);
          StoredCheckpoint(path).check_index();
        });
        EXPECT_EQ(error.code, Exit::data) << name << " trial " << trial << ": " << error.what();
        EXPECT_TRUE(mentions(error, (path / name).string())) << error.what();
      });
    put_contents(path / name, complete);
  }
  load_checkpoint(path, rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 4);
}

// Ranks divide the checksum verification among them. With fewer, as many or more ranks than files, exactly one rank
// checks each file.
TEST(checkpoint, every_file_is_checked_by_exactly_one_rank) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  reshard(save_checkpoint(folder.path(), header_at(7), rig.engine).path, folder / "many", 7, {});
  std::mt19937 random(1);
  for (int number = 0; number < 7; ++number) {
    const fs::path file = folder / "many" / shard_name(number);
    const std::string complete = contents(file);
    std::string bytes = complete;
    bytes[random() % bytes.size()] ^= char(1 << random() % 8);
    put_contents(file, bytes);
    for (const int ranks : {1, 2, 3, 5, 7, 8, 16}) {
      int noticed = 0;
      for (int rank = 0; rank < ranks; ++rank)
        noticed += error_of([&] { StoredCheckpoint(folder / "many").check_files(rank, ranks); }).code == Exit::data;
      EXPECT_EQ(noticed, 1) << file << " on " << ranks << " ranks";
    }
    put_contents(file, complete);
  }
}

// Files of format 1.x have their checksums inside HDF5. After a bit flip, loading either fails or restores the correct
// state.
TEST(checkpoint, older_format_is_read_bit_for_bit) {
  const Folder folder;
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden/checkpoint_1.0.h5";  // written by version 0.1.0 of this program
  ModelConfig model = named("T1").model;
  model.pattern = "M-", model.vocab_size = 16, model.mlp.intermediate_size = 16;
  Single<bf16> rig(model);
  const CheckpointHeader h = load_checkpoint(golden, rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 10);
  EXPECT_EQ(h.version, "1.0");
  EXPECT_EQ(h.step, 10);
  EXPECT_EQ(h.deck, header_at(0).deck);
  EXPECT_NE(describe_checkpoint(golden, {}).find("/model/layers/0/mamba/in_proj/weight"), std::string::npos);

  fs::copy(golden, folder / "step_00000010.h5");  // the folder in which a run looks for checkpoints
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step_00000010.h5");
  const fs::path saved_again = save_checkpoint(folder / "new", header_at(10), rig.engine).path;
  EXPECT_TRUE(diff_checkpoints(golden, saved_again, {}).within);
  reshard(golden, folder / "resharded", 3, {});
  EXPECT_TRUE(diff_checkpoints(golden, folder / "resharded", {}).within);

  const std::string complete = contents(golden);
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::string bytes = complete;
    bytes[random() % (trial % 2 ? bytes.size() : std::size_t(4096))] ^= char(1 << random() % 8);
    put_contents(folder / "flipped.h5", bytes);
    set_state(rig.engine, 5);
    const Error error = error_of([&] { load_checkpoint(folder / "flipped.h5", rig.engine, LoadWhat::everything); });
    if (error.code == Exit::ok) expect_state(rig.engine, 10, fmt::format("trial {}", trial));
    else EXPECT_EQ(error.code, Exit::data) << error.what();
    refused += error.code != Exit::ok;
  }
  EXPECT_GT(refused, 100);
}

// Copies a checkpoint of format 1.0 without some of its tensors, and with another deck if one is given.
void copy_without(const fs::path& from, const fs::path& to, const std::set<std::string>& dropped, const std::string& deck = "") {
  const StoredCheckpoint stored(from);
  CheckpointHeader header = stored.header();
  if (!deck.empty()) header.deck = deck;
  hdf5::File file = hdf5::File::create(to);
  for (const StoredTensor& t : stored.tensors()) {
    if (dropped.contains(t.path)) continue;
    std::vector<std::byte> rows(std::size_t(elements(t.shape) * size_of(t.dtype)));
    stored.read_rows(t, 0, t.shape[0], rows.data());
    file.create_dataset(t.path, t.dtype, t.shape).write_rows(0, t.shape[0], rows.data());
  }
  write_header(file, header, checkpoint_format);
  file.set("complete", std::int64_t(1));
  file.close();
}

TEST(checkpoint, tensor_removed_from_older_format_is_named) {
  const Folder folder;
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden/checkpoint_1.0.h5", copy = folder / "copy.h5";
  copy_without(golden, copy, {});
  EXPECT_NO_THROW(describe_checkpoint(copy, {.check = true}));
  EXPECT_TRUE(diff_checkpoints(golden, copy, {}).within);
  const StoredCheckpoint stored(golden);
  for (const StoredTensor& t : stored.tensors()) {
    copy_without(golden, copy, {t.path});
    for (const Error& error :
         {error_of([&] { describe_checkpoint(copy, {.check = true}); }), error_of([&] { reshard(copy, folder / "to", 1, {}); })}) {
      EXPECT_EQ(error.code, Exit::data) << t.path;
      EXPECT_TRUE(mentions(error, "is missing")) << t.path << ": " << error.what();
    }
    EXPECT_FALSE(fs::exists(folder / "to"));
  }
}

// If the moments of a weight are removed with it, only the deck in the file shows that it is missing.
TEST(checkpoint, weight_missing_from_older_format_is_named) {
  const Folder folder;
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden/checkpoint_1.0.h5", copy = folder / "copy.h5";
  const std::string deck = R"(
model: {pattern: M-, vocab_size: 16, hidden_size: 32, mamba: {num_heads: 6, head_dim: 8, state_size: 8}, mlp: {intermediate_size: 16}}
train: {steps: 1, global_batch_size: 1, seq_length: 4})";
  copy_without(golden, copy, {}, "model: {width: none}");
  const std::string unread = check_weights_of_deck(copy);
  EXPECT_NE(unread.find("the deck in the file cannot be read"), std::string::npos) << unread;
  copy_without(golden, copy, {}, deck);
  EXPECT_EQ(check_weights_of_deck(copy), "");
  const StoredCheckpoint stored(golden);
  for (const StoredTensor& t : stored.tensors()) {
    if (!t.path.starts_with("/model/")) continue;
    std::set<std::string> all;
    for (const StoredTensor& other : stored.tensors())
      if (other.hf_name == t.hf_name) all.insert(other.path);
    copy_without(golden, copy, all, deck);
    EXPECT_NO_THROW(describe_checkpoint(copy, {.check = true}));
    const Error error = error_of([&] { check_weights_of_deck(copy); });
    EXPECT_EQ(error.code, Exit::data) << t.path;
    EXPECT_TRUE(mentions(error, t.hf_name)) << error.what();
  }
}

// A check of a single file detects every bit flip in a shard or an index. In older files it detects every flip that
// affects a value. A file without checksums is never reported as verified.
TEST(checkpoint, single_file_is_checked_or_reported_unchecked) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(7), rig.engine).path;
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden/checkpoint_1.0.h5", older = folder / "step_00000010.h5";
  fs::copy(golden, older);
  ModelConfig model = named("T1").model;
  model.pattern = "M-", model.vocab_size = 16, model.mlp.intermediate_size = 16;
  Single<bf16> small(model);
  const auto check = [](const fs::path& file) { return error_of([&] { describe_checkpoint(file, {.check = true}); }); };
  for (const fs::path& file : {path / "shard_00000.h5", path / "index.h5", older})
    EXPECT_EQ(check(file).code, Exit::ok) << file << check(file).what();

  std::mt19937 random(1);
  Trials trials("flipped bit in a single file that is checked");
  for (const fs::path& file : {path / "shard_00000.h5", path / "index.h5", older}) {
    const std::string complete = contents(file);
    int refused = 0;
    for (int trial = 0; trial < 100; ++trial)
      trials.attempt([&] {
        std::string bytes = complete;
        bytes[random() % bytes.size()] ^= char(1 << random() % 8);
        put_contents(file, bytes);
        const Error error = check(file);
        refused += error.code == Exit::data;
        if (file != older) {
          EXPECT_EQ(error.code, Exit::data) << file << " trial " << trial;
        } else if (error.code == Exit::ok) {
          set_state(small.engine, 5);
          if (error_of([&] { load_checkpoint(file, small.engine, LoadWhat::everything); }).code == Exit::ok) expect_state(small.engine, 10);
        }
      });
    EXPECT_GT(refused, 50) << file;
    put_contents(file, complete);
  }
  fs::copy(path / "index.h5", folder / "view.h5");  // separated from the shards that it refers to
  EXPECT_TRUE(mentions(check(folder / "view.h5"), "cannot be checked")) << check(folder / "view.h5").what();
  EXPECT_EQ(check(folder / "view.h5").code, Exit::data);
}

TEST(checkpoint, truncated_or_missing_file_is_refused) {
  const Folder folder;
  Trials trials("truncated or missing file of a checkpoint");
  Single<float> rig(named("T9").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const auto refused = [&](const fs::path& file) {
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::weights); });
    EXPECT_EQ(error.code, Exit::data) << file;
    EXPECT_TRUE(mentions(error, file.string())) << error.what();
    EXPECT_FALSE(newest_checkpoint(folder.path()));
  };
  for (const char* name : {"shard_00000.h5", "manifest.json"}) {
    const std::string complete = contents(path / name);
    for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(100), complete.size() / 2, complete.size() - 1}) {
      put_contents(path / name, complete.substr(0, length));
      trials.attempt([&] { refused(path / name); });
    }
    fs::remove(path / name);
    trials.attempt([&] { refused(path / name); });
    put_contents(path / name, complete);
  }
  EXPECT_TRUE(newest_checkpoint(folder.path()));
}

// Swapped shards, and shards of another step, contradict the manifest.
TEST(checkpoint, files_of_another_checkpoint_are_refused) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  set_state(rig.engine, 1);
  const fs::path one = save_checkpoint(folder / "one", header_at(1), rig.engine).path;
  set_state(rig.engine, 2);
  const fs::path two = save_checkpoint(folder / "two", header_at(2), rig.engine).path;
  reshard(one, folder / "parts", 4, {});
  const auto refused = [&](const fs::path& path, const fs::path& file) {
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::everything); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_TRUE(mentions(error, file.string())) << error.what();
  };
  load_checkpoint(folder / "parts", rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 1);
  const fs::path a = folder / "parts/shard_00001.h5", b = folder / "parts/shard_00002.h5";
  fs::rename(a, folder / "kept"), fs::rename(b, a), fs::rename(folder / "kept", b);
  refused(folder / "parts", a);
  fs::copy_file(one / "shard_00000.h5", two / "shard_00000.h5", fs::copy_options::overwrite_existing);
  refused(two, two / "shard_00000.h5");
}

TEST(checkpoint, unknown_format_or_impossible_manifest_is_refused) {
  const Folder folder;
  const auto refused = [&](const char* name, auto fill, const std::string& why) {
    hdf5::File file = hdf5::File::create(folder / name);
    fill(file);
    file.close();
    const Error error = error_of([&] { read_header(folder / name); });
    EXPECT_EQ(error.code, Exit::data) << name;
    EXPECT_TRUE(mentions(error, why)) << error.what();
  };
  const auto old = [](std::int64_t step) {
    CheckpointHeader h = header_at(step);
    h.version = "1.0", h.writer = "somebody", h.created = "some time";
    return h;
  };
  refused(
      "a.h5", [](hdf5::File&) {}, "not a checkpoint");
  refused(
      "b.h5", [](hdf5::File& f) { f.set("format", "something"); }, "not a checkpoint");
  refused(
      "c.h5", [&](hdf5::File& f) { write_header(f, old(1), checkpoint_format); }, "never finished");
  refused(
      "d.h5", [](hdf5::File& f) { f.set("format", checkpoint_format), f.set("format_version", "3.0"); }, "3.0");
  refused(
      "e.h5",
      [&](hdf5::File& f) {
        write_header(f, old(-1), checkpoint_format);
        f.set("complete", std::int64_t(1));
      },
      "negative");

  // Manifests with a correct checksum but impossible contents.
  Single<float> rig(named("T9").model);
  Manifest good = StoredCheckpoint(save_checkpoint(folder.path(), header_at(1), rig.engine).path).manifest();
  EXPECT_NO_THROW(manifest_of(text_of(good), "good"));
  const auto senseless = [&](auto change, const std::string& why) {
    Manifest m = good;
    change(m);
    const Error error = error_of([&] { manifest_of(text_of(m), "bad"); });
    EXPECT_EQ(error.code, Exit::data) << why;
    EXPECT_TRUE(mentions(error, why)) << error.what();
  };
  senseless([](Manifest& m) { m.files[0].name = "../../secret"; }, "../../secret");
  senseless([](Manifest& m) { m.files[0].boxes.pop_back(); }, "are in no file");
  senseless([](Manifest& m) { m.files[0].boxes.push_back(m.files[0].boxes[3]); }, "overlap");
  senseless([](Manifest& m) { m.files[0].boxes[0].tensor = 100000; }, "not listed");
  senseless([](Manifest& m) { m.files[0].boxes[0].box.first[0] = -1; }, "outside");
  senseless([](Manifest& m) { m.tensors[0].shape[0] = Index(1) << 62; }, "impossible");
  senseless([](Manifest& m) { m.header.step = -1; }, "negative");
}

TEST(checkpoint, incomplete_checkpoint_is_never_selected) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  EXPECT_FALSE(newest_checkpoint(folder / "not there"));
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  set_state(rig.engine, 10);
  save_checkpoint(folder.path(), header_at(10), rig.engine);
  set_state(rig.engine, 20);
  save_checkpoint(folder.path(), header_at(20), rig.engine);
  EXPECT_EQ(contents(folder / "latest"), "step_00000020\n");
  fs::copy(folder / "step_00000020", folder / "step_00000030.tmp");  // left by a killed run
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step_00000020");

  fs::copy(folder / "step_00000020", folder / "step_00000040");  // a copy whose folder name does not match its step
  fs::create_directory(folder / "step_00000050");
  std::vector<std::string> notes;
  EXPECT_EQ(newest_checkpoint(folder.path(), [&](const std::string& note) { notes.push_back(note); }), folder / "step_00000020");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("step_00000050"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("step_00000040"), std::string::npos) << notes[1];

  set_state(rig.engine, 30);
  save_checkpoint(folder.path(), header_at(30), rig.engine);
  EXPECT_FALSE(fs::exists(folder / "step_00000030.tmp"));
  load_checkpoint(folder / "step_00000030", rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 30);
}

TEST(checkpoint, retention_keeps_newest_checkpoints_and_multiples) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  const auto steps = [&] { return committed_steps(folder.path()); };
  using Steps = std::vector<std::int64_t>;
  save_checkpoint(folder.path(), header_at(100), rig.engine);  // from an earlier run that went further
  put_contents(folder / "notes.txt", "mine");
  put_contents(folder / "step_1.h5", "not our name");
  put_contents(folder / "step_00000005x.tmp", "nor this");
  put_contents(folder / "step_00000005.h5", "an older format's");
  fs::create_directories(folder / "step_00000007.tmp/deep");
  for (const int step : {10, 20, 30}) save_checkpoint(folder.path(), header_at(step), rig.engine);
  EXPECT_EQ(steps(), (Steps{5, 10, 20, 30, 100}));
  EXPECT_FALSE(fs::exists(folder / "step_00000007.tmp"));
  fs::remove(folder / "step_00000005.h5");
  EXPECT_EQ(steps(), (Steps{10, 20, 30, 100}));
  EXPECT_TRUE(save_checkpoint(folder.path(), header_at(40), rig.engine, {.retention = {2}}).notes.empty());
  EXPECT_EQ(steps(), (Steps{30, 40, 100}));
  save_checkpoint(folder.path(), header_at(40), rig.engine, {.retention = {1}});  // saves step 40 again
  EXPECT_EQ(steps(), (Steps{40, 100}));
  for (const int step : {50, 60, 70, 75, 80}) save_checkpoint(folder.path(), header_at(step), rig.engine, {.retention = {1, 25}});
  EXPECT_EQ(steps(), (Steps{50, 75, 80, 100}));
  EXPECT_TRUE(fs::exists(folder / "notes.txt") && fs::exists(folder / "step_1.h5") && fs::exists(folder / "step_00000005x.tmp"));
  EXPECT_NE(contents(folder / "README.md").find("manifest.json"), std::string::npos);
}

TEST(checkpoint, full_disk_at_any_byte_keeps_previous_checkpoint) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  set_state(rig.engine, 1);
  const fs::path old = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const auto size = fs::file_size(old / "shard_00000.h5");
  set_state(rig.engine, 2);
  std::vector<std::size_t> limits{0, 1, 48, 512, size - 1};
  for (std::size_t limit = 2048; limit < size; limit += size / 12) limits.push_back(limit);
  Trials trials("disk full at some byte of a save");
  for (const std::size_t limit : limits)
    trials.attempt([&] {
      const Error error = error_of([&] {
        const FileSizeLimit full(limit);
        save_checkpoint(folder.path(), header_at(2), rig.engine, {.retention = {1}, .async = limit % 2 == 1});
      });
      EXPECT_EQ(error.code, Exit::io) << limit << ": " << error.what();
      EXPECT_TRUE(mentions(error, "step_00000002.tmp/shard_00000.h5") && mentions(error, "File too large")) << error.what();
      EXPECT_EQ(committed_steps(folder.path()), std::vector<std::int64_t>{1});
      EXPECT_FALSE(fs::exists(folder / "step_00000002.tmp"));
    });
  EXPECT_EQ(newest_checkpoint(folder.path()), old);
  load_checkpoint(old, rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 1);
}

TEST(checkpoint, save_without_disk_space_is_refused_early) {
  const Folder folder;
  const Error error = error_of([&] { require_space(folder.path(), Index(1) << 60, "a checkpoint", "free space"); });
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_TRUE(mentions(error, "a checkpoint needs 1.15 EB") && mentions(error, folder.path().string())) << error.what();
  EXPECT_NO_THROW(require_space(folder.path(), 1000, "a checkpoint", "free space"));
  // A file exists where the checkpoint folder should be.
  put_contents(folder / "file", "");
  Single<float> rig(named("T9").model);
  EXPECT_EQ(error_of([&] { save_checkpoint(folder / "file", header_at(1), rig.engine); }).code, Exit::io);
}

TEST(checkpoint, diff_reports_tensors_beyond_tolerance) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  Single<double> other(named("T1").model);
  const fs::path a = save_checkpoint(folder / "a", header_at(1), rig.engine).path;
  const fs::path same = save_checkpoint(folder / "same", header_at(1), rig.engine).path;
  const auto& p = *rig.engine.stage().parameters().all()[0];
  double largest = 0;
  for (Index i = 0; i < p.size(); ++i) largest = std::max(largest, std::abs(double(p.vector<float>()(i))));
  p.vector<float>()(3) += 0.25f;
  const fs::path b = save_checkpoint(folder / "b", header_at(2), rig.engine).path;
  p.vector<float>()(3) = std::nanf("");
  const fs::path c = save_checkpoint(folder / "c", header_at(3), rig.engine).path;
  const fs::path d = save_checkpoint(folder / "d", header_at(3), other.engine).path;

  EXPECT_TRUE(diff_checkpoints(a, same, {}).within);
  EXPECT_TRUE(diff_checkpoints(c, c, {}).within);
  const Difference difference = diff_checkpoints(a, b, {});
  EXPECT_FALSE(difference.within);
  EXPECT_NE(difference.text.find("/model/embed_tokens/weight"), std::string::npos) << difference.text;
  EXPECT_EQ(difference.text.find("lm_head"), std::string::npos) << difference.text;
  EXPECT_NE(difference.text.find("2.500e-01"), std::string::npos) << difference.text;
  const double relative = 0.25 / std::max(largest, 0.25);
  EXPECT_TRUE(diff_checkpoints(a, b, {{"*", 0, relative * 1.5}}).within);
  EXPECT_FALSE(diff_checkpoints(a, b, {{"*", 0, relative * 0.5}}).within);
  EXPECT_FALSE(diff_checkpoints(a, c, {{"*", 1e9, 1e9}}).within);
  EXPECT_FALSE(diff_checkpoints(a, d, {{"*", 1e9, 1e9}}).within);  // tensors of other shapes

  // The last matching line of a tolerance file applies.
  const auto within = [&](const std::string& lines) { return diff_checkpoints(a, b, read_tolerances(folder.write("tolerances", lines))).within; };
  EXPECT_TRUE(within("# everything\n\n* 0.3 0\n"));
  EXPECT_FALSE(within("* 0.3 0\n/model/embed_tokens/* 0.2 0  # less\n"));
  EXPECT_TRUE(within("* 0 0\n/model/embed_tokens/* 0.3 0\n"));
  for (const char* lines : {"* 1", "* 1 x", "* -1 0", "a\n", "* 1 1 1"}) {
    const Error error = error_of([&] { read_tolerances(folder.write("tolerances", std::string("# first\n") + lines)); });
    EXPECT_EQ(error.code, Exit::data) << lines;
    EXPECT_TRUE(mentions(error, "tolerances:2")) << error.what();
  }
}

TEST(checkpoint, description_lists_tensors_shapes_and_statistics) {
  const Folder folder;
  Single<bf16> rig(named("T5").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(12), rig.engine).path;
  setenv("COLUMNS", "400", 1);  // titles wrap in narrower tables
  const std::string text = describe_checkpoint(path, {.statistics = true, .check = true});
  unsetenv("COLUMNS");
  for (const char* part : {"/model/layers/1/mamba/conv1d/weight", "bfloat16", "float32", "64 x 1 x 4", "data=1 pipeline=1 tensor=1", "960",
                           "18364758544493064720", "not finite", "shard_00000.h5"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Index weights = named("T5").reference.parameters;
  EXPECT_NE(text.find(fmt::format("{} of them weights", weights)), std::string::npos) << text;
}

TEST(checkpoint, check_prints_summary_without_tensors) {
  const Folder folder;
  Single<float> rig(named("T5").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(12), rig.engine).path;
  const std::string text = describe_checkpoint(path, {.check = true});
  EXPECT_EQ(text.find("/model/layers/1/mamba/conv1d/weight"), std::string::npos) << text;
  for (const char* part : {" tensors, ", "shard_00000.h5", "every file matches its checksum"}) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(checkpoint, file_of_checkpoint_is_described_with_its_header) {
  const Folder folder;
  Single<float> rig(named("T5").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(12), rig.engine).path;
  for (const auto& [file, role] : {std::pair{"index.h5", "view of every unsharded tensor"}, {"shard_00000.h5", "one of 1 shard"}}) {
    const std::string text = describe_checkpoint(path / file, {});
    EXPECT_NE(text.find(fmt::format("{}: {} of the checkpoint {}\n", (path / file).string(), role, path.string())), std::string::npos) << text;
    EXPECT_NE(text.find("data=1 pipeline=1 tensor=1"), std::string::npos) << text;
  }
  fs::remove(path / "manifest.json");
  EXPECT_TRUE(describe_checkpoint(path / "index.h5", {}).starts_with("\ntensor")) << "the file is described by itself";
}

TEST(checkpoint, best_checkpoint_is_never_removed) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  const auto save = [&](Index step) { save_checkpoint(folder.path(), header_at(step), rig.engine, {.retention = {2, 0}}); };
  EXPECT_FALSE(best_checkpoint(folder.path()));
  save(10);
  write_best(folder.path(), {10, 2.5});
  for (const Index step : {20, 30, 40}) save(step);
  EXPECT_EQ(committed_steps(folder.path()), (std::vector<std::int64_t>{10, 30, 40}));
  ASSERT_TRUE(best_checkpoint(folder.path()));
  EXPECT_EQ(best_checkpoint(folder.path())->loss, 2.5);
  EXPECT_EQ(chosen_checkpoint(folder / "best"), folder / "step_00000010");
  for (const auto& [step, best] : {std::pair{10, "this checkpoint, validation loss 2.5000"}, {40, "step_00000010, validation loss 2.5000"}})
    EXPECT_NE(describe_checkpoint(checkpoint_path(folder.path(), step), {.check = true}).find(best), std::string::npos) << step;
  write_best(folder.path(), {40, 2.25});
  EXPECT_TRUE(prune(folder.path(), 40, {2, 0}).empty());
  EXPECT_EQ(committed_steps(folder.path()), (std::vector<std::int64_t>{30, 40}));
  fs::remove_all(folder / "step_00000040");
  EXPECT_FALSE(best_checkpoint(folder.path())) << "the recorded checkpoint is gone";
}

// h5py reads the values, also those of bfloat16 tensors.
TEST(checkpoint, h5py_reads_values_and_attributes) {
  const Folder folder;
  Single<bf16> rig(named("T2").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(12), rig.engine).path;
  const auto& p = *rig.engine.stage().parameters().all()[0];
  double sum = 0;
  for (Index i = 0; i < p.size(); ++i) sum += double(i % 7) * double(float(p.vector<bf16>()(i)));
  put_contents(folder / "read.py", fmt::format(R"(import sys
try:
    import h5py, numpy
except ImportError:
    sys.exit(9)
f = h5py.File('{}')
x = f['model/embed_tokens/weight']
assert x.shape == ({}, {}), x.shape
s = float(((numpy.arange(x.size) % 7) * x[...].astype('f8').ravel()).sum())
assert abs(s - {:.17g}) < 1e-9, s
assert f.attrs['step'] == 12 and f.attrs['seed'] == 0xfedcba9876543210
assert f.attrs['format'].decode() == 'gyrfalcon checkpoint index'
assert x.attrs['hf_name'].decode() == 'model.embed_tokens.weight'
)",
                                               (path / "index.h5").string(), p.weight.shape[0], p.weight.shape[1], sum));
  int result = -1;
  for (const char* python : {"python3", "/usr/bin/python3"}) {  // uses the first Python that has h5py
    result = std::system(fmt::format("{} {}", python, (folder / "read.py").string()).c_str());
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return;
    if (WIFEXITED(result) && WEXITSTATUS(result) != 9 && WEXITSTATUS(result) != 127) break;
  }
  if (WIFEXITED(result) && (WEXITSTATUS(result) == 9 || WEXITSTATUS(result) == 127)) GTEST_SKIP() << "h5py is not installed";
  FAIL() << "h5py read other values than those saved";
}

// index.h5 shows the values stored in the shards, and NaN where a shard is missing.
TEST(checkpoint, index_shows_nan_for_missing_shard) {
  const Folder folder;
  Single<bf16> rig(named("T5").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  reshard(path, folder / "parts", 3, {.deflate = 4});
  for (const fs::path& checkpoint : {path, folder / "parts"}) {
    const StoredCheckpoint stored(path);
    const hdf5::File index = hdf5::File::open(checkpoint / "index.h5");
    for (const StoredTensor& t : stored.tensors()) {
      std::vector<std::byte> expected(elements(t.shape) * size_of(t.dtype)), shown(expected.size());
      stored.read_rows(t, 0, t.shape[0], expected.data());
      index.dataset(t.path).read_rows(0, t.shape[0], shown.data());
      ASSERT_TRUE(shown == expected) << t.path;
    }
  }
  fs::remove(folder / "parts/shard_00001.h5");
  const Error error = error_of([&] { load_checkpoint(folder / "parts", rig.engine, LoadWhat::weights); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_TRUE(mentions(error, "shard_00001.h5")) << error.what();
  const hdf5::File index = hdf5::File::open(folder / "parts/index.h5");
  Index missing = 0, all = 0;
  const StoredCheckpoint stored(path);
  for (const StoredTensor& t : stored.tensors()) {
    const Index count = elements(t.shape);
    std::vector<std::byte> shown(count * size_of(t.dtype));
    index.dataset(t.path).read_rows(0, t.shape[0], shown.data());
    std::vector<double> stored_values(count);
    convert_to_double(t.dtype, shown.data(), count, stored_values.data());
    missing += std::count_if(stored_values.begin(), stored_values.end(), [](double x) { return std::isnan(x); }) * size_of(t.dtype);
    all += count * size_of(t.dtype);
  }
  EXPECT_NEAR(double(missing), double(all) / 3, 1000.);  // one of three shards of equal size is missing
}

TEST(checkpoint, resharding_gives_equally_large_shards_and_same_state) {
  const Folder folder;
  Single<bf16> rig(named("T2").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  for (const int files : {1, 2, 7, 64}) {
    const fs::path to = folder / fmt::format("parts{}", files);
    const Resharded r = reshard(path, to, files, {.deflate = files % 2});
    EXPECT_EQ(r.files, files);
    EXPECT_TRUE(diff_checkpoints(path, to, {}).within);
    set_state(rig.engine, 2);
    EXPECT_EQ(load_checkpoint(to, rig.engine, LoadWhat::everything).deck, header_at(1).deck);
    expect_state(rig.engine, 1);
    Index least = r.bytes, most = 0;
    const StoredCheckpoint stored(to);
    for (const ManifestFile& f : stored.manifest().files) {
      Index bytes = 0;
      for (const StoredBox& b : f.boxes) bytes += elements(b.box.count) * size_of(stored.tensors()[b.tensor].dtype);
      least = std::min(least, bytes), most = std::max(most, bytes);
    }
    EXPECT_LE(most - least, 2 * 64 * 8) << files;  // shards differ by at most a row of elements
  }
  const Error error = error_of([&] { reshard(path, folder / "parts2", 2, {}); });
  EXPECT_EQ(error.code, Exit::usage);
  EXPECT_TRUE(mentions(error, "parts2")) << error.what();
}

// All weights change right after an asynchronous save is requested. The checkpoint holds the state at the time of the
// request.
TEST(checkpoint, asynchronous_save_holds_state_at_request) {
  const Folder folder;
  Single<float> rig(named("T2").model);
  Saver saver(folder.path(), {.async = true}, rig.engine);
  EXPECT_GT(saver.buffer_bytes(), 0);
  EXPECT_EQ(saver.buffer_bytes(), save_buffer_bytes(named("T2").model, DType::f32, rig.engine.grid().layout(), 0));
  for (int step = 1; step <= 5; ++step) {
    set_state(rig.engine, step);
    const auto before = saver.save(header_at(step));
    EXPECT_EQ(before.has_value(), step > 1);
    if (before) {
      EXPECT_EQ(before->step, step - 1);
      EXPECT_GT(before->write_seconds, 0);
      EXPECT_GT(before->blocked_seconds, 0);
    }
    set_state(rig.engine, 100);
  }
  EXPECT_EQ(saver.finish()->step, 5);
  EXPECT_FALSE(saver.finish() || saver.poll());
  for (int step = 1; step <= 5; ++step) {
    load_checkpoint(checkpoint_path(folder.path(), step), rig.engine, LoadWhat::everything);
    expect_state(rig.engine, step);
  }
}

// A Saver that is destroyed before its save is finished leaves neither a checkpoint nor a temporary folder.
TEST(checkpoint, unfinished_asynchronous_save_leaves_nothing) {
  const Folder folder;
  Single<float> rig(named("T2").model);
  set_state(rig.engine, 1);
  Saver(folder.path(), {.async = true}, rig.engine).save(header_at(1));
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  EXPECT_FALSE(fs::exists(folder / "step_00000001.tmp"));
}

std::size_t open_files() { return std::size_t(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator())); }
Index resident_pages() {
  std::ifstream file("/proc/self/statm");
  Index all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

TEST(checkpoint, fifty_saves_leak_no_files_or_memory) {
  for (const bool async : {false, true}) {
    const Folder folder;
    Single<float> rig(named("T2").model);
    Saver saver(folder.path(), {.retention = {1}, .async = async}, rig.engine);
    const auto save = [&](int step) {
      saver.save(header_at(step));
      saver.finish();
      load_checkpoint(checkpoint_path(folder.path(), step), rig.engine, LoadWhat::everything);
    };
    for (int step = 1; step <= 10; ++step) save(step);
    const std::size_t files = open_files();
    const Index pages = resident_pages();
    for (int step = 11; step <= 60; ++step) save(step);
    EXPECT_EQ(open_files(), files);
    EXPECT_LE(resident_pages() - pages, address_sanitizer ? 4096 : 512)
        << "growth in pages of 4 KiB after 50 saves";  // AddressSanitizer keeps freed memory
  }
}

}  // namespace
}  // namespace gyr::testing::checkpoint_suite
