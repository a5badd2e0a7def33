// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints give back every bit, or say what is wrong; whatever happens while one is written, the one before stays good.
#include "src/checkpoint/checkpoint.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <random>

#include "regression/folder.hpp"
#include "regression/testing.hpp"
#include "regression/state.hpp"
#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/writer.hpp"

namespace gyr::testing {
namespace {

namespace fs = std::filesystem;

bool says(const Error& error, const std::string& part) { return std::string(error.what()).find(part) != std::string::npos; }

template <class T>
struct Single : Rig<T> {
  explicit Single(const ModelConfig& model) : Rig<T>(config_of(model), alone(model.layers())) {}
  static EngineConfig config_of(const ModelConfig& model) {
    EngineConfig c;
    c.model = model;
    c.length = 4;
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

TYPED_TEST(checkpoint, gives_back_every_bit) {
  for (const char* name : {"T2", "T5", "T7", "T11"}) {
    const Folder folder;
    Single<TypeParam> a(named(name).model), b(named(name).model);
    set_state(a.engine, 1);
    const Saved saved = save_checkpoint(folder.path(), header_at(10), a.engine);
    EXPECT_EQ(saved.path, folder / "step_00000010.h5");
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

TYPED_TEST(checkpoint, shows_whole_tensors_under_plain_names) {
  const Folder folder;
  Single<TypeParam> rig(named("T11").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const hdf5::File file = hdf5::File::open(path);
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
    for (Index i = 0; i < p->weight.size(); ++i) {
      const double wanted = weight_value(p->weight, i);
      const bool same = dataset.dtype() == DType::f64   ? bytes[i] == wanted
                        : dataset.dtype() == DType::f32 ? reinterpret_cast<float*>(bytes.data())[i] == float(wanted)
                                                        : reinterpret_cast<bf16*>(bytes.data())[i].bits == bf16(wanted).bits;
      ASSERT_TRUE(same) << p->weight.name << " " << i;
    }
  }
}

// Weights go into any precision, from their most exact copy; a new optimizer starts from them.
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
        ASSERT_EQ(b16.engine.optimizer().master(*p)(i), value(1, Content::weight, i));
      } else {
        ASSERT_EQ(p->vector<float>()(i), value(1, Content::weight, i));
      }
      ASSERT_EQ(b16.engine.optimizer().moment1(*p)(i), 0);
      ASSERT_EQ(q.vector<double>()(i), double(value(2, master ? Content::master : Content::weight, i)));
    }
  }
}

TEST(checkpoint, serves_a_stage_without_optimizer) {
  const Folder folder;
  const ModelConfig model = named("T5").model;
  Single<float> rig(model);
  set_state(rig.engine, 3);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  Grid& grid = alone(model.layers());
  Stage<double> stage(model, grid);
  Arena weights(Memory::weights, 1 << 20), none(Memory::gradients, 0);
  stage.parameters().allocate(weights, none, Gradients::none);
  load_weights(path, grid, stage);
  for (const auto& p : stage.parameters().all())
    for (Index i = 0; i < p->size(); ++i)
      ASSERT_EQ(p->vector<double>()(i), double(float(state_value(3, Content::weight, p->weight.name, i)))) << p->weight.name;
}

TEST(checkpoint, of_another_model_is_refused_by_name) {
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
  EXPECT_TRUE(says(taller, "model.layers.2.")) << taller.what();
  const Error shorter = loaded([](ModelConfig& m) { m.pattern = "P"; });
  EXPECT_EQ(shorter.code, Exit::config);
  EXPECT_TRUE(says(shorter, "/model/layers/1/")) << shorter.what();
  const Error wider = loaded([](ModelConfig& m) { m.mlp.width = 64; });
  EXPECT_EQ(wider.code, Exit::config);
  EXPECT_TRUE(says(wider, "gate_proj") && says(wider, "48 x 32") && says(wider, "64 x 32")) << wider.what();
  const Error tied = loaded([](ModelConfig& m) { m.tied = true; });
  EXPECT_EQ(tied.code, Exit::config);
  EXPECT_TRUE(says(tied, "lm_head")) << tied.what();
  const Error missing = error_of([&] { load_checkpoint(folder / "step_00000099.h5", rig.engine, LoadWhat::weights); });
  EXPECT_EQ(missing.code, Exit::missing);
}

// The first place where `needle` occurs, which must be the only one.
std::size_t only_place(const std::string& hay, const std::string& needle) {
  const std::size_t at = hay.find(needle);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(hay.find(needle, at + 1), std::string::npos);
  return at;
}

TEST(checkpoint, with_a_flipped_bit_is_refused_by_tensor) {
  const Folder folder;
  Single<float> rig(named("T1").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const std::string whole = contents(path);
  for (const auto& p : rig.engine.stage().parameters().all()) {
    if (p->weight.name.find("in_proj") == std::string::npos) continue;
    std::string bytes = whole;
    const char* row = reinterpret_cast<const char*>(p->vector<float>().data() + 5);
    bytes[only_place(bytes, std::string(row, 16)) + 2] ^= 1;
    put_contents(path, bytes);
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::weights); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_TRUE(says(error, path.string()) && says(error, path_of(Content::weight, p->weight.name))) << error.what();
  }
}

// Wherever a bit flips, in numbers or in HDF5's own structures: an error, or nothing that matters has changed.
TEST(checkpoint, never_gives_back_what_a_flipped_bit_made) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  set_state(rig.engine, 4);
  const fs::path path = save_checkpoint(folder.path(), header_at(7), rig.engine).path;
  const std::string whole = contents(path);
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes = whole;
    // Half of the flips in the first pages, where the superblock and the header lie.
    const std::size_t at = random() % (trial % 2 ? bytes.size() : std::size_t(4096));
    bytes[at] ^= char(1 << random() % 8);
    put_contents(path, bytes);
    set_state(rig.engine, 5);
    CheckpointHeader h;
    const Error error = error_of([&] { h = load_checkpoint(path, rig.engine, LoadWhat::everything); });
    if (error.code != Exit::ok) {
      EXPECT_EQ(error.code, Exit::data) << at << ": " << error.what();
      EXPECT_TRUE(says(error, path.string())) << error.what();
      ++refused;
      continue;
    }
    expect_state(rig.engine, 4, fmt::format("byte {}", at));
    EXPECT_EQ(h.step, 7) << at;
    EXPECT_EQ(h.seed, header_at(7).seed) << at;
    EXPECT_EQ(h.deck, header_at(7).deck) << at;
  }
  EXPECT_GT(refused, 150);
}

