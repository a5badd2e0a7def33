// SPDX-License-Identifier: BSD-3-Clause
// Declares the model families of each file in this folder, in a namespace per file.
#pragma once

#include "src/huggingface/family.hpp"

namespace gyr {

namespace bert {
std::vector<Family> families();
}
namespace deepseek {
std::vector<Family> families();
}
namespace falcon {
std::vector<Family> families();
}
namespace falcon_h1 {
std::vector<Family> families();
}
namespace gemma {
std::vector<Family> families();
// As llama::layer_pair_place, for models with a norm on the output of each layer.
StoredPlace normed_output_place(const ModelConfig&, const std::string& weight);
}  // namespace gemma
namespace gpt2 {
std::vector<Family> families();
}
namespace gpt_oss {
std::vector<Family> families();
}
namespace granite {
std::vector<Family> families();
}
namespace hybrids {
std::vector<Family> families();
}
namespace lfm2 {
std::vector<Family> families();
}
namespace llama {
std::vector<Family> families();
// Maps weights to tensors with Llama's names, for models in which a mixer layer and the MLP or expert layer after it
// form one layer of transformers.
StoredPlace layer_pair_place(const ModelConfig&, const std::string& weight);
}  // namespace llama
namespace llava {
std::vector<Family> families();
}
namespace mamba2 {
std::vector<Family> families();
}
namespace modernbert {
std::vector<Family> families();
}
namespace olmo {
std::vector<Family> families();
}
namespace phi3 {
std::vector<Family> families();
}
namespace qwen3_next {
std::vector<Family> families();
}
namespace smollm3 {
std::vector<Family> families();
}
namespace t5 {
std::vector<Family> families();
}

}  // namespace gyr
