// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// Asynchronous uploads from host to device. start() copies the data to pinned memory, from where the stream later
// fetches it, so that the source may change on return.
class Uploads {
 public:
  Uploads();
  ~Uploads();  // waits for pending uploads
  void start(cudaStream_t, const void* from, void* to, Index bytes);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace gyr::cuda
