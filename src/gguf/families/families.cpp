// SPDX-License-Identifier: BSD-3-Clause
// Table of the model families that export-gguf writes.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (const auto& of_file :
         {falcon_h1::architectures(), llama::architectures(), gemma::architectures(), gpt2::architectures(), mixers::architectures()})
      list.insert(list.end(), of_file.begin(), of_file.end());
    return list;
  }();
  return all;
}

}  // namespace gyr::gguf
