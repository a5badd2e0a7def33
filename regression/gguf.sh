#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/gguf.sh GYRFALCON [NAME...]: compares export-gguf with llama.cpp on the small models of golden/ (or those named).
# Every tensor and key must equal the output of llama.cpp's converter in f32, bf16 and q8_0, and both programs must generate
# the same 64 greedy tokens. NAME.wide is such a model with 32 times the width, so that q8_0 blocks fit, and random weights.
# Run by hand. Exit code 77 if llama.cpp is missing.
#   LLAMA (build/llama) folder with tree/vendor/llama.cpp, the sources in PyPI's llama-cpp-python, and library/bin/libllama.so built from them:
#     pip download --no-deps --no-binary :all: llama-cpp-python, unpack as tree, cmake -S tree/vendor/llama.cpp -B library -DBUILD_SHARED_LIBS=ON
#   TYPES data types ("f32 bf16 q8_0"; tokens are compared only in f32)   TOKENS number of generated tokens (64)
#   PYTHON (build/peer/bin/python) with torch, transformers and the requirements of gguf; LAUNCHER command before gyrfalcon
set -uo pipefail
gyrfalcon=$(realpath "${1:?usage: regression/gguf.sh GYRFALCON [NAME...]}")
shift
cd "$(dirname "$0")/.."
LLAMA=${LLAMA:-build/llama} PYTHON=${PYTHON:-build/peer/bin/python} TOKENS=${TOKENS:-64} TYPES=${TYPES:-f32 bf16 q8_0}
tree=$LLAMA/tree/vendor/llama.cpp library=$LLAMA/library/bin
[ -f "$tree/convert_hf_to_gguf.py" ] || { echo "SKIPPED: no llama.cpp sources in $LLAMA"; exit 77; }
[ -x "$PYTHON" ] || { echo "SKIPPED: no $PYTHON"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
side() { "$PYTHON" regression/gguf/compare.py "$tree" "$@"; }
greedy=
if [ -f "$library/libllama.so" ]; then
  greedy=$work/greedy
  g++ -O1 -std=c++17 -I"$tree/include" -I"$tree/ggml/include" regression/gguf/greedy.cpp -o "$greedy" -L"$library" -Wl,-rpath,"$(realpath "$library")" -lllama -lggml -lggml-base || exit 70
fi
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(plain_gate gate_first_two_groups like_7b like_34b llama llama3 llama_biases llama_linear mistral mixtral qwen2
  qwen3 gpt2 mamba2 gemma2 gemma3 gemma3_uneven nemotron_h
  gate_first_two_groups.wide llama.wide mixtral.wide qwen2.wide qwen3.wide qwen3_moe.wide gpt2.wide mamba2.wide gemma2.wide gemma3.wide nemotron_h.wide)
failed=0
for name in "${names[@]}"; do
  folder=regression/golden/huggingface/${name%.wide}
  [ -d "$folder" ] || folder=regression/golden/families/${name%.wide}
  side prepare "$folder" "$work/$name" || exit 70
  [[ $name != *.wide ]] || side widen "$work/$name" > "$work/log" 2>&1 || { cat "$work/log"; exit 70; }
  for type in $TYPES; do
    echo "$name, $type"
    "$gyrfalcon" export-gguf "$work/$name" "$work/$name.$type.gguf" --dtype $type > "$work/log" 2>&1 || { cat "$work/log"; failed=1; continue; }
    grep '^note' "$work/log"
    if [ "$name" = nemotron_h ]; then echo "  not compared: llama.cpp's converter needs a head dimension of 64, as in nemotron_h.wide"; continue; fi
    side convert "$work/$name" "$work/$name.$type.theirs.gguf" $type > "$work/log" 2>&1 || { tail -n 3 "$work/log"; echo "  DIFFERS: llama.cpp's converter fails"; failed=1; continue; }
    side compare "$work/$name.$type.gguf" "$work/$name.$type.theirs.gguf" || failed=1
  done
  [ -n "$greedy" ] || continue
  prompt=0123456
  ours=$(OMP_NUM_THREADS=1 ${LAUNCHER:-} "$gyrfalcon" generate "$work/$name" --greedy --prompt $prompt --tokens "$TOKENS" 2> "$work/log") || { tail -n 2 "$work/log"; failed=1; continue; }
  ours=$(side letters "${ours#"$prompt"}") theirs=$("$greedy" "$work/$name.f32.gguf" "$TOKENS" $(side letters $prompt) 2> "$work/log")
  if [ "$ours" = "$theirs" ]; then echo "  $TOKENS greedy tokens are equal"
  else grep -v '^\.*$' "$work/log"; echo "  DIFFERS: greedy tokens"; echo "    ours   $ours"; echo "    theirs $theirs"; failed=1; fi
done
exit $failed
