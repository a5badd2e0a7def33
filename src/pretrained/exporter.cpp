// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "modules/cost/flops.hpp"
#include "src/base/file_system.hpp"
#include "src/base/input_file.hpp"
#include "src/base/output_folder.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/huggingface/companions.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/pretrained/adapter_export.hpp"
#include "src/pretrained/block_export.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/tensor_export.hpp"
#include "src/report/transfer.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;
using safetensors::Type;

constexpr Index usual_shard_bytes = 5'000'000'000;  // default maximum bytes of a file, as in transformers
constexpr const char* tokenizer_file_name = "tokenizer.json";
// Files that are copied unchanged from the folder `like`, in addition to the companions that a checkpoint contains.
const std::vector<std::string> tokenizer_files{tokenizer_file_name, "vocab.json", "merges.txt", "tokenizer.model"};

std::string name_in_config(Type type) {
  return type == Type::bf16 ? "bfloat16" : type == Type::f16 ? "float16" : type == Type::f64 ? "float64" : "float32";
}

// ---- weights ----

// Tensor names under which a folder with tied embeddings stores the shared matrix: embedding, head or both.
std::vector<std::string> names_of_tied(const fs::path& like, const StoredNames& names) {
  if (like.empty() || !has_weights(like) || !read_model_folder(like).model.tie_word_embeddings) return {names.embedding()};
  const ModelFolder stored(like);
  std::vector<std::string> found;
  for (const std::string& name : {names.embedding(), names.head()})
    if (stored.has(name)) found.push_back(name);
  return found.empty() ? std::vector<std::string>{names.embedding()} : found;
}

// Tensor names under which a weight is stored. Further copies are written if the folder `like` has them, or if there is
// no such folder.
std::vector<std::string> names_of(const std::string& weight, const StoredNames& names, bool is_tied, const fs::path& like) {
  std::vector<std::string> all = is_tied && weight == embedding_name ? names_of_tied(like, names) : std::vector{names.place(weight).name};
  const bool follows = !names.copies(weight).empty() && !like.empty() && has_weights(like);
  const std::optional<ModelFolder> stored = follows ? std::optional<ModelFolder>(std::in_place, like) : std::nullopt;
  for (const std::string& copy : names.copies(weight))
    if (!stored || stored->has(copy)) all.push_back(copy);
  return all;
}

// The export of one of the two tensors (codes, scales) of a weight in 4-bit blocks.
TensorExport block_job(const TensorExport& values, BlockPart part, BlockExport& blocks) {
  return {values.from, blocks.part_of(values.from, values.to.name, part), false, part, &blocks};
}

// The exports of all tensors of the folder. `blocks` is required if some weights are stored in 4-bit blocks.
std::vector<TensorExport> jobs_of(const CheckpointFile& file, const ModelConfig& model, const std::vector<Weight>& weights, const StoredNames& names,
                                  const ExportOptions& options, const fs::path& like, BlockExport* blocks) {
  std::vector<TensorExport> jobs;
  for (const Weight& w : weights) {
    if (w.of_adapter) continue;  // adapters are merged into their base weights
    const StoredPlace place = names.place(w.name);
    if (names.weights(place.name).front() != w.name) continue;  // part of a tensor that another weight exports
    for (const std::string& name : names_of(w.name, names, model.tie_word_embeddings, like)) {
      TensorExport job = tensor_export(file, model.lora, names, name, w.name, options.type);
      if (!place.in_blocks) jobs.push_back(std::move(job));
      else
        for (const BlockPart part : {BlockPart::codes, BlockPart::scales}) jobs.push_back(block_job(job, part, *blocks));
    }
  }
  return jobs;
}

// Splits the tensors, in the model's order, into files of at most shard_bytes.
std::vector<std::vector<const TensorExport*>> shards_of(const std::vector<TensorExport>& jobs, Index shard_bytes) {
  std::vector<std::vector<const TensorExport*>> shards(1);
  Index filled = 0;
  for (const TensorExport& job : jobs) {
    if (!shards.back().empty() && filled + job.bytes() > shard_bytes) shards.emplace_back(), filled = 0;
    shards.back().push_back(&job);
    filled += job.bytes();
  }
  return shards;
}

// Splits the tensors into files as in the folder `like`. Empty if that folder has no weights or lacks one of the
// tensors.
std::vector<std::vector<const TensorExport*>> shards_like(const fs::path& like, const std::vector<TensorExport>& jobs) {
  std::error_code error;
  if (like.empty() || (!fs::exists(like / one_file_name, error) && !fs::exists(like / shard_index_name, error))) return {};
  const ModelFolder known(like);
  std::map<std::string, std::vector<const TensorExport*>> by_file;
  for (const TensorExport& job : jobs) {
    if (!known.has(job.to.name)) return {};
    by_file[known.file_of(job.to.name)].push_back(&job);
  }
  std::vector<std::vector<const TensorExport*>> shards;
  for (auto& [file, of_file] : by_file) shards.push_back(std::move(of_file));
  return shards;
}

