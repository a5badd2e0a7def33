// SPDX-License-Identifier: BSD-3-Clause
// Layer R: chunked cross-attention equals stated values, its gradients are central differences, no row sees the neighbours
// of a chunk before its end, and a model without neighbours is the model without R.
#include <random>

#include "modules/cost/flops.hpp"
#include "modules/layers/retrieval.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/retrieval.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing::retrieval_suite {
namespace {

// Chunked cross-attention of one sequence of `rows` tokens with 2 heads of 2 channels, chunks of 3 tokens and 2 neighbours
// of 6. All inputs and weights are cosines of their indices.
struct StatedCase {
  Index rows, first_chunk;
  std::vector<std::vector<Index>> lengths;  // [neighbour][chunk]
};

constexpr Index width = 4, m = 3, k = 2, r = 6;

ModelConfig stated_model() {
  ModelConfig c;
  c.pattern = "R", c.hidden_size = width, c.vocab_size = 8;
  c.attention.num_heads = c.attention.num_kv_heads = 2, c.attention.head_dim = 2;
  c.retrieval = {m, k, "X"};
  return c;
}

class Stated {
 public:
  explicit Stated(const StatedCase& c)
      : case_(c), dev_(false, Index(1) << 20), parameters_(DType::f64, Coordinates{}),
        attention_(stated_model(), "r", parameters_, {SourceRows::neighbours, m, k, c.first_chunk}), chunks_(Index(c.lengths[0].size())),
        rotary_(memory_, 16), text_(pass_of(1, c.rows)), source_(pass_of(k * chunks_, r)) {
    parameters_.lay_out(1 << 20);
    parameters_.allocate(weights_, gradients_, Gradients::kept);
    fill(dev_, parameters_.gradients(), 0);
    const auto set = [&](const char* name, double a, double b, double s) {
      for (const auto& p : parameters_.all())
        if (p->weight.name == name) assign(dev_, *p, [&](Index i) { return std::cos(a * double(i / width) + b * double(i % width) + s) / 2; });
    };
    set("r.q_proj.weight", 1, 2, 1), set("r.k_proj.weight", 2, 1, 2), set("r.v_proj.weight", 1, 1, 3), set("r.o_proj.weight", 3, 1, 4);
    h_ = memory_.tensor<double>(c.rows, width), e_ = memory_.tensor<double>(k * chunks_ * r, width);
    dh_ = memory_.tensor<double>(c.rows, width), de_ = memory_.tensor<double>(k * chunks_ * r, width);
    for (Index t = 0; t < c.rows; ++t)
      for (Index j = 0; j < width; ++j) h_(t, j) = std::cos(.7 * double(t) + 1.3 * double(j));
    for (Index u = 0; u < chunks_; ++u)
      for (Index n = 0; n < k; ++n)
        for (Index i = 0; i < r; ++i)
          for (Index j = 0; j < width; ++j)
            e_((n * chunks_ + u) * r + i, j) = std::sin(.3 * double(u) + .5 * double(n) + .9 * double(i) + .2 * double(j));
    see_neighbours();
    text_.source = &source_, text_.encoded = {e_, de_};
  }

  // Output of the branch, before the residual sum.
  Tensor2<double> forward() {
    frame_.clear();
    const auto y = memory_.tensor<double>(case_.rows, width);
    AllRows<double> h(text_, "h", h_);
    attention_.forward(text_, frame_, h, Add::no, y);
    return y;
  }
  // Gradients of the sum of y(t, c) sin(1 + t + 2 c).
  void backward() {
    const auto dy = memory_.tensor<double>(case_.rows, width);
    for (Index t = 0; t < case_.rows; ++t)
      for (Index j = 0; j < width; ++j) dy(t, j) = slope(t, j);
    fill<double>(dev_, flat(de_), 0);
    attention_.backward(text_, frame_, dy, Add::no, dh_);
    attention_.backward_weights(text_, frame_, h_, dy);
  }
  static double slope(Index t, Index j) { return std::sin(1 + double(t) + 2 * double(j)); }
  Tensor2<double> dh() const { return dh_; }
  double de(Index u, Index n, Index i, Index j) const { return de_((n * chunks_ + u) * r + i, j); }
  double dk(Index column) const {
    for (const auto& p : parameters_.all())
      if (p->weight.name == "r.k_proj.weight") return p->vector_gradient<double>()(column);
    return 0;
  }

