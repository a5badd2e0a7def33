#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/cuda/device.sh NVCC FOLDER...
# Compiles the kernels of CUDA for GPUs, which takes none, and holds what the assembler says of each against bounds.txt: registers of a thread, bytes
# of stack, and no register spilled anywhere. FOLDERs are looked into for headers. Prints a table; exit code 77 where NVCC is not there.
#   ARCHITECTURES ("sm_80 sm_90a") of GPUs   FILES (all) names of kernels/cuda/NAME.cu
set -euo pipefail
nvcc=${1:?usage: regression/cuda/device.sh NVCC FOLDER...}
shift
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
[ -x "$nvcc" ] || { echo "SKIPPED: no nvcc, which CUDA's toolkit brings; CUDA_HOME may name its folder"; exit 77; }
includes=(-I.)
for folder; do includes+=(-isystem "$folder"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$nvcc" --version | tail -n 1
failed=0
printf '%-20s %-8s %8s %10s %8s %8s %8s\n' kernels GPU kernels registers at_most stack spilled
for architecture in ${ARCHITECTURES:-sm_80 sm_90a}; do
  for source in kernels/cuda/*.cu regression/cuda/*.cu; do
    name=$(basename "$source" .cu)
    [[ " ${FILES:-$name} " = *" $name "* ]] || continue
    # FMT_USE_CONSTEXPR: fmt would do without where nvcc compiles, and then not compile.
    if ! "$nvcc" -std=c++20 -arch="$architecture" --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -Xptxas -v "${includes[@]}" -c "$source" \
      -o "$work/object" > "$work/log" 2>&1; then
      echo "$name does not compile for $architecture:"
      head -n 20 "$work/log"
      failed=1
      continue
    fi
    read -r most stack <<< "$(awk -v n="$name" '$1 == n { print $2, $3 }' "$here/bounds.txt")"
    awk -v n="$name" -v a="$architecture" -v most="${most:-0}" -v allowed="${stack:-0}" '
      / bytes stack frame/ { if ($1 > stack) stack = $1; spilled += $5 + $9 }
      / Used [0-9]+ registers/ { ++kernels; for (i = 1; i < NF; ++i) if ($i == "Used" && $(i + 1) > used) used = $(i + 1) }
      END {
        printf "%-20s %-8s %8d %10d %8d %8d %8d\n", n, a, kernels, used, most, stack, spilled
        exit !(kernels > 0 && used <= most && stack <= allowed && spilled == 0)
      }' "$work/log" || { echo "$name on $architecture is beyond its bounds (regression/cuda/bounds.txt)"; failed=1; }
  done
done
exit $failed