TEST(checkpoint, cut_short_is_refused) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  const fs::path path = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const std::string whole = contents(path);
  for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(100), whole.size() / 2, whole.size() - 1}) {
    put_contents(path, whole.substr(0, length));
    const Error error = error_of([&] { load_checkpoint(path, rig.engine, LoadWhat::weights); });
    EXPECT_EQ(error.code, Exit::data) << length;
    EXPECT_TRUE(says(error, path.string())) << error.what();
    EXPECT_FALSE(newest_checkpoint(folder.path())) << length;
  }
}

TEST(checkpoint, of_another_format_is_refused) {
  const Folder folder;
  const auto refused = [&](const char* name, auto fill, const std::string& why) {
    hdf5::File file = hdf5::File::create(folder / name);
    fill(file);
    file.close();
    const Error error = error_of([&] { read_header(folder / name); });
    EXPECT_EQ(error.code, Exit::data) << name;
    EXPECT_TRUE(says(error, why)) << error.what();
  };
  refused("a.h5", [](hdf5::File&) {}, "not a checkpoint");
  refused("b.h5", [](hdf5::File& f) { f.set("format", "something"); }, "not a checkpoint");
  refused("c.h5", [](hdf5::File& f) { write_header(f, header_at(1)); }, "never finished");
  refused("d.h5", [](hdf5::File& f) { f.set("format", "gyrfalcon checkpoint"), f.set("format_version", "2.0"); }, "2.0");
  refused("e.h5", [](hdf5::File& f) {
    write_header(f, header_at(-1));
    f.set("complete", std::int64_t(1));
  }, "negative");
}

TEST(checkpoint, half_written_is_never_picked) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  EXPECT_FALSE(newest_checkpoint(folder / "not there"));
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  set_state(rig.engine, 10);
  save_checkpoint(folder.path(), header_at(10), rig.engine);
  set_state(rig.engine, 20);
  save_checkpoint(folder.path(), header_at(20), rig.engine);
  EXPECT_EQ(contents(folder / "latest"), "step_00000020.h5\n");
  put_contents(folder / "step_00000030.h5.tmp", contents(folder / "step_00000020.h5").substr(0, 5000));  // a killed run's
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step_00000020.h5");

  put_contents(folder / "step_00000040.h5", contents(folder / "step_00000020.h5"));  // renamed by somebody
  put_contents(folder / "step_00000050.h5", "");
  std::vector<std::string> notes;
  EXPECT_EQ(newest_checkpoint(folder.path(), [&](const std::string& note) { notes.push_back(note); }), folder / "step_00000020.h5");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("step_00000050.h5"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("step_00000040.h5"), std::string::npos) << notes[1];

  set_state(rig.engine, 30);
  save_checkpoint(folder.path(), header_at(30), rig.engine);
  EXPECT_FALSE(fs::exists(folder / "step_00000030.h5.tmp"));
  load_checkpoint(folder / "step_00000030.h5", rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 30);
}

TEST(checkpoint, only_the_last_ones_are_kept) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  const auto steps = [&] { return committed_steps(folder.path()); };
  using Steps = std::vector<std::int64_t>;
  save_checkpoint(folder.path(), header_at(100), rig.engine);  // of a run that went further
  put_contents(folder / "notes.txt", "mine");
  put_contents(folder / "step_1.h5", "not our name");
  for (const int step : {10, 20, 30}) save_checkpoint(folder.path(), header_at(step), rig.engine, 0);
  EXPECT_EQ(steps(), (Steps{10, 20, 30, 100}));
  EXPECT_TRUE(save_checkpoint(folder.path(), header_at(40), rig.engine, 2).notes.empty());
  EXPECT_EQ(steps(), (Steps{30, 40, 100}));
  save_checkpoint(folder.path(), header_at(40), rig.engine, 1);  // again
  EXPECT_EQ(steps(), (Steps{40, 100}));
  EXPECT_TRUE(fs::exists(folder / "notes.txt") && fs::exists(folder / "step_1.h5"));
}

