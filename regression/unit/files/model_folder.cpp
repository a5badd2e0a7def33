// SPDX-License-Identifier: BSD-3-Clause
// Hugging Face model folders: index and shards must agree, and loaded weights are exact to the bit.
#include "src/huggingface/model_folder.hpp"

#include <map>
#include <random>

#include "modules/objectives/masking.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "regression/support/model_folders.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::model_folder_suite {
namespace {

namespace fs = std::filesystem;
using safetensors::Type;

const ModelConfig& model() { return named("T2").model; }

struct Shards {
  Shards() {
    write_model_folder(folder.path(), model(), Type::bf16, 3);
    index = nlohmann::json::parse(contents(folder / shard_index_name));
  }
  void save() const { put_contents(folder / shard_index_name, index.dump()); }
  void expect_refused(Exit code, const std::string& why) const {
    save();
    const Error error = error_of([&] { ModelFolder folder_(folder.path()); });
    EXPECT_EQ(error.code, code) << error.what();
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\n  expected: " << why;
  }
  Folder folder;
  nlohmann::json index;
  const std::string first = "model-00001-of-00003.safetensors", second = "model-00002-of-00003.safetensors";
};

TEST(model_folder, single_file_and_shards_read_the_same) {
  const Folder one;
  const Shards three;
  write_model_folder(one.path(), model(), Type::bf16);
  const ModelFolder a(one.path()), b(three.folder.path());
  EXPECT_EQ(a.files(), 1u);
  EXPECT_EQ(b.files(), 3u);
  EXPECT_EQ(a.names(), b.names());
  EXPECT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(a.bytes(), 2 * named("T2").reference.parameters);
  for (const std::string& name : a.names()) {
    const Shape shape = a.tensor(name).shape;
    std::vector<bf16> x(std::size_t(elements(shape))), y(x.size());
    a.read(name, full_box(shape), x.data(), shape, full_box(shape));
    b.read(name, full_box(shape), y.data(), shape, full_box(shape));
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * 2), 0) << name;
  }
  EXPECT_EQ(b.bytes_read(), b.bytes());
}

// Files that give the name and id of the mask token (BERT), and of the first sentinel token (T5).
TEST(model_folder, objectives_read_special_tokens_from_the_tokenizer) {
  const Folder folder;
  const std::string name = R"({"model": {"vocab": {"[MASK]": 3, "<m>": 4}}, )", added = R"("added_tokens": [{"id": 2, "content": "x"})";
  const auto mask = [&](const std::string& tokenizer, const std::string& config = "", const std::string& map = "") {
    for (const auto& [file, text] : {std::pair{"tokenizer.json", tokenizer}, {"tokenizer_config.json", config}, {"special_tokens_map.json", map}}) {
      fs::remove(folder / file);
      if (!text.empty()) folder.write(file, text);
    }
    folder.write(config_file_name, R"({"model_type": "bert"})");
    return masking_of(*read_model_folder(folder.path()).model.objective)->mask_token;
  };
  EXPECT_EQ(mask(""), -1);
  EXPECT_EQ(mask("no JSON"), -1);
  EXPECT_EQ(mask(name + added + "]}"), 3);
  EXPECT_EQ(mask(name + added + R"(, {"id": 7, "content": "[MASK]"}]})"), 7);
  EXPECT_EQ(mask(name + added + "]}", R"({"mask_token": "<m>"})"), 4);
  EXPECT_EQ(mask(name + added + "]}", R"({"mask_token": {"content": "x"}})"), 2);
  EXPECT_EQ(mask(name + added + "]}", R"({"mask_token": null})", R"({"mask_token": "x"})"), 2);
  EXPECT_EQ(mask(name + added + "]}", R"({"mask_token": "absent"})"), -1);
  EXPECT_EQ(mask(R"({"added_tokens": [{"id": 4294967296, "content": "[MASK]"}]})"), -1);
  folder.write("tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "<extra_id_1>"}, {"id": 6, "content": "<extra_id_0>"}]})");
  folder.write(config_file_name, R"({"model_type": "t5", "eos_token_id": 9})");
  const SpanCorruption spans = *span_corruption_of(*read_model_folder(folder.path()).model.objective);
  EXPECT_EQ(spans.first_sentinel, 6);
  EXPECT_EQ(spans.end_token, 9);
}

