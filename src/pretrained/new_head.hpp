// SPDX-License-Identifier: BSD-3-Clause
// Initialises a model from a stored one with another head. The trunk (weights model.*) is read, and the head is
// initialised as in a run from scratch. If both heads predict tokens and differ in additional losses (multi-token
// prediction, sentence order), their common weights are read too, so that only the additional modules are new.
#pragma once

#include <filesystem>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// The weights of `model`: the trunk from the folder or checkpoint, and a head initialised with this seed.
// Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_trunk(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed);

// One line that lists the weights that are read, initialised, and left out.
std::string describe_new_head(const std::filesystem::path& path, const ModelConfig& model);

// Exit::config, with a remedy, if the stored head belongs to another objective than the model's.
void require_same_head(const std::filesystem::path& path, const ModelConfig& model);

// The weights from which a run starts: those of `path` with their head, or with a new one (open_trunk), and with new layers R if
// only the model has some (added_retrieval.hpp). Exit::config, Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head, std::uint64_t seed);

// One line about weights that are new; empty if there are none.
std::string describe_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head);

// The errors of a start from these weights, without reading their values: a dry run reports what the run would.
void check_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head);

}  // namespace gyr