// The file system takes no more than `bytes` of any file while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

TEST(checkpoint, survives_a_disk_that_fills_at_any_byte) {
  const Folder folder;
  Single<float> rig(named("T9").model);
  set_state(rig.engine, 1);
  const fs::path old = save_checkpoint(folder.path(), header_at(1), rig.engine).path;
  const auto size = fs::file_size(old);
  set_state(rig.engine, 2);
  std::vector<std::size_t> limits{0, 1, 48, 512, size - 1};
  for (std::size_t limit = 2048; limit < size; limit += size / 12) limits.push_back(limit);
  for (const std::size_t limit : limits) {
    const Error error = error_of([&] {
      const FileSizeLimit full(limit);
      save_checkpoint(folder.path(), header_at(2), rig.engine, 1);
    });
    EXPECT_EQ(error.code, Exit::io) << limit << ": " << error.what();
    EXPECT_TRUE(says(error, "step_00000002.h5.tmp") && says(error, "File too large")) << error.what();
    EXPECT_EQ(committed_steps(folder.path()), std::vector<std::int64_t>{1});
    EXPECT_FALSE(fs::exists(folder / "step_00000002.h5.tmp"));
  }
  EXPECT_EQ(newest_checkpoint(folder.path()), old);
  load_checkpoint(old, rig.engine, LoadWhat::everything);
  expect_state(rig.engine, 1);
}

TEST(checkpoint, is_not_begun_where_it_has_no_room) {
  const Folder folder;
  const Error error = error_of([&] { require_space(folder.path(), Index(1) << 60); });
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_TRUE(says(error, "1152921504.607 GB") && says(error, folder.path().string())) << error.what();
  EXPECT_NO_THROW(require_space(folder.path(), 1000));
  // A file where the folder should be.
  put_contents(folder / "file", "");
  Single<float> rig(named("T9").model);
  EXPECT_EQ(error_of([&] { save_checkpoint(folder / "file", header_at(1), rig.engine); }).code, Exit::io);
}

TEST(checkpoint, differs_by_what_differs) {
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

  EXPECT_TRUE(diff_checkpoints(a, same, 0).within);
  EXPECT_TRUE(diff_checkpoints(c, c, 0).within);
  const Difference difference = diff_checkpoints(a, b, 0);
  EXPECT_FALSE(difference.within);
  EXPECT_NE(difference.text.find("/model/embed_tokens/weight"), std::string::npos) << difference.text;
  EXPECT_EQ(difference.text.find("lm_head"), std::string::npos) << difference.text;
  EXPECT_NE(difference.text.find("2.500e-01"), std::string::npos) << difference.text;
  const double relative = 0.25 / std::max(largest, 0.25);
  EXPECT_TRUE(diff_checkpoints(a, b, relative * 1.5).within);
  EXPECT_FALSE(diff_checkpoints(a, b, relative * 0.5).within);
  EXPECT_FALSE(diff_checkpoints(a, c, 1e9).within);
  EXPECT_FALSE(diff_checkpoints(a, d, 1e9).within);  // other shapes
}

TEST(checkpoint, is_described_in_columns) {
  const Folder folder;
  Single<bf16> rig(named("T5").model);
  set_state(rig.engine, 1);
  const fs::path path = save_checkpoint(folder.path(), header_at(12), rig.engine).path;
  const std::string text = describe_checkpoint(path, true);
  for (const char* part : {"/model/layers/1/mamba/conv1d/weight", "bfloat16", "float32", "64 x 1 x 4", "data=1 pipeline=1 tensor=1", "960",
                           "18364758544493064720", "not finite"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Index weights = named("T5").reference.parameters;
  EXPECT_NE(text.find(fmt::format("{} of them weights", weights)), std::string::npos) << text;
}

// What others' tools read: numbers, also of bfloat16.
TEST(checkpoint, is_read_by_h5py) {
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
assert f.attrs['format'].decode() == 'gyrfalcon checkpoint'
assert x.attrs['hf_name'].decode() == 'model.embed_tokens.weight'
)", path.string(), p.weight.shape[0], p.weight.shape[1], sum));
  int result = -1;
  for (const char* python : {"python3", "/usr/bin/python3"}) {  // whichever has h5py
    result = std::system(fmt::format("{} {}", python, (folder / "read.py").string()).c_str());
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return;
    if (WIFEXITED(result) && WEXITSTATUS(result) != 9 && WEXITSTATUS(result) != 127) break;
  }
  if (WIFEXITED(result) && (WEXITSTATUS(result) == 9 || WEXITSTATUS(result) == 127)) GTEST_SKIP() << "no h5py here";
  FAIL() << "h5py reads something else";
}

}  // namespace
}  // namespace gyr::testing
