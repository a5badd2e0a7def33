#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The whole suite with address, leak and undefined-behaviour sanitizers and the standard library's assertions: the preset `debug`, built by Clang
# where it is there, with warnings as errors (GCC takes three times as long). An hour on two cores.
#   regression/sanitize.sh [WORDS FOR CTEST]      as in -L unit
# leaks.supp names what libraries keep. Exit codes: 0 nothing was found, 77 there is no Clang, else ctest's.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/debug
command -v clang++ > /dev/null || { echo "SKIPPED: clang++ is not installed"; exit 77; }
if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja > /dev/null; then export CMAKE_GENERATOR=Ninja; fi
cmake --preset debug -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DGYR_WERROR=ON --log-level=WARNING
cmake --build "$folder" --parallel "${JOBS:-$(nproc)}"
ctest --preset debug "$@"
