// SPDX-License-Identifier: BSD-3-Clause
// Vision towers in front of a text: loss equals plain loops, gradients equal central differences, a text without images is that of
// the text model, an image changes no row before its own, and counts that differ are refused.
#include <cmath>
#include <map>

#include "modules/cost/flops.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/images.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::tower_suite {
namespace {

using Rows = std::vector<std::vector<double>>;

// A model "*-V-" in plain loops, with the weights of an engine.
class Plain {
 public:
  Plain(Engine& engine, const ModelConfig& m) : m_(m), v_(m.vision) {
    for (const auto& p : engine.stage().parameters().all()) {
      std::vector<double>& w = weights_[p->weight.name];
      for (Index i = 0; i < p->size(); ++i) w.push_back(p->vector<double>()(i));
    }
  }

  // Mean loss of a micro-batch.
  double loss(const MicroBatch& batch) const {
    double sum = 0;
    Index labels = 0;
    for (Index b = 0; b < batch.batch; ++b) {
      const Rows text = text_of(batch, b);
      for (Index t = 0; t < batch.seq_length; ++t)
        if (const Token label = batch.labels[std::size_t(b * batch.seq_length + t)]; label != ignored_label)
          sum += cross_entropy(text[std::size_t(t)], label), ++labels;
    }
    return sum / double(labels);
  }

 private:
  const std::vector<double>& at(const std::string& name) const { return weights_.at(name); }

