// SPDX-License-Identifier: BSD-3-Clause
// The families of each file beside this one, in the order in which family.cpp lists them.
#pragma once

#include "src/huggingface/family.hpp"

namespace gyr {

std::vector<Family> bert_families();
std::vector<Family> deepseek_families();
std::vector<Family> falcon_families();
std::vector<Family> falcon_h1_families();
std::vector<Family> gemma_families();
std::vector<Family> gpt2_families();
std::vector<Family> gpt_oss_families();
std::vector<Family> hybrid_families();
std::vector<Family> llama_families();
std::vector<Family> mamba2_families();
std::vector<Family> modernbert_families();
std::vector<Family> t5_families();

// Where weights lie in files that call things as Llama's do, of models in which two layers, a mixer and what follows it, are one of theirs.
StoredPlace layer_pair_place(const ModelConfig&, const std::string& weight);

}  // namespace gyr