Index write_weights(const OutputFolder& folder, const std::vector<TensorExport>& jobs, const ExportOptions& options, const fs::path& like) {
  Index total = 0;
  for (const TensorExport& job : jobs) total += job.bytes();
  Transfer transfer(stderr, "export", total);
  auto shards = options.shard_bytes > 0 ? shards_of(jobs, options.shard_bytes) : shards_like(like, jobs);
  if (shards.empty()) shards = shards_of(jobs, usual_shard_bytes);
  if (shards.size() == 1) {
    write_shard(folder / one_file_name, shards[0], transfer);
    return 1;
  }
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(folder / name, shards[i], transfer);
    for (const TensorExport* job : shards[i]) index["weight_map"][job->to.name] = name;
  }
  write_text(folder / shard_index_name, index.dump(2) + "\n");
  return Index(shards.size());
}

// ---- files other than the weights ----

// The Hugging Face folder that the run started from, found through the checkpoints in between; empty if it no longer
// exists.
fs::path origin_of(RunConfig run) {
  std::error_code error;
  for (int i = 0; i < 8; ++i) {
    const fs::path from = run.train.init_from;
    if (from.empty() || !fs::exists(from, error)) return {};
    if (is_model_folder(from)) return from;
    run = run_of(from);
  }
  return {};
}

void copy_file(const fs::path& from, const fs::path& to, Index& bytes) {
  const InputFile in(from);
  OutputFile out(to);
  std::string block(std::size_t(1) << 20, '\0');
  while (const std::size_t count = in.read(out.appended(), block.data(), block.size())) out.append({block.data(), count});
  out.commit();
  bytes += out.appended();
}

// Copies the files of these names that exist in `from`. Returns true if any byte was copied.
bool copy_files(const std::vector<std::string>& names, const fs::path& from, const OutputFolder& to) {
  std::error_code error;
  Index bytes = 0;
  for (const std::string& name : names)
    if (!from.empty() && name != config_file_name && fs::is_regular_file(from / name, error)) copy_file(from / name, to / name, bytes);
  return bytes > 0;
}

// Takes settings from a config.json that the deck does not contain. `from`: the folder's name in messages.
void learn(const HuggingFaceConfig& known, const std::string& from, HuggingFaceConfig& config, const Note& note) {
  if (known.model.vocab_size != config.model.vocab_size)
    note(fmt::format("{}: its vocabulary has {} tokens, but the model's has {}; its tokenizer may not fit", from, known.model.vocab_size,
                     config.model.vocab_size));
  config.begin_token = known.begin_token, config.end_tokens = known.end_tokens, config.positions = known.positions;
  config.norm_before_gate = known.norm_before_gate;
  config.model_type = known.model_type, config.carried = known.carried;
}

// Takes the settings of config.json and all other files from the folder `like`, except its weights.
void take_over(const fs::path& like, const OutputFolder& to, HuggingFaceConfig& config, const Note& note) {
  learn(read_config_json(like / config_file_name), like.string(), config, note);
  copy_files(companion_names(), like, to);
  copy_files(tokenizer_files, like, to);
}

// tokenizer_config.json for transformers' AutoTokenizer: special tokens of the tokenizer, and the length of the training
// sequences. Only tokens of the vocabulary are named.
std::string tokenizer_settings(const Tokenizer& tokenizer, Index vocab_size, Index positions) {
  nlohmann::ordered_json j;
  j["tokenizer_class"] = "PreTrainedTokenizerFast";
  j["model_max_length"] = positions;
  j["clean_up_tokenization_spaces"] = false;
  const std::pair<const char*, std::optional<std::int32_t>> tokens[] = {
      {"bos_token", tokenizer.bos()}, {"eos_token", tokenizer.eod()}, {"pad_token", tokenizer.pad()}, {"unk_token", tokenizer.vocabulary().unknown}};
  for (const auto& [key, id] : tokens)
    if (id && *id < vocab_size) j[key] = tokenizer.decode(std::span(&*id, 1));
  return j.dump(2) + "\n";
}

// Copies the deck's tokenizer, if the file exists, and describes it unless the folder has a description already.
void copy_tokenizer_of(const RunConfig& run, const OutputFolder& to) {
  const fs::path tokenizer = run.data.tokenizer;
  std::error_code error;
  Index bytes = 0;
  if (tokenizer.empty() || !fs::is_regular_file(tokenizer, error)) return;
  copy_file(tokenizer, to / tokenizer_file_name, bytes);
  if (!fs::exists(to / tokenizer_config_name, error))
    write_text(to / tokenizer_config_name, tokenizer_settings(Tokenizer::load(tokenizer), run.model.vocab_size, run.train.seq_length));
}

// Takes the companion files in the checkpoint, and the tokenizer of the folder it came from, or else of its deck.
void copy_checkpoint_companions(const CheckpointFile& file, const RunConfig& run, const fs::path& origin, const OutputFolder& to,
                                HuggingFaceConfig& config, const Note& note) {
  const Companions& carried = file.header().companions;
  if (const auto text = carried.find(config_file_name); text != carried.end())
    learn(parse_config_json(text->second, (fs::path(file.name()) / config_file_name).string()), file.name(), config, note);
  for (const std::string& name : companion_names())
    if (name != config_file_name && carried.contains(name)) write_text(to / name, carried.at(name));
  if (!copy_files(tokenizer_files, origin, to)) copy_tokenizer_of(run, to);
}

