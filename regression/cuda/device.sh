#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/cuda/device.sh NVCC FOLDER...
# Compiles the CUDA kernels for GPUs (no GPU is needed) and checks the assembler's report of each kernel:
#   bounds.txt     registers per thread, stack bytes, and register spills, which are not allowed unless listed
#   blocks.txt     occupancy: blocks of a kernel that fit on an SM
#   addresses.txt  fraction of address instructions in the hottest loop of a kernel
# FOLDERs are searched for headers. Prints a table. Exit code 77 if NVCC does not exist.
#   ARCHITECTURES ("sm_80 sm_90a") of GPUs   FILES (all) names of kernels/cuda/*/NAME.cu
set -euo pipefail
nvcc=${1:?usage: regression/cuda/device.sh NVCC FOLDER...}
shift
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
[ -x "$nvcc" ] || { echo "SKIPPED: no nvcc (part of the CUDA toolkit); set CUDA_HOME to its folder"; exit 77; }
includes=(-I.)
for folder; do includes+=(-isystem "$folder"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$nvcc" --version | tail -n 1
failed=0

# blocks NAME ARCHITECTURE: occupancy of each kernel in blocks.txt, from the registers in $work/log. An SM has 65536
# registers, allocated to warps in units of 256, 2048 threads, at most 32 blocks, and 164 KiB (sm_80) or 228 KiB (sm_90)
# of shared memory, of which a block takes 1 KiB extra.
blocks() {
  awk -v n="$1" -v a="$2" '
    function bound_of(x, y) { return int(x / y) }
    NR == FNR { if ($1 == n) { part[++rows] = $2; threads[rows] = $3; shared[rows] = $4; least[rows] = a ~ /sm_80/ ? $5 : $6 } next }
    /Compiling entry function/ { name = $0 }
    / Used [0-9]+ registers/ { for (i = 1; i < NF; ++i) if ($i == "Used") for (r = 1; r <= rows; ++r) if (index(name, part[r]) && $(i + 1) > used[r]) used[r] = $(i + 1) }
    END {
      for (r = 1; r <= rows; ++r) {
        of_warp = bound_of(used[r] * 32 + 255, 256) * 256
        fit = used[r] ? bound_of(bound_of(65536, of_warp), threads[r] / 32) : 0
        by_shared = bound_of((a ~ /sm_80/ ? 164 : 228) * 1024, shared[r] + 1024)
        by_threads = bound_of(2048, threads[r])
        if (by_shared < fit) fit = by_shared
        if (by_threads < fit) fit = by_threads
        if (fit > 32) fit = 32
        printf "  %-36s %4d registers %7d bytes shared %3d blocks, at least %d, %.1f %% of an SM\047s warps\n", part[r], used[r], shared[r], fit, least[r], \
          100 * fit * threads[r] / 2048
        if (fit < least[r]) bad = 1
      }
      exit bad
    }' "$here/blocks.txt" "$work/log"
}

# addresses NAME ARCHITECTURE: percentage of integer instructions in the hottest loop of each kernel in addresses.txt
# (addresses.awk).
addresses() {
  awk -f "$here/addresses.awk" "$work/kept/$1.ptx" | awk -v n="$1" -v a="$2" '
    NR == FNR { if ($1 == n) { part[++rows] = $2; most[rows] = a ~ /sm_80/ ? $3 : $4 } next }
    { for (r = 1; r <= rows; ++r) if (index($1, part[r])) { share = 100 * $5 / $2; if (share >= worst[r]) { worst[r] = share; all[r] = $2; products[r] = $3; memory[r] = $4 } } }
    END {
      for (r = 1; r <= rows; ++r) {
        if (most[r] == "-") continue
        printf "  %-36s %4d instructions, %d products, %d of memory, %.1f %% addresses, at most %d\n", part[r], all[r], products[r], memory[r], worst[r], most[r]
        if (!all[r] || worst[r] > most[r]) bad = 1
      }
      exit bad
    }' "$here/addresses.txt" -
}

printf '%-20s %-8s %8s %10s %8s %8s %8s\n' kernels GPU kernels registers at_most stack spilled
for architecture in ${ARCHITECTURES:-sm_80 sm_90a}; do
  for source in kernels/cuda/*/*.cu regression/cuda/*.cu; do
    name=$(basename "$source" .cu)
    [[ " ${FILES:-$name} " = *" $name "* ]] || continue
    rm -rf "$work/kept" && mkdir "$work/kept"
    # FMT_USE_CONSTEXPR: fmt disables constexpr under nvcc, and then does not compile.
    if ! "$nvcc" -std=c++20 -gencode="arch=compute_${architecture#sm_},code=$architecture" --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -Xptxas -v --keep --keep-dir "$work/kept" "${includes[@]}" -c "$source" \
      -o "$work/object" > "$work/log" 2>&1; then
      echo "$name does not compile for $architecture:"
      head -n 20 "$work/log"
      failed=1
      continue
    fi
    read -r most stack most_double spills <<< "$(awk -v n="$name" '$1 == n { print $2, $3, $4, $5 }' "$here/bounds.txt")"
    c++filt < "$work/log" | awk -v n="$name" -v a="$architecture" -v most="${most:-0}" -v allowed="${stack:-0}" -v most_double="${most_double:-${most:-0}}" -v may_spill="${spills:-0}" '
      / bytes stack frame/ { if ($1 > stack) stack = $1; spilled += $5 + $9 }
      /Compiling entry function/ { of_double = /kernel<.*double[^(]*>\(/ }
      / Used [0-9]+ registers/ {
        ++kernels
        for (i = 1; i < NF; ++i)
          if ($i == "Used") {
            if (of_double && $(i + 1) > most && $(i + 1) <= most_double) continue
            if ($(i + 1) > used) used = $(i + 1)
          }
      }
      END {
        printf "%-20s %-8s %8d %10d %8d %8d %8d\n", n, a, kernels, used, most, stack, spilled
        exit !(kernels > 0 && used <= most && stack <= allowed && spilled <= may_spill)
      }' || { echo "$name on $architecture exceeds its bounds (regression/cuda/bounds.txt)"; failed=1; }
    addresses "$name" "$architecture" || { echo "too many instructions of $name compute addresses (regression/cuda/addresses.txt)"; failed=1; }
    blocks "$name" "$architecture" || { echo "too few blocks of $name fit on an SM (regression/cuda/blocks.txt)"; failed=1; }
  done
done
exit $failed