  Rows linear(const Rows& x, const std::string& name) const {
    const std::vector<double>& w = at(name + ".weight");
    const std::size_t inputs = x[0].size(), outputs = w.size() / inputs;
    const auto bias = weights_.find(name + ".bias");
    Rows y;
    for (const auto& row : x) {
      y.emplace_back();
      for (std::size_t o = 0; o < outputs; ++o) {
        double sum = bias == weights_.end() ? 0 : bias->second[o];
        for (std::size_t i = 0; i < inputs; ++i) sum += w[o * inputs + i] * row[i];
        y.back().push_back(sum);
      }
    }
    return y;
  }
  Rows layer_norm(Rows x, const std::string& name) const {
    for (auto& row : x) {
      double mean = 0, square = 0;
      for (const double a : row) mean += a / double(row.size());
      for (const double a : row) square += (a - mean) * (a - mean) / double(row.size());
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = (row[i] - mean) / std::sqrt(square + v_.norm_eps) * at(name + ".weight")[i] + at(name + ".bias")[i];
    }
    return x;
  }
  Rows rms_norm(Rows x, const std::string& name) const {
    for (auto& row : x) {
      double square = 0;
      for (const double a : row) square += a * a / double(row.size());
      for (std::size_t i = 0; i < row.size(); ++i) row[i] *= at(name)[i] / std::sqrt(square + m_.rms_norm_eps);
    }
    return x;
  }
  static Rows sum(Rows x, const Rows& y) {
    for (std::size_t r = 0; r < x.size(); ++r)
      for (std::size_t i = 0; i < x[r].size(); ++i) x[r][i] += y[r][i];
    return x;
  }
  static Rows activated(Rows x, Activation a) {
    for (auto& row : x)
      for (double& v : row)
        v = a == Activation::quick_gelu  ? v / (1 + std::exp(-1.702 * v))
            : a == Activation::gelu_tanh ? v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)))
                                         : v / 2 * std::erfc(-v / std::sqrt(2));
    return x;
  }
  Rows attention(const Rows& h, const std::string& name) const {
    const Rows q = linear(h, name + ".q_proj"), k = linear(h, name + ".k_proj"), v = linear(h, name + ".v_proj");
    const std::size_t channels = std::size_t(v_.hidden_size / v_.num_heads);
    Rows out(h.size(), std::vector<double>(h[0].size(), 0));
    for (std::size_t head = 0; head < std::size_t(v_.num_heads); ++head)
      for (std::size_t i = 0; i < h.size(); ++i) {
        std::vector<double> weight;
        double total = 0;
        for (std::size_t j = 0; j < h.size(); ++j) {
          double score = 0;
          for (std::size_t c = head * channels; c < (head + 1) * channels; ++c) score += q[i][c] * k[j][c];
          weight.push_back(std::exp(score / std::sqrt(double(channels)))), total += weight.back();
        }
        for (std::size_t j = 0; j < h.size(); ++j)
          for (std::size_t c = head * channels; c < (head + 1) * channels; ++c) out[i][c] += weight[j] / total * v[j][c];
      }
    return linear(out, name + ".o_proj");
  }

  // Rows of one image that enter the text.
  Rows image(const std::uint8_t* bytes) const {
    Rows patches;
    for (Index r = 0; r < v_.rows(); ++r, bytes += v_.patch_values()) {
      patches.emplace_back();
      for (Index i = 0; i < v_.patch_values(); ++i) {
        const std::size_t c = std::size_t(i / (v_.patch_size * v_.patch_size));
        const bool of_class = v_.has_class_row() && r == 0;
        patches.back().push_back(of_class ? 0 : (double(bytes[i]) / 255 - v_.pixels.mean[c]) / v_.pixels.std[c]);
      }
    }
    Rows x = linear(patches, "model.vision.patch_embedding");
    for (std::size_t r = 0; r < x.size(); ++r)
      for (std::size_t i = 0; i < x[r].size(); ++i) {
        x[r][i] += at("model.vision.position_embedding.weight")[r * x[r].size() + i];
        if (v_.has_class_row() && r == 0) x[r][i] += at("model.vision.class_embedding")[i];
      }
    if (v_.has_class_row()) x = layer_norm(x, "model.vision.pre_layernorm");
    x = sum(x, attention(layer_norm(x, "model.layers.0.input_layernorm"), "model.layers.0.self_attn"));
    const std::string mlp = "model.layers.1.feed_forward.";
    x = sum(x, linear(activated(linear(layer_norm(x, "model.layers.1.input_layernorm"), mlp + "up_proj"), v_.activation), mlp + "down_proj"));
    x.erase(x.begin(), x.begin() + v_.first_row());
    return linear(activated(linear(x, "model.layers.2.linear_1"), v_.projector_activation), "model.layers.2.linear_2");
  }

  // Normed output rows of sequence b.
  Rows text_of(const MicroBatch& batch, Index b) const {
    Rows images;
    const Index room = v_.rows_of_sequence() * v_.patch_values();
    for (Index i = 0; i < batch.source.lengths[std::size_t(b)] / v_.rows(); ++i)
      for (const auto& row : image(&batch.source.values.at(image_pixels)[std::size_t(b * room + i * v_.rows() * v_.patch_values())]))
        images.push_back(row);
    Rows x;
    std::size_t next = 0;
    const std::size_t width = std::size_t(m_.hidden_size);
    for (Index t = 0; t < batch.seq_length; ++t) {
      const Token token = batch.tokens[std::size_t(b * batch.seq_length + t)];
      if (token == image_token) {
        x.push_back(images.at(next++));
        continue;
      }
      x.emplace_back();
      for (std::size_t i = 0; i < width; ++i)
        x.back().push_back(m_.embedding_multiplier * at("model.embed_tokens.weight")[std::size_t(token) * width + i]);
    }
    const Rows h = rms_norm(x, "model.layers.3.input_layernorm.weight");
    const std::string mlp = "model.layers.3.feed_forward.";
    Rows gate = linear(h, mlp + "gate_proj"), up = linear(h, mlp + "up_proj");
    for (std::size_t r = 0; r < up.size(); ++r)
      for (std::size_t i = 0; i < up[r].size(); ++i) {
        const double g = m_.mlp.gate_multiplier * gate[r][i];
        up[r][i] *= g / (1 + std::exp(-g)) * m_.mlp.down_multiplier;
      }
    return rms_norm(sum(x, linear(up, mlp + "down_proj")), "model.final_layernorm.weight");
  }

  double cross_entropy(const std::vector<double>& row, Token label) const {
    const Rows logits = linear({row}, "lm_head");
    double total = 0;
    for (const double z : logits[0]) total += std::exp(m_.lm_head_multiplier * z);
    return std::log(total) - m_.lm_head_multiplier * logits[0][std::size_t(label)];
  }

  ModelConfig m_;
  VisionConfig v_;
  std::map<std::string, std::vector<double>> weights_;
};

constexpr Index sequences = 2, length = 14;

