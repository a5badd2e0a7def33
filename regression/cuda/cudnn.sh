#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/cuda/cudnn.sh FOLDER...: builds the program's attention graphs with the real cuDNN for an H100 that need
# not be present. cuDNN compiles, links and plans the graphs. Its kernels are loaded into a stub driver (cudnn/driver.c)
# that ignores them. FOLDERs are searched for headers. Exit code 77 if cuDNN, the CUDA runtime or the cuDNN front end is
# missing.
#   CUDNN_HOME, CUDA_HOME (/usr/local/cuda)   CUDNN_FRONTEND_HOME folder with include/cudnn_frontend.h   DRAWS (12)
set -euo pipefail
includes=()
for folder; do includes+=(-isystem "$folder"); done
cd "$(dirname "$0")/../.."
cuda=${CUDNN_HOME:-${CUDA_HOME:-/usr/local/cuda}} frontend=${CUDNN_FRONTEND_HOME:-}
[ -e "$cuda/include/cudnn_graph.h" ] || { echo "SKIPPED: no cuDNN in $cuda; set CUDNN_HOME to its folder"; exit 77; }
[ -e "$frontend/include/cudnn_frontend.h" ] || {
  echo "SKIPPED: no cuDNN front end; set CUDNN_FRONTEND_HOME to its folder (pip download --no-deps nvidia-cudnn-frontend, unpacked)"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries=$(dirname "$(ls "$cuda"/lib/libcudnn.so* "$cuda"/lib64/libcudnn.so* 2> /dev/null | head -n 1)")
"${CC:-cc}" -shared -fPIC -Wall -Wextra -Werror -o "$work/libcuda.so.1" regression/cuda/cudnn/driver.c
"${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -Werror -I. "${includes[@]}" -isystem "$frontend/include" -isystem "$cuda/include" \
  kernels/cuda/cudnn/plan.cpp regression/cuda/cudnn/plans.cpp -L"$libraries" -lcudnn -lcudart -lnvrtc -o "$work/plans"
LD_LIBRARY_PATH=$work:$libraries:${LD_LIBRARY_PATH:-} "$work/plans" "${DRAWS:-12}"