TEST(model_folder, deck_without_tokens_inherits_those_of_the_model) {
  const auto taken = [](std::shared_ptr<const Objective> before) {
    Deck deck = Deck::parse(fmt::format("train: {{objective: {}}}\n", before->name()), "deck");
    ModelConfig model;
    model.objective = before;
    return read_objective(deck.section("train", ""), model, *before);
  };
  const auto masked = taken(masked_tokens({.fraction = 0.5, .mask_token = 7}));
  EXPECT_EQ(masking_of(*masked)->mask_token, 7);
  EXPECT_EQ(masking_of(*masked)->fraction, Masking{}.fraction);
  const auto spans = taken(span_corruption({.fraction = 0.5, .end_token = 9, .first_sentinel = 6}));
  EXPECT_EQ(span_corruption_of(*spans)->first_sentinel, 6);
  EXPECT_EQ(span_corruption_of(*spans)->end_token, 9);
  EXPECT_EQ(span_corruption_of(*spans)->fraction, SpanCorruption{}.fraction);
  EXPECT_EQ(masking_of(*spans), nullptr);
  EXPECT_EQ(span_corruption_of(*masked), nullptr);
}

TEST(model_folder, invalid_folder_error_suggests_a_fix) {
  const auto message_of = [](const fs::path& path) { return std::string(error_of([&] { ModelFolder folder(path); }).what()); };
  EXPECT_NE(message_of("tiiuae/Falcon-H1-0.5B-Base").find("hf download tiiuae/Falcon-H1-0.5B-Base --local-dir"), std::string::npos);
  EXPECT_NE(message_of("gpt2").find("hf download gpt2 --local-dir"), std::string::npos);
  for (const char* path : {"./a/b", "/a/b", "a/b/c", "step_00000010", "a.h5"})
    EXPECT_EQ(message_of(path).find("hf download"), std::string::npos) << path;
  const Folder folder;
  const fs::path before = fs::current_path();
  fs::create_directory(folder / "out");
  fs::current_path(folder.path());
  EXPECT_EQ(message_of("out/my").find("hf download"), std::string::npos) << "a file name, because the folder out exists";
  fs::current_path(before);
  folder.write("adapter_config.json", "{}");
  folder.write("adapter_model.safetensors", "");
  EXPECT_NE(message_of(folder.path()).find("holds a PEFT adapter"), std::string::npos) << message_of(folder.path());
}

TEST(model_folder, a_missing_shard_is_named) {
  const Shards s;
  fs::remove(s.folder / s.second);
  s.expect_refused(Exit::missing, s.second);
}

