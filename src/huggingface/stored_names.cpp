// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/stored_names.hpp"

#include <optional>

#include "modules/cost/flops.hpp"
#include "modules/model/layer.hpp"
#include "src/huggingface/block_tensor.hpp"
#include "src/huggingface/family.hpp"

namespace gyr {

namespace {

constexpr std::string_view tower_prefix = "vision_tower.";

// Replaces the suffix `end` of `name` by `other`, if it has that suffix.
void exchange_end(std::string& name, std::string_view end, std::string_view other) {
  if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), other);
}

// Places of the weights of a text behind a vision tower. Its layers are numbered from the end of the tower on.
class TextPlaces {
 public:
  explicit TextPlaces(const Family& of_all, const ModelConfig& model)
      : text_(of_all.text(model)), family_(&family_for(text_)), layers_before_(layers_of_encoder(model) + 1) {}

  StoredPlace place(const std::string& weight) const {
    const LayerName name = layer_name(weight);
    StoredPlace place = family_->place(text_, name.layer < 0 ? weight : fmt::format("model.layers.{}.{}", name.layer - layers_before_, name.rest));
    place.name.insert(0, "language_model.");
    return place;
  }

 private:
  ModelConfig text_;
  const Family* family_;
  Index layers_before_;
};

}  // namespace

StoredNames::StoredNames(const Family& family, const ModelConfig& model, Spelling spelling) : family_(&family) {
  const std::string prefix = spelling.bare ? family.prefix : "";
  std::optional<TextPlaces> text;
  if (family.text) text.emplace(family, model);
  const auto place_of = [&](const std::string& weight) {
    StoredPlace place = family.place(model, weight);
    if (place.name.empty()) place = text->place(weight);
    if (spelling.inner_tower && place.name.starts_with(tower_prefix)) place.name.insert(tower_prefix.size(), "vision_model.");
    if (place.name.starts_with(prefix)) place.name.erase(0, prefix.size());
    if (spelling.gamma_beta) {
      exchange_end(place.name, "LayerNorm.weight", "LayerNorm.gamma");
      exchange_end(place.name, "LayerNorm.bias", "LayerNorm.beta");
    }
    if (spelling.in_blocks.contains(place.name)) place.name += blocks_end, place.transposed = false, place.in_blocks = true;
    return place;
  };
  embedding_ = place_of(embedding_name).name, head_ = place_of(head_name).name;
  for (const Weight& w : declared_weights(model)) {
    const StoredPlace place = place_of(w.name);
    weights_[place.name].push_back(w.name);
    places_[w.name] = place;
    if (!family.copies) continue;
    copies_[w.name] = family.copies(model, w.name);
    for (const std::string& copy : copies_[w.name]) copied_[copy] = w.name;
  }
}

StoredPlace StoredNames::place(const std::string& weight) const {
  const auto found = places_.find(weight);
  return found == places_.end() ? StoredPlace{weight} : found->second;
}

namespace {

const std::vector<std::string>& listed(const std::map<std::string, std::vector<std::string>>& lists, const std::string& name) {
  static const std::vector<std::string> none;
  const auto found = lists.find(name);
  return found == lists.end() ? none : found->second;
}

}  // namespace

const std::vector<std::string>& StoredNames::weights(const std::string& tensor) const { return listed(weights_, tensor); }

const std::vector<std::string>& StoredNames::copies(const std::string& weight) const { return listed(copies_, weight); }

std::string StoredNames::copied(const std::string& tensor) const {
  const auto found = copied_.find(tensor);
  return found == copied_.end() ? "" : found->second;
}

bool StoredNames::is_ignored_tensor(const std::string& tensor) const {
  return family_->is_ignored_tensor && weights(tensor).empty() && family_->is_ignored_tensor(tensor);
}

}  // namespace gyr
