// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "modules/cost/flops.hpp"
#include "src/base/json.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/writer.hpp"
#include "src/huggingface/companions.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/huggingface/slab.hpp"
#include "src/pretrained/adapter_import.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/double_buffer.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/transfer.hpp"

namespace gyr {

namespace {

CheckpointHeader header_of(const std::filesystem::path& folder, const RunDefaults& defaults, const Note& note) {
  CheckpointHeader header;
  header.companions = companions_in(folder, note);
  header.deck = deck_of_folder(folder, defaults);
  header.precision = defaults.precision == "bf16" ? name_of(DType::bf16) : name_of(defaults.precision == "fp64" ? DType::f64 : DType::f32);
  Json provenance;
  for (const auto& [name, value] : build_facts()) provenance[name] = value;
  header.provenance = json_text(provenance);
  return header;
}

// Rewrites a message of check_weights for an import: it then names the file `config` instead of the deck.
std::string without_deck(std::string text, const char* config) {
  const std::pair<std::string_view, std::string> words[] = {
      {": it belongs to another model than the deck's", fmt::format(", but {} requires it", config)},
      {", but the deck's model needs", fmt::format(", but {} needs", config)},
      {", which the deck's model lacks: it belongs to another model", fmt::format(", which {} does not require", config)}};
  for (const auto& [deck, folder] : words)
    if (const auto at = text.find(deck); at != text.npos) text.replace(at, deck.size(), folder);
  return text;
}

StoredTensor stored(const WeightSource& source, safetensors::Type type, const Weight& w) {
  StoredTensor tensor = stored_tensor(Content::weight, w.name, source.open(w.name, DType::f32).dtype, w.shape);
  if (type == safetensors::Type::f16) tensor.meaning = half_meaning;
  return tensor;
}

// Copies the weights. A separate thread reads the folder ahead of the thread that writes the checkpoint.
void copy(const WeightSource& source, const std::vector<StoredTensor>& tensors, CheckpointWriter& writer) {
  std::vector<std::pair<DType, Shape>> shapes;
  for (const StoredTensor& t : tensors) shapes.emplace_back(t.dtype, t.shape);
  const std::vector<Slab> slabs = slabs_of(shapes);
  Transfer transfer(stderr, "import", writer.bytes());
  const auto read = [&](std::size_t i, std::span<std::byte> block) {
    const auto& [at, box, bytes] = slabs[i];
    source.open(tensors[at].hf_name, tensors[at].dtype).read(box, block.data(), box.count, full_box(box.count));
  };
  const auto write = [&](std::size_t i, std::span<std::byte> block) {
    const auto& [at, box, bytes] = slabs[i];
    writer.write(box.first[0], box.count[0], block.data());
    transfer.add(bytes);
  };
  convey(slabs.size(), largest(slabs), Aside::filling, read, write);
}

}  // namespace

Converted import_folder(const std::filesystem::path& folder, const std::filesystem::path& checkpoint, bool overwrite, const Note& note,
                        const std::filesystem::path& adapters) {
  std::error_code error;
  require(std::filesystem::is_directory(folder, error), Exit::missing, "{}: is not a folder{}", folder.string(), hint_for_missing_model(folder));
  require(std::filesystem::exists(folder / config_file_name, error), Exit::missing, "{}: does not exist, so {} is not a Hugging Face model folder{}",
          (folder / config_file_name).string(), folder.string(), hint_for_missing_model(folder));
  const bool there = std::filesystem::exists(checkpoint, error);
  require(!there || std::filesystem::exists(checkpoint / manifest_name, error), Exit::usage,
          "{}: exists and is not a checkpoint; give another folder", checkpoint.string());
  require(!there || overwrite, Exit::usage, "{}: already exists; give --overwrite to replace it", checkpoint.string());
  RunDefaults defaults = defaults_of(folder, note);
  const FolderWeights folder_weights(folder, defaults.model);
  std::optional<AdapterWeights> adapter_weights;
  if (!adapters.empty()) {
    adapter_weights.emplace(folder_weights, adapters, defaults.model);
    check_targets(adapter_weights->lora(), declared_weights(defaults.model));
    defaults.model.lora = adapter_weights->lora();
    if (adapter_weights->dropout() > 0 && note)
      note(fmt::format("{}: lora_dropout is {}; training here applies no dropout to adapters", adapters.string(), adapter_weights->dropout()));
  }
  const WeightSource& source = adapter_weights ? static_cast<const WeightSource&>(*adapter_weights) : folder_weights;
  std::vector<Weight> weights;
  for (const PlacedTensor& placed : model_weights(defaults.model)) weights.push_back(placed.weight);
  try {
    check_weights(source, weights);
  } catch (const Error& error) {  // an import has no deck, so the message must blame config.json
    if (error.code != Exit::config) throw;
    const bool of_adapter = std::string_view(error.what()).find(".lora_") != std::string_view::npos;
    const char* config = of_adapter ? adapter_config_name : config_file_name;
    fail(Exit::data, "{}; weights and {} do not belong together", without_deck(error.what(), config), config);
  }
  std::vector<StoredTensor> tensors;
  for (const Weight& w : weights)
    tensors.push_back(
        stored(source, adapter_weights ? adapter_weights->type(w.name) : folder_weights.folder().tensor(folder_weights.key(w.name)).type, w));
  CheckpointWriter writer(checkpoint, header_of(folder, defaults, note), tensors);
  copy(source, tensors, writer);
  writer.commit();
  return {Index(tensors.size()), writer.bytes(), 1};
}

}  // namespace gyr
