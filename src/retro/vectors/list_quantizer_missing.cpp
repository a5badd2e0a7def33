// SPDX-License-Identifier: BSD-3-Clause
// Quantizer of a build without faiss: every use is refused.
#include "kernels/base/error.hpp"
#include "src/retro/vectors/list_quantizer.hpp"

namespace gyr::retro {

std::string faiss_version() { return ""; }

void require_faiss() {
  fail(Exit::config,
       "this build has no faiss, which approximate indexes need; install libfaiss-dev (Debian), configure and build again, or use --index flat");
}

QuantizerSize size_of_quantizer(const std::string&, std::int64_t) {
  require_faiss();
  return {};
}

std::unique_ptr<ListQuantizer> train_quantizer(const std::string&, std::int64_t, std::span<const float>, std::uint64_t) {
  require_faiss();
  return {};
}

std::unique_ptr<ListQuantizer> read_quantizer(const Codes&) {
  require_faiss();
  return {};
}

}  // namespace gyr::retro