// Fills the config from the deck, if there is no folder to follow.
void fill_config_from_deck(const RunConfig& run, const OutputFolder& to, HuggingFaceConfig& config, const Note& note) {
  config.positions = run.train.seq_length;
  std::error_code error;
  const fs::path tokenizer = run.data.tokenizer;
  const bool known = !tokenizer.empty() && fs::is_regular_file(tokenizer, error);
  note(fmt::format(
      "no folder provides token ids, context length and chat template (--like DIR): max_position_embeddings is the training length {}{}",
      config.positions,
      known ? fmt::format(", also model_max_length in {}; tokenizer and special tokens are those of {}", tokenizer_config_name, tokenizer.string())
            : "; there is no tokenizer"));
  if (!known) return;
  copy_tokenizer_of(run, to);
  if (const auto end = Tokenizer::load(tokenizer).eod(); end && *end < config.model.vocab_size) config.end_tokens = {*end};
}

std::string generation_json(const nlohmann::json& config) {
  nlohmann::ordered_json j;
  j["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!config[key].is_null()) j[key] = config[key];
  return j.dump(2) + "\n";
}

// model_type of the folder `asked`, else of the config.json in the checkpoint, else of the folder that the run started
// from.
std::string original_family(const CheckpointFile& file, const fs::path& asked, const fs::path& origin) {
  const Companions& carried = file.header().companions;
  const auto text = carried.find(config_file_name);
  if (asked.empty() && text != carried.end()) return parse_config_json(text->second, file.name()).model_type;
  const fs::path& like = asked.empty() ? origin : asked;
  return like.empty() ? "" : read_config_json(like / config_file_name).model_type;
}

}  // namespace

std::string refusal_of_adapters(const RunConfig& run) {
  if (!run.model.lora) return "";
  try {
    const fs::path origin = origin_of(run);
    ModelConfig plain = run.model;
    plain.lora = {};
    check_adapters(run.model, family_for(plain, origin.empty() ? "" : read_config_json(origin / config_file_name).model_type), plain);
    return "";
  } catch (const Error& error) {
    return fmt::format("`export-hf --adapters` will refuse the adapters of this run: {}", error.what());
  }
}

Converted export_folder(const fs::path& checkpoint, const fs::path& target, const ExportOptions& options, const Note& note) {
  const CheckpointFile file(checkpoint);
  const RunConfig run = run_of(checkpoint);
  std::vector<Weight> weights;
  for (const PlacedTensor& placed : model_weights(run.model)) weights.push_back(placed.weight);
  check_weights(file, weights);
  const fs::path like = options.like.empty() ? origin_of(run) : options.like;
  ModelConfig model = run.model;  // the exported model, without adapters
  model.lora = {};
  const Family& family = family_for(model, original_family(file, options.like.empty() ? fs::path() : like, like));
  if (family.own_class)
    note(fmt::format("transformers has no class {0}; define class {0}(GenericForSequenceClassification, ...PreTrainedModel) to read the folder",
                     family.architecture));
  if (options.adapters) return export_adapters(file, run.model, family, model, target, options, like);
  const bool plain = options.like.empty() || options.type;  // true: no 4-bit blocks; they are written only for --like without --dtype
  const StoredNames names =
      like.empty() ? StoredNames(family, model) : names_in(like, family, model, plain ? Blocks::dequantized : Blocks::as_stored);
  std::optional<BlockExport> blocks;
  if (std::any_of(weights.begin(), weights.end(), [&](const Weight& w) { return names.place(w.name).in_blocks; })) blocks.emplace(like);
  const std::vector<TensorExport> jobs = jobs_of(file, run.model, weights, names, options, like, blocks ? &*blocks : nullptr);

  using Existing = OutputFolder::Existing;
  OutputFolder folder(target, options.overwrite ? Existing::replace : Existing::refuse, belongs_to_model_folder);
  Converted result{Index(jobs.size()), 0, 0};
  for (const TensorExport& job : jobs) result.bytes += job.bytes();
  require_space(folder / "", result.bytes + result.bytes / 1024, "a model folder", "free space or choose another folder");

  HuggingFaceConfig config;
  config.model = model;
  config.dtype = name_in_config(jobs[0].to.type);  // dtype in config.json is the type of the embedding
  config.blocks = blocks.has_value();
  if (options.like.empty() && !file.header().companions.empty()) copy_checkpoint_companions(file, run, like, folder, config, note);
  else if (like.empty()) fill_config_from_deck(run, folder, config, note);
  else take_over(like, folder, config, note);
  const std::string text = write_config_json(config, family);
  write_text(folder / config_file_name, text);
  if (!fs::exists(folder / generation_file_name)) write_text(folder / generation_file_name, generation_json(nlohmann::json::parse(text)));
  result.files = write_weights(folder, jobs, options, like);
  if (blocks) blocks->log_blocks(note);
  folder.commit();
  return result;
}

}  // namespace gyr
