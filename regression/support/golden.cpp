// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "modules/layers/embedding.hpp"
#include "modules/objectives/future_tokens.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/sentence_order.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/images.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/huggingface/safetensors.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing {

namespace {

// Folder of the reference models: in GYR_SOURCE_DIR of the environment, otherwise where the tests were built.
std::filesystem::path golden_folder() {
  const char* const elsewhere = std::getenv("GYR_SOURCE_DIR");
  return std::filesystem::path(elsewhere ? elsewhere : GYR_SOURCE_DIR) / "regression/golden";
}
const std::filesystem::path root = golden_folder();

double length_of(std::span<const double> x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }

class Expected {
 public:
  explicit Expected(const std::filesystem::path& file) : reader_(file) {
    for (const auto& tensor : reader_.tensors()) tensors_[tensor.name] = &tensor;
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const Shape& shape(const std::string& name) const { return tensors_.at(name)->shape; }

  std::vector<double> values(const std::string& name) const {
    switch (tensors_.at(name)->type) {
      case safetensors::Type::f32: return converted<float>(name);
      case safetensors::Type::f64: return converted<double>(name);
      case safetensors::Type::u8: return converted<std::uint8_t>(name);
      default: return converted<std::int64_t>(name);
    }
  }
  std::vector<Token> tokens(const std::string& name) const {
    const auto x = values(name);
    return {x.begin(), x.end()};
  }
  GoldenValues in(const std::string& precision, const StoredNames& names) const {
    const std::vector<double> losses = values("loss." + precision);
    GoldenValues n{losses[0], {losses.begin() + 1, losses.end()}, values("logits." + precision), {}, {}};
    const std::string gradient = "gradient." + precision + ".";
    for (const auto& [name, tensor] : tensors_)
      if (name.starts_with(gradient)) add_gradients(name, name.substr(gradient.size()), names, n);
    return n;
  }

 private:
  // Adds the gradients of all weights that the tensor `stored` contains.
  void add_gradients(const std::string& name, const std::string& stored, const StoredNames& names, GoldenValues& to) const {
    TensorReader all{name, DType::f64, shape(name), {}};
    all.read_parts = [x = values(name), s = shape(name)](std::span<const BoxPair> parts, void* data, const Shape& array) {
      for (const BoxPair& part : parts)
        box_runs(s, part.from, array, part.to,
                 [&](Index from, Index at, Index count) { std::copy_n(x.begin() + from, count, static_cast<double*>(data) + at); });
    };
    for (const std::string& weight : names.weights(stored)) {
      const TensorReader part = part_of(all, names.place(weight));
      to.lengths[weight] = length_of(values(name));
      std::vector<double>& gradient = to.gradients[weight];
      gradient.resize(std::size_t(elements(part.shape)));
      part.read(full_box(part.shape), gradient.data(), part.shape, full_box(part.shape));
    }
  }

  template <class V>
  std::vector<double> converted(const std::string& name) const {
    const safetensors::Tensor& tensor = *tensors_.at(name);
    ensure(size_of(tensor.type) == Index(sizeof(V)), "{} is of type {}", name, name_of(tensor.type));
    std::vector<V> x(elements(tensor.shape));
    reader_.read(tensor, full_box(tensor.shape), x.data(), tensor.shape, full_box(tensor.shape));
    return {x.begin(), x.end()};
  }

  safetensors::Reader reader_;
  std::map<std::string, const safetensors::Tensor*> tensors_;
};

// Moves padding to the right: sequences start with their first real token, which carries the class of a text. Labels of
// next tokens are shifted to the preceding token.
void read_batch(const Expected& expected, Golden& g) {
  const auto tokens = expected.tokens("input_ids"), labels = expected.tokens("labels");
  const Index batch = expected.shape("input_ids")[0], seq_length = expected.shape("input_ids")[1];
  const auto mask = expected.has("attention_mask") ? expected.tokens("attention_mask") : std::vector<Token>(tokens.size(), 1);
  g.batch = {batch, seq_length, std::vector<Token>(tokens.size(), 0), std::vector<Token>(tokens.size(), ignored_label)};
  g.row.assign(tokens.size(), -1);
  const bool has_halves = expected.has("token_type_ids");
  const auto types = has_halves ? expected.tokens("token_type_ids") : std::vector<Token>();
  const auto order = has_halves ? expected.tokens("next_sentence_label") : std::vector<Token>();
  NamedHostValues& values = g.batch.values;
  if (has_halves) values[token_types].assign(tokens.size(), 0), values[order_labels].assign(tokens.size(), ignored_label);
  const bool both_ways = !g.model.attention.causal;
  const bool of_texts = expected.shape("labels").size() == 1;
  const Index next = both_ways ? 0 : 1;
  if (both_ways && expected.has("attention_mask")) g.batch.positions.assign(tokens.size(), 0);
  for (Index b = 0; b < batch; ++b) {
    Index to = b * seq_length;
    if (has_halves) values[order_labels][to] = order[b];
    for (Index from = b * seq_length; from < (b + 1) * seq_length; ++from) {
      if (mask[from] == 0) continue;
      g.batch.tokens[to] = tokens[from];
      if (has_halves) values[token_types][to] = types[from];
      if (of_texts && to == b * seq_length) g.batch.labels[to] = labels[b];
      else if (!of_texts && from + next < (b + 1) * seq_length && mask[from + next] != 0) g.batch.labels[to] = labels[from + next];
      if (!g.batch.positions.empty()) g.batch.positions[to] = std::int32_t(to - b * seq_length);
      g.row[to] = !of_texts ? from : to == b * seq_length ? b : -1;
      ++to;
    }
    if (expected.has("attention_mask")) g.batch.lengths.push_back(to - b * seq_length);
  }
  g.batch = with_future_tokens(std::move(g.batch), g.model.objective->depths());
}

// Encoder-decoder batch: the decoder input is the labels shifted by one. A label of -100 is read as the decoder start
// token.
void read_text_of_source(const Expected& expected, Golden& g) {
  const auto source = expected.tokens("input_ids"), labels = expected.tokens("labels");
  g.batch = {expected.shape("labels")[0], expected.shape("labels")[1], {}, labels};
  g.batch.source.tokens = source, g.batch.source.length = expected.shape("input_ids")[1];
  if (expected.has("attention_mask")) {
    const auto mask = expected.tokens("attention_mask");
    for (Index b = 0; b < g.batch.batch; ++b) {
      const auto row = mask.begin() + b * g.batch.source.length;
      g.batch.source.lengths.push_back(std::accumulate(row, row + g.batch.source.length, Index(0)));
    }
  }
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const Token before = Index(r) % g.batch.seq_length == 0 ? g.model.decoder_start_token_id : labels[r - 1];
    g.batch.tokens.push_back(before == -100 ? g.model.decoder_start_token_id : before);
    if (labels[r] == -100) g.batch.labels[r] = ignored_label;
    g.row.push_back(Index(r));
  }
}

// Images of a batch of next tokens. A file has their pixels channel by channel, a micro-batch has them patch by patch.
void read_images(const Expected& expected, Golden& g) {
  for (Token& label : g.batch.labels)
    if (label == -100) label = ignored_label;
  VisionConfig& v = g.model.vision;
  const std::vector<double> pixels = expected.values("pixels");
  const std::vector<Token> counts = expected.tokens("images");
  v.images = *std::max_element(counts.begin(), counts.end());
  std::vector<std::vector<std::uint8_t>> images;
  const std::size_t bytes = std::size_t(image_channels * v.image_size * v.image_size);
  for (std::size_t i = 0; i < pixels.size(); i += bytes) images.push_back(patch_bytes(v, std::span(pixels).subspan(i, bytes)));
  g.batch.source.length = v.rows_of_sequence();
  std::vector<std::uint8_t>& all = g.batch.source.values[image_pixels];
  std::size_t next = 0;
  for (std::size_t b = 0; b < counts.size(); ++b) {
    g.batch.source.lengths.push_back(counts[b] * v.rows());
    for (Token i = 0; i < counts[b]; ++i, ++next) all.insert(all.end(), images.at(next).begin(), images.at(next).end());
    all.resize((b + 1) * std::size_t(v.rows_of_sequence() * v.patch_values()), 0);
  }
}

// Without RoPE, as in a vision tower, the gradients of key biases are only rounding. Their error is therefore measured relative to the
// gradients of query biases, with which GPT-2 stores them.
void measure_biases_of_keys(const ModelConfig& m, GoldenValues& n) {
  const std::string_view keys = ".k_proj.bias";
  const bool rotates = m.attention.rotary_dim() > 0 && m.window.rotary;
  const auto of_tower = [&](const std::string& name) { return reads_images(m) && layer_name(name).layer < layers_of_encoder(m); };
  for (auto& [name, length] : n.lengths)
    if ((!rotates || of_tower(name)) && name.ends_with(keys))
      length = std::max(length, n.lengths.at(name.substr(0, name.size() - keys.size()) + ".q_proj.bias"));
}

Golden read(const std::string& name) {
  Golden g;
  g.name = name;
  g.folder = std::filesystem::exists(root / "families" / name) ? root / "families" / name : root / "huggingface" / name;
  g.model = read_model_folder(g.folder).model;
  if (const Masking* const masking = masking_of(*g.model.objective)) {
    Masking any = *masking;
    any.fraction = 1;  // any token may have a label
    g.model.objective = masked_tokens(any);
  }
  const Expected expected(g.folder / "expected.safetensors");
  has_encoder(g.model) && !reads_images(g.model) ? read_text_of_source(expected, g) : read_batch(expected, g);
  if (reads_images(g.model)) read_images(expected, g);
  const StoredNames names = names_in(g.folder, g.model);
  g.single = expected.in("fp32", names);
  g.twice = expected.in("fp64", names);
  for (GoldenValues* n : {&g.single, &g.twice}) measure_biases_of_keys(g.model, *n);
  if (!expected.has("prompt")) return g;
  g.prompt = expected.tokens("prompt");
  g.generated = expected.tokens("generated");
  return g;
}

std::vector<std::string> names_below(const char* folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / folder)) found.push_back(entry.path().filename());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = names_below("huggingface");
  return names;
}

