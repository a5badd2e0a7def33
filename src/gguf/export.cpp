// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/export.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "modules/cost/flops.hpp"
#include "src/base/file_system.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/gguf/architecture.hpp"
#include "src/gguf/block.hpp"
#include "src/gguf/vocabulary.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/stored_names.hpp"
#include "src/pretrained/adapters.hpp"
#include "src/pretrained/double_buffer.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/ternary_weights.hpp"
#include "src/pretrained/weights.hpp"
#include "src/report/transfer.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;
using gguf::PlannedTensor;
using gguf::Type;

constexpr Index piece_elements = Index(1) << 20;

// True for tensors that llama.cpp reads only in f32.
bool must_be_f32(const PlannedTensor& t) {
  const auto is = [&](std::string_view name) { return t.name.ends_with(name); };
  return t.shape.size() <= 1 || is("_norm.weight") || is("ffn_gate_inp.weight") || is("position_embd.weight") || is("ssm_conv1d.weight") ||
         !is(".weight");
}

// ternary: names of the weights of ternary layers.
Type type_of(const PlannedTensor& t, Type wanted, const std::set<std::string>& ternary) {
  if (must_be_f32(t)) return Type::f32;
  if (t.shape.back() % gguf::values_per_block(wanted) != 0) return Type::f16;
  const bool suits = std::all_of(t.weights.begin(), t.weights.end(), [&](const std::string& w) { return ternary.contains(w); });
  return gguf::is_ternary(wanted) && !suits ? Type::f16 : wanted;
}

// Rows of a weight that are read, changed and written as one unit.
struct Piece {
  std::size_t tensor;
  std::string weight;  // name of the weight; empty: the constant values of the tensor
  Box box;
};

std::vector<Piece> pieces_of(const std::vector<PlannedTensor>& tensors, const std::map<std::string, Shape>& shapes) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].weights.empty()) pieces.push_back({i, "", full_box(tensors[i].shape)});
    for (const std::string& weight : tensors[i].weights) {
      const Shape& shape = shapes.at(weight);
      const Index multiple = tensors[i].row_multiple, columns = std::max<Index>(1, elements(shape) / shape[0]);
      const Index step = std::max<Index>(1, piece_elements / (columns * multiple)) * multiple;
      for (Index first = 0; first < shape[0]; first += step) {
        Box box = full_box(shape);
        box.first[0] = first, box.count[0] = std::min(step, shape[0] - first);
        pieces.push_back({i, weight, std::move(box)});
      }
    }
  }
  return pieces;
}

// Copies all tensors. A separate thread reads ahead of the thread that changes and writes.
class Copy {
 public:
  Copy(const WeightSource& source, const std::vector<PlannedTensor>& tensors, const std::vector<gguf::Tensor>& written,
       const std::map<std::string, Shape>& shapes)
      : source_(source), tensors_(tensors), written_(written), pieces_(pieces_of(tensors, shapes)) {}

  void run(gguf::Writer& writer) {
    Index most = 0, bytes = 0;
    for (const Piece& p : pieces_) most = std::max(most, elements(p.box.count));
    for (const gguf::Tensor& t : written_) bytes += t.bytes();
    Transfer transfer(stderr, "export", bytes);
    const auto read = [&](std::size_t i, std::span<std::byte> block) { fill(pieces_[i], block); };
    const auto write = [&](std::size_t i, std::span<std::byte> block) {
      const std::string data = encoded(pieces_[i], block);
      writer.write(data);
      transfer.add(Index(data.size()));
    };
    convey(pieces_.size(), most * Index(sizeof(float)), Aside::filling, read, write);
  }

 private:
  void fill(const Piece& p, std::span<std::byte> block) {
    float* const x = reinterpret_cast<float*>(block.data());
    const Index count = elements(p.box.count);
    if (p.weight.empty()) {
      std::copy_n(tensors_[p.tensor].values.begin(), count, x);
      return;
    }
    if (p.weight != open_weight_) open_ = source_.open(p.weight, DType::f32), open_weight_ = p.weight;
    stored_.resize(std::size_t(count * size_of(open_.dtype)));
    open_.read(p.box, stored_.data(), p.box.count, full_box(p.box.count));
    convert_values(open_.dtype, stored_.data(), count, x, open_.name);
  }

  std::string encoded(const Piece& p, std::span<std::byte> block) const {
    float* const x = reinterpret_cast<float*>(block.data());
    const PlannedTensor& t = tensors_[p.tensor];
    const Index count = elements(p.box.count), rows = p.box.count[0];
    if (t.change) t.change(p.box.first[0], rows, count / rows, x);
    std::string data;
    gguf::encode(written_[p.tensor].type, x, count, data, t.name);
    return data;
  }

  const WeightSource& source_;
  const std::vector<PlannedTensor>& tensors_;
  const std::vector<gguf::Tensor>& written_;
  std::vector<Piece> pieces_;
  std::string open_weight_;
  TensorReader open_;
  std::vector<std::byte> stored_;
};

