// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/pretrained.hpp"

#include <algorithm>

#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/header.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

// The type of most weights, taken from the embedding.
std::string dtype_of_weights(const fs::path& folder, const StoredNames& names) {
  const ModelFolder weights(folder);
  if (!weights.has(names.embedding())) return "float32";
  switch (weights.tensor(names.embedding()).type) {
    case safetensors::Type::bf16: return "bfloat16";
    case safetensors::Type::f64: return "float64";
    default: return "float32";
  }
}

// Training precision for weights of the given torch_dtype in config.json.
std::string precision_for(const std::string& dtype) { return dtype == "bfloat16" ? "bf16" : dtype == "float64" ? "fp64" : "fp32"; }

RunDefaults defaults_of_folder(const fs::path& folder, const Note& note) {
  const HuggingFaceConfig config = read_model_folder(folder);
  const StoredNames names = names_in(folder, config.model);
  for (const std::string& text : config.notes)
    if (note) note(text);
  RunDefaults defaults;
  defaults.model = config.model;
  std::error_code error;
  const fs::path tokenizer = fs::absolute(folder, error) / "tokenizer.json";
  if (fs::exists(tokenizer, error)) defaults.tokenizer = tokenizer.lexically_normal().string();
  defaults.precision = precision_for(config.dtype.empty() ? dtype_of_weights(folder, names) : config.dtype);
  defaults.seq_length = std::min(defaults.seq_length, config.positions);
  return defaults;
}

RunConfig run_of_checkpoint(const fs::path& checkpoint) {
  std::error_code error;
  if (const std::string way = hint_for_missing_model(checkpoint); !way.empty())
    fail(Exit::missing, "{}: {}{}", checkpoint.string(), fs::exists(checkpoint, error) ? "is not a model" : "does not exist", way);
  Deck deck = Deck::stored(read_header(checkpoint).deck, checkpoint.string());
  return read_run_config(deck);
}

}  // namespace

Companions companions_of(const fs::path& model, const Note& note) {
  return is_model_folder(model) ? companions_in(model, note) : read_header(model).companions;
}

RunDefaults defaults_of(const fs::path& model, const Note& note) {
  if (is_model_folder(model)) return defaults_of_folder(model, note);
  const RunConfig run = run_of_checkpoint(model);
  RunDefaults defaults;
  defaults.model = run.model;
  defaults.tokenizer = run.data.tokenizer;
  return defaults;
}

std::uint64_t checksum_of_model(const fs::path& model) {
  std::error_code error;
  if (fs::exists(model / manifest_name, error)) return SummedFile(model / manifest_name).sum();
  if (!fs::is_directory(model, error)) return SummedFile(model).sum();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(model))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Checksum all;
  for (const fs::path& file : files) {
    const std::uint64_t sum = SummedFile(file).sum();
    all.add(&sum, sizeof sum);
  }
  return all.value();
}

std::string deck_of_folder(const fs::path& folder, const RunDefaults& defaults) {
  std::error_code error;
  const std::string from = fs::absolute(folder, error).lexically_normal().string();
  Deck deck = Deck::parse("train:\n  init_from: " + write_yaml(from) + "\n", folder.string());
  read_run_config(deck, defaults);
  return deck.effective();
}

RunConfig run_of(const fs::path& model, const Note& note) {
  if (!is_model_folder(model)) return run_of_checkpoint(model);
  Deck deck = Deck::parse(deck_of_folder(model, defaults_of_folder(model, note)), model.string());
  return read_run_config(deck);
}

std::string check_weights_of_deck(const fs::path& checkpoint) {
  std::error_code error;
  if (fs::is_directory(checkpoint, error)) return "";
  const StoredCheckpoint file(checkpoint, Expect::tensors);
  if (!file.has_header()) return "";
  RunConfig run;
  try {
    run = run_of_checkpoint(checkpoint);
  } catch (const Error& unreadable) {
    return fmt::format("the deck in the file cannot be read, so it is not known whether all weights are there: {}", unreadable.what());
  }
  for (const Weight& weight : declared_weights(run.model))
    require(file.find(path_of(Content::weight, weight.name)), Exit::data,
            "{}: the weight {} of the model in its deck is missing: the file is damaged; use another checkpoint", file.name(), weight.name);
  return "";
}

RunConfig inference_run(const fs::path& model, const Note& note) {
  RunConfig run = run_of(model, note);
  if (auto objective = run.model.objective->without_training()) run.model.objective = std::move(objective);
  return run;
}

}  // namespace gyr
