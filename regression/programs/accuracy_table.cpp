// SPDX-License-Identifier: BSD-3-Clause
// `make accuracy`: prints the error of fp32 gradients next to PyTorch's, one line per model and kind of weight.
// Arguments: names of models (default: all).
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "kernels/base/threads.hpp"
#include "regression/support/accuracy.hpp"

int main(int argc, char** argv) {
  using namespace gyr::testing;
  gyr::prepare_threads(argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  gyr::start_threads(1);
  std::set<std::string> asked(argv + 1, argv + argc);
  if (asked.empty()) asked.insert(golden_names().begin(), golden_names().end());
  int above = 0;
  std::printf("%-26s %-32s %9s %9s %6s\n", "model", "gradient of", "ours", "PyTorch", "ratio");
  for (const std::string& name : asked) {
    if (!std::count(golden_names().begin(), golden_names().end(), name)) {
      std::fprintf(stderr, "%s: no such folder in regression/golden/huggingface\n", name.c_str());
      above += 1;
      continue;
    }
    for (const Accuracy& a : accuracies(golden(name))) {
      const bool bad = a.ours > accuracy_limit(a);
      above += bad;
      std::printf("%-26s %-32s %9.2e %9.2e %6.2f%s\n", name.c_str(), a.what.c_str(), a.ours, a.torch, a.ours / a.torch,
                  bad ? "  above the limit" : "");
    }
  }
  gyr::end_threads();
  MPI_Finalize();
  return above > 0;
}
