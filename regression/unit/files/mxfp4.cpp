// SPDX-License-Identifier: BSD-3-Clause
// MXFP4 (blocks of 4-bit values) compared with the plain formula: every code with every scale, boxes of tensors, import
// and export of folders, and damaged files.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/huggingface/mxfp4.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::mxfp4_suite {
namespace {

namespace fs = std::filesystem;
using safetensors::Type;

constexpr double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
double number(unsigned code, unsigned scale) { return (code & 8 ? -1 : 1) * std::ldexp(sizes[code & 7], int(scale) - 127); }

TEST(mxfp4, every_code_and_scale_unpacks_exactly) {
  for (unsigned scale = 0; scale < 256; ++scale)
    for (unsigned code = 0; code < 16; ++code) {
      const unsigned other = (code * 7 + 3) % 16;
      mxfp4::Codes codes;
      codes.fill(std::uint8_t(other << 4 | code));
      std::array<bf16, mxfp4::block_elements> to;
      const bool finite = mxfp4::unpack(codes.data(), std::uint8_t(scale), to.data());
      const double first = number(code, scale), second = number(other, scale), least_beyond = 0x1p128;
      EXPECT_EQ(finite, scale != 255 && std::abs(first) < least_beyond && std::abs(second) < least_beyond) << scale << " " << code;
      if (!finite) continue;
      for (std::size_t i = 0; i < to.size(); ++i) {
        EXPECT_EQ(double(float(to[i])), i % 2 ? second : first) << scale << " " << code;
        EXPECT_EQ(std::signbit(float(to[i])), ((i % 2 ? other : code) & 8) != 0) << scale << " " << code;
      }
    }
}

// Values unpacked from blocks pack to the same bytes with their own scale, and to the same values with the scale of the
// specification's rule.
TEST(mxfp4, unpacked_blocks_repack_exactly) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 20000; ++draw) {
    mxfp4::Codes codes;
    const unsigned mask = draw % 3 == 0 ? 0xbb : draw % 3 == 1 ? 0x99 : 0xff;  // two of three draws have small values only
    for (auto& c : codes) c = std::uint8_t(random() & mask);
    const auto scale = std::uint8_t(random() % 253);
    std::array<bf16, mxfp4::block_elements> stored, again;
    ASSERT_TRUE(mxfp4::unpack(codes.data(), scale, stored.data()));
    std::array<double, mxfp4::block_elements> x;
    std::transform(stored.begin(), stored.end(), x.begin(), [](bf16 v) { return double(float(v)); });
    const mxfp4::Packed same = mxfp4::pack(x.data(), scale), by_rule = mxfp4::pack(x.data(), mxfp4::nan_scale);
    ASSERT_TRUE(same.exact && same.scale == scale && same.codes == codes) << draw;
    if (scale < 3) continue;  // the scale of the rule may be below 0, its lowest value
    ASSERT_TRUE(by_rule.exact) << draw;
    mxfp4::unpack(by_rule.codes.data(), by_rule.scale, again.data());
    ASSERT_TRUE(std::equal(stored.begin(), stored.end(), again.begin(), [](bf16 a, bf16 b) { return a.bits == b.bits; })) << draw;
  }
}