double loss_of(Engine& engine, const MicroBatch& batch) {
  const auto [sum, labels] = engine.evaluate([&](int) { return batch; }, 1);
  return sum / double(labels);
}

std::vector<RowScore> scores_of(Engine& engine, const MicroBatch& batch) {
  return engine.scores([&](int) { return batch; }, 1).at(0).rows;
}

}  // namespace

TEST(tower, loss_equals_that_of_plain_loops) {
  const std::uint64_t seed = seed_of_run();
  for (const VisionTower tower : {VisionTower::clip, VisionTower::siglip})
    for (const bool drops : {false, true}) {
      ModelConfig m = image_model("*-V-", tower);
      m.vision.drops_first_row = drops, m.vision.projector_bias = drops == (tower == VisionTower::clip);
      check(m);
      const EngineConfig c = image_config(m, sequences, length);
      Rig<double> rig(c, single_rank_grid(m.layers()));
      set_weights(rig.engine);
      for (const std::vector<Index>& counts : {std::vector<Index>{2, 1}, {0, 2}, {1}}) {
        const MicroBatch batch = image_batch(c, counts, seed);
        const double expected = Plain(rig.engine, m).loss(batch);
        EXPECT_NEAR(loss_of(rig.engine, batch), expected, 1e-12 * expected) << int(tower) << drops << counts[0];
        EXPECT_NEAR(rig.engine.gradients([&](int) { return batch; }, 1, 1).loss, expected, 1e-12 * expected);
      }
    }
}

