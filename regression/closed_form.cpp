// SPDX-License-Identifier: BSD-3-Clause
//   L layers of this stage, R rows of a micro-batch, D width, t tensor ranks
#include "regression/closed_form.hpp"

#include <numeric>

#include "modules/objective.hpp"

namespace gyr::testing {

namespace {

constexpr Index head_block = 256;  // rows of logits at a time

void add(Ledger& ledger, const std::string& communicator, Operation op, Index calls, Index bytes_each) {
  if (calls == 0) return;
  Traffic& entry = ledger[{communicator, op}];
  entry.calls += calls;
  entry.bytes += calls * bytes_each;
}

// Where one rank stands and what it computes with.
struct Place {
  EngineConfig config;
  int data, pipeline, tensor;  // sizes
  bool sequence;
  int stage, chunks;   // on the pipeline axis; and what the rank has there
  std::string layers;  // symbols of this rank's
  Index narrow, wide;  // bytes of the scalar and of its accumulator

  template <class T>
  static Place of(const EngineConfig& c, const Layout& layout, int position) {
    const int stage = layout.coordinate(position, Axis::pipeline);
    const int pipeline = layout.size(Axis::pipeline), chunks = int(layout.stages.size()) / pipeline;
    std::string layers;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Span span = layout.stages[chunk * pipeline + stage];
      layers += c.model.pattern.substr(span.first, span.size());
    }
    return {c,
            layout.size(Axis::data),
            pipeline,
            layout.size(Axis::tensor),
            layout.sequence,
            stage,
            chunks,
            layers,
            Index(sizeof(T)),
            std::is_same_v<T, double> ? 8 : 4};
  }
  bool first() const { return stage == 0; }
  bool last() const { return stage == pipeline - 1; }
  const ModelConfig& model() const { return config.model; }
  Index rows() const { return config.micro_batch_size * config.seq_length; }
  // Rows of the stream that a rank keeps: as many on all ranks, the last ones padded.
  Index kept_rows() const { return sequence ? (rows() + tensor - 1) / tensor : rows(); }
  Index kept_bytes() const { return kept_rows() * model().hidden_size * narrow; }
  Index tokens_here() const { return (model().vocab_size + tensor - 1) / tensor; }
  std::string block(int size) const { return size == tensor ? "tensor" : fmt::format("tensor/{}", size); }
  Index count(const char* symbols) const {
    return std::count_if(layers.begin(), layers.end(), [&](char c) { return std::string(symbols).find(c) != std::string::npos; });
  }
  // Of them those whose forward is run again for what takes so much effort.
  Index count(const char* symbols, Effort least) const {
    return std::count_if(layers.begin(), layers.end(), [&](char c) {
      return std::string(symbols).find(c) != std::string::npos && config.recompute.of(c) && *config.recompute.of(c) >= least;
    });
  }
};

// Units that fewer or more ranks than there are units share: how many a rank holds, of how much of one's width, and how many ranks hold it.
struct Part {
  Index units, width;
  int replicas;
};
Part whole_units(const Place& p, Index units) { return {std::max<Index>(1, units / p.tensor), 0, int(std::max<Index>(1, p.tensor / units))}; }
Part cut_units(const Place& p, Index units, Index width) {
  const Part whole = whole_units(p, units);
  const int parts = std::gcd(int(width), whole.replicas);
  return {whole.units, width / parts, whole.replicas / parts};
}

// What a rank holds of the branches of a layer.
struct Shards {
  Index d, q, k, out, num_heads, inner, group, channels, projected, f;
  int q_replicas, k_replicas, out_replicas, head_replicas, inner_replicas, group_replicas, f_replicas;