TEST(mxfp4, other_values_round_to_nearest) {
  std::mt19937 random(seed_of_run());
  std::normal_distribution<double> normal;
  for (int draw = 0; draw < 5000; ++draw) {
    std::array<double, mxfp4::block_elements> x;
    const int exponent = int(random() % 200) - 100;
    for (double& v : x) v = std::ldexp(draw % 2 ? normal(random) : double(int(random() % 65) - 32) / 4, exponent);  // includes ties
    const mxfp4::Packed p = mxfp4::pack(x.data(), std::uint8_t(random()));
    const double largest = std::abs(*std::max_element(x.begin(), x.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
    bool exact = true;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const unsigned code = p.codes[i / 2] >> (i % 2 * 4) & 15;
      const double off = std::abs(number(code, p.scale) - x[i]);
      exact = exact && off == 0;
      for (unsigned other = 0; other < 16; ++other) {
        const double theirs = std::abs(number(other, p.scale) - x[i]);
        ASSERT_LE(off, theirs) << draw << " " << x[i];
        if (theirs == off && (other & 7) != (code & 7)) {
          ASSERT_EQ(code % 2, 0u) << "a tie goes to the even code: " << x[i];
        }
      }
    }
    ASSERT_EQ(p.exact, exact);
    if (exact) continue;
    ASSERT_EQ(p.scale, unsigned(std::ilogb(largest) - 2 + 127)) << draw;
  }
}

// A folder of a small gpt-oss model, stored as the published ones: bf16 weights, and expert matrices in MXFP4 blocks.
struct Published {
  ModelConfig model;
  std::map<std::string, std::pair<safetensors::Tensor, std::string>> tensors;

  explicit Published(std::mt19937& random) {
    const auto from = [&](Index least, Index most) { return least + Index(random() % std::size_t(most - least + 1)); };
    model.vocab_size = from(8, 40), model.hidden_size = 32 * from(1, 3);
    for (Index i = from(1, 2); i > 0; --i) model.pattern += random() % 2 ? "*E" : "WE";
    model.rms_norm_eps = 1e-5, model.tie_word_embeddings = false, model.window.size = from(1, 9);
    model.attention.num_kv_heads = from(1, 2), model.attention.num_heads = 2 * model.attention.num_kv_heads, model.attention.head_dim = 4;
    model.attention.sinks = true, model.attention.bias = true;
    model.moe.experts = from(1, 4), model.moe.routing.top_k = from(1, model.moe.experts), model.moe.intermediate_size = 32 * from(1, 2);
    model.moe.activation = Activation::clamped_swiglu, model.moe.router_bias = model.moe.expert_bias = true;
    const StoredNames names(*find_family("gpt_oss"), model);
    for (const Weight& w : declared_weights(model)) add(names.place(w.name), w.shape, random);
  }

  void add(const StoredPlace& place, const Shape& shape, std::mt19937& random) {
    const auto bytes = [&](const std::string& name, Type type, Shape of) {
      std::string data(std::size_t(elements(of) * size_of(type)), '\0');
      for (char& c : data) c = char(random());
      tensors[name] = {{name, type, std::move(of)}, std::move(data)};
    };
    Shape all = shape;
    if (place.stack > 0) all[0] = place.stack;
    if (place.members > 0) all.insert(all.begin(), place.members);
    if (!place.transposed) {
      bytes(place.name, Type::bf16, all);
      for (std::size_t i = 1; i < tensors[place.name].second.size(); i += 2) tensors[place.name].second[i] = char(0x3e + (random() % 2) * 0x80);
      return;
    }
    all.back() /= mxfp4::block_elements;
    bytes(place.name + "_scales", Type::u8, all);
    for (char& c : tensors[place.name + "_scales"].second) c = char(100 + std::uint8_t(c) % 40);
    all.push_back(mxfp4::bytes);
    bytes(place.name + "_blocks", Type::u8, all);
  }

  void write(const fs::path& folder) const {
    fs::create_directories(folder);
    HuggingFaceConfig config;
    config.model = model, config.dtype = "bfloat16", config.blocks = true;
    put_contents(folder / config_file_name, write_config_json(config));
    std::vector<safetensors::Tensor> list;
    for (const auto& [name, stored] : tensors) list.push_back(stored.first);
    std::sort(list.begin(), list.end(), safetensors::precedes_in_file);
    safetensors::Writer writer(folder / one_file_name, list);
    for (const auto& tensor : list) writer.write(tensors.at(tensor.name).second.data(), Index(tensors.at(tensor.name).second.size()));
    writer.commit();
  }

  std::string first_blocks() const { return "model.layers.0.mlp.experts.gate_up_proj_blocks"; }
  std::string first_scales() const { return "model.layers.0.mlp.experts.gate_up_proj_scales"; }

  // Element (row, column) of the matrix of an expert, computed by the formula only.
  double at(const std::string& tensor, Index expert, Index row, Index column) const {
    const auto& [blocks, codes] = tensors.at(tensor + "_blocks");
    const Index block = (expert * blocks.shape[1] + row) * blocks.shape[2] + column / 32;
    const unsigned byte = std::uint8_t(codes[std::size_t(block * 16 + column % 32 / 2)]);
    return number(column % 2 ? byte >> 4 : byte & 15, std::uint8_t(tensors.at(tensor + "_scales").second[std::size_t(block)]));
  }
};

std::vector<double> values_of(const WeightSource& source, const std::string& weight, const Box& box) {
  const TensorReader reader = source.open(weight, DType::f32);
  EXPECT_EQ(reader.dtype, DType::bf16) << weight;
  std::vector<bf16> stored(std::size_t(elements(box.count)));
  reader.read(box, stored.data(), box.count, full_box(box.count));
  std::vector<double> values(stored.size());
  std::transform(stored.begin(), stored.end(), values.begin(), [](bf16 x) { return double(float(x)); });
  return values;
}

// For each expert, row i of gate_proj is row 2 i of gate_up_proj, and row i of up_proj is row 2 i + 1.
TEST(mxfp4, boxes_of_a_folder_match_the_formula) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    const Published published(random);
    const Folder folder;
    published.write(folder / "in");
    const FolderWeights weights(folder / "in", published.model);
    check_weights(weights, declared_weights(published.model));
    for (const Weight& w : declared_weights(published.model)) {
      const auto at = w.name.find(".experts.");
      if (at == w.name.npos || !w.name.ends_with("_proj.weight")) continue;
      const Index layer = layer_name(w.name).layer / 2, expert = std::stol(w.name.substr(at + 9));
      const bool down = w.name.ends_with("down_proj.weight"), up = w.name.ends_with("up_proj.weight");
      const std::string tensor = fmt::format("model.layers.{}.mlp.experts.{}", layer, down ? "down_proj" : "gate_up_proj");
      Box box = full_box(w.shape);
      for (std::size_t d = 0; d < 2; ++d) {
        box.first[d] = Index(random() % std::size_t(w.shape[d]));
        box.count[d] = 1 + Index(random() % std::size_t(w.shape[d] - box.first[d]));
      }
      const std::vector<double> values = values_of(weights, w.name, box);
      for (Index i = 0; i < box.count[0]; ++i)
        for (Index j = 0; j < box.count[1]; ++j) {
          const Index row = box.first[0] + i;
          ASSERT_EQ(values[std::size_t(i * box.count[1] + j)], published.at(tensor, expert, down ? row : 2 * row + up, box.first[1] + j))
              << w.name << " " << row << " " << box.first[1] + j;
        }
    }
  }
}