TEST(tower, gradients_equal_finite_differences) {
  for (const VisionTower tower : {VisionTower::clip, VisionTower::siglip})
    for (const char* pattern : {"*-VP", "*-*-V*-M", "-*VWE"})
      for (const std::vector<Index>& counts : {std::vector<Index>{2, 1}, {1, 0}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", pattern, int(tower), counts[1]));
        ModelConfig m = image_model(pattern, tower);
        m.positions = pattern[0] == '-' ? length : 0;
        const EngineConfig c = image_config(m, sequences, length);
        Rig<double> rig(c, single_rank_grid(m.layers()));
        set_weights(rig.engine);
        expect_differences_of(rig.engine, image_batch(c, counts, seed_of_run()));
      }
}

// The weights of a model of the text alone have the same names, apart from the numbers of layers.
TEST(tower, batch_without_images_has_bits_of_text_model) {
  const ModelConfig m = image_model("*-VP*-", VisionTower::clip);
  ModelConfig text = m;
  text.pattern = "P*-";
  const EngineConfig c = image_config(m, sequences, length);
  EngineConfig of_text = c;
  of_text.model = text, of_text.source_length = 0;
  Rig<double> rig(c, single_rank_grid(m.layers())), plain(of_text, single_rank_grid(text.layers()));
  set_weights(rig.engine);
  std::map<std::string, const Parameter*> named;
  for (const auto& p : rig.engine.stage().parameters().all()) named[p->weight.name] = p.get();
  for (const auto& p : plain.engine.stage().parameters().all()) {
    std::string name = p->weight.name;
    if (const std::string layers = "model.layers."; name.starts_with(layers)) name[layers.size()] = char(name[layers.size()] + 3);
    for (Index i = 0; i < p->size(); ++i) p->vector<double>()(i) = named.at(name)->vector<double>()(i);
  }
  MicroBatch batch = image_batch(c, {0}, seed_of_run());
  const double loss = rig.engine.gradients([&](int) { return batch; }, 1, 1).loss;
  batch.source = {};
  EXPECT_EQ(loss_of(rig.engine, batch), loss_of(plain.engine, batch));
  EXPECT_EQ(loss, plain.engine.gradients([&](int) { return batch; }, 1, 1).loss);
}

// Changes the image of each sequence in turn: rows before its first image token and rows of other sequences keep their bits.
TEST(tower, image_changes_only_rows_from_its_first) {
  const ModelConfig m = image_model("*-VM*", VisionTower::siglip, 1);
  const EngineConfig c = image_config(m, sequences, length);
  Rig<double> rig(c, single_rank_grid(m.layers()));
  set_weights(rig.engine);
  MicroBatch batch = image_batch(c, {1}, seed_of_run());
  for (Token& label : batch.labels) label = 1;
  const auto before = scores_of(rig.engine, batch);
  for (Index changed = 0; changed < sequences; ++changed) {
    MicroBatch other = batch;
    other.source.values[image_pixels][std::size_t((changed * m.vision.rows() + 2) * m.vision.patch_values() + 1)] ^= 0x80;
    const auto after = scores_of(rig.engine, other);
    const auto begin = batch.tokens.begin() + changed * length;
    const Index first = std::find(begin, begin + length, image_token) - begin;
    for (Index r = 0; r < sequences * length; ++r)
      EXPECT_EQ(before[std::size_t(r)].loss != after[std::size_t(r)].loss, r / length == changed && r % length >= first) << changed << " " << r;
  }
}

TEST(tower, other_counts_of_image_tokens_are_refused) {
  const ModelConfig m = image_model("*-V*", VisionTower::clip);
  const EngineConfig c = image_config(m, sequences, length);
  const MicroBatch good = image_batch(c, {2, 1}, seed_of_run());
  const auto expect = [&](const char* text, const MicroBatch& batch) {
    Rig<double> rig(c, single_rank_grid(m.layers()));
    const Error error = error_of([&] { loss_of(rig.engine, batch); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  };
  MicroBatch more = good, less = good, none = good;
  *std::find_if(more.tokens.begin() + length, more.tokens.end(), [](Token t) { return t != image_token; }) = image_token;
  *std::find(less.tokens.begin(), less.tokens.end(), image_token) = 1;
  none.source = {};
  expect("a sequence has 5 image tokens (5) and 1 images of 4 rows each", more);
  expect("a sequence has 7 image tokens (5) and 2 images of 4 rows each", less);
  expect("a micro-batch has 12 image tokens (5) and no images", none);
}

TEST(tower, contradictory_settings_are_refused) {
  const auto refused = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig m = image_model("*-V*-", VisionTower::clip);
    check(m);
    change(m);
    const Error error = error_of([&] { check(m); });
    EXPECT_EQ(error.code, Exit::config);
    return std::string(error.what());
  };
  const auto expect = [&](const char* text, const std::function<void(ModelConfig&)>& change) {
    const std::string found = refused(change);
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  expect("V ends the vision tower and must occur once", [](ModelConfig& m) { m.pattern = "*V-V*"; });
  expect("V ends the vision tower and must occur once", [](ModelConfig& m) { m.pattern = "V*"; });
  expect("V at 2 ends a vision tower, and layer 1 is 'M'", [](ModelConfig& m) { m.pattern = "MV*"; });
  expect("model.attention.causal is false", [](ModelConfig& m) { m.attention.causal = false; });
  expect("vision.num_heads must divide vision.hidden_size (5 does not divide 12)", [](ModelConfig& m) { m.vision.num_heads = 5; });
  expect("vision.patch_size must divide vision.image_size (3 does not divide 4)", [](ModelConfig& m) { m.vision.patch_size = 3; });
  expect("is none of the", [](ModelConfig& m) { m.vision.image_token = std::int32_t(m.vocab_size); });
  expect("model.dropout.embedding = 0.1 would not apply", [](ModelConfig& m) { m.dropout.embedding = 0.1; });
  expect("norm_placement: before or both", [](ModelConfig& m) { m.norm_placement = NormPlacement::after; });
}

// Forward FLOPs of the tower's rows, the projector and the text, per token of the text.
TEST(tower, flops_follow_from_sizes) {
  const ModelConfig m = image_model("*-V-", VisionTower::clip);
  ModelConfig text = m;
  text.pattern = "-";
  const VisionConfig& v = m.vision;
  const double d = double(v.hidden_size), f = double(v.intermediate_size), n = double(v.rows()), w = double(m.hidden_size);
  const double of_row = 2 * d * double(v.patch_values()) + 8 * d * d + 4 * n * d + 4 * d * f + 2 * w * (d + w);
  const TextLengths lengths(length, v.rows_of_sequence());
  EXPECT_NEAR(forward_flops(m, lengths).minimal - forward_flops(text, length).minimal, of_row * double(lengths.source) / double(length), 1e-9);
}

}  // namespace gyr::testing::tower_suite
