// SPDX-License-Identifier: BSD-3-Clause
// What each file of this folder defines.
#pragma once

#include "src/gguf/architecture.hpp"

namespace gyr::gguf {

std::vector<Architecture> falcon_h1_architectures();
std::vector<Architecture> llama_architectures();
std::vector<Architecture> gemma_architectures();
std::vector<Architecture> gpt2_architectures();
std::vector<Architecture> mixer_architectures();

}  // namespace gyr::gguf