  explicit Shards(const Place& p) {
    const ModelConfig& m = p.model();
    d = m.hidden_size;
    const Part queries = whole_units(p, m.attention.num_heads), keys = whole_units(p, m.attention.num_kv_heads);
    const Part values = cut_units(p, m.attention.num_heads, m.attention.head_dim);
    q = queries.units * m.attention.head_dim, q_replicas = queries.replicas;
    k = keys.units * m.attention.head_dim, k_replicas = keys.replicas;
    out = values.units * values.width, out_replicas = values.replicas;
    const Part ssm = whole_units(p, m.mamba.num_heads), x = cut_units(p, m.mamba.num_heads, m.mamba.head_dim),
               bc = whole_units(p, m.mamba.num_groups);
    num_heads = ssm.units, head_replicas = ssm.replicas;
    inner = x.units * x.width, inner_replicas = x.replicas;
    group = bc.units * m.mamba.state_size, group_replicas = bc.replicas;
    channels = inner + 2 * group, projected = inner + channels + num_heads;
    const Part mlp = whole_units(p, m.mlp.intermediate_size);
    f = mlp.units, f_replicas = mlp.replicas;
  }
};

void mamba_weights(const MambaConfig& c, const Shards& s, FlatRun& x) {
  x.next(s.projected * s.d);
  if (c.in_bias) x.next(s.projected);
  x.next(s.channels * c.conv_kernel);
  if (c.conv_bias) x.next(s.channels);
  for (int vector = 0; vector < 3; ++vector) x.next(s.num_heads);
  if (c.norm != SsmNorm::none) x.next(s.inner);
  x.next(s.d * s.inner);
  if (c.out_bias) x.next(s.d);
}
void attention_weights(const AttentionConfig& c, const Shards& s, FlatRun& x) {
  x.next(s.q * s.d), x.more(s.k * s.d), x.more(s.k * s.d), x.next(s.d * s.out);
  if (c.bias) x.next(s.q), x.more(s.k), x.more(s.k), x.next(s.d);
}
void mlp_weights(const MlpConfig& c, const Shards& s, FlatRun& x) {
  x.next(s.f * s.d), x.more(s.f * s.d), x.next(s.d * s.f);
  if (c.bias) x.next(s.f), x.more(s.f), x.next(s.d);
}

Index flat_extent(const Place& p) {
  const ModelConfig& m = p.model();
  const Shards s(p);
  FlatRun x;
  if (p.first()) x.next(p.tokens_here() * s.d);
  for (const char symbol : p.layers) {
    x.next(s.d);
    if (symbol == 'P' || symbol == 'M') mamba_weights(m.mamba, s, x);
    if (symbol == 'P' || symbol == '*') attention_weights(m.attention, s, x);
    if (symbol == 'P') x.next(s.d);
    if (symbol == 'P' || symbol == '-') mlp_weights(m.mlp, s, x);
  }
  if (p.last()) x.next(s.d);
  if (p.last() && !(p.first() && m.tie_word_embeddings)) x.next(p.tokens_here() * s.d);
  x.align();
  return x.extent;
}

// Every residual is summed each way; the embedding once, the head's input gradient once, and each block of logits its largest element and
// two sums per row. Where ranks keep shares of rows, what is read and the gradient of the sum are gathered besides, what is read twice. Norm groups
// over several ranks add a number per row each way.
void tensor_axis(const Place& p, Ledger& ledger) {
  if (p.tensor == 1) return;
  const auto reduce = [&](const std::string& name, Index calls, Index bytes) { add(ledger, name, Operation::all_reduce, calls, bytes); };
  const MambaConfig& c = p.model().mamba;
  const Index micros = p.config.micros;
  const Index residuals = 2 * p.count("P") + p.count("M*-");
  const auto again = [&](const char* symbols, Effort least) { return p.count(symbols, least); };
  // Where a layer is run again, its last sum is not needed; what its products read is gathered once more.
  const Index sums_again = again("P", Effort::sum), gathers_again = 2 * again("P", Effort::product) + again("M*-", Effort::product);
  if (p.sequence) {
    add(ledger, "tensor", Operation::reduce_scatter, micros * (2 * residuals + sums_again + p.first() + p.last()), p.tensor * p.kept_bytes());
    add(ledger, "tensor", Operation::all_gather, micros * (3 * residuals + gathers_again + p.first() + p.last()), p.kept_bytes());
  } else {
    reduce("tensor", micros * (2 * residuals + sums_again + p.first() + p.last()), p.kept_bytes());
  }
  const Index sums = p.model().objective == next_token() ? 2 : 3;  // a smoothed loss takes one more
  for (Index row = 0; row < p.rows() && p.last(); row += head_block) {
    const Index rows = std::min(head_block, p.rows() - row);
    reduce("tensor", micros, rows * p.wide);
    reduce("tensor", micros, sums * rows * p.wide);
  }
  const Part groups = whole_units(p, c.num_groups);
  if (c.norm != SsmNorm::none && groups.replicas > 1)
    reduce(p.block(groups.replicas), micros * (2 * p.count("PM") + again("PM", Effort::sum)), p.rows() * groups.units * p.wide);
}

// What several ranks hold the same of: the gradients are summed once per step, all those of one number of replicas together.
void replicas(const Place& p, Ledger& ledger) {
  const ModelConfig& m = p.model();
  const MambaConfig& c = m.mamba;
  const Shards s(p);
  const Index mamba = p.count("PM"), attention = p.count("P*"), mlp = p.count("P-");
  std::map<int, Index> elements;
  const Index rows = s.d + c.in_bias, through = rows + c.conv_kernel + c.conv_bias;  // of the projection, and of the convolution besides
  elements[s.inner_replicas] += mamba * s.inner * (rows + through + (c.norm != SsmNorm::none) + s.d);
  elements[s.group_replicas] += mamba * 2 * s.group * through;
  elements[s.head_replicas] += mamba * s.num_heads * (rows + 3);
  elements[s.q_replicas] += attention * s.q * (s.d + m.attention.bias);
  elements[s.k_replicas] += attention * 2 * s.k * (s.d + m.attention.bias);
  elements[s.out_replicas] += attention * s.out * s.d;
  elements[s.f_replicas] += mlp * s.f * (3 * s.d + 2 * m.mlp.bias);
  if (p.sequence) elements[p.tensor] += (2 * p.count("P") + p.count("M*-") + p.last()) * s.d;
  for (const auto& [count, all] : elements)
    if (count > 1 && all > 0) add(ledger, p.block(count), Operation::all_reduce, 1, all * p.wide);
}

void pipeline_axis(const Place& p, Ledger& ledger) {
  const Index neighbours = 2 * p.chunks - p.first() - p.last();  // every chunk's, but for the model's ends
  add(ledger, "pipeline", Operation::send, p.config.micros * neighbours, p.kept_bytes());
  add(ledger, "pipeline", Operation::receive, p.config.micros * neighbours, p.kept_bytes());
  if (p.model().tie_word_embeddings && p.pipeline > 1 && (p.first() || p.last()))
    add(ledger, "embedding", Operation::all_reduce, 1, p.tokens_here() * p.model().hidden_size * p.wide);
}

// All gradients once: together, or part by part where a bucket takes no more than one.
void data_axis(const Place& p, Ledger& ledger) {
  if (p.data == 1) return;
  const Index calls = p.config.bucket_bytes == part_by_part ? Index(p.layers.size()) + p.first() + p.last() : 1;
  ledger[{"data", Operation::all_reduce}] = {calls, flat_extent(p) * p.wide};
}

}  // namespace