// The model's config.json, for settings that are not part of ModelConfig. For a checkpoint without one, the deck
// provides them.
HuggingFaceConfig config_of(const fs::path& model, const RunConfig& run, const Companions& companions, const Note& note) {
  HuggingFaceConfig config;
  if (const auto text = companions.find(config_file_name); text != companions.end()) {
    config = parse_config_json(text->second, (model / config_file_name).string());
  } else {
    config.model_type = "", config.positions = run.train.seq_length;
    if (note)
      note(fmt::format("{}: has no config.json, so the context length is the training sequence length, {}", model.string(), config.positions));
  }
  config.model = run.model;
  return config;
}

std::uint32_t file_type_of(Type type) {  // llama.cpp's code (general.file_type) of the type of most tensors
  switch (type) {
    case Type::f16: return 1;
    case Type::q8_0: return 7;
    case Type::tq1_0: return 36;
    case Type::tq2_0: return 37;
    case Type::bf16: return 32;
    default: return 0;
  }
}

void put_tokenizer(const fs::path& model, const RunConfig& run, const Companions& companions, const HuggingFaceConfig& config,
                   const GgufOptions& options, gguf::Keys& keys, const Note& note) {
  if (options.no_tokenizer) return gguf::put_no_vocabulary(keys);
  const fs::path file = options.tokenizer.empty() ? fs::path(run.data.tokenizer) : options.tokenizer;
  require(!file.empty(), Exit::usage, "{}: has no tokenizer; give one with --tokenizer FILE, or write the model without a tokenizer (--no-tokenizer)",
          model.string());
  const Tokenizer tokenizer = Tokenizer::load(file);
  gguf::put_vocabulary({tokenizer, file.string(), options.split_rule, companions, config}, run.model.vocab_size, keys, note);
}

Type usual_type(const WeightSource& source) { return source.open(embedding_name, DType::f32).dtype == DType::bf16 ? Type::bf16 : Type::f32; }

std::string name_of(const fs::path& model) {
  const fs::path path = fs::absolute(model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

Converted export_gguf(const fs::path& model, const fs::path& file, const GgufOptions& options, const Note& note) {
  std::error_code error;
  require(options.overwrite || !fs::exists(file, error), Exit::usage, "{}: already exists; give --overwrite to replace it", file.string());
  require(!fs::is_directory(file, error), Exit::usage, "{}: is a folder; give a file name, such as model.gguf", file.string());
  RunConfig run = run_of(model, note);
  std::unique_ptr<WeightSource> source = open_weights(model, run.model);
  check_weights(*source, declared_weights(run.model));
  if (run.model.lora) source = merged_weights(std::move(source), run.model), run.model.lora = {};
  const std::set<std::string> ternary = weights_of_ternary_layers(run.model);
  require(!options.type || !gguf::is_ternary(*options.type) || !ternary.empty(), Exit::config,
          "{}: has no ternary layers (model.linear is full), and a ternary type would lose most of the weights; choose --dtype q8_0 or bf16",
          model.string());
  if (!ternary.empty()) {
    source = ternary_weights(std::move(source), run.model), run.model.linear = LinearLayers::full;
    if (note)
      note(
          "weights of ternary layers are written as -1, 0 or 1 times a scale; llama.cpp rounds activations in blocks of 256 or not at all, so that "
          "its texts may differ");
  }
  const Companions companions = companions_of(model);
  const HuggingFaceConfig config = config_of(model, run, companions, note);
  const gguf::Architecture& architecture = gguf::architecture_of(family_for(run.model, config.model_type).architecture, model.string());
  architecture.check(run.model, {model.string(), architecture.name, note});

  const std::vector<Weight> weights = declared_weights(run.model);
  const Type type = options.type.value_or(usual_type(*source));

  gguf::Keys keys(architecture.name);
  keys.set("general.architecture", std::string(architecture.name));
  keys.set("general.type", std::string("model"));
  keys.set("general.name", name_of(model));
  keys.set("general.file_type", file_type_of(type));
  keys.set("general.quantization_version", std::uint32_t(2));
  keys.count("context_length", config.positions);
  architecture.keys(run.model, keys);
  put_tokenizer(model, run, companions, config, options, keys, note);

  const std::vector<PlannedTensor> tensors = gguf::tensors_of(run.model, architecture);
  std::vector<gguf::Tensor> written;
  for (const PlannedTensor& t : tensors) written.push_back({t.name, type_of(t, type, ternary), t.shape});
  std::map<std::string, Shape> shapes;
  for (const Weight& w : weights) shapes[w.name] = w.shape;

  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  fs::create_directories(folder, error);
  require(!error, Exit::io, "{}: cannot be created: {}", folder.string(), error.message());
  gguf::Writer writer(file, keys.all(), written);
  require_space(folder, writer.bytes(), "the GGUF file", "free space or choose another folder");
  Copy(*source, tensors, written, shapes).run(writer);
  writer.commit();
  return {Index(written.size()), writer.bytes(), 1};
}

}  // namespace gyr
