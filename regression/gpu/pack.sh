#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Gathers what gpu.sh runs, for a machine that has a GPU and CUDA's libraries and nothing else of ours: the programs without their symbols, the
# libraries that they need but for CUDA's and NCCL's, and the launcher. There: BUILD=FOLDER HOST=FOLDER/bin/host regression/gpu.sh
#   regression/gpu/pack.sh FOLDER
# Environment: BUILD (build/cuda) with bin/gyrfalcon, regression/{unit_tests,device_rates}   HOST (build/release/bin/gyrfalcon) is taken too, where it is
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
  [ -x "${each%%:*}" ] || { echo "pack.sh: there is no ${each%%:*}" >&2; exit 66; }
  strip -o "$folder/${each##*:}" "$(realpath "${each%%:*}")"
  chmod +x "$folder/${each##*:}"
done
# The C library and the compiler's stay that machine's own where it is as new as this one, and are taken where it is not: by the loader's order they
# come last. CUDA's are its own.
ldd "$folder"/bin/* "$folder"/regression/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libcublas|libcublasLt|libnccl|libnvrtc)\.so' | while read -r library; do
  strip -o "$folder/lib/$(basename "$library")" "$library" 2> /dev/null || cp -L "$library" "$folder/lib/"
done
du -sh "$folder"