 private:
  Pass pass_of(Index batch, Index length) {
    Grid& grid = single_rank_grid(1);
    SequenceLayout s;
    s.batch = batch, s.seq_length = length;
    return {dev_, grid.tensor(), nullptr, nullptr, {}, rotary_, s, {batch * length, 1, 0}, {true}};
  }
  void see_neighbours() {
    for (const auto& lengths : case_.lengths)
      for (const Index length : lengths)
        for (Index i = 0; i < m; ++i) begins_.push_back(std::int32_t(i)), ends_.push_back(std::int32_t(length - 1 - i));
    const Index n = Index(begins_.size());
    text_.sequences.visible_encoder_range = {Tensor1<const std::int32_t>(begins_.data(), n), begins_, Tensor1<const std::int32_t>(ends_.data(), n),
                                             ends_};
  }

  StatedCase case_;
  Device dev_;
  Parameters parameters_;
  CrossAttention<double> attention_;
  Index chunks_;
  Arena memory_{Memory::activations, Index(1) << 20}, weights_{Memory::weights, Index(1) << 16}, gradients_{Memory::gradients, Index(1) << 16},
      saved_{Memory::activations, Index(1) << 18};
  RotaryTables rotary_;
  Pass text_, source_;
  Frame frame_{saved_};
  std::vector<std::int32_t> begins_, ends_;
  Tensor2<double> h_, e_, dh_, de_;
};

using Row = std::array<double, 4>;
void expect_row(const Tensor2<double>& x, Index t, const Row& expected, double tolerance) {
  for (Index j = 0; j < width; ++j) EXPECT_NEAR(x(t, j), expected[std::size_t(j)], tolerance) << "row " << t << " channel " << j;
}

const StatedCase even{6, 3, {{6, 6}, {6, 6}}}, shorter{6, 3, {{6, 4}, {0, 6}}}, longer{7, 3, {{6, 6}, {6, 6}}},
    short_first{7, 1, {{6, 6, 6}, {6, 6, 6}}};
const Row none{};

}  // namespace

TEST(retrieval, chunked_attention_equals_stated_values) {
  Stated all(even), some(shorter), rest(longer), first(short_first);
  const auto y = all.forward();
  expect_row(y, 0, none, 0), expect_row(y, 1, none, 0);
  expect_row(y, 2, {0.114550833481, -0.125127633273, 0.133200002635, -0.138606373039}, 1e-12);
  expect_row(y, 3, {0.156891746817, -0.163019278154, 0.165883977531, -0.165428507969}, 1e-12);
  expect_row(y, 4, {0.162587620124, -0.163177274099, 0.160500933823, -0.154612166265}, 1e-12);
  expect_row(y, 5, {0.099630149955, -0.099398332937, 0.097177057609, -0.093010782813}, 1e-12);
  const auto padded = some.forward();
  expect_row(padded, 2, {0.136168222237, -0.144548490746, 0.150035620231, -0.152519785756}, 1e-12);
  expect_row(padded, 5, {0.224405849856, -0.217704934139, 0.206646652684, -0.191452337071}, 1e-12);
  const auto seven = rest.forward();
  for (Index t = 0; t < 6; ++t) expect_row(seven, t, {y(t, 0), y(t, 1), y(t, 2), y(t, 3)}, 1e-15);
  expect_row(seven, 6, {0.032181103057, -0.031682675871, 0.030550119712, -0.028806102699}, 1e-12);
  const auto shifted = first.forward();
  expect_row(shifted, 0, {-0.006682088227, -0.003578292380, 0.013767053441, -0.023680266834}, 1e-12);
  expect_row(shifted, 1, {0.050588270198, -0.062763057675, 0.073681642126, -0.083125488008}, 1e-12);
  expect_row(shifted, 3, {0.130946415318, -0.139605432747, 0.145470246490, -0.148423472261}, 1e-12);
  expect_row(shifted, 6, {0.003450692789, -0.005340522730, 0.007123462072, -0.008763825272}, 1e-12);
}

