// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/cases.hpp"

#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "modules/objectives/future_tokens.hpp"

namespace gyr::testing {

namespace {

ModelConfig base() {
  ModelConfig m;
  m.pattern = "PP";
  m.vocab_size = 64, m.hidden_size = 32, m.rms_norm_eps = 1e-5;
  m.embedding_multiplier = 2, m.lm_head_multiplier = 0.5;
  m.pad_token_id = 0;
  m.window = {5, 1e3};
  m.latent.num_heads = 4, m.latent.head_dim = 3, m.latent.rope_dim = 4, m.latent.v_head_dim = 5, m.latent.q_rank = 6, m.latent.kv_rank = 7;
  m.attention = {
      .num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .rope_theta = 1e4, .in_multiplier = 1.25, .key_multiplier = 0.75, .out_multiplier = 0.8};
  m.mamba.num_heads = 6, m.mamba.head_dim = 8, m.mamba.num_groups = 1, m.mamba.state_size = 8, m.mamba.conv_kernel = 4, m.mamba.chunk_size = 8;
  m.mamba.in_multiplier = 1.5, m.mamba.out_multiplier = 1.1;
  m.mamba.multipliers = {0.7, 1.5, 2.0, 1.75, 1.25};
  m.delta = {.num_heads = 4, .num_key_heads = 2, .head_dim = 6, .key_dim = 5, .conv_kernel = 3, .chunk_size = 8};
  m.mlp = {.intermediate_size = 48, .gate_multiplier = 0.9, .down_multiplier = 0.7};
  return m;
}

template <class Change>
ModelConfig changed(Change&& change) {
  ModelConfig m = base();
  change(m);
  return m;
}

Reference reference(Index parameters, double loss, std::vector<double> logits, double logits_sum, double norm, std::vector<double> norms) {
  static const std::string names[] = {"model.embed_tokens.weight",
                                      "model.layers.0.mamba.A_log",
                                      "model.layers.0.mamba.dt_bias",
                                      "model.layers.0.mamba.D",
                                      "model.layers.0.mamba.conv1d.weight",
                                      "model.layers.0.mamba.in_proj.weight",
                                      "model.layers.0.self_attn.q_proj.weight",
                                      "model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.0.mamba.norm.weight"};
  Reference r{parameters, loss, std::move(logits), logits_sum, norm, {}};
  for (std::size_t i = 0; i < norms.size(); ++i) r.gradient_norms[names[i]] = norms[i];
  return r;
}

std::vector<Case> make_cases() {
  std::vector<Case> list;
  list.push_back({"T1", base(), 2, 21,
                  reference(30916, 4.2327038585, {-0.87821438, -0.26500214, -0.01764347}, 640.64478534, 0.84879972,
                            {0.12020331, 0.00933852, 0.00957227, 0.01035547, 0.06363107, 0.46082474, 0.02144416, 0.01867545})});
  list.push_back({"T2", changed([](ModelConfig& m) { m.mamba.num_groups = 2, m.mamba.norm = SsmNorm::gate_first; }), 2, 21,
                  reference(32196, 4.2378364167, {-0.81597966, 0.16760347, -0.15537007}, 626.40347857, 1.05777161,
                            {0.15889437, 0.01279129, 0.00983275, 0.01006650, 0.10815018, 0.71427908, 0.02191203, 0.02078311, 0.03184092})});
  list.push_back({"T3", changed([](ModelConfig& m) { m.mamba.norm = SsmNorm::norm_first; }), 2, 21,
                  reference(31012, 4.2597989806, {-0.95915754, 0.09501054, -0.11463649}, 635.17852632, 0.56669342,
                            {0.08523088, 0.00368419, 0.00286582, 0.00451538, 0.02283609, 0.16985653, 0.01868516, 0.01648737, 0.01016975})});
  list.push_back({"T4", changed([](ModelConfig& m) { m.mamba.num_groups = 3, m.mamba.norm = SsmNorm::norm_first; }), 2, 24,
                  reference(33380, 4.2398154932, {0.41850877, -0.09527966, -0.04582905}, 724.66894877, 0.54216031,
                            {0.08306182, 0.00283062, 0.00200699, 0.00270517, 0.01897645, 0.14749793, 0.01664067, 0.01530086, 0.01133072})});
  list.push_back({"T5", changed([](ModelConfig& m) { m.tie_word_embeddings = true, m.attention.num_kv_heads = 1; }), 2, 5,
                  reference(27844, 7.7049698601, {0.78354771, -0.40552669, 0.31447850}, 904.43606852, 5.51529262,
                            {1.81862407, 0.01505515, 0.01833180, 0.08745311, 0.22601932, 1.78174228, 0.46213944, 0.45142006})});
  list.push_back({"T6", changed([](ModelConfig& m) { m.mamba.conv_bias = false, m.mamba.in_bias = m.mamba.out_bias = true; }), 2, 21,
                  reference(31088, 4.2366775861, {-0.86882701, -0.23947536, -0.01233480}, 642.80224448, 0.84056926,
                            {0.11730962, 0.01040812, 0.01045200, 0.01050965, 0.06091672, 0.44826061, 0.02089526, 0.01847950})});
  list.push_back({"T7", changed([](ModelConfig& m) { m.attention.bias = m.mlp.bias = true, m.attention.num_kv_heads = 4; }), 2, 21,
                  reference(33476, 4.2468734387, {-0.84376932, -0.31476977, 0.00600170}, 637.84878987, 0.84001265,
                            {0.11659445, 0.00953668, 0.00931879, 0.01067909, 0.06145789, 0.44973171, 0.01955513, 0.01936506})});
  list.push_back({"T8", changed([](ModelConfig& m) {
                    m.mamba.num_groups = 2, m.mamba.norm = SsmNorm::gate_first;
                    m.mamba.dt_low = 0.2, m.mamba.dt_high = 0.9;
                  }),
                  2, 21,
                  reference(32196, 4.2370196826, {-0.82339213, 0.16767537, -0.15531342}, 626.28022073, 0.93813017,
                            {0.13580543, 0.01279706, 0.00601646, 0.00610466, 0.06780107, 0.54752212, 0.02153460, 0.02107516, 0.03078197})});
  list.push_back({"T9", changed([](ModelConfig& m) {
                    m.attention.head_dim = 4, m.attention.rope_theta = 1e11;
                    m.mamba.conv_kernel = 2, m.mamba.num_heads = 3, m.mamba.state_size = 16, m.mamba.chunk_size = 16;
                  }),
                  1, 33,
                  reference(23746, 4.2498816569, {0.16362702, 0.21935930, 0.13604616}, 491.70692677, 0.71217059,
                            {0.11729244, 0.00463945, 0.00464314, 0.00949134, 0.05745499, 0.36198929, 0.02023004, 0.01690987})});
  list.push_back({"T10", changed([](ModelConfig& m) { m.mamba.num_groups = 2, m.mamba.norm = SsmNorm::gate_first; }), 3, 3,
                  reference(32196, 4.1149672053, {0.52303076, -0.44595751, -0.24118741}, 127.93881945, 1.95139816,
                            {0.25930299, 0.00500052, 0.01885128, 0.02855412, 0.17495897, 0.93335909, 0.02114576, 0.01824126, 0.06212440})});
  list.push_back(
      {"T11", changed([](ModelConfig& m) { m.vocab_size = 62, m.mamba.num_heads = 8, m.mamba.num_groups = 2, m.mamba.norm = SsmNorm::gate_first; }),
       2, 21,
       reference(35472, 4.2006308194, {0.31788407, 0.12955063, 0.18349288}, 612.87293581, 1.14757267,
                 {0.16401879, 0.00886134, 0.01056035, 0.02217427, 0.08612637, 0.71621686, 0.01967169, 0.01970336, 0.03422061})});
  return list;
}

std::uint32_t fnv1a(const std::string& text) {
  std::uint32_t h = 0x811c9dc5u;
  for (const unsigned char c : text) h = (h ^ c) * 0x01000193u;
  return h;
}

double spread(std::uint32_t x) {
  x ^= x >> 16, x *= 0x85ebca6bu, x ^= x >> 13, x *= 0xc2b2ae35u, x ^= x >> 16;
  return 2 * (double(x) / 4294967296.0) - 1;
}

bool ends_with(const std::string& name, const char* part) { return name.ends_with(part); }

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> list = make_cases();
  return list;
}

const Case& named(std::string_view name) {
  for (const Case& c : cases())
    if (c.name == name) return c;
  fail(Exit::internal, "no case {}", name);
}

ModelConfig widened(const Case& c) {
  ModelConfig m = c.model;
  m.pattern = "PPPPPPPP";
  m.attention.num_heads = 8;
  m.attention.num_kv_heads = std::min<Index>(8, c.model.attention.num_kv_heads * (c.name == "T7" ? 2 : 1));
  m.mamba.num_heads = 8;
  m.mamba.num_groups = c.model.mamba.num_groups == 3 ? 4 : c.model.mamba.num_groups;
  m.vocab_size = 62;  // not divisible by 4 and 8: the vocabulary is padded there
  return m;
}

ModelConfig narrowed(const Case& c) {
  ModelConfig m = widened(c);
  m.attention.num_heads = 2, m.attention.num_kv_heads = 1, m.attention.head_dim = 6;
  m.mamba.num_heads = 2, m.mamba.num_groups = 1, m.mamba.head_dim = 6;
  m.mlp.intermediate_size = 4;
  return m;
}

WeightValues::WeightValues(const Weight& w) : name_(fnv1a(w.name)) {
  const std::string& n = w.name;
  if (n == "model.embed_tokens.weight") scale_ = 1;
  else if (n.find("norm") != std::string::npos || ends_with(n, ".D")) base_ = 1, scale_ = 0.1;
  else if (ends_with(n, ".A_log")) base_ = 0.5, scale_ = 0.5;
  else if (ends_with(n, ".dt_bias")) base_ = -1, scale_ = 0.5;
  else if (ends_with(n, "conv1d.weight")) scale_ = 1;
  else if (ends_with(n, ".bias")) scale_ = 0.1;
  else if (ends_with(n, ".e_score_correction_bias") || ends_with(n, ".sinks") || ends_with(n, ".class_embedding")) scale_ = 1;
  else scale_ = 1 / std::sqrt(double(w.shape.at(1)));
}

double WeightValues::operator()(Index i) const { return double(float(base_ + scale_ * spread(name_ + std::uint32_t(i) * 2654435761u))); }

void set_weights(Engine& engine) {
  for (const auto& p : engine.stage().parameters().all()) assign(engine.device(), *p, WeightValues(p->weight));
  engine.reset_optimizer();
}

MicroBatch micro_batch(Index first, Index batch, Index seq_length, Index vocab_size) {
  MicroBatch m{batch, seq_length, {}, {}, {}, first};
  const auto token = [&](Index b, Index t) { return Token(1 + ((7 * t + 3 * b + 1) * (t + 1)) % (vocab_size - 1)); };
  for (Index b = first; b < first + batch; ++b)
    for (Index t = 0; t < seq_length; ++t) {
      m.tokens.push_back(token(b, t));
      m.labels.push_back(t + 1 < seq_length ? token(b, t + 1) : ignored_label);
    }
  return m;
}

MicroBatch packed(MicroBatch m, const Lengths& lengths, Index first) {
  m.positions = positions_of(lengths, m.batch, m.seq_length, first);
  for (Index r = 1; r <= m.batch * m.seq_length; ++r)
    if (r == m.batch * m.seq_length || m.positions[r] == 0) m.labels[r - 1] = ignored_label;
  return m;
}

MicroBatch with_future_tokens(MicroBatch m, Index depths) {
  for (Index k = 1; k <= depths; ++k) {
    MtpTargets ahead = future_tokens(k, m.seq_length, m.tokens, m.labels, m.positions);
    m.values[mtp_tokens(k)] = std::move(ahead.tokens), m.values[mtp_labels(k)] = std::move(ahead.labels);
  }
  return m;
}

std::vector<MicroBatch> split_documents(const MicroBatch& m) {
  std::vector<MicroBatch> documents;
  for (const Extent& e : extents_of(m.positions, m.seq_length)) {
    const auto part = [&](const std::vector<Token>& x) {
      const auto begin = x.begin() + e.sequence * m.seq_length + e.first;
      return std::vector<Token>(begin, begin + e.count);
    };
    documents.push_back({1, e.count, part(m.tokens), part(m.labels)});
  }
  return documents;
}

AnyRig::AnyRig(const EngineConfig& config, Grid& grid, const Arena* working)
    : timers(engine_timer_names()), capacity(predicted_capacity(config, grid.layout(), grid.position())),
      engine(config, grid, &capacity, timers, working) {
  set_weights(engine);
}

Grid& single_rank_grid(Index layers) {
  static std::map<Index, std::unique_ptr<Grid>> grids;
  auto& grid = grids[layers];
  if (!grid) grid = std::make_unique<Grid>(grid_layout(1, 1, 1, {{0, layers}}), MPI_COMM_SELF, WaitPolicy::spin);
  return *grid;
}

void sync_ranks() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::microseconds(done ? 0 : 200));
  }
}

}  // namespace gyr::testing
