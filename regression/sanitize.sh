#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs all tests with address, leak and undefined-behaviour sanitizers and assertions of the standard library (preset
# `debug`), built by Clang with warnings as errors (GCC takes three times as long). Takes an hour on two cores.
#   regression/sanitize.sh [CTEST ARGUMENTS]      for example -L unit
# leaks.supp lists leaks of libraries. Exit codes: 0 no errors, 77 Clang is not installed, otherwise ctest's.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/debug
command -v clang++ > /dev/null || { echo "SKIPPED: clang++ is not installed"; exit 77; }
if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja > /dev/null; then export CMAKE_GENERATOR=Ninja; fi
cmake --preset debug -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DGYR_WERROR=ON --log-level=WARNING
cmake --build "$folder" --parallel "${JOBS:-$(nproc)}"
ctest --preset debug "$@"
