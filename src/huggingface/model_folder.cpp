// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/model_folder.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "modules/cost/flops.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/objective.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/block_tensor.hpp"
#include "src/huggingface/companions.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/half.hpp"
#include "src/huggingface/json.hpp"
#include "src/huggingface/named_tokens.hpp"

namespace gyr {

namespace {

constexpr std::size_t largest_index = std::size_t(128) << 20;  // maximum size of model.safetensors.index.json in bytes
constexpr std::size_t most_files = 4096;

// Contents of model.safetensors.index.json: the file that holds each tensor.
struct ShardIndex {
  std::map<std::string, std::string> file_of;
  std::optional<double> total_size;  // bytes of all tensors; some writers store it as a float, e.g. 1.0e10
};

bool is_plain_name(const std::string& name) {
  const auto bad = [](unsigned char c) { return c == '/' || c == '\\' || c < 0x20 || c == 0x7f; };
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && std::none_of(name.begin(), name.end(), bad);
}

ShardIndex read_index(const std::string& file) {
  const nlohmann::json json = parse_json(read_text(file, largest_index), file);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), Exit::data,
          "{}: has no object weight_map that maps tensors to files", file);
  ShardIndex index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    require(shard.is_string(), Exit::data, "{}: the file name of tensor `{}` is not a string", file, shown(tensor));
    const auto& name = shard.get_ref<const std::string&>();
    require(is_plain_name(name), Exit::data, "{}: weight_map places tensor `{}` in `{}`, which is not the name of a file in this folder", file,
            shown(tensor), shown(name));
    index.file_of[tensor] = name;
  }
  require(!index.file_of.empty(), Exit::data, "{}: lists no tensors", file);
  if (json.contains("metadata") && json["metadata"].is_object() && json["metadata"].contains("total_size")) {
    const nlohmann::json& total = json["metadata"]["total_size"];
    require(total.is_number_unsigned() || total.is_number_float(), Exit::data, "{}: metadata.total_size is not a number of bytes", file);
    index.total_size = total.get<double>();
  }
  return index;
}

}  // namespace

bool is_model_folder(const std::filesystem::path& path) {
  std::error_code error;
  for (const char* name : {config_file_name, one_file_name, shard_index_name})
    if (std::filesystem::exists(path / name, error)) return true;
  return false;
}

bool has_weights(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / one_file_name, error) || std::filesystem::exists(folder / shard_index_name, error);
}

std::string hint_for_missing_model(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(path / "adapter_config.json", error) && !fs::exists(path / config_file_name, error))
    return fmt::format(
        "; it holds a PEFT adapter (adapter_config.json), not a model: `gyrfalcon import-hf DIR NEW --adapters {}` joins it with its base model in "
        "DIR, and NEW is a model",
        path.string());
  const std::string text = path.string();
  const auto slash = text.find('/');
  const bool one_word = slash == text.npos && !text.starts_with("step_");  // such as gpt2
  const bool two_words = slash != text.npos && slash > 0 && slash + 1 < text.size() && slash == text.rfind('/');
  const bool like_id = !fs::exists(path, error) && !fs::is_directory(path.parent_path(), error) && (one_word || two_words) && !text.empty() &&
                       text[0] != '.' && text[0] != '~' && !text.ends_with(".h5");
  return like_id ? fmt::format("; download a model of the Hugging Face hub first: `hf download {} --local-dir DIR`, then use DIR", text) : "";
}

ModelFolder::ModelFolder(const std::filesystem::path& folder) : folder_(folder), name_(folder.string()) {
  namespace fs = std::filesystem;
  std::error_code error;
  require(fs::is_directory(folder, error), Exit::missing, "{}: is not a folder{}", name_, hint_for_missing_model(folder));
  const bool sharded = fs::exists(folder / shard_index_name, error);
  require(has_weights(folder), Exit::missing, "{}: holds neither {} nor {}; weights in other formats (.bin, .pth, .gguf) are not read{}", name_,
          one_file_name, shard_index_name, hint_for_missing_model(folder));
  if (sharded) open_shards();
  else add(one_file_name);
  list_names();
}

void ModelFolder::list_names() {
  std::set<std::string> scales;
  for (const auto& [name, at] : places_) {
    if (!is_blocks(*at.tensor)) continue;
    const std::string scale_name = scales_of(name);
    require(has(scale_name), Exit::data, "{}: tensor `{}` has no scales: there is no `{}`", at.reader->name(), shown(name), shown(scale_name));
    open(name);
    scales.insert(scale_name);
  }
  for (const auto& [name, at] : places_)
    if (!scales.contains(name)) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
}

