// SPDX-License-Identifier: BSD-3-Clause
// Stubs for builds without cuDNN.
#include "kernels/cuda/cudnn/description.hpp"

namespace gyr::cuda {

struct FusedLibrary::State {};

bool FusedLibrary::is_there() { return false; }
std::string FusedLibrary::version() { return ""; }
FusedLibrary::FusedLibrary(CUstream_st*) {}
FusedLibrary::~FusedLibrary() = default;
bool FusedLibrary::run(const FusedAttention&, const FusedForward&, void*) { return false; }
bool FusedLibrary::run(const FusedAttention&, const FusedBackward&, void*) { return false; }

}  // namespace gyr::cuda
