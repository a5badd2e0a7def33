// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// What the host has given a stream to take to the device: copied to pinned memory, from where the stream fetches it when its turn comes.
class Uploads {
 public:
  Uploads();
  ~Uploads();  // those under way are waited for
  void start(cudaStream_t, const void* from, void* to, Index bytes);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace gyr::cuda
