#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares policy training with TRL, in alternating turns on the same two cores. Both start from the same random weights and train by GRPO with 8
# answers per prompt, one update per iteration, on the task of input/policy-digits.yaml. Model digits: rewards per update and updates/s. Model
# tiny-90m: seconds per update of 64 new tokens per answer. TRL comes from PyPI into build/trl (6 GB, because PyTorch contains CUDA) and is used
# for nothing else. Run by hand.
#   VENV    a virtual environment that has trl, instead of build/trl     BUILD    build folder with bin/gyrfalcon
#   MODELS  ("digits tiny-90m")     SEEDS    ("1 2 3 4 5") of digits: weights, order of prompts, draws     ROUNDS (3) turns of tiny-90m
#   UPDATES (120) of digits         THREADS  ("1 2") of PyTorch, each its own column                       PRECISION (fp32) of tiny-90m, or bf16
#   OUT     (BUILD/policy) folder of weights and logs
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} MODELS=${MODELS:-digits tiny-90m} SEEDS=${SEEDS:-1 2 3 4 5} ROUNDS=${ROUNDS:-3} UPDATES=${UPDATES:-120}
THREADS=${THREADS:-1 2} PRECISION=${PRECISION:-fp32} OUT=${OUT:-$BUILD/policy} venv=${VENV:-build/trl} ranks=2
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/bin/gyrfalcon")"
if [ -z "${VENV:-}" ] && [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir trl
  touch "$venv/ready"
fi
mkdir -p "$OUT"
for digit in 0 1 2 3 4 5 6 7 8 9; do echo "{\"prompt\": [$digit, 10], \"target\": $digit}"; done > "$OUT/digits.jsonl"
"$BUILD/bin/gyrfalcon" data build "$OUT/digits.jsonl" "$OUT/digits" --prompts --overwrite > "$OUT/data.log"
awk '/^[a-z]/ { model = /^model:/ } !model' input/policy-digits.yaml > "$OUT/deck.yaml"  # the model comes from --init-from

peer() { TOKENIZERS_PARALLELISM=false "$venv/bin/python" -W ignore regression/bench/policy.py "$@"; }
# Each writes a JSON line per update to NAME.
ours() {  # NAME WEIGHTS UPDATES SEED overrides...
  local name=$1 weights=$2 updates=$3 seed=$4
  shift 4
  OMP_NUM_THREADS=1 peer ours "$name" $ranks "${launcher[@]}" -n $ranks "$BUILD/bin/gyrfalcon" train "$OUT/deck.yaml" --anew --init-from "$weights" \
    "data.prefixes=[$OUT/digits]" output.folder="$name.run" rl.iterations="$updates" rl.seed="$seed" train.seed="$seed" data.seed="$seed" \
    rl.loss.aggregate=sequence "$@" || { tail "$name.log" >&2; exit 1; }
}
theirs() {  # NAME WEIGHTS UPDATES PROMPTS TOKENS SEED THREADS PRECISION
  local name=$1
  shift
  peer train "$@" "$name" > "$name.log" 2>&1 || { tail "$name.log" >&2; exit 1; }
}
# Seconds per update of a run, after the first one.
pace() { peer seconds "x=$1" | awk 'NR == 2 { print $3 " ms" }'; }

for model in $MODELS; do
  case $model in
    digits) turns=$SEEDS updates=$UPDATES prompts=8 tokens=6 precision=fp32 own=() ;;
    tiny-90m) turns=$(seq "$ROUNDS") updates=3 prompts=4 tokens=64 precision=$PRECISION own=(rl.prompts=4 rl.generate.max_new_tokens=64 train.seq_length=264 train.micro_batch_size=4) ;;
    *) echo "MODELS: no model $model; digits and tiny-90m" >&2; exit 64 ;;
  esac
  names=()
  for seed in $turns; do
    weights=$OUT/$model-$seed
    [ -f "$weights/config.json" ] || peer write "$model" "$seed" "$weights" > "$OUT/write.log" 2>&1
    ours "$OUT/$model.ours.$seed.lines" "$weights" "$updates" "$seed" train.precision="$precision" "${own[@]}"
    line="$model, seed $seed: gyrfalcon $(pace "$OUT/$model.ours.$seed.lines")"
    for threads in $THREADS; do
      theirs "$OUT/$model.trl-$threads.$seed.lines" "$weights" "$updates" "$prompts" "$tokens" "$seed" "$threads" "$precision"
      line+=", TRL with $threads threads $(pace "$OUT/$model.trl-$threads.$seed.lines")"
    done
    echo "$line"
  done
  names=("gyrfalcon=$OUT/$model.ours.*.lines")
  for threads in $THREADS; do names+=("TRL, $threads threads=$OUT/$model.trl-$threads.*.lines"); done
  echo "$model, $precision, $((8 * prompts)) answers of $tokens tokens per update, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), 2 cores"
  [ "$model" != digits ] || peer curves "${names[@]}"
  peer seconds "${names[@]}"
done
peer versions