TEST(mxfp4, export_restores_blocks_or_writes_plain_bf16) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 6; ++draw) {
    const Published published(random);
    const Folder folder;
    published.write(folder / "in");
    import_folder(folder / "in", folder / "checkpoint", false, {});
    std::vector<std::string> notes;
    const auto note = [&](const std::string& text) { notes.push_back(text); };
    export_folder(folder / "checkpoint", folder / "plain", {}, note);
    EXPECT_FALSE(read_config_json(folder / "plain" / config_file_name).blocks);
    const FolderWeights in(folder / "in", published.model), plain(folder / "plain", published.model);
    const auto checkpoint = open_weights(folder / "checkpoint", published.model);
    for (const Weight& w : declared_weights(published.model)) {
      EXPECT_EQ(values_of(in, w.name, full_box(w.shape)), values_of(plain, w.name, full_box(w.shape))) << w.name;
      EXPECT_EQ(values_of(in, w.name, full_box(w.shape)), values_of(*checkpoint, w.name, full_box(w.shape))) << w.name;
    }
    ExportOptions like;
    like.like = folder / "in";
    export_folder(folder / "checkpoint", folder / "same", like, note);
    EXPECT_TRUE(contents(folder / "in" / one_file_name) == contents(folder / "same" / one_file_name));
    EXPECT_EQ(contents(folder / "in" / config_file_name), contents(folder / "same" / config_file_name));
    EXPECT_TRUE(notes.empty()) << notes.front();
    like.type = Type::bf16;
    export_folder(folder / "checkpoint", folder / "asked", like, note);
    EXPECT_TRUE(contents(folder / "plain" / one_file_name) == contents(folder / "asked" / one_file_name));

    // Export like a folder with other weights: a block that changed is repacked, and all others keep their bytes.
    Published other = published;
    std::string& codes = other.tensors[other.first_blocks()].second;
    std::string& scales = other.tensors[other.first_scales()].second;
    codes[3] = char(0x72), scales[0] = char(scales[0] - 1);  // other codes (for 1 and 6), and half the scale of the first block
    other.write(folder / "other");
    ExportOptions after;
    after.like = folder / "other";
    export_folder(folder / "checkpoint", folder / "rounded", after, note);
    EXPECT_EQ(read_model_folder(folder / "rounded").blocks, true);
    const FolderWeights again(folder / "rounded", published.model);
    for (const Weight& w : declared_weights(published.model))
      EXPECT_EQ(values_of(in, w.name, full_box(w.shape)), values_of(again, w.name, full_box(w.shape))) << "4-bit values must not change: " << w.name;
  }
}

