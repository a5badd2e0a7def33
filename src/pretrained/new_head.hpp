// SPDX-License-Identifier: BSD-3-Clause
// A model that exists as the beginning of one with another head: the trunk, whose weights are called model.*, is read, and the head is drawn as a run
// without a beginning draws it. Where both write texts and differ in how many tokens further ahead are told, what both heads have is read too, so
// that the modules alone are new.
#pragma once

#include <filesystem>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// The weights of `model`, whose head is drawn with this seed, those of the trunk from the folder or checkpoint. Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_trunk(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed);

// Which weights are read, drawn, and left where they are, in one line.
std::string text_of_new_head(const std::filesystem::path& path, const ModelConfig& model);

// Exit::config with the way out where the head that is stored is of another objective than the model's.
void require_same_head(const std::filesystem::path& path, const ModelConfig& model);

}  // namespace gyr
