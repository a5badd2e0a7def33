// SPDX-License-Identifier: BSD-3-Clause
// The weights of a folder as Hugging Face's libraries write it: model.safetensors, or shards that model.safetensors.index.json lists.
#pragma once

#include <set>
#include <unordered_map>

#include "src/checkpoint/weight_source.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/safetensors.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr {

inline constexpr const char *one_file_name = "model.safetensors", *shard_index_name = "model.safetensors.index.json";

// Whether this is a folder of Hugging Face's, told from a checkpoint's by what lies in it.
bool is_model_folder(const std::filesystem::path&);
bool has_weights(const std::filesystem::path& folder);  // in a form that ModelFolder reads

// What a path that should be a model's folder is instead, as the end of a message with the way out; empty where nothing better is known.
std::string hint_for_missing_model(const std::filesystem::path&);

// A tensor of a file as numbers of a model: half precision is widened to float32, without loss. Both must stay. Exit::data where it is no
// floating-point one.
TensorReader open_tensor(const safetensors::Reader&, const safetensors::Tensor&);

class ModelFolder {
 public:
  // Opens every file and checks its header, and index and shards against each other: Exit::missing where the folder or a shard is not
  // there, Exit::data where a name leads out of the folder, a tensor is in another shard than the index says, in none or in two, or
  // the sum of bytes is not the index's total_size, or blocks of 4 bits have no scales or those of another shape.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::string& name() const { return name_; }
  const std::vector<std::string>& names() const { return names_; }  // of tensors, sorted, without the scales of blocks
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  const safetensors::Tensor& tensor(const std::string& name) const { return *place(name).tensor; }
  // As safetensors::Reader::read.
  void read(const std::string& tensor, const Box& box, void* data, const Shape& array, const Box& there) const;
  TensorReader open(const std::string& tensor) const;  // of blocks of 4 bits, the numbers

  std::string file_of(const std::string& tensor) const { return std::filesystem::path(place(tensor).reader->name()).filename().string(); }
  Index bytes() const;       // of all tensors
  Index bytes_read() const;  // of tensors, so far
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

// Whether the model of a folder that says tie_word_embeddings has one matrix for both, as transformers decides it: not where both are stored
// and differ, in one number or in shape.
bool head_is_tied(const ModelFolder&, const StoredNames&);

// config.json of a folder, and of what it leaves open what the tokenizer says, tokens that an objective needs, and what the weights say, where they
// are there: whether the head is tied, and whether there are modules that tell tokens further ahead.
HuggingFaceConfig read_model_folder(const std::filesystem::path&);

// The names that weights of a model have in a folder, spelt as its weights are: as the family of its config.json calls them or, where there is none,
// our own; or as a given family calls them. What is in blocks of 4 bits there may also be called as if it were not.
enum class Blocks { as_stored, as_numbers };
StoredNames names_in(const std::filesystem::path& folder, const Family&, const ModelConfig&, Blocks = Blocks::as_stored);
StoredNames names_in(const std::filesystem::path& folder, const ModelConfig&);

// A folder as the source of a model's weights. Where the head is tied, the one matrix may be stored under its name, the embedding's, or both. Modules
// that tell tokens further ahead are left out where the model has none.
class FolderWeights : public WeightSource {
 public:
  FolderWeights(const std::filesystem::path& folder, const ModelConfig& model);

  const ModelFolder& folder() const { return folder_; }
  std::string name() const override { return folder_.name(); }
  std::string key(const std::string& weight) const override;
  std::vector<std::string> keys() const override;
  TensorReader open(const std::string& weight, DType) const override;
  // Exit::config where a head that the model does not have is another matrix than its embedding, or what is there twice another one than it is again.
  void check(int rank, int ranks) const override;

 private:
  ModelFolder folder_;
  StoredNames names_;
  bool tied_;
  std::set<std::string> left_out_;  // tensors of modules, and what these have again
};

}  // namespace gyr
