#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/gguf.sh GYRFALCON [NAME...]: export-gguf beside llama.cpp, on the small models of golden/ (or those named): every tensor and key-value
# equals what llama.cpp's own converter writes in f32, bf16 and q8_0, and 64 greedy tokens are the same in both programs. NAME.wide is such a model with
# widths 32 times as wide, where blocks of q8_0 fit, and weights that are drawn. For comparison only; exit code 77 where there is no llama.cpp.
#   LLAMA (build/llama) folder with tree/vendor/llama.cpp, its sources as PyPI's llama-cpp-python holds them, and library/bin/libllama.so built of them:
#     pip download --no-deps --no-binary :all: llama-cpp-python, unpack as tree, cmake -S tree/vendor/llama.cpp -B library -DBUILD_SHARED_LIBS=ON
#   TYPES ("f32 bf16 q8_0"; f32 is the one whose tokens are compared)   TOKENS (64)
#   PYTHON (build/peer/bin/python) with torch, transformers and what gguf needs; LAUNCHER in front of gyrfalcon
set -uo pipefail
gyrfalcon=$(realpath "${1:?usage: regression/gguf.sh GYRFALCON [NAME...]}")
shift
cd "$(dirname "$0")/.."
LLAMA=${LLAMA:-build/llama} PYTHON=${PYTHON:-build/peer/bin/python} TOKENS=${TOKENS:-64} TYPES=${TYPES:-f32 bf16 q8_0}
tree=$LLAMA/tree/vendor/llama.cpp library=$LLAMA/library/bin
[ -f "$tree/convert_hf_to_gguf.py" ] || { echo "SKIPPED: no llama.cpp in $LLAMA"; exit 77; }
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
    if [ "$name" = nemotron_h ]; then echo "  not compared: their converter wants heads of 64 channels, as nemotron_h.wide has"; continue; fi
    side convert "$work/$name" "$work/$name.$type.theirs.gguf" $type > "$work/log" 2>&1 || { tail -n 3 "$work/log"; echo "  DIFFERS: their converter fails"; failed=1; continue; }
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
