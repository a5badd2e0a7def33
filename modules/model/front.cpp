// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/front.hpp"

#include <map>

#include "modules/model/layer.hpp"

namespace gyr {

namespace {
// Filled during static initialisation, constant afterwards.
std::map<std::string, FrontType>& fronts() {
  static std::map<std::string, FrontType> types;
  return types;
}
}  // namespace

RegisteredFront::RegisteredFront(FrontType type) { fronts().emplace(type.name, std::move(type)); }

const FrontType& encoder_front(const ModelConfig& c) {
  const std::string name = reads_images(c) ? "patches" : c.encoder_front;
  if (const auto found = fronts().find(name); found != fronts().end()) return found->second;
  std::string known;
  for (const auto& [name, type] : fronts()) known += (known.empty() ? "" : ", ") + name;
  fail(Exit::config, "the encoder has no front named {}; the fronts are {}", name, known);
}

std::vector<NamedField> front_fields(const ModelConfig& c, Index length) {
  if (!has_encoder(c) || !encoder_front(c).fields) return {};
  return encoder_front(c).fields(encoder_config(c), length);
}

double front_flops(const ModelConfig& c) { return has_encoder(c) && encoder_front(c).flops ? encoder_front(c).flops(encoder_config(c)) : 0; }

std::unique_ptr<Front> make_front(const ModelConfig& c, Parameters& parameters, Embedding& text) {
  return has_encoder(c) || reads_neighbours(c) ? encoder_front(c).make(encoder_config(c), parameters, text) : nullptr;
}

}  // namespace gyr
