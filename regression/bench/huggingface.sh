#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares import, export and generation with transformers. A model of Falcon-H1-0.5B's shape with random weights is imported and exported again. Then
# both programs continue the same prompt, greedily, in fp32, on one core with one thread, in alternating turns. Run by hand; it takes some minutes and
# 5 GB of disk. If VENV has no torch, transformers and tokenizers, 6 GB of PyTorch are installed from PyPI into build/peer (see peer.sh).
#   BUILD build folder with bin/gyrfalcon   ROUNDS (3) turns   PROMPT (128) tokens of the prompt   TOKENS (64) new tokens   CORE (0)   FOLDER for the files
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-3} PROMPT=${PROMPT:-128} TOKENS=${TOKENS:-64} CORE=${CORE:-0} VENV=${VENV:-build/peer}
if [ ! -f "$VENV/ready" ] && ! "$VENV/bin/python" -c 'import tokenizers, torch, transformers' 2>/dev/null; then
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$VENV/ready"
fi
out=${FOLDER:-$(mktemp -d)}
[ -n "${FOLDER:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
on_core() { taskset -c "$CORE" "$@"; }
peer() { on_core "$VENV/bin/python" regression/bench/huggingface.py "$@"; }
seconds() {  # seconds COMMAND...: wall time of the command; earlier writes are synced to disk first
  local begin
  sync
  begin=$(date +%s.%N)
  "$@" > "$out/said" 2>&1
  echo "$(date +%s.%N) $begin" | awk '{ printf "%.2f\n", $1 - $2 }'
}
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

[ -f "$out/model/model.safetensors" ] || peer write "$out/model"
# Reference time: a copy of the same bytes that is synced to disk and compared. Import and export guarantee as much.
copied() { cp -r "$out/model" "$out/copy" && sync "$out"/copy/* && cmp "$out/model/model.safetensors" "$out/copy/model.safetensors"; }
cat "$out"/model/* > /dev/null
for name in import export copy; do : > "$out/$name.s"; done
for _ in $(seq "$ROUNDS"); do
  rm -rf "$out/back" "$out/checkpoint" "$out/copy"
  seconds "$BUILD/bin/gyrfalcon" import-hf "$out/model" "$out/checkpoint" >> "$out/import.s"
  seconds "$BUILD/bin/gyrfalcon" export-hf "$out/checkpoint" "$out/back" >> "$out/export.s"
  seconds copied >> "$out/copy.s"
done
rm -rf "$out/copy"
copy=$(middle < "$out/copy.s")
for name in import export; do
  echo "$(middle < "$out/$name.s") $copy" | awk -v name="$name" '{ printf "%s %.2f s; copy, sync and comparison %.2f s; ratio %.2f\n", name, $1, $2, $1 / $2 }'
done
peer same "$out/model" "$out/back"

prompt=$(peer prompt "$out/model" "$PROMPT")
ours() {
  on_core "$BUILD/bin/gyrfalcon" generate "$out/checkpoint" --prompt "$prompt" --tokenizer "$out/model/tokenizer.json" --tokens "$TOKENS" \
    --greedy --precision fp32 2>&1 > "$out/text" | sed -n "s/.*; total \([0-9.]*\) s, \([0-9]*\) new tokens.*/\2 \1/p" | awk '{ print $1 / $2 }'
}
theirs() { peer generate "$out/model" "$prompt" "$TOKENS"; }
rm -f "$out/ours" "$out/theirs"
for ((i = 1; i <= ROUNDS; ++i)); do
  for side in ours theirs; do "$side" >> "$out/$side"; done
  echo "turn $i: gyrfalcon $(tail -n 1 "$out/ours") tokens/s, transformers $(tail -n 1 "$out/theirs") tokens/s"
done
peer versions
awk -v a="$(middle < "$out/ours")" -v b="$(middle < "$out/theirs")" -v p="$PROMPT" -v n="$TOKENS" 'BEGIN {
  printf "%d new tokens after %d, prompt included, medians: gyrfalcon %.2f tokens/s, transformers %.2f tokens/s, gyrfalcon / transformers %.2f\n",
         n, p, a, b, a / b }'
