#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/cuda/cudnn.sh FOLDER...: what the program asks of cuDNN, asked of cuDNN itself for a GPU that is not there. Its graphs of attention are
# compiled, linked and planned for an H100 by the real library, which loads its kernels into a driver that looks at none (cudnn/driver.c). FOLDERs are
# looked into for headers. Exit code 77 where cuDNN, CUDA's runtime or cuDNN's front end are not there.
#   CUDNN_HOME, CUDA_HOME (/usr/local/cuda)   CUDNN_FRONTEND_HOME folder with include/cudnn_frontend.h   DRAWS (12)
set -euo pipefail
includes=()
for folder; do includes+=(-isystem "$folder"); done
cd "$(dirname "$0")/../.."
cuda=${CUDNN_HOME:-${CUDA_HOME:-/usr/local/cuda}} frontend=${CUDNN_FRONTEND_HOME:-}
[ -e "$cuda/include/cudnn_graph.h" ] || { echo "SKIPPED: no cuDNN in $cuda; CUDNN_HOME may name its folder"; exit 77; }
[ -e "$frontend/include/cudnn_frontend.h" ] || {
  echo "SKIPPED: no front end of cuDNN; CUDNN_FRONTEND_HOME may name its folder (pip download --no-deps nvidia-cudnn-frontend, unpacked)"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries=$(dirname "$(ls "$cuda"/lib/libcudnn.so* "$cuda"/lib64/libcudnn.so* 2> /dev/null | head -n 1)")
"${CC:-cc}" -shared -fPIC -Wall -Wextra -Werror -o "$work/libcuda.so.1" regression/cuda/cudnn/driver.c
"${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -Werror -I. "${includes[@]}" -isystem "$frontend/include" -isystem "$cuda/include" \
  kernels/cuda/cudnn/plan.cpp regression/cuda/cudnn/plans.cpp -L"$libraries" -lcudnn -lcudart -lnvrtc -o "$work/plans"
LD_LIBRARY_PATH=$work:$libraries:${LD_LIBRARY_PATH:-} "$work/plans" "${DRAWS:-12}"
