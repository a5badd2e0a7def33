#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/cuda/build.sh NVCC FOLDER: builds the program for GPUs from scratch in FOLDER, which is removed at the end.
# The program must link, report its versions, and plan. Without a GPU, training must stop with one line of error and
# exit code 69. No GPU is needed. Exit code 77 if NVCC does not exist.
#   NCCL_HOME folder of NCCL   GPUS (90) architectures to compile for   KEEP yes: keeps FOLDER
#   CUDNN_FRONTEND_HOME folder of the cuDNN front end: builds with cuDNN
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=${1:?usage: regression/cuda/build.sh NVCC FOLDER} build=${2:?usage: regression/cuda/build.sh NVCC FOLDER}
[ -x "$nvcc" ] || { echo "SKIPPED: no nvcc (part of the CUDA toolkit); set CUDA_HOME to its folder"; exit 77; }
[ "${KEEP:-}" = yes ] || trap 'rm -rf "$build"' EXIT
failed() { echo "FAILED: $*"; exit 1; }
begun=$SECONDS
unset OMP_NUM_THREADS  # nproc would return this value
! command -v ninja > /dev/null || export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
cudnn=OFF
[ -z "${CUDNN_FRONTEND_HOME:-}" ] || cudnn=ON
cmake --preset cuda -B "$build" -DGYR_NVCC="$nvcc" -DGYR_GPUS="${GPUS:-90}" -DGYR_CUDNN="$cudnn" -DGYR_WERROR=ON --log-level=WARNING
cmake --build "$build" --parallel "$(nproc)" --target gyrfalcon
echo "== built for ${GPUS:-90} in $((SECONDS - begun)) s on $(nproc) cores"
[ -z "${NCCL_HOME:-}" ] || export LD_LIBRARY_PATH=$NCCL_HOME/lib:${LD_LIBRARY_PATH:-}
program=$build/bin/gyrfalcon
"$program" --version | tee "$build/version"
grep -q '^backend *cuda [0-9]' "$build/version" || failed "--version does not name CUDA"
[ "${GPUS:-90}" != 90 ] || grep -q '^backend.* for GPUs 90a$' "$build/version" || failed "--version does not name the GPUs it has code for"
[ $cudnn = OFF ] || grep -q '^backend.* with cuDNN [0-9]' "$build/version" || failed "--version does not name cuDNN"
grep -q '^BLAS *cuBLASLt [0-9.]*$' "$build/version" || failed "--version does not name cuBLASLt"
"$program" plan input/falcon-h1-1.5b.yaml --ranks 4 > "$build/plan" || failed "plan ended with $?"
if ! nvidia-smi -L > /dev/null 2>&1; then
  code=0
  "$program" train input/demo.yaml output.folder="$build/run" > /dev/null 2> "$build/said" || code=$?
  cat "$build/said"
  [ $code = 69 ] || failed "without a GPU it ends with $code"
  [ "$(wc -l < "$build/said")" = 1 ] || failed "not in one line"
  grep -q 'finds none here' "$build/said" || failed "nothing says what is missing"
  [ ! -e "$build/run" ] || failed "it has left a folder"
fi