void ModelFolder::add(const std::string& file) {
  const auto& reader = *readers_.emplace_back(std::make_unique<safetensors::Reader>(folder_ / file));
  for (const safetensors::Tensor& tensor : reader.tensors()) {
    const auto [other, fresh] = places_.try_emplace(tensor.name, Place{&reader, &tensor});
    require(fresh, Exit::data, "{}: tensor `{}` is also in {}", reader.name(), shown(tensor.name), other->second.reader->name());
  }
}

void ModelFolder::open_shards() {
  const std::string file = (folder_ / shard_index_name).string();
  const ShardIndex index = read_index(file);
  std::vector<std::string> files;
  for (const auto& [tensor, shard] : index.file_of) files.push_back(shard);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  require(files.size() <= most_files, Exit::data, "{}: lists {} files; the maximum is {}", file, files.size(), most_files);
  for (const std::string& shard : files) {
    std::error_code error;
    require(std::filesystem::exists(folder_ / shard, error), Exit::missing, "{}: lists {}, which does not exist; copy it again", file, shard);
    add(shard);
  }
  for (const auto& [tensor, shard] : index.file_of) {
    const auto found = places_.find(tensor);
    require(found != places_.end(), Exit::data, "{}: weight_map places tensor `{}` in {}, but no shard contains it", file, shown(tensor), shard);
    const std::string& where = found->second.reader->name();
    require(where == (folder_ / shard).string(), Exit::data, "{}: weight_map places tensor `{}` in {}, but it is in {}", file, shown(tensor), shard,
            where);
  }
  for (const auto& [tensor, place] : places_)
    require(index.file_of.contains(tensor), Exit::data, "{}: does not list tensor `{}` of {}", file, shown(tensor), place.reader->name());
  require(!index.total_size || *index.total_size == double(bytes()), Exit::data, "{}: metadata.total_size is {}, but the tensors have {} bytes", file,
          index.total_size.value_or(0), bytes());
}

const ModelFolder::Place& ModelFolder::place(const std::string& name) const {
  const auto found = places_.find(name);
  require(found != places_.end(), Exit::data, "{}: holds no tensor `{}`", name_, shown(name));
  return found->second;
}

void ModelFolder::read(const std::string& tensor, const Box& box, void* data, const Shape& array, const Box& there) const {
  const Place& at = place(tensor);
  at.reader->read(*at.tensor, box, data, array, there);
}

namespace {

// Adapts a function that reads one box to the interface that reads a list of boxes.
template <class Read>
auto box_by_box(Read read) {
  return [read](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const BoxPair& part : parts) read(part.from, data, array, part.to);
  };
}

}  // namespace

TensorReader open_tensor(const safetensors::Reader& reader, const safetensors::Tensor& tensor) {
  const std::string label = reader.name() + ":" + shown(tensor.name);
  const auto as_stored = box_by_box(
      [&reader, &tensor](const Box& box, void* data, const Shape& array, const Box& there) { reader.read(tensor, box, data, array, there); });
  const auto widened = box_by_box([&reader, &tensor](const Box& box, void* data, const Shape& array, const Box& there) {
    std::vector<std::uint16_t> halves(std::size_t(elements(box.count)));
    reader.read(tensor, box, halves.data(), box.count, full_box(box.count));
    box_runs(box.count, full_box(box.count), array, there, [&](Index from, Index to, Index count) {
      std::transform(halves.begin() + from, halves.begin() + from + count, static_cast<float*>(data) + to, half_to_float);
    });
  });
  switch (tensor.type) {
    case safetensors::Type::f16: return {label, DType::f32, tensor.shape, widened};
    case safetensors::Type::bf16: return {label, DType::bf16, tensor.shape, as_stored};
    case safetensors::Type::f32: return {label, DType::f32, tensor.shape, as_stored};
    case safetensors::Type::f64: return {label, DType::f64, tensor.shape, as_stored};
    default: fail(Exit::data, "{}: has dtype {}; weights must be floating point (BF16, F16, F32, F64)", label, name_of(tensor.type));
  }
}

TensorReader ModelFolder::open(const std::string& name) const {
  const auto& [reader, tensor] = place(name);
  if (!is_blocks(*tensor)) return open_tensor(*reader, *tensor);
  const Place& scales = place(scales_of(name));
  return open_blocks(*reader, *tensor, *scales.reader, *scales.tensor);
}

Index ModelFolder::bytes() const {
  Index sum = 0;
  for (const auto& [name, place] : places_) sum += place.tensor->end - place.tensor->begin;
  return sum;
}

