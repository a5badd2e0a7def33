#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares parallel layouts of two ranks with data parallelism (data=2): the same step of input/falcon-h1-73m.yaml on every layout, in alternating turns on the same cores. For each layout it prints the median step time, the throughput relative to data=2, and from a traced step the largest fraction of a rank's time spent waiting for transfers, and in pipeline bubbles.
#   BUILD build folder   LENGTH (1024) tokens per sequence   SEQUENCES (4) per step   ROUNDS (3) turns   LAYOUTS (all) names from the list below
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} LENGTH=${LENGTH:-1024} SEQUENCES=${SEQUENCES:-4} ROUNDS=${ROUNDS:-3}
declare -A changes=([data]="" [tensor]="parallel.tensor=2" [sequence]="parallel.tensor=2 parallel.sequence=true" [mixers]="parallel.tensor=2 parallel.mixer=apart"
  [context]="parallel.context=2" [1f1b]="parallel.pipeline=2" [zero_bubble]="parallel.pipeline=2 parallel.schedule=zero_bubble")
LAYOUTS=${LAYOUTS:-data tensor sequence mixers context 1f1b zero_bubble}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
build=$BUILD
. regression/jobs/material.sh
make_material 1 6000
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/bin/gyrfalcon")"
export OMP_NUM_THREADS=1

# Two steps, of which the second is timed because the first one touches the memory; only one step if it takes minutes.
steps=$((LENGTH * SEQUENCES > 16384 ? 1 : 2))
turn() {
  local out=$folder/$1
  rm -rf "$out"
  # shellcheck disable=SC2086  # words
  "${launcher[@]}" -n 2 "$BUILD/bin/gyrfalcon" train input/falcon-h1-73m.yaml "data.prefixes=[$folder/text]" train.seq_length="$LENGTH" \
    train.global_batch_size="$SEQUENCES" train.steps=$steps train.log_every=1 train.eval_every=0 checkpoint.every=0 trace.on=true "trace.steps=[$steps]" \
    output.folder="$out" ${changes[$1]} > "$out.log" || { tail -n 5 "$out.log"; exit 1; }
  "$BUILD/bin/gyrfalcon" trace show "$out/trace" > "$out.trace"
  # columns: rank, step and busy first; bubble, rest and overlapped last, each followed by its fraction
  awk '/^rank +step s/ { table = 1; next } NF == 0 { table = 0 }
       table && $1 ~ /^[0-9]+$/ { step = $2; waits = 1 - ($3 + $(NF - 5) + $(NF - 3)) / $2; bubble = $(NF - 5) / $2
               if (waits > most) most = waits
               if (bubble > idle) idle = bubble }
       END { printf "%.3f %.4f %.4f\n", step, most, idle }' "$out.trace" >> "$folder/$1.times"
}
for ((i = 1; i <= ROUNDS; ++i)); do
  for name in $LAYOUTS; do
    turn "$name"
    echo "turn $i: $name $(cut -d ' ' -f 1 <(tail -n 1 "$folder/$name.times")) s" >&2
  done
done

middle() { cut -d ' ' -f "$2" "$folder/$1.times" | sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'
echo "$SEQUENCES sequences of $LENGTH tokens per step, 2 ranks, medians of $ROUNDS turns"
printf '%-12s %9s %9s %8s %8s %8s\n' layout "step s" tokens/s "of data" "waits %" "bubble %"
base=$(middle "${LAYOUTS%% *}" 1)
for name in $LAYOUTS; do
  awk -v name="$name" -v step="$(middle "$name" 1)" -v waits="$(middle "$name" 2)" -v idle="$(middle "$name" 3)" -v base="$base" -v tokens=$((LENGTH * SEQUENCES)) \
    'BEGIN { printf "%-12s %9.2f %9.0f %8.3f %8.1f %8.1f\n", name, step, tokens / step, base / step, 100 * waits, 100 * idle }'
done