TEST(model_folder, shard_names_outside_the_folder_are_refused) {
  for (const std::string name : {"../model.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "", "a\nb", "a\\b"}) {
    Shards s;
    s.index["weight_map"]["lm_head.weight"] = name;
    s.expect_refused(Exit::data, "not the name of a file");
  }
  Shards s;
  s.index["weight_map"]["lm_head.weight"] = 7;
  s.expect_refused(Exit::data, "is not a string");
}

TEST(model_folder, index_must_match_the_tensors_of_shards) {
  Shards moved;
  moved.index["weight_map"]["lm_head.weight"] = moved.first;
  moved.expect_refused(Exit::data, "weight_map places tensor `lm_head.weight` in " + moved.first + ", but it is in ");
  Shards unlisted;
  unlisted.index["weight_map"].erase("lm_head.weight");
  unlisted.expect_refused(Exit::data, "does not list tensor `lm_head.weight`");
  Shards invented;
  invented.index["weight_map"]["model.extra"] = invented.first;
  invented.expect_refused(Exit::data, "weight_map places tensor `model.extra` in " + invented.first + ", but no shard contains it");
}

TEST(model_folder, a_tensor_in_two_shards_is_refused) {
  Shards s;
  std::vector<Weight> twice;
  for (const Weight& w : weights_of(model()))
    if (s.index["weight_map"][w.name] == s.first || w.name == "lm_head.weight") twice.push_back(w);
  write_weights(s.folder / s.first, twice, Type::bf16);
  s.expect_refused(Exit::data, "`lm_head.weight` is also in");
}

TEST(model_folder, wrong_total_size_is_refused) {
  Shards s;
  s.index["metadata"]["total_size"] = s.index["metadata"]["total_size"].get<Index>() + 2;
  s.expect_refused(Exit::data, "total_size");
  s.index["metadata"]["total_size"] = "many";
  s.expect_refused(Exit::data, "total_size");
  s.index["metadata"].erase("total_size");
  s.save();
  EXPECT_EQ(ModelFolder(s.folder.path()).files(), 3u);
}

TEST(model_folder, invalid_shard_index_files_are_refused) {
  for (const auto& [text, why] :
       std::map<std::string, std::string>{{"", "not valid JSON"},
                                          {"[]", "no object weight_map"},
                                          {"{}", "no object weight_map"},
                                          {R"({"weight_map":[]})", "no object weight_map"},
                                          {R"({"weight_map":{}})", "lists no tensors"},
                                          {R"({"weight_map":{"a":"b","a":"c"}})", "given twice"},
                                          {R"({"weight_map":{"a":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}})", "nested deeper"}}) {
    const Folder folder;
    folder.write(shard_index_name, text);
    const Error error = error_of([&] { ModelFolder f(folder.path()); });
    EXPECT_EQ(error.code, Exit::data) << error.what();
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
  const Folder empty;
  EXPECT_EQ(error_of([&] { ModelFolder f(empty.path()); }).code, Exit::missing);
  EXPECT_EQ(error_of([&] { ModelFolder f(empty / "absent"); }).code, Exit::missing);
}

// ---- loading weights into a model ----

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

// The value of x after it was stored in a file of `type`.
double rounded(Type type, double x) {
  const std::string bytes = bytes_of(type, x);
  std::uint16_t half = 0;
  std::memcpy(&half, bytes.data(), 2);
  if (type == Type::f16) return half_to_float(half);
  if (type == Type::bf16) return float(__builtin_bit_cast(bf16, half));
  return type == Type::f32 ? double(float(x)) : x;
}

template <class T>
void expect_weights(Engine& engine, Type type, const std::string& where) {
  for (const auto& p : engine.stage().parameters().all())
    stretches(*p, [&, values = WeightValues(p->weight)](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) {
        const double stored = rounded(type, values(logical + i));
        const bool narrow = p->dtype() == dtype_of<T>();
        const double wanted = narrow ? Acc<T>(T(Acc<T>(stored))) : Acc<T>(stored);
        const double value = narrow ? double(Acc<T>(p->template vector<T>()(local + i))) : double(p->template vector<Acc<T>>()(local + i));
        ASSERT_EQ(value, wanted) << where << " " << p->weight.name;
        if (engine.optimizer().has_master(*p)) {
          ASSERT_EQ(double(engine.optimizer().master(*p).values.template as<Acc<T>>()(local + i)), double(Acc<T>(stored)))
              << where << " " << p->weight.name;
        }
      }
    });
}

TEST(model_folder, weights_load_in_any_precision) {
  for (const char* name : {"T2", "T5", "T6", "T7"})
    for (const Type type : {Type::f16, Type::bf16, Type::f32, Type::f64}) {
      const Folder folder;
      write_model_folder(folder.path(), named(name).model, type, 2);
      Single<float> f32(named(name).model);
      Single<bf16> b16(named(name).model);
      Single<double> f64(named(name).model);
      load_weights(folder.path(), f32.engine);
      load_weights(folder.path(), b16.engine);
      load_weights(folder.path(), f64.engine);
      expect_weights<float>(f32.engine, type, name);
      expect_weights<bf16>(b16.engine, type, name);
      expect_weights<double>(f64.engine, type, name);
    }
}

// A rank of a grid reads only its own shard from disk: rows of some weights, columns of others, and the layers of its
// own stage.
TEST(model_folder, rank_reads_only_its_own_shard) {
  const ModelConfig model = widened(named("T2"));
  const Folder folder;
  write_model_folder(folder.path(), model, Type::bf16, 2);
  Index all = 0, replicated = 0;
  for (const Weight& w : weights_of(model)) {
    all += 2 * w.size();
    if (w.shardings.empty()) replicated += 2 * w.size();
  }
  for (const auto& [stages, ranks] : std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 2}}) {
    std::vector<Span> spans;
    for (int p = 0; p < stages; ++p) spans.push_back({8 * p / stages, 8 * (p + 1) / stages});
    const Layout layout = grid_layout(1, stages, ranks, spans);
    Index sum = 0;
    for (int position = 0; position < layout.ranks(); ++position) {
      Grid grid = Grid::dry_run(layout, position);
      Stage stage(model, DType::f32, grid);
      Arena weights(Memory::weights, 4 << 20), none(Memory::gradients, 0);
      stage.parameters().allocate(weights, none, Gradients::none);
      const FolderWeights source(folder.path(), model);
      load_weights(source, stage.parameters().all());
      Index mine = 0;
      for (const auto& p : stage.parameters().all())
        stretches(*p, [&, values = WeightValues(p->weight)](Index logical, Index local, Index count, const Held&) {
          mine += 2 * count;
          for (Index i = 0; i < count; ++i)
            ASSERT_EQ(p->vector<float>()(local + i), float(rounded(Type::bf16, values(logical + i)))) << p->weight.name;
        });
      EXPECT_EQ(source.folder().bytes_read(), mine);
      sum += mine;
      if (stages == 1) {
        EXPECT_LT(double(mine), double(all) / ranks + double(replicated) + 0.1 * double(all)) << ranks;
      }
    }
    EXPECT_GE(sum, all);
    if (ranks == 1) {
      EXPECT_EQ(sum, all);
    }
  }
}