Index ModelFolder::bytes_read() const {
  Index sum = 0;
  for (const auto& reader : readers_) sum += reader->bytes_read();
  return sum;
}

namespace {

// True if two matrices have equal shapes and equal elements in one of `parts` ranges of rows.
bool same_rows(const ModelFolder& folder, const std::string& one, const std::string& other, int part, int parts) {
  const TensorReader a = folder.open(one), b = folder.open(other);
  if (a.shape != b.shape || a.shape.empty() || a.shape[0] == 0) return a.shape == b.shape;
  const Index rows = a.shape[0], row = elements(a.shape) / rows, slab = std::max<Index>(1, (Index(1) << 20) / row);
  std::vector<std::byte> stored;
  const auto read = [&](const TensorReader& from, const Box& box) {
    stored.resize(std::size_t(elements(box.count) * size_of(from.dtype)));
    from.read(box, stored.data(), box.count, full_box(box.count));
    std::vector<double> values(std::size_t(elements(box.count)));
    convert_to_double(from.dtype, stored.data(), Index(values.size()), values.data());
    return values;
  };
  for (Index first = rows * part / parts; first < rows * (part + 1) / parts; first += slab) {
    Box box = full_box(a.shape);
    box.first[0] = first, box.count[0] = std::min(slab, rows * (part + 1) / parts - first);
    if (read(a, box) != read(b, box)) return false;
  }
  return true;
}

}  // namespace

bool head_is_tied(const ModelFolder& folder, const StoredNames& names) {
  return !folder.has(names.embedding()) || !folder.has(names.head()) || same_rows(folder, names.embedding(), names.head(), 0, 1);
}

namespace {

// Sets the objective's mask token or first sentinel token to its id in the folder's tokenizer.
void set_named_tokens(const std::filesystem::path& folder, ModelConfig& model) {
  if (const Masking* const masking = masking_of(*model.objective)) {
    Masking named = *masking;
    named.mask_token = mask_token_in(folder).value_or(named.mask_token);
    model.objective = masked_tokens(named);
  }
  if (const SpanCorruption* const spans = span_corruption_of(*model.objective)) {
    SpanCorruption named = *spans;
    named.first_sentinel = first_sentinel_in(folder).value_or(named.first_sentinel);
    model.objective = span_corruption(named);
  }
}

// Mean and standard deviation of pixels, which the processor of the images names; otherwise those of the tower's first model.
void set_pixel_scale(const std::filesystem::path& folder, ModelConfig& model) {
  const std::filesystem::path file = folder / processor_name;
  std::error_code error;
  if (!reads_images(model) || !std::filesystem::is_regular_file(file, error)) return;
  const nlohmann::json processor = parse_json(read_text(file.string(), std::size_t(1) << 20), file.string());
  const auto read = [&](const char* key, std::array<double, image_channels>& values, bool positive) {
    const nlohmann::json given = processor.is_object() && processor.contains(key) ? processor[key] : nlohmann::json();
    if (given.is_null()) return;
    const bool numbers = given.is_array() && given.size() == values.size() &&
                         std::all_of(given.begin(), given.end(), [&](const auto& x) { return x.is_number() && (!positive || x > 0); });
    require(numbers, Exit::data, "{}: {} is {}; a list of {} numbers{} is supported", file.string(), key, shown(given.dump()), values.size(),
            positive ? " above 0" : "");
    std::copy(given.begin(), given.end(), values.begin());
  };
  read("image_mean", model.vision.pixels.mean, false), read("image_std", model.vision.pixels.std, true);
}

}  // namespace

HuggingFaceConfig read_model_folder(const std::filesystem::path& path) {
  HuggingFaceConfig config = read_config_json(path / config_file_name);
  set_named_tokens(path, config.model), set_pixel_scale(path, config.model);
  if (!has_weights(path)) return config;
  const ModelFolder folder(path);
  const StoredNames names = names_in(path, config.model);
  if (config.weights_decide_tie && !config.model.tie_word_embeddings && !folder.has(names.head())) {
    config.model.tie_word_embeddings = folder.has(names.embedding());
  } else if (config.model.tie_word_embeddings && !head_is_tied(folder, names)) {
    config.model.tie_word_embeddings = false;
    if (!config.weights_decide_tie)
      config.notes.push_back(
          fmt::format("{}: tie_word_embeddings is true, but {} is stored and differs from {}; using both as stored, as transformers does",
                      (path / config_file_name).string(), names.head(), names.embedding()));
  }
  if (!config.ahead) return config;
  ModelConfig all = config.model;
  all.objective = config.ahead;
  if (folder.has(names_in(path, all).place("mtp.0.enorm.weight").name)) config.model = std::move(all);
  return config;
}