const std::vector<std::string>& golden_family_names() {
  static const std::vector<std::string> names = names_below("families");
  return names;
}

MicroBatch one_sequence(const MicroBatch& all, Index b) {
  const auto part = [&](const std::vector<Token>& x, Index length) {
    return x.empty() ? x : std::vector<Token>(x.begin() + b * length, x.begin() + (b + 1) * length);
  };
  const Index length = all.seq_length;
  MicroBatch one{1, length, part(all.tokens, length), part(all.labels, length), part(all.positions, length)};
  for (const auto& name : {token_types, order_labels})
    if (const auto* const values = all.values.find(name)) one.values[name] = part(*values, length);
  Index depths = 0;
  while (all.values.find(mtp_labels(1 + depths))) ++depths;
  one = with_future_tokens(std::move(one), depths);
  one.source.tokens = part(all.source.tokens, all.source.length), one.source.length = all.source.length;
  if (!all.source.lengths.empty()) one.source.lengths = {all.source.lengths[b]};
  if (const auto* const pixels = all.source.values.find(image_pixels)) {
    const Index width = Index(pixels->size()) / all.batch;
    one.source.values[image_pixels].assign(pixels->begin() + b * width, pixels->begin() + (b + 1) * width);
  }
  if (!all.lengths.empty()) one.lengths = {all.lengths[b]};
  return one;
}