TEST(model_folder, missing_unknown_and_misshaped_tensors_are_named) {
  const Folder folder;
  const ModelConfig base = model();
  Single<float> rig(base);
  const auto refused = [&](const std::vector<Weight>& weights, Type type, Exit code, const std::string& why) {
    write_weights(folder / one_file_name, weights, type);
    const Error error = error_of([&] { load_weights(folder.path(), rig.engine); });
    EXPECT_EQ(error.code, code) << error.what();
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  };
  std::vector<Weight> weights = weights_of(base);
  weights.pop_back();
  refused(weights, Type::f32, Exit::config, weights_of(base).back().name);
  weights = weights_of(base);
  weights.push_back({"model.layers.0.mamba.extra.bias", {2}, {}, {}});
  refused(weights, Type::f32, Exit::config, "model.layers.0.mamba.extra.bias");
  weights = weights_of(base);
  std::swap(weights[0].shape[0], weights[0].shape[1]);
  refused(weights, Type::f32, Exit::config, "has shape 32 x 64, but the deck's model needs 64 x 32");
  for (const Type type : {Type::boolean, Type::i32, Type::f8_e4m3}) {
    std::vector<safetensors::Tensor> tensors;
    std::string bytes;
    for (const Weight& w : weights_of(base))
      tensors.push_back({w.name, type, w.shape}), bytes += std::string(std::size_t(w.size() * safetensors::size_of(type)), '\1');
    safetensors::Writer writer(folder / one_file_name, tensors);
    writer.write(bytes.data(), Index(bytes.size()));
    writer.commit();
    const Error error = error_of([&] { load_weights(folder.path(), rig.engine); });
    EXPECT_EQ(error.code, Exit::data) << error.what();
    EXPECT_NE(std::string(error.what()).find(fmt::format("has dtype {}; weights must be", safetensors::name_of(type))), std::string::npos)
        << error.what();
  }
}

// lm_head in the folder: absent, equal to the embedding, different, or stored in place of the embedding
enum class Head { absent, equal, other, alone };

// Writes a folder with these weights. `head` decides how the output head is stored. With Head::other, its element
// `number` differs from the embedding.
void write_folder_with_head(const fs::path& folder, const ModelConfig& config, Head head, Type type, std::size_t number) {
  fs::create_directories(folder);
  HuggingFaceConfig text;
  text.model = config;
  put_contents(folder / config_file_name, write_config_json(text));
  ModelConfig tied = config;
  tied.tie_word_embeddings = true;
  std::vector<safetensors::Tensor> tensors;
  std::map<std::string, std::string> data;
  const auto add = [&](const std::string& name, const Weight& w, const std::string& bytes) {
    tensors.push_back({name, type, w.shape}), data[name] = bytes;
  };
  for (const Weight& w : weights_of(tied)) {
    std::string bytes;
    const WeightValues values(w);
    for (Index i = 0; i < w.size(); ++i) bytes += bytes_of(type, values(i));
    if (w.name != embedding_name || head != Head::alone) add(w.name, w, bytes);
    if (w.name != embedding_name || head == Head::absent) continue;
    if (head == Head::other)
      bytes.replace(number % std::size_t(w.size()) * std::size_t(safetensors::size_of(type)), std::size_t(safetensors::size_of(type)),
                    bytes_of(type, 7));
    add(head_name, w, bytes);
  }
  std::sort(tensors.begin(), tensors.end(), safetensors::precedes_in_file);
  safetensors::Writer writer(folder / one_file_name, tensors);
  for (const safetensors::Tensor& t : tensors) writer.write(data[t.name].data(), Index(data[t.name].size()));
  writer.commit();
}

