#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares generation throughput with llama.cpp, in alternating turns on the same cores. A model of Falcon-H1-0.5B's shape with random weights reads a
# prompt and generates tokens in fp32, bf16 and int8 (q8_0 in llama.cpp). Run by hand; the first run takes a quarter of an hour and 12 GB of disk.
# It installs PyTorch (which writes the model, see peer.sh) and llama.cpp from PyPI. The llama.cpp sources are in the package llama-cpp-python; they
# are built for this machine and contain the converter and the benchmark.
#   BUILD build folder with bin/gyrfalcon   ROUNDS (5) turns   PROMPT (517) tokens of the prompt   TOKENS (64) new tokens
#   RANKS (1) cores: MPI ranks of gyrfalcon, threads of llama.cpp   CORES (0, 0-1, ...) list of cores   TYPES ("fp32 bf16 int8")
#   FOLDER (BUILD/generate) for the models
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-5} PROMPT=${PROMPT:-517} TOKENS=${TOKENS:-64} RANKS=${RANKS:-1} TYPES=${TYPES:-fp32 bf16 int8}
CORES=${CORES:-$([ "$RANKS" = 1 ] && echo 0 || echo "0-$((RANKS - 1))")} FOLDER=${FOLDER:-$BUILD/generate} venv=build/peer llama=build/llama
mkdir -p "$FOLDER"
if [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$venv/ready"
fi
if [ ! -x "$llama/bench/bin/llama-bench" ]; then
  mkdir -p "$llama/source" "$llama/tree"
  "$venv/bin/pip" download --quiet --no-deps --no-binary :all: -d "$llama/source" llama-cpp-python
  tar -xf "$llama"/source/llama_cpp_python-*.tar.gz -C "$llama/tree" --strip-components=1
  cmake -S "$llama/tree/vendor/llama.cpp" -B "$llama/bench" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF > "$llama/log"
  cmake --build "$llama/bench" --target llama-bench --parallel "$(nproc)" >> "$llama/log"
fi
theirs_of() { case $1 in fp32) echo f32 ;; bf16) echo bf16 ;; int8) echo q8_0 ;; *) echo "no such type: $1" >&2; exit 64 ;; esac; }
[ -f "$FOLDER/model/model.safetensors" ] || "$venv/bin/python" regression/bench/huggingface.py write "$FOLDER/model"
for type in $TYPES; do
  file=$FOLDER/$(theirs_of "$type").gguf
  [ -f "$file" ] || "$venv/bin/python" regression/bench/generate.py "$llama/tree/vendor/llama.cpp" "$FOLDER/model" "$file" "$(theirs_of "$type")" 2> "$FOLDER/log"
done

read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/bin/gyrfalcon")"
long=$("$venv/bin/python" regression/bench/huggingface.py prompt - "$PROMPT")
# ours TYPE PROMPT TOKENS: prints tokens/s of the prompt, and of the new tokens after the first one.
ours() {
  local words=(--precision "$1")
  [ "$1" != int8 ] || words=(--precision bf16 --weights int8)
  OMP_NUM_THREADS=1 taskset -c "$CORES" "${launcher[@]}" -n "$RANKS" "$BUILD/bin/gyrfalcon" generate "$FOLDER/model" --greedy \
    --prompt "$2" --tokens "$3" --tokenizer "$FOLDER/model/tokenizer.json" "${words[@]}" 2>&1 > "$FOLDER/text" |
    sed -n 's/^prompt eval [0-9]* tokens* in [0-9.]* s, \([0-9.]*\) tokens\/s; eval [0-9]* tokens* in [0-9.]* s,* *\([0-9.]*\).*$/\1 \2/p'
}
theirs() {  # TYPE PROMPT TOKENS, where PROMPT or TOKENS is 0: prints tokens/s
  taskset -c "$CORES" "$llama/bench/bin/llama-bench" -m "$FOLDER/$(theirs_of "$1").gguf" -t "$RANKS" -p "$2" -n "$3" -r 1 -o csv 2> "$FOLDER/log" |
    "$venv/bin/python" -c 'import csv, sys; print(*[row["avg_ts"] for row in csv.DictReader(sys.stdin)])'
}
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for ((i = 1; i <= ROUNDS; ++i)); do
  for type in $TYPES; do
    ours "$type" "$long" 1 | cut -d' ' -f1 >> "$out/ours.prompt.$type"
    theirs "$type" "$PROMPT" 0 >> "$out/theirs.prompt.$type"
    ours "$type" T $((TOKENS + 1)) | cut -d' ' -f2 >> "$out/ours.new.$type"
    theirs "$type" 0 "$TOKENS" >> "$out/theirs.new.$type"
    echo "turn $i, $type, prompt and new tokens/s: gyrfalcon $(tail -qn 1 "$out"/ours.{prompt,new}."$type" | xargs), llama.cpp $(tail -qn 1 "$out"/theirs.{prompt,new}."$type" | xargs)"
  done
done
# Each token is multiplied by every matrix except the embedding: 2 flops per element, and each element is read once.
matrices=$("$venv/bin/python" -c 'import json, sys
c = json.load(open(sys.argv[1]))
h, i, s = c["hidden_size"], c["intermediate_size"], c["mamba_d_ssm"]
q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
ssm = 3 * s + 2 * c["mamba_n_groups"] * c["mamba_d_state"] + c["mamba_n_heads"]
print(c["num_hidden_layers"] * h * (ssm + 2 * q + 2 * kv + 3 * i) + h * c["vocab_size"])' "$FOLDER/model/config.json")
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $RANKS core(s); medians of $ROUNDS turns; last columns: GEMMs of the prompt in GFLOP/s, weights read for new tokens in GB/s"
printf '%-6s %-8s %12s %12s %8s %12s %12s\n' type what "gyrfalcon" "llama.cpp" ratio "gyrfalcon's" "llama.cpp's"
for type in $TYPES; do
  bytes=$(case $type in fp32) echo 4 ;; bf16) echo 2 ;; int8) echo 1.0625 ;; esac)
  for what in prompt new; do
    awk -v a="$(middle < "$out/ours.$what.$type")" -v b="$(middle < "$out/theirs.$what.$type")" -v m="$matrices" -v bytes="$bytes" -v t="$type" -v w="$what" \
      'BEGIN { unit = 1e-9 * m * (w == "prompt" ? 2 : bytes); printf "%-6s %-8s %12.1f %12.1f %8.2f %12.1f %12.1f\n", t, w, a, b, a / b, a * unit, b * unit }'
  done
done