TEST(mxfp4, inexact_blocks_are_rounded_and_reported) {
  std::mt19937 random(seed_of_run());
  const Published published(random);
  const Folder folder;
  published.write(folder / "in");
  import_folder(folder / "in", folder / "first", false, {});
  export_folder(folder / "first", folder / "plain", {}, {});
  // One element of the plain folder becomes 1.25 times the unit of its block, which lies between two codes.
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  const ModelFolder plain(folder / "plain");
  const safetensors::Tensor& tensor = plain.tensor(name);
  const safetensors::Reader reader(folder / "plain" / one_file_name);
  std::string file = contents(folder / "plain" / one_file_name);
  const std::size_t at = file.size() - std::size_t(reader.tensors().back().end - tensor.begin);
  const auto scale = unsigned(std::uint8_t(published.tensors.at(name + "_scales").second[0]));
  const bf16 changed(float(std::ldexp(1.25, int(scale) - 127)));
  std::memcpy(file.data() + at, &changed, sizeof changed);
  fs::copy(folder / "plain", folder / "changed");
  put_contents(folder / "changed" / one_file_name, file);
  import_folder(folder / "changed", folder / "second", false, {});
  std::vector<std::string> notes;
  ExportOptions like;
  like.like = folder / "in";
  export_folder(folder / "second", folder / "out", like, [&](const std::string& text) { notes.push_back(text); });
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("MXFP4 blocks 1 have values that are not exact"), std::string::npos) << notes[0];
  const ModelFolder in(folder / "in"), out(folder / "out");
  for (const std::string& tensor_name : in.names()) {
    if (tensor_name == name + "_blocks") continue;
    const auto bytes = [&](const ModelFolder& of) {
      const safetensors::Tensor& t = of.tensor(tensor_name);
      std::string data(std::size_t(t.end - t.begin), '\0');
      of.read(tensor_name, full_box(t.shape), data.data(), t.shape, full_box(t.shape));
      return data;
    };
    EXPECT_EQ(bytes(in), bytes(out)) << tensor_name;
  }
  const FolderWeights before(folder / "in", published.model), after(folder / "out", published.model);
  Index differ = 0;
  for (const Weight& w : declared_weights(published.model)) {
    const auto a = values_of(before, w.name, full_box(w.shape)), b = values_of(after, w.name, full_box(w.shape));
    for (std::size_t i = 0; i < a.size(); ++i) differ += a[i] != b[i];
  }
  EXPECT_LE(differ, 1) << "only the changed element may differ";
}