const Golden& golden(std::string_view name) {
  static std::map<std::string, Golden> read_so_far;
  const auto [entry, fresh] = read_so_far.try_emplace(std::string(name));
  if (fresh) entry->second = read(entry->first);
  return entry->second;
}

bool splits(const ModelConfig& m, int ranks) {
  const auto units = [&](Index n) { return n % ranks == 0 || ranks % n == 0; };
  return m.attention.num_heads % ranks == 0 && m.mamba.num_heads % ranks == 0 && units(m.attention.num_kv_heads) && units(m.mamba.num_groups) &&
         units(m.moe.intermediate_size) && units(m.delta.num_heads) && units(m.delta.num_key_heads);
}

template <class T>
GoldenReader<T>::GoldenReader(const Golden& g, const ModelConfig& model, Grid& grid) : g_(g), stage_(model, dtype_of<T>(), grid) {
  stage_.make_slots({{1, Index(1) << 22}}, false);
  stage_.allocate(weights_, none_, Gradients::none, std::max(g.batch.seq_length, g.batch.source.length));
  load_weights(g.folder, grid, stage_.config(), stage_.parameters().all());
}

template <class T>
void GoldenReader<T>::read_with_state(Index seq_length) {
  const MicroBatch& all = g_.batch;
  std::vector<Token> tokens;
  for (Index b = 0; b < all.batch; ++b)
    tokens.insert(tokens.end(), all.tokens.begin() + b * all.seq_length, all.tokens.begin() + b * all.seq_length + seq_length);
  StateStore state(Arena(Memory::activations, Index(1) << 20), all.batch, seq_length);
  stage_.begin(device_, {all.batch, seq_length, 0, {}}, tokens);
  stage_.forward(device_, state);
}

