#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of policy training of a published hybrid model: five iterations of GRPO on sums with the shape of Falcon-H1-Tiny-90M, in bf16.
# The log-probabilities of generation (decoding with a state) are compared with those of a forward pass (the scan of training). Their
# distance is the train-inference mismatch.
# Environment:
#   MODEL  folder of the published model, with config.json, weights and tokenizer.json; empty: random weights, which learn nothing here
#   NP     number of MPI ranks (2)          ITERATIONS  (5)      PROMPTS  per iteration (4), with 8 answers each     TOKENS  of an answer (64)
#   MOST   largest mean distance (0.05)     ARGS        deck overrides     OUT     output folder     BUILD   build folder
# Exit codes: 0 success, 1 the mean distance is above MOST, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
MODEL=${MODEL:-} NP=${NP:-2} ITERATIONS=${ITERATIONS:-5} PROMPTS=${PROMPTS:-4} TOKENS=${TOKENS:-64} MOST=${MOST:-0.05} ARGS=${ARGS:-}
OUT=${OUT:-out/tiny} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"

mkdir -p "$OUT"
awk 'BEGIN { srand(1); for (i = 0; i < 200; i++) { a = 10 + int(90 * rand()); b = 10 + int(90 * rand()); printf "{\"prompt\": \"What is %d + %d? Answer with a number.\", \"target\": %d}\n", a, b, a + b } }' > "$OUT/sums.jsonl"
tokenizer=$MODEL/tokenizer.json start=(--init-from "$MODEL")
if [ -z "$MODEL" ]; then
  tokenizer=$OUT/tokenizer.json
  cp "$OUT/sums.jsonl" "$OUT/sums.txt"
  "$gyrfalcon" tokenizer train "$tokenizer" "$OUT/sums.txt" --vocab-size 300 --overwrite > "$OUT/data.log"
  start=()
  # The deck's model alone: its training settings belong to pretraining.
  awk '/^[a-z]/ { model = /^model:/ } model' input/falcon-h1-tiny-90m.yaml > "$OUT/deck.yaml"
else
  : > "$OUT/deck.yaml"
fi
cat input/policy.yaml >> "$OUT/deck.yaml"
"$gyrfalcon" data build "$OUT/sums.jsonl" "$OUT/sums" --prompts --tokenizer "$tokenizer" --overwrite >> "$OUT/data.log"

# Largest resident set of a process of the run, in MiB, which the kernel keeps for each process.
watch_memory() {
  while sleep 1; do
    pgrep -f "$OUT/deck.yaml" | while read -r pid; do sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2> "$OUT/ended" || true; done
  done > "$OUT/memory"
}
watch_memory &
watcher=$!
trap 'kill "$watcher" 2> "$OUT/ended" || true' EXIT
# shellcheck disable=SC2086
"${launcher[@]}" -n "$NP" "$gyrfalcon" train "$OUT/deck.yaml" --anew "${start[@]}" output.folder="$OUT/run" "data.prefixes=[$OUT/sums]" data.tokenizer="$tokenizer" \
  train.precision=bf16 train.seq_length=256 train.micro_batch_size=2 train.log_every=1 rl.iterations="$ITERATIONS" rl.prompts="$PROMPTS" rl.generate.max_new_tokens="$TOKENS" rl.old_logp=scored \
  rl.rewards.printable.type=regex "rl.rewards.printable.pattern=\"[!-~]\"" rl.rewards.printable.weight=0.1 optimizer.lr=1e-6 checkpoint.every=0 $ARGS > "$OUT/run.log" 2>&1 || { tail -n 3 "$OUT/run.log" >&2; exit 1; }

# value KIND KEY: values of a key in all events of a kind, a line each.
value() { sed -n "s/.*\"kind\":\"$1\".*\"$2\":\([-0-9.e+]*\)[,}].*/\1/p" "$OUT/run/metrics.jsonl"; }
printf '%-10s %8s %8s %10s %10s %12s %12s\n' iteration reward tokens 'mean gap' 'max gap' 'answers t/s' 'step t/s'
paste <(value iteration reward) <(value iteration length) <(value iteration gap) <(value iteration largest_gap) <(value iteration seconds) <(value step seconds) <(value iteration answers) |
  awk '{ printf "%-10d %8.3f %8.1f %10.2g %10.2g %12.0f %12.0f\n", NR, $1, $2, $3, $4, $7 * $2 / $5, $7 * $2 / $6 }'
sed -n 's/.*maximum memory per rank \(.*\)$/memory of a rank: planned \1/p' "$OUT/run.log"
sort -n "$OUT/memory" | awk '{ most = $1 } END { printf "largest resident set of a process: %.0f MiB, with libraries and files\n", most / 1024 }'
value iteration gap | awk -v most="$MOST" '{ sum += $1 } END { exit !(NR && sum / NR <= most) }' || { echo "the mean gap is above $MOST" >&2; exit 1; }
