#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Packs everything that gpu.sh runs into a folder, for a machine that has a GPU and the CUDA libraries but no build of ours: the stripped programs, their shared libraries except those of CUDA and NCCL, and the MPI launcher. On that machine run: BUILD=FOLDER HOST=FOLDER/bin/host regression/gpu.sh
#   regression/gpu/pack.sh FOLDER
# Environment: BUILD (build/cuda) with bin/gyrfalcon, regression/{unit_tests,device_rates}   HOST (build/release/bin/gyrfalcon): packed too if it exists
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: regression/gpu/pack.sh FOLDER} build=${BUILD:-build/cuda} host=${HOST:-build/release/bin/gyrfalcon}
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/regression" "$folder/lib"
programs=("$build/bin/gyrfalcon:bin/gyrfalcon" "$build/regression/unit_tests:regression/unit_tests" "$build/regression/device_rates:regression/device_rates")
[ ! -x "$host" ] || programs+=("$host:bin/host")
read -r -a launcher <<< "$(jobscripts/launcher.sh "$build/bin/gyrfalcon")"
programs+=("${launcher[0]}:bin/$(basename "${launcher[0]}")")
for helper in hydra_pmi_proxy prted orted; do
  path=$(command -v $helper || true)
  [ -z "$path" ] || programs+=("$path:bin/$helper")
done
for each in "${programs[@]}"; do
  [ -x "${each%%:*}" ] || { echo "pack.sh: ${each%%:*} does not exist; build it first" >&2; exit 66; }
  strip -o "$folder/${each##*:}" "$(realpath "${each%%:*}")"
  chmod +x "$folder/${each##*:}"
done
# The C library, CUDA and NCCL are not packed: that machine's own are used. gpu.sh appends lib/ to LD_LIBRARY_PATH, so that folders which are listed
# there already come first.
ldd "$folder"/bin/* "$folder"/regression/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libcublas|libcublasLt|libnccl|libnvrtc)\.so' | while read -r library; do
  strip -o "$folder/lib/$(basename "$library")" "$library" 2> /dev/null || cp -L "$library" "$folder/lib/"
done
du -sh "$folder"
