#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of policy training: a Falcon-H1 of 106 thousand parameters with random weights learns from rewards alone. Each prompt
# is a digit and a colon. An answer has six tokens, and its reward is the fraction of them that are the digit. The table shows the mean
# reward of the answers, which is 1/16 for random tokens.
# Environment:
#   NP     number of MPI ranks (2)     SEEDS   seeds of the draws and the weights ("1 2 3")
#   LEAST  required reward of the last ten iterations (0.9)
#   ARGS   deck overrides              OUT     output folder            BUILD   build folder
# Exit codes: 0 success, 1 the reward stays below LEAST, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} SEEDS=${SEEDS:-1 2 3} LEAST=${LEAST:-0.9} ARGS=${ARGS:-}
OUT=${OUT:-out/policy} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }

# Mean reward of iterations FIRST to LAST, counted from 1, in the metrics of a run.
mean_reward() {
  sed -n 's/.*"kind":"iteration".*"reward":\([-0-9.e+]*\),.*/\1/p' "$3" | awk -v first="$1" -v last="$2" 'NR >= first && NR <= last { sum += $1; n++ } END { printf "%.2f", n ? sum / n : 0 }'
}

mkdir -p "$OUT"
for digit in 0 1 2 3 4 5 6 7 8 9; do echo "{\"prompt\": [$digit, 10], \"target\": $digit}"; done > "$OUT/digits.jsonl"
"$gyrfalcon" data build "$OUT/digits.jsonl" "$OUT/digits" --prompts --overwrite > "$OUT/data.log"

printf '%-6s %8s %8s %8s %8s %8s %9s\n' seed 1-10 21-30 41-50 71-80 111-120 seconds
for seed in $SEEDS; do
  begin=$(date +%s.%N)
  # shellcheck disable=SC2086
  run train input/policy-digits.yaml "data.prefixes=[$OUT/digits]" output.folder="$OUT/run-$seed" --anew rl.seed="$seed" train.seed="$seed" $ARGS > "$OUT/run-$seed.log"
  metrics=$OUT/run-$seed/metrics.jsonl
  printf '%-6s' "$seed"
  for span in 1:10 21:30 41:50 71:80 111:120; do printf ' %8s' "$(mean_reward "${span%:*}" "${span#*:}" "$metrics")"; done
  printf ' %9.1f\n' "$(awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { print end - begin }')"
  awk -v reward="$(mean_reward 111 120 "$metrics")" -v least="$LEAST" 'BEGIN { exit !(reward >= least) }' ||
    { echo "seed $seed: the reward of the last ten iterations is below $LEAST" >&2; exit 1; }
done