// Embedding and output head of a stage, or the embedding twice if they are tied.
template <class T>
std::pair<std::vector<double>, std::vector<double>> ends_of(Stage& stage, bool tied) {
  std::vector<double> embedding, head;
  for (const auto& p : stage.parameters().all())
    for (auto [name, tensor_values] : {std::pair(embedding_name, &embedding), std::pair(head_name, &head)})
      if (p->weight.name == name)
        stretches(*p, [&p, to = tensor_values](Index, Index local, Index count, const Held&) {
          for (Index i = 0; i < count; ++i) to->push_back(double(p->template vector<T>()(local + i)));
        });
  return {embedding, tied ? embedding : head};
}

// As in transformers, a config that ties the head is overruled if a different head is stored. An export has the same
// bytes as the imported folder.
TEST(model_folder, head_is_tied_if_stored_once_or_equal) {
  std::mt19937 random(11);
  for (int draw = 0; draw < 20; ++draw) {
    ModelConfig config = named("T5").model;
    config.pattern = "P", config.tie_word_embeddings = draw % 4 != 3;
    const Head head = config.tie_word_embeddings ? Head(random() % 4) : random() % 2 ? Head::equal : Head::other;
    const Type type = std::array{Type::f32, Type::bf16, Type::f16}[random() % 3];
    const std::size_t number = random();
    SCOPED_TRACE(fmt::format("draw {}: tied {}, head {}, type {}, number {}", draw, config.tie_word_embeddings, int(head), name_of(type), number));
    const Folder folder;
    write_folder_with_head(folder / "in", config, head, type, number);
    std::vector<std::string> notes;
    RunDefaults defaults = defaults_of(folder / "in", [&](const std::string& note) { notes.push_back(note); });
    const bool tied = config.tie_word_embeddings && head != Head::other;
    EXPECT_EQ(defaults.model.tie_word_embeddings, tied);
    EXPECT_EQ(notes.size(), config.tie_word_embeddings && !tied ? 1u : 0u);

    Single<float> rig(defaults.model);
    load_weights(folder / "in", rig.engine);
    const auto [embedding, top] = ends_of<float>(rig.engine.stage(), tied);
    ASSERT_EQ(embedding.size(), top.size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < top.size(); ++i) differ += embedding[i] != top[i];
    EXPECT_EQ(differ, head == Head::other ? 1u : 0u);
    if (head == Head::other) {
      EXPECT_EQ(top[number % top.size()], 7);
    }

    import_folder(folder / "in", folder / "checkpoint", false, {});
    export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, {}, false}, [](const std::string&) {});
    EXPECT_TRUE(contents(folder / "in" / one_file_name) == contents(folder / "out" / one_file_name));
    EXPECT_EQ(read_config_json(folder / "out" / config_file_name).model.tie_word_embeddings, tied);

    if (head != Head::other) continue;
    defaults.model.tie_word_embeddings = true;  // as if a deck asked for a tied head
    Single<float> insisting(defaults.model);
    const Error error = error_of([&] { load_weights(folder / "in", insisting.engine); });
    EXPECT_EQ(error.code, Exit::config) << error.what();
    EXPECT_NE(std::string(error.what()).find("model.tie_word_embeddings=false"), std::string::npos) << error.what();
  }
}

// The folder of a golden T5 with other keys in config.json, and with its head stored as given.
void write_t5(const fs::path& folder, const nlohmann::json& keys, Head head) {
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden/families/t5_tied_unscaled";
  fs::create_directories(folder);
  nlohmann::json config = nlohmann::json::parse(contents(golden / config_file_name));
  config.erase("tie_word_embeddings"), config.erase("scale_decoder_outputs");
  config.update(keys);
  put_contents(folder / config_file_name, config.dump());
  const safetensors::Reader reader(golden / one_file_name);
  std::vector<safetensors::Tensor> tensors = reader.tensors();
  std::map<std::string, std::vector<float>> data;
  for (const safetensors::Tensor& t : tensors) {
    data[t.name].resize(std::size_t(elements(t.shape)));
    reader.read(t, full_box(t.shape), data[t.name].data(), t.shape, full_box(t.shape));
  }
  if (head != Head::absent) {
    const auto table = std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.name == "shared.weight"; });
    safetensors::Tensor stored = *table;
    stored.name = head_name;
    data[head_name] = data.at(table->name);
    if (head == Head::other) data[head_name][5] += 1;
    tensors.push_back(stored);
  }
  std::sort(tensors.begin(), tensors.end(), safetensors::precedes_in_file);
  safetensors::Writer writer(folder / one_file_name, tensors);
  for (const safetensors::Tensor& t : tensors) writer.write(data.at(t.name).data(), Index(data.at(t.name).size() * sizeof(float)));
  writer.commit();
}

