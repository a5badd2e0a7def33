#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One training step of input/falcon-h1-73m.yaml here and in PyTorch with transformers, in turns on the same two cores: 2 sequences of
# 1024 tokens, fp32, forward, backward and AdamW. PyTorch comes from PyPI into BUILD/peer (6 GB, because PyPI's wheel brings CUDA) and
# is used for nothing else. Both sides wait actively, so that on a machine with other load processor time counts waiting too.
#   BUILD build folder with step_benchmark   ROUNDS (3) turns   BATCH (2) sequences   ARGS overrides of the deck
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-3} BATCH=${BATCH:-2} ARGS=${ARGS:-}
venv=build/peer
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/regression/step_benchmark")"
if [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$venv/ready"
fi
ours() {  # shellcheck disable=SC2086  # ARGS is a list of words
  OMP_NUM_THREADS=1 "${launcher[@]}" -n "$BATCH" "$BUILD/regression/step_benchmark" input/falcon-h1-73m.yaml windows=2 micros=1 $ARGS
}
theirs() { "$venv/bin/python" regression/bench/peer.py --batch "$BATCH" --threads 2 --steps 2 2>/dev/null; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for ((i = 1; i <= ROUNDS; ++i)); do
  for side in ours theirs; do
    "$side" > "$out/text"
    sed -n 's/^seconds per step: //p' "$out/text" >> "$out/$side.wall"
    sed -n 's/^processor seconds per step: //p' "$out/text" >> "$out/$side.processor"
  done
  echo "turn $i: gyrfalcon $(tail -n 1 "$out/ours.wall") s, PyTorch $(tail -n 1 "$out/theirs.wall") s"
done
"$venv/bin/python" -c 'import torch, transformers; print("PyTorch", torch.__version__, "transformers", transformers.__version__)'
for clock in wall processor; do
  awk -v a="$(middle < "$out/ours.$clock")" -v b="$(middle < "$out/theirs.$clock")" -v n="$BATCH" -v clock="$clock" 'BEGIN {
    printf "%-9s seconds, medians: gyrfalcon %.2f (%.0f tokens/s), PyTorch %.2f (%.0f tokens/s), PyTorch / gyrfalcon %.2f\n",
           clock, a, n * 1024 / a, b, n * 1024 / b, b / a }'
done