TEST(retrieval, chunked_attention_gradients_equal_stated_values) {
  Stated c(even);
  const auto y = c.forward();
  double loss = 0;
  for (Index t = 0; t < 6; ++t)
    for (Index j = 0; j < width; ++j) loss += y(t, j) * Stated::slope(t, j);
  EXPECT_NEAR(loss, 0.1759745206076597, 1e-15);
  c.backward();
  const auto expect_values = [](const Row& expected, const auto& found) {
    for (Index j = 0; j < width; ++j) EXPECT_NEAR(found(j), expected[std::size_t(j)], 5e-9) << j;
  };
  expect_row(c.dh(), 0, none, 0), expect_row(c.dh(), 1, none, 0);
  expect_row(c.dh(), 5, {-0.007007860, 0.093401803, -0.070729870, -0.034533780}, 5e-9);
  expect_row(c.dh(), 2, {0.009404223, -0.087137279, 0.063119583, 0.034603249}, 5e-9);
  expect_values({-0.024530270, -0.037080569, -0.015539164, 0.020288877}, [&](Index j) { return c.de(1, 1, 4, j); });
  expect_values({0.128185366, 0.109762411, -0.009575599, -0.120109847}, [&](Index j) { return c.de(0, 0, 0, j); });
  expect_values({0.033686130, 0.018943710, 0.003446064, -0.012188966}, [&](Index j) { return c.dk(j); });
}

TEST(retrieval, gradients_equal_central_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"R", "*R-R", "PRM-R", "MR*R"})
    for (const char* encoder : {"X", "*X-*-", "X-*X"}) {
      const ModelConfig c = retrieval_model(pattern, 2 + Index(random() % 3), 1 + Index(random() % 3), encoder);
      SCOPED_TRACE(fmt::format("{} {} m {} k {}", pattern, encoder, c.retrieval.chunk, c.retrieval.neighbours));
      const EngineConfig config = retrieval_config(c, 2, 3);
      Rig<double> rig(config, single_rank_grid(c.layers()));
      expect_differences_of(rig.engine, retrieval_batch(config, random()));
    }
}

// A narrower and a wider encoder have a table of their own, and their layers X read rows of the text's width.
TEST(retrieval, encoder_widths_give_central_differences) {
  std::mt19937 random(seed_of_run());
  for (const Index width : {6, 20}) {
    const ModelConfig c = with_encoder_width(retrieval_model("R*R-", 2 + Index(random() % 3), 1 + Index(random() % 3), "*X-X"), width);
    SCOPED_TRACE(fmt::format("width {} m {} k {}", width, c.retrieval.chunk, c.retrieval.neighbours));
    const EngineConfig config = retrieval_config(c, 2, 3);
    Rig<double> rig(config, single_rank_grid(c.layers()));
    expect_differences_of(rig.engine, retrieval_batch(config, random()));
    std::map<std::string, std::vector<Index>> shapes;
    for (const auto& p : rig.engine.stage().parameters().all()) shapes[p->weight.name] = p->weight.shape;
    const Index q = c.encoder->attention.num_heads * c.encoder->attention.head_dim, text = c.hidden_size;
    EXPECT_EQ(shapes.at("model.encoder.embed_tokens.weight"), (std::vector<Index>{c.vocab_size, width}));
    EXPECT_EQ(shapes.at("model.layers.0.encoder.layers.1.cross_attn.q_proj.weight"), (std::vector<Index>{q, width}));
    EXPECT_EQ(shapes.at("model.layers.0.encoder.layers.1.cross_attn.k_proj.weight").at(1), text);
    EXPECT_EQ(shapes.at("model.layers.0.encoder.layers.2.feed_forward.down_proj.weight"),
              (std::vector<Index>{width, c.encoder->mlp.intermediate_size}));
    EXPECT_EQ(shapes.at("model.layers.2.cross_attn.k_proj.weight").at(1), width);
    EXPECT_EQ(shapes.at("model.layers.2.cross_attn.q_proj.weight").at(1), text);
  }
}

namespace {

std::vector<double> losses_of(Engine& engine, const MicroBatch& batch) {
  std::vector<double> losses;
  const Scores scores = engine.scores([&](int) { return batch; }, 1);
  for (const RowScore& row : scores.at(0).rows) losses.push_back(row.loss);
  return losses;
}

// Expects that only rows of sequence b from row `first` on change, and that row does.
void expect_changes_from(const std::vector<double>& before, const std::vector<double>& after, Index b, Index first, Index length,
                         const std::string& what) {
  for (Index row = 0; row < Index(before.size()); ++row) {
    const bool may = row / length == b && row % length >= first;
    const double was = before[std::size_t(row)], is = after[std::size_t(row)];
    if (!may) {
      EXPECT_EQ(was, is) << what << ", row " << row;
    } else if (row % length == first) {
      EXPECT_NE(was, is) << what << ", row " << row;
    }
  }
}

}  // namespace

