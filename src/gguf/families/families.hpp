// SPDX-License-Identifier: BSD-3-Clause
// What each file of this folder defines, in a namespace of its own.
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