// As transformers 5.24 loads a T5: the head's input is scaled by scale_decoder_outputs or, without that key, unless
// tie_word_embeddings is false. The stored head decides if it is tied; a head that is not stored is tied in any case.
TEST(model_folder, t5_head_is_tied_as_in_transformers) {
  const std::optional<bool> flags[] = {{}, true, false};
  for (const auto& ties : flags)
    for (const auto& scales : flags)
      for (const Head head : {Head::absent, Head::equal, Head::other}) {
        nlohmann::json keys = nlohmann::json::object();
        if (ties) keys["tie_word_embeddings"] = *ties;
        if (scales) keys["scale_decoder_outputs"] = *scales;
        SCOPED_TRACE(fmt::format("{}, head {}", keys.dump(), int(head)));
        const bool tied = head == Head::absent || (ties.value_or(true) && head == Head::equal), scaled = scales.value_or(ties.value_or(true));
        const Folder folder;
        write_t5(folder / "in", keys, head);
        import_folder(folder / "in", folder / "checkpoint", false, {});
        export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, {}, false}, [](const std::string&) {});
        for (const char* stored : {"in", "out"}) {
          const ModelConfig model = read_model_folder(folder / stored).model;
          EXPECT_EQ(model.tie_word_embeddings, tied) << stored;
          EXPECT_EQ(model.lm_head_multiplier, scaled ? 0.25 : 1) << stored;
        }
      }
}

TEST(model_folder, missing_untied_lm_head_is_named) {
  ModelConfig config = named("T5").model;
  const Folder folder;
  write_model_folder(folder.path(), config, Type::f32);
  Single<float> rig(config);
  load_weights(folder.path(), rig.engine);
  expect_weights<float>(rig.engine, Type::f32, "tied");
  config.tie_word_embeddings = false;
  Single<float> untied(config);
  const Error error = error_of([&] { load_weights(folder.path(), untied.engine); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find(head_name), std::string::npos) << error.what();
}

// A tensor of 4 groups of 5 rows: 3 rows of one weight, then 2 of another one. Every box of both weights and of the tensor
// is read.
TEST(model_folder, alternating_rows_are_separated_and_stacked) {
  constexpr Index groups = 4, step = 5, columns = 3;
  TensorReader stored{"stored", DType::f64, {groups * step, columns}, {}};
  stored.read_parts = [](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const auto& [from, to] : parts)
      for (Index r = 0; r < from.count[0]; ++r)
        for (Index c = 0; c < from.count[1]; ++c)
          static_cast<double*>(data)[(to.first[0] + r) * array[1] + to.first[1] + c] = double((from.first[0] + r) * columns + from.first[1] + c);
  };
  std::vector<StackedPart> parts;
  for (const auto& [first, run] : {std::pair<Index, Index>{0, 3}, {3, 2}}) {
    StoredPlace place{"stored", false, {first, groups * step}, groups * step, step};
    place.run = run;
    parts.push_back({place, part_of(stored, place)});
    EXPECT_EQ(parts.back().weight.shape, (Shape{groups * run, columns}));
  }
  const auto expect_boxes = [](const TensorReader& x, const auto& row_of) {
    for (Index first = 0; first < x.shape[0]; ++first)
      for (Index count = 1; first + count <= x.shape[0]; ++count) {
        std::vector<double> values(std::size_t(count * 2));
        x.read({{first, 1}, {count, 2}}, values.data(), {count, 2}, {{0, 0}, {count, 2}});
        for (Index r = 0; r < count; ++r)
          for (Index c = 0; c < 2; ++c) ASSERT_EQ(values[r * 2 + c], double(row_of(first + r) * columns + 1 + c)) << first << " " << count;
      }
  };
  expect_boxes(parts[0].weight, [](Index r) { return r / 3 * step + r % 3; });
  expect_boxes(parts[1].weight, [](Index r) { return r / 2 * step + 3 + r % 2; });
  expect_boxes(stack_of(parts), [](Index r) { return r; });
}

}  // namespace
}  // namespace gyr::testing::model_folder_suite