StoredNames names_in(const std::filesystem::path& folder, const Family& family, const ModelConfig& model, Blocks blocks) {
  const StoredNames usual(family, model);
  if (!has_weights(folder)) return usual;
  const ModelFolder stored(folder);
  Spelling spelling;
  spelling.gamma_beta = std::any_of(stored.names().begin(), stored.names().end(), [](const auto& name) { return name.ends_with("LayerNorm.gamma"); });
  spelling.bare = *family.prefix && !stored.has(usual.embedding()) && stored.has(StoredNames(family, model, {.bare = true}).embedding());
  spelling.inner_tower = family.text && std::any_of(stored.names().begin(), stored.names().end(),
                                                    [](const auto& name) { return name.starts_with("vision_tower.vision_model."); });
  for (const std::string& name : stored.names())
    if (family.blocks && blocks == Blocks::as_stored && is_blocks(stored.tensor(name)))
      spelling.in_blocks.insert(name.substr(0, name.size() - blocks_end.size()));
  return {family, model, spelling};
}

StoredNames names_in(const std::filesystem::path& folder, const ModelConfig& model) {
  std::error_code error;
  const std::filesystem::path config = folder / config_file_name;
  if (!std::filesystem::exists(config, error)) return {families().front(), model};
  const HuggingFaceConfig stored = read_config_json(config);
  return names_in(folder, *find_family(stored.model_type, stored.architecture), model);
}

namespace {

// True if all weights of the multi-token prediction modules are present. A surplus layer at their index is not a
// module.
bool has_modules(const ModelFolder& folder, const StoredNames& names, const ModelConfig& model) {
  const std::vector<Weight> weights = declared_weights(model);
  return std::all_of(weights.begin(), weights.end(),
                     [&](const Weight& w) { return !w.name.starts_with("mtp.") || folder.has(names.place(w.name).name); });
}

}  // namespace

FolderWeights::FolderWeights(const std::filesystem::path& folder, const ModelConfig& model)
    : folder_(folder), names_(names_in(folder, model)), tied_(model.tie_word_embeddings) {
  std::error_code error;
  if (model.objective->depths() > 0 || !std::filesystem::exists(folder / config_file_name, error)) return;
  const HuggingFaceConfig stored = read_config_json(folder / config_file_name);
  if (!stored.ahead) return;
  ModelConfig all = model;
  all.objective = stored.ahead;
  const StoredNames with_modules = names_in(folder, all);
  if (!has_modules(folder_, with_modules, all)) return;
  for (const std::string& name : folder_.names())
    if (names_.weights(name).empty() && (!with_modules.weights(name).empty() || !with_modules.copied(name).empty())) left_out_.insert(name);
}

std::string FolderWeights::key(const std::string& weight) const {
  const std::string name = names_.place(weight).name;
  return tied_ && weight == embedding_name && !folder_.has(name) && folder_.has(names_.head()) ? names_.head() : name;
}

TensorReader FolderWeights::open(const std::string& weight, DType) const {
  const StoredPlace place = names_.place(weight);
  const TensorReader stored = folder_.open(key(weight));
  return place.is_plain() ? stored : part_of(stored, place);
}

std::vector<std::string> FolderWeights::keys() const {
  std::vector<std::string> keys = folder_.names();
  std::erase_if(keys,
                [&](const std::string& name) { return names_.is_ignored_tensor(name) || !names_.copied(name).empty() || left_out_.contains(name); });
  if (tied_ && folder_.has(names_.embedding())) std::erase(keys, names_.head());
  return keys;
}

void FolderWeights::check(int rank, int ranks) const {
  if (tied_ && folder_.has(names_.embedding()) && folder_.has(names_.head()))
    require(same_rows(folder_, names_.embedding(), names_.head(), rank, ranks), Exit::config,
            "{}: {} differs from {}, but the deck ties the head to the embedding; set model.tie_word_embeddings=false", name(), names_.head(),
            names_.embedding());
  for (const std::string& tensor : folder_.names())
    if (const std::string weight = names_.copied(tensor); !weight.empty())
      require(same_rows(folder_, key(weight), tensor, rank, ranks), Exit::config,
              "{}: {} differs from {}, but multi-token prediction modules share embedding and head with the model; leave the modules "
              "out with train.objective=next_token",
              name(), tensor, key(weight));
}

}  // namespace gyr