TEST(mxfp4, damaged_tensors_are_refused_by_name) {
  std::mt19937 random(seed_of_run());
  const Published full_tensor(random);
  const std::string blocks = full_tensor.first_blocks(), scales = full_tensor.first_scales();
  const auto message_of = [&](const auto& change) {
    Published damaged = full_tensor;
    change(damaged);
    const Folder folder;
    damaged.write(folder / "in");
    const Error error = error_of([&] { import_folder(folder / "in", folder / "checkpoint", false, {}); });
    EXPECT_EQ(error.code, Exit::data) << error.what();
    EXPECT_FALSE(fs::exists(folder / "checkpoint"));
    return std::string(error.what());
  };
  const auto expect = [&](const std::string& message, const std::string& part) { EXPECT_NE(message.find(part), std::string::npos) << message; };
  expect(message_of([&](Published& p) { p.tensors.erase(scales); }), fmt::format("tensor `{}` has no scales: there is no `{}`", blocks, scales));
  expect(message_of([&](Published& p) { p.tensors.erase(blocks); }), "experts.0.gate_proj.weight");
  const Shape shape = full_tensor.tensors.at(scales).first.shape;
  const std::string last = fmt::format("[{}, {}, {}]", shape[0] - 1, shape[1] - 1, shape[2] - 1);
  expect(message_of([&](Published& p) { p.tensors[scales].second.back() = char(255); }), scales + ": scale 255 is NaN, at block " + last);
  expect(message_of([&](Published& p) { p.tensors[scales].second[0] = char(253), p.tensors[blocks].second[5] = char(0x60); }),
         scales + ": scale 253 at block [0, 0, 0] makes a value overflow bf16");
  expect(message_of([&](Published& p) { p.tensors[blocks].first.shape.back() = 8, p.tensors[blocks].first.shape[2] *= 2; }),
         "an MXFP4 block of 32 elements has 16 bytes");
  expect(message_of([&](Published& p) { p.tensors[scales].first.shape = {shape[1], shape[0], shape[2]}; }), "need scales of U8");
  expect(message_of([&](Published& p) { p.tensors[scales].first.type = Type::i8; }), "is I8");
  expect(message_of([&](Published& p) {
           auto& [tensor, bytes] = p.tensors[blocks];
           auto& [next_to, factors] = p.tensors[scales];
           tensor.shape[1] -= 2, bytes.resize(std::size_t(elements(tensor.shape)));
           next_to.shape[1] -= 2, factors.resize(std::size_t(elements(next_to.shape)));
         }),
         "do not belong together");
}

TEST(mxfp4, config_selects_mxfp4_by_quantization_method) {
  const auto read = [](const char* type, const char* how) {
    return parse_config_json(fmt::format(R"({{"model_type": "{}", "rope_parameters": {{"rope_theta": 1e4}}, "quantization_config": {}}})", type, how),
                             "file")
        .blocks;
  };
  EXPECT_TRUE(read("gpt_oss", R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})"));
  EXPECT_FALSE(read("gpt_oss", "null"));
  for (const auto& [type, how] : {std::pair{"gpt_oss", R"({"quant_method": "gptq"})"}, {"gpt_oss", "4"}, {"llama", R"({"quant_method": "mxfp4"})"}}) {
    const Error error = error_of([&] { read(type, how); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find("quantization_config is set: quantized weights are not supported"), std::string::npos) << error.what();
  }
}

// The config.json of openai/gpt-oss-20b on the Hugging Face Hub: the model shape, and MXFP4 as the storage format.
TEST(mxfp4, published_gpt_oss_20b_config_is_read) {
  std::string kinds;
  for (int i = 0; i < 24; ++i) kinds += fmt::format("{}\"{}_attention\"", i ? ", " : "", i % 2 ? "full" : "sliding");
  const HuggingFaceConfig config = parse_config_json(
      R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002, "experts_per_token": 4,
          "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
          "intermediate_size": 2880, "layer_types": [)" +
          kinds + R"(], "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4,
          "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199999,
          "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
          "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
          "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9,
          "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true,
          "vocab_size": 201088})",
      "file");
  EXPECT_TRUE(config.blocks);
  EXPECT_TRUE(config.notes.empty()) << config.notes.front();
  EXPECT_EQ(parameter_count(config.model), 20'914'757'184);
  EXPECT_EQ(parse_config_json(write_config_json(config), "written").blocks, true);
}

}  // namespace
}  // namespace gyr::testing::mxfp4_suite
