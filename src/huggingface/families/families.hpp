// SPDX-License-Identifier: BSD-3-Clause
// The families of each file beside this one, whose names lie in a namespace of its own.
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
}
namespace gpt2 {
std::vector<Family> families();
}
namespace gpt_oss {
std::vector<Family> families();
}
namespace hybrids {
std::vector<Family> families();
}
namespace llama {
std::vector<Family> families();
// Where weights lie in files that call things as Llama's do, of models in which two layers, a mixer and what follows it, are one of theirs.
StoredPlace layer_pair_place(const ModelConfig&, const std::string& weight);
}  // namespace llama
namespace mamba2 {
std::vector<Family> families();
}
namespace modernbert {
std::vector<Family> families();
}
namespace t5 {
std::vector<Family> families();
}

}  // namespace gyr