TEST(retrieval, rows_see_no_later_token_or_neighbour) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"*R-", "PRMR", "RR"}) {
    const ModelConfig c = retrieval_model(pattern, 4, 2, "*X-*-");
    const EngineConfig config = retrieval_config(c, 2, 3);
    Rig<double> rig(config, single_rank_grid(c.layers()));
    const MicroBatch batch = retrieval_batch(config, random(), true);
    const auto before = losses_of(rig.engine, batch);
    const Index length = config.seq_length, chunks = 2 * length / 4;
    for (Index row = 0; row < 2 * length; ++row) {
      MicroBatch other = batch;
      other.tokens[std::size_t(row)] = (other.tokens[std::size_t(row)] + 1) % Token(c.vocab_size);
      expect_changes_from(before, losses_of(rig.engine, other), row / length, row % length, length, fmt::format("{} token {}", pattern, row));
    }
    for (Index i = 0; i < Index(batch.source.lengths.size()); ++i) {
      MicroBatch other = batch;
      Token& token = other.source.tokens[std::size_t(i * 8)];
      token = (token + 1) % Token(c.vocab_size);
      const Index chunk = i % chunks, in_text = chunk % (length / 4);
      expect_changes_from(before, losses_of(rig.engine, other), chunk / (length / 4), 4 * in_text + 3, length,
                          fmt::format("{} neighbour {}", pattern, i));
    }
  }
}

namespace {

// Positions in drawn documents of a micro-batch.
std::vector<std::int32_t> drawn_positions(std::mt19937& random, const EngineConfig& c) {
  std::vector<std::int32_t> positions;
  for (Index row = 0; row < c.micro_batch_size * c.seq_length; ++row)
    positions.push_back(row % c.seq_length == 0 || random() % 4 == 0 ? 0 : positions.back() + 1);
  return positions;
}

// Rows that a change may change, and those that it must change.
struct Reached {
  std::vector<bool> may, must;
  explicit Reached(std::size_t rows) : may(rows), must(rows) {}
};
void expect_only(const Reached& reached, const std::vector<double>& before, const std::vector<double>& after, const std::string& what) {
  for (std::size_t row = 0; row < before.size(); ++row) {
    if (!reached.may[row]) {
      EXPECT_EQ(before[row], after[row]) << what << ", row " << row;
    }
    if (reached.must[row]) {
      EXPECT_NE(before[row], after[row]) << what << ", row " << row;
    }
  }
}

}  // namespace

// A token reaches later rows of its document only, among them the last row of its chunk, which reads the neighbours that have read the token.
// The neighbours of a chunk reach the rows that see them, if their document has the chunk's last token.
TEST(retrieval, packed_documents_see_no_other_document) {
  std::mt19937 random(seed_of_run());
  constexpr Index chunk = 4, chunks = 3, length = chunk * chunks, rows = 2 * length;
  for (const char* pattern : {"R-", "*R-", "PRMR"}) {
    const ModelConfig c = retrieval_model(pattern, chunk, 2, "*X-*-");
    const EngineConfig config = retrieval_config(c, 2, chunks);
    Rig<double> rig(config, single_rank_grid(c.layers()));
    MicroBatch batch = retrieval_batch(config, random(), true);
    batch.positions = drawn_positions(random, config);
    const auto first_of = [&](Index row) { return row - batch.positions[std::size_t(row)]; };
    const auto before = losses_of(rig.engine, batch);
    for (Index row = 0; row < rows; ++row) {
      Reached reached(rows);
      const Index last = row / chunk * chunk + chunk - 1;
      for (Index r = row; r < rows; ++r) reached.may[std::size_t(r)] = first_of(r) == first_of(row);
      reached.must[std::size_t(row)] = true, reached.must[std::size_t(last)] = first_of(last) == first_of(row);
      MicroBatch other = batch;
      other.tokens[std::size_t(row)] = (other.tokens[std::size_t(row)] + 1) % Token(c.vocab_size);
      expect_only(reached, before, losses_of(rig.engine, other), fmt::format("{} token {}", pattern, row));
    }
    for (Index i = 0; i < 2 * rows / chunk; ++i) {
      Reached reached(rows);
      const Index last = i % (rows / chunk) * chunk + chunk - 1;
      for (Index r = last; r < rows; ++r)
        reached.may[std::size_t(r)] = first_of(r) == first_of(last), reached.must[std::size_t(r)] = reached.may[std::size_t(r)] && r < last + chunk;
      MicroBatch other = batch;
      Token& token = other.source.tokens[std::size_t(i * 2 * chunk)];
      token = (token + 1) % Token(c.vocab_size);
      expect_only(reached, before, losses_of(rig.engine, other), fmt::format("{} neighbour {}", pattern, i));
    }
  }
}