Ledger ledger_of(const std::vector<CommunicatorTraffic>& list) {
  Ledger ledger;
  for (const CommunicatorTraffic& c : list)
    for (int op = 0; op < operations; ++op)
      if (c.by_operation[op].calls > 0) ledger[{c.name, Operation(op)}] = c.by_operation[op];
  return ledger;
}

template <class T>
Ledger closed_form(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  Ledger ledger;
  tensor_axis(p, ledger);
  replicas(p, ledger);
  pipeline_axis(p, ledger);
  data_axis(p, ledger);
  return ledger;
}

template <class T>
Index gradient_bytes(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  return flat_extent(p) * p.wide;
}

bool can_shard(const ModelConfig& m, int tensor) {
  const auto split = [&](Index units) { return units % tensor == 0 || tensor % units == 0; };
  const auto used = [&](const char* symbols) { return m.pattern.find_first_of(symbols) != std::string::npos; };
  return (!used("P*") || (split(m.attention.num_heads) && split(m.attention.num_kv_heads))) &&
         (!used("PM") || (split(m.mamba.num_heads) && split(m.mamba.num_groups))) && (!used("P-") || split(m.mlp.intermediate_size));
}

template Ledger closed_form<double>(const EngineConfig&, const Layout&, int);
template Ledger closed_form<float>(const EngineConfig&, const Layout&, int);
template Ledger closed_form<bf16>(const EngineConfig&, const Layout&, int);
template Index gradient_bytes<double>(const EngineConfig&, const Layout&, int);
template Index gradient_bytes<float>(const EngineConfig&, const Layout&, int);
template Index gradient_bytes<bf16>(const EngineConfig&, const Layout&, int);

}  // namespace gyr::testing
