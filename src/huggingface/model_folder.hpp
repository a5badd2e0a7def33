// SPDX-License-Identifier: BSD-3-Clause
// Weights of a Hugging Face model folder: model.safetensors, or shards that model.safetensors.index.json lists.
#pragma once

#include <set>
#include <unordered_map>

#include "src/checkpoint/weight_source.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/safetensors.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr {

inline constexpr const char *one_file_name = "model.safetensors", *shard_index_name = "model.safetensors.index.json";

// True if the path is a Hugging Face model folder: it contains config.json, model.safetensors or
// model.safetensors.index.json. A checkpoint does not.
bool is_model_folder(const std::filesystem::path&);
bool has_weights(const std::filesystem::path& folder);  // true if the folder has weights in a format that ModelFolder reads

// End of an error message for a path that is not a model folder: what the path is instead, and what to do. Empty if
// nothing is known.
std::string hint_for_missing_model(const std::filesystem::path&);

// Opens a tensor of a file as a model weight. Half precision is widened to float32, which is lossless. Reader and
// tensor must outlive the result. Throws Exit::data if the tensor is not floating point.
TensorReader open_tensor(const safetensors::Reader&, const safetensors::Tensor&);

class ModelFolder {
 public:
  // Opens every file and checks the headers, and the index against the shards. Throws Exit::missing if the folder or a
  // shard does not exist. Throws Exit::data if a file name leads out of the folder, or a tensor is in the wrong shard,
  // in none or in two. It also does so if total_size is wrong, or if MXFP4 blocks have no scales or scales of another
  // shape.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::string& name() const { return name_; }
  const std::vector<std::string>& names() const { return names_; }  // names of all tensors, sorted, without the scales of MXFP4 blocks
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  const safetensors::Tensor& tensor(const std::string& name) const { return *place(name).tensor; }
  // See safetensors::Reader::read.
  void read(const std::string& tensor, const Box& box, void* data, const Shape& array, const Box& there) const;
  TensorReader open(const std::string& tensor) const;  // opens a tensor; MXFP4 blocks are unpacked to bf16

  std::string file_of(const std::string& tensor) const { return std::filesystem::path(place(tensor).reader->name()).filename().string(); }
  Index bytes() const;       // bytes of all tensors
  Index bytes_read() const;  // bytes of tensor data read so far
  std::size_t files() const { return readers_.size(); }

 private:
  struct Place {
    const safetensors::Reader* reader;
    const safetensors::Tensor* tensor;
  };
  const Place& place(const std::string& name) const;
  void open_shards();
  void list_names();
  void add(const std::string& file);

  std::filesystem::path folder_;
  std::string name_;
  std::vector<std::unique_ptr<safetensors::Reader>> readers_;
  std::unordered_map<std::string, Place> places_;
  std::vector<std::string> names_;
};

// True if embedding and head of a folder with tie_word_embeddings = true are one matrix, decided as transformers does:
// false if both are stored and differ in shape or in any element.
bool head_is_tied(const ModelFolder&, const StoredNames&);

// Reads config.json of a folder and completes it from other files. The tokenizer gives the mask and sentinel tokens
// that an objective needs. The weights, if they are present, decide if the head is tied and if there are multi-token
// prediction (MTP) modules.
HuggingFaceConfig read_model_folder(const std::filesystem::path&);

// Tensor names of a model's weights, spelt as in this folder. They follow the given family, or else the family of the
// folder's config.json, or our own names if there is none. Blocks::dequantized gives MXFP4 tensors the names that they
// would have unquantized.
enum class Blocks { as_stored, dequantized };
StoredNames names_in(const std::filesystem::path& folder, const Family&, const ModelConfig&, Blocks = Blocks::as_stored);
StoredNames names_in(const std::filesystem::path& folder, const ModelConfig&);

// Weight source that reads a Hugging Face folder. With a tied head, the shared matrix may be stored under the head's
// name, the embedding's, or both. Multi-token prediction (MTP) modules in the folder are skipped if the model has none.
class FolderWeights : public WeightSource {
 public:
  FolderWeights(const std::filesystem::path& folder, const ModelConfig& model);

  const ModelFolder& folder() const { return folder_; }
  std::string name() const override { return folder_.name(); }
  std::string key(const std::string& weight) const override;
  std::vector<std::string> keys() const override;
  TensorReader open(const std::string& weight, DType) const override;
  // Throws Exit::config if the model's head is tied but the stored head differs from the embedding, or if a repeated
  // tensor differs from the weight that it repeats. Each rank compares a part of the rows.
  void check(int rank, int ranks) const override;

 private:
  ModelFolder folder_;
  StoredNames names_;
  bool tied_;
  std::set<std::string> left_out_;  // tensors of MTP modules that the model does not have, with their copies of embedding and head
};

}  // namespace gyr
