#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One training step of input/$MODEL.yaml here and in PyTorch with transformers, in turns on the same two cores: forward, backward and AdamW of
# 2 sequences of 1024 tokens, one on each rank, and of one of 4096 that the ranks share, in fp32 and in bf16 (there: autocast). PyTorch comes from PyPI
# into BUILD/peer (6 GB, because PyPI's wheel brings CUDA) and is used for nothing else. Both sides wait actively, so that on a machine with other
# load processor time counts waiting too.
#   MODEL falcon-h1-73m or gpt2-124m
#   BUILD build folder with step_benchmark   ROUNDS (5) turns   LENGTHS ("1024 4096", of GPT-2 its 1024) tokens of a sequence   PRECISIONS ("fp32 bf16")
#   ARGS overrides of the deck
set -euo pipefail
cd "$(dirname "$0")/../.."
MODEL=${MODEL:-falcon-h1-73m}
[ "$MODEL" != gpt2-124m ] || LENGTHS=${LENGTHS:-1024}
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-5} LENGTHS=${LENGTHS:-1024 4096} PRECISIONS=${PRECISIONS:-fp32 bf16} ARGS=${ARGS:-}
venv=build/peer ranks=2
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/regression/step_benchmark")"
if [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$venv/ready"
fi
sequences() { [ "$1" = 1024 ] && echo 2 || echo 1; }
ours() {  # LENGTH PRECISION
  local layout=()
  [ "$(sequences "$1")" = $ranks ] || layout=(parallel.context=$ranks)
  # shellcheck disable=SC2086  # ARGS is a list of words
  OMP_NUM_THREADS=1 "${launcher[@]}" -n $ranks "$BUILD/regression/step_benchmark" "input/$MODEL.yaml" windows=2 micros=1 \
    train.seq_length="$1" train.precision="$2" "${layout[@]}" $ARGS
}
theirs() { "$venv/bin/python" regression/bench/peer.py --model "$MODEL" --batch "$(sequences "$1")" --length "$1" --precision "$2" --threads $ranks --steps 2 2>/dev/null; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for ((i = 1; i <= ROUNDS; ++i)); do
  for length in $LENGTHS; do
    for precision in $PRECISIONS; do
      for side in ours theirs; do
        "$side" "$length" "$precision" > "$out/text"
        sed -n 's/^seconds per step: //p' "$out/text" >> "$out/$side.wall.$length.$precision"
        sed -n 's/^processor seconds per step: //p' "$out/text" >> "$out/$side.processor.$length.$precision"
        [ $side = theirs ] || sed -n 's/^model flops per step: //p' "$out/text" > "$out/flops.$length"
      done
      echo "turn $i, $length tokens, $precision: gyrfalcon $(tail -n 1 "$out/ours.wall.$length.$precision") s, PyTorch $(tail -n 1 "$out/theirs.wall.$length.$precision") s"
    done
  done
done
"$venv/bin/python" -c 'import torch, transformers; print("PyTorch", torch.__version__, "transformers", transformers.__version__)'
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), 2 cores, $MODEL; medians of $ROUNDS turns; GFLOP/s: products of the model, counted once, over the step"
printf '%-7s %-5s %-10s %10s %10s %7s %10s %10s\n' tokens "" seconds gyrfalcon PyTorch ratio GFLOP/s theirs
for length in $LENGTHS; do
  for precision in $PRECISIONS; do
    for clock in wall processor; do
      awk -v a="$(middle < "$out/ours.$clock.$length.$precision")" -v b="$(middle < "$out/theirs.$clock.$length.$precision")" -v f="$(cat "$out/flops.$length")" \
        -v n="$(($(sequences "$length") * length))" -v p="$precision" -v c="$clock" 'BEGIN {
        printf "%-7d %-5s %-10s %10.2f %10.2f %7.2f", n, p, c, a, b, b / a
        if (c == "wall") printf " %10.1f %10.1f", 1e-9 * f / a, 1e-9 * f / b
        print "" }'
    done
  done
done