template <class T>
void GoldenReader<T>::read_at_once() {
  Slot& slot = stage_.slot(0, 0);
  slot.clear();
  stage_.chunk(0).begin(device_, slot, stage_.sequences(g_.batch), g_.batch, stage_.source_of(g_.batch, g_.batch.source.length));
  Pass pass = stage_.pass(device_, slot);
  std::optional<Pass> source = stage_.source_pass(device_, slot);
  if (source) pass.source = &*source;
  stage_.chunk(0).run_through(pass, slot);
}

template <class T>
double GoldenReader<T>::error(const GoldenValues& expected, Index seq_length) {
  const MicroBatch& all = g_.batch;
  const bool by_length = g_.model.has_dynamic_rope() && !all.lengths.empty();  // a pass with a state has no padding
  if (g_.model.attention.causal && !has_encoder(g_.model) && !by_length) read_with_state(seq_length);
  else read_at_once();
  const auto logits = stage_.logits(device_, Stage::Rows::all).as<Acc<T>>();
  const auto& head = stage_.head();
  const Index columns = stage_.head().weight().weight.shape[0];
  double largest = 0, error = 0;
  for (const double x : expected.logits) largest = std::max(largest, std::abs(x));
  for (Index b = 0; b < all.batch; ++b)
    for (Index t = 0; t < seq_length; ++t)
      for (Index v = 0, row = g_.row[b * all.seq_length + t]; row >= 0 && v < head.valid(); ++v)
        error = std::max(error, std::abs(double(logits(b * seq_length + t, v)) - expected.logits[row * columns + head.first_column() + v]));
  return error / largest;
}

template class GoldenReader<double>;
template class GoldenReader<float>;

double distance(std::span<const double> a, std::span<const double> b, double length) {
  ensure(a.size() == b.size(), "{} values, but {} reference values", a.size(), b.size());
  double squared_distance = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squared_distance += (a[i] - b[i]) * (a[i] - b[i]);
  return squared_distance == 0 ? 0 : std::sqrt(squared_distance) / length;
}
double distance(std::span<const double> a, std::span<const double> b) { return distance(a, b, length_of(b)); }

}  // namespace gyr::testing
