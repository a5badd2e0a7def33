#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Cost of layers R in a training step: predicted by `plan`, with the rates that `probe` measures on this machine, and measured with and without them in
# alternating turns, by the processor time of a run of one rank less that of a run of one step. Decks: that of `make demo-retro`, and a wider one with layers R at the published places (retro.layers=auto), also
# with an encoder of a quarter of its width.
#   BUILD build folder   ROUNDS (5) turns   STEPS (10) steps of a turn
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-5} STEPS=${STEPS:-10}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
build=$BUILD
. regression/jobs/material.sh
make_material 1 3000
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/bin/gyrfalcon")"
export OMP_NUM_THREADS=1
run() { "${launcher[@]}" -n 1 "$BUILD/bin/gyrfalcon" "$@"; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

common=("data.prefixes=[$folder/text]" "data.tokenizer=$folder/tokenizer.json" data.split=1 model.vocab_size=480 train.eval_every=0 train.log_every=1000
        "output.folder=$folder/run")
wide=(model.hidden_size=256 model.attention.head_dim=64 model.mlp.intermediate_size=768 model.retrieval.chunk=64 model.retrieval.neighbors=2 train.seq_length=512
      train.global_batch_size=4 train.micro_batch_size=2)

run probe --out "$folder/here.yaml" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg), one rank, medians of $ROUNDS turns of $STEPS steps"
printf '%-30s %10s %10s %10s %10s %10s\n' deck 'FLOPs +%' 'plan +%' 'with ms' 'without ms' 'time +%'
# seconds STEPS [KEY=VALUE...]: processor time of a run.
seconds() {
  local TIMEFORMAT='%U %S'
  rm -rf "$folder/run"
  { time run train input/retrieval.yaml "train.steps=$1" "${@:2}" > "$folder/log" 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}
# compare NAME CHUNK WITH WITHOUT [KEY=VALUE...]: WITH and WITHOUT are lists of overrides for the model with layers R and for that without them.
compare() {
  local name=$1 chunk=$2 i side with without changes
  read -r -a with <<< "$3"
  read -r -a without <<< "$4"
  local settings=("${common[@]}" "${@:5}" "retro.project=$folder/$name")
  run retro build-db "$folder/$name" --data "$folder/text" --database all --chunk "$chunk" > "$folder/log"
  run retro index "$folder/$name" >> "$folder/log"
  run retro query "$folder/$name" input/retrieval.yaml "${settings[@]}" "${with[@]}" >> "$folder/log"
  "$BUILD/bin/gyrfalcon" plan input/retrieval.yaml --ranks 1 train.steps=100 --cluster "$folder/here.yaml" "${settings[@]}" "${with[@]}" > "$folder/plan" 2>&1 ||
    { cat "$folder/plan"; exit 1; }
  for ((i = 1; i <= ROUNDS; ++i)); do
    for side in with without; do
      if [ "$side" = with ]; then changes=("${with[@]}"); else changes=("${without[@]}"); fi
      { seconds 1 "${settings[@]}" "${changes[@]}"; seconds $((STEPS + 1)) "${settings[@]}" "${changes[@]}"; } | paste -s - |
        awk -v steps="$STEPS" 'NF == 2 { print ($2 - $1) / steps }' >> "$folder/$name.$side"
    done
  done
  mapfile -t added < <(sed -n 's/.*layers R add .*, \(-\{0,1\}[.0-9]*\) % of.*/\1/p' "$folder/plan")
  awk -v name="$name" -v flops="${added[0]}" -v plan="${added[1]}" -v with="$(middle < "$folder/$name.with")" -v without="$(middle < "$folder/$name.without")" \
    'BEGIN { printf "%-30s %10.1f %10.1f %10.1f %10.1f %10.1f\n", name, flops, plan, 1e3 * with, 1e3 * without, 100 * (with / without - 1) }'
}
compare demonstration 16 'model.pattern=*-*R-*R-' 'model.pattern=*-*-*-'
compare wide 64 'retro.layers=auto' 'retro.layers=pattern' "${wide[@]}" 'model.pattern=*- x 12'
narrow='retro.layers=auto model.encoder.hidden_size=64 model.encoder.attention.num_heads=1 model.encoder.attention.num_kv_heads=1 model.encoder.mlp.intermediate_size=192'
compare narrow-encoder 64 "$narrow" 'retro.layers=pattern' "${wide[@]}" 'model.pattern=*- x 12'