// Documents of full chunks, packed into one sequence, equal a batch of these documents: losses and gradients.
TEST(retrieval, packed_documents_equal_unpacked_documents) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"*R-", "PRMR"}) {
    const Index documents = 3, length = 2 * 3;
    const ModelConfig c = retrieval_model(pattern, 3, 2, "*X-*-");
    const EngineConfig alone = retrieval_config(c, documents, 2), joined = retrieval_config(c, 1, 2 * documents);
    const MicroBatch batch = retrieval_batch(alone, random());
    MicroBatch packed = batch;
    packed.batch = 1, packed.seq_length *= documents, packed.source.length *= documents;
    for (Index row = 0; row < documents * length; ++row) packed.positions.push_back(std::int32_t(row % length));
    const auto step = [&](const EngineConfig& config, const MicroBatch& m) {
      Rig<double> rig(config, single_rank_grid(c.layers()));
      const StepResult result = rig.engine.gradients([&](int) { return m; }, 1, 1);
      return StepOutcome{result, gathered_gradients(rig.engine)};
    };
    const Errors errors = errors_of(step(alone, batch), step(joined, packed));
    EXPECT_TRUE(within_limits(errors, DType::f64)) << pattern << ": loss " << errors.loss << ", gradient " << errors.worst_gradient();
  }
}

TEST(retrieval, gradients_of_packed_documents_equal_differences) {
  std::mt19937 random(seed_of_run());
  const ModelConfig c = retrieval_model("PR*R", 3, 2, "*X-");
  const EngineConfig config = retrieval_config(c, 2, 3);
  Rig<double> rig(config, single_rank_grid(c.layers()));
  MicroBatch batch = retrieval_batch(config, random());
  batch.positions = drawn_positions(random, config);
  expect_differences_of(rig.engine, batch);
}

TEST(retrieval, padding_of_neighbours_changes_no_bit) {
  std::mt19937 random(seed_of_run());
  const EngineConfig config = retrieval_config(retrieval_model("*R-R", 3, 3, "*X-"), 2, 2);
  Rig<double> rig(config, single_rank_grid(4));
  MicroBatch batch = retrieval_batch(config, random());
  const auto before = losses_of(rig.engine, batch);
  Index changed = 0;
  for (std::size_t i = 0; i < batch.source.lengths.size(); ++i)
    for (Index t = batch.source.lengths[i]; t < 6; ++t, ++changed) batch.source.tokens[i * 6 + std::size_t(t)] ^= 1;
  EXPECT_GT(changed, 0);
  EXPECT_EQ(losses_of(rig.engine, batch), before);
}

// With o_proj = 0, or without any neighbour, layers R change no bit of the model without them.
TEST(retrieval, zero_output_equals_model_without_retrieval) {
  std::mt19937 random(seed_of_run());
  for (const bool missing : {false, true}) {
    const EngineConfig config = retrieval_config(retrieval_model("P*R-R", 3, 2, "*X-*-"), 2, 3);
    EngineConfig plain = config;
    plain.model.pattern = "P*-", plain.source_length = 0;
    Rig<double> rig(config, single_rank_grid(5)), without(plain, single_rank_grid(3));
    MicroBatch batch = retrieval_batch(config, random());
    if (missing) std::fill(batch.source.lengths.begin(), batch.source.lengths.end(), 0);
    for (const auto& p : rig.engine.stage().parameters().all()) {
      const auto from = p->vector<double>();
      if (!missing && (p->weight.name == "model.layers.2.cross_attn.o_proj.weight" || p->weight.name == "model.layers.4.cross_attn.o_proj.weight"))
        fill<double>(rig.engine.device(), from, 0);
      for (const auto& q : without.engine.stage().parameters().all()) {
        std::string name = q->weight.name;
        if (name.starts_with("model.layers.2.")) name[13] = '3';
        if (name != p->weight.name) continue;
        ASSERT_EQ(p->size(), q->size());
        std::copy_n(from.data(), p->size(), q->vector<double>().data());
      }
    }
    MicroBatch text = batch;
    text.source = {};
    EXPECT_EQ(losses_of(rig.engine, batch), losses_of(without.engine, text)) << (missing ? "no neighbour" : "o_proj = 0");
  }
}

