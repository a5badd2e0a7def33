#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares the encoding throughput with Hugging Face's library `tokenizers`, in alternating turns on one core. The text is the first 4 MB of Debian's
# dictionary, paragraph by paragraph. The vocabularies have 32768 tokens, with the pre-tokenizers of GPT-2 and Llama 3. The library comes from PyPI
# into build/peer-tokenizers and is used for nothing else. The fastest of its encode, encode_batch and encode_batch_fast counts.
#   BUILD build folder with tokenizer_benchmark   ROUNDS (3) turns   PYTHON an interpreter that already has tokenizers
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-3} PYTHON=${PYTHON:-}
peer=build/peer-tokenizers
mkdir -p "$peer"
if [ -z "$PYTHON" ]; then
  PYTHON=$peer/venv/bin/python
  if [ ! -f "$peer/ready" ]; then
    python3 -m venv "$peer/venv"
    "$peer/venv/bin/pip" install --quiet --no-cache-dir tokenizers
    touch "$peer/ready"
  fi
fi
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
text=$peer/text.txt
[ -f "$text" ] || { gzip -dc /usr/share/dictd/gcide.dict.dz | iconv -c -f utf-8 -t utf-8 | head -c 4000000 | iconv -c -f utf-8 -t utf-8 > "$text"; } || true
[ -f "$peer/llama3.json" ] || "$PYTHON" regression/bench/tokenizer.py train "$text" "$peer"
core=$(taskset -pc $$ | sed 's/.*[:,-] *//')
ours() { taskset -c "$core" "$BUILD/regression/tokenizer_benchmark" "$peer/$1.json" "$text"; }
theirs() { taskset -c "$core" "$PYTHON" regression/bench/tokenizer.py time "$peer/$1.json" "$text"; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$PYTHON" -c 'import tokenizers; print("tokenizers", tokenizers.__version__)'
for rule in gpt2 llama3; do
  for ((i = 1; i <= ROUNDS; ++i)); do
    for side in ours theirs; do
      "$side" "$rule" > "$out/text"
      sed -n 's/^MB\/s: //p' "$out/text" >> "$out/$rule.$side.wall"
      sed -n 's/^processor MB\/s: //p' "$out/text" >> "$out/$rule.$side.processor"
      sed -n 's/^tokens: //p' "$out/text" > "$out/$rule.$side.tokens"
    done
  done
  cmp -s "$out/$rule.ours.tokens" "$out/$rule.theirs.tokens" || { echo "$rule: the two sides give different numbers of tokens"; exit 1; }
  for clock in wall processor; do
    awk -v a="$(middle < "$out/$rule.ours.$clock")" -v b="$(middle < "$out/$rule.theirs.$clock")" -v rule="$rule" -v clock="$clock" 'BEGIN {
      printf "%-7s %-9s time, medians: gyrfalcon %.1f MB/s, tokenizers %.1f MB/s, gyrfalcon / tokenizers %.2f\n", rule, clock, a, b, a / b }'
  done
done
