// SPDX-License-Identifier: BSD-3-Clause
// Declares the architectures that each file of this folder defines.
#pragma once

#include "src/gguf/architecture.hpp"

namespace gyr::gguf {

namespace falcon_h1 {
std::vector<Architecture> architectures();
}
namespace llama {
std::vector<Architecture> architectures();
}
namespace gemma {
std::vector<Architecture> architectures();
}
namespace gpt2 {
std::vector<Architecture> architectures();
}
namespace mixers {
std::vector<Architecture> architectures();
}

}  // namespace gyr::gguf