TEST(retrieval, order_of_neighbours_does_not_matter) {
  std::mt19937 random(seed_of_run());
  const Index count = 3;
  const EngineConfig config = retrieval_config(retrieval_model("*R-R", 2, count, "*X-*-"), 2, 4);
  Rig<double> rig(config, single_rank_grid(4));
  const MicroBatch batch = retrieval_batch(config, random());
  MicroBatch other = batch;
  const std::size_t chunks = batch.source.lengths.size() / count;
  std::rotate(other.source.lengths.begin(), other.source.lengths.begin() + std::ptrdiff_t(chunks), other.source.lengths.end());
  std::rotate(other.source.tokens.begin(), other.source.tokens.begin() + std::ptrdiff_t(chunks * 4), other.source.tokens.end());
  const auto a = losses_of(rig.engine, batch), b = losses_of(rig.engine, other);
  for (std::size_t row = 0; row < a.size(); ++row) EXPECT_NEAR(a[row], b[row], 1e-12) << row;
}

// Encoded neighbours stay in memory, because later layers R read them. All else that layers R and their encoder save is
// recomputed or offloaded, like that of other layers.
TEST(retrieval, recompute_and_offload_keep_all_bits) {
  const std::uint64_t seed = seed_of_run();
  const auto step = [&](const Recompute& recompute, const OffloadConfig& offload) {
    EngineConfig config = retrieval_config(retrieval_model("*R-RM-", 3, 2, "*X-*-"), 2, 8);
    config.recompute.all = recompute, config.offload = offload;
    Rig<double> rig(config, single_rank_grid(6));
    const StepResult result = rig.engine.gradients([&](int) { return retrieval_batch(config, seed); }, 1, 1);
    return std::tuple{result.loss, gathered_gradients(rig.engine), rig.engine.measured().bytes(Memory::activations)};
  };
  const auto [loss, gradients, bytes] = step({}, {});
  Index before = bytes;
  for (const RecomputeCost most : {RecomputeCost::pass, RecomputeCost::gemm, RecomputeCost::sum}) {
    const auto [same_loss, same_gradients, less] = step(most, {});
    EXPECT_EQ(same_loss, loss);
    EXPECT_EQ(same_gradients, gradients) << int(most);
    EXPECT_LT(less, before) << int(most);
    before = less;
  }
  for (const double alpha : {1.0, 0.0}) {
    const auto [same_loss, same_gradients, less] = step({}, {true, alpha});
    EXPECT_EQ(same_loss, loss);
    EXPECT_EQ(same_gradients, gradients) << alpha;
    EXPECT_LT(less, bytes) << alpha;
  }
}

// Forward FLOPs of the GEMMs of a step are those that the formulas of the layers state.
TEST(retrieval, gemm_flops_equal_their_formula) {
  for (const auto& [pattern, width] : {std::pair("*R-", 0), {"PRM-R", 0}, {"*R-R", 10}}) {
    EngineConfig config = retrieval_config(with_encoder_width(retrieval_model(pattern, 4, 3, "*X-*-"), width), 2, 3);
    config.training = false;
    Rig<double> rig(config, single_rank_grid(config.model.layers()));
    rig.engine.device().clear_work();
    const MicroBatch batch = retrieval_batch(config, 1);
    rig.engine.evaluate([&](int) { return batch; }, 1);
    double gemms = 0, expected = config.model.objective->flops(config.model);
    for (const auto& w : rig.engine.device().work())
      if (std::string(w.kernel) == "gemm") gemms += w.flops;
    for (Index i = 0; i < config.model.layers(); ++i) expected += layer_flops(config.model, i, {config.seq_length, config.source_length}).gemms;
    EXPECT_DOUBLE_EQ(gemms / double(2 * config.seq_length), expected) << pattern;
  }
}

}  // namespace gyr::testing::retrieval_suite
