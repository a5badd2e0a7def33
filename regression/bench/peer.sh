#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares a training step of input/$MODEL.yaml with PyTorch and transformers, in alternating turns on the same two cores. A step is forward, backward
# and AdamW, in fp32 and in bf16 (autocast in PyTorch). It has 2 sequences of 1024 tokens, one per rank, or one sequence of 4096 tokens with context
# parallelism over both ranks. PyTorch comes from PyPI into build/peer (6 GB, because the wheel contains CUDA) and is used for nothing else. Both
# programs busy-wait, so on a machine with other load their processor time includes waiting.
#   MODEL falcon-h1-73m, or gpt2-124m without dropout on either side
#   LLMC  only with gpt2-124m: program train_gpt2 of llm.c, built with OpenMP, in a folder that holds gpt2_124M.bin and the files of dev/data that it
#         reads. Its steps, fixed at 4 sequences of 64 tokens, become a column, and LENGTHS includes 64
#   VENV  a virtual environment that has torch and transformers, instead of build/peer
#   BUILD build folder with step_benchmark   ROUNDS (5) turns   LENGTHS ("1024 4096"; GPT-2: 1024) tokens per sequence   PRECISIONS ("fp32 bf16")
#   ARGS overrides of the deck
set -euo pipefail
cd "$(dirname "$0")/../.."
MODEL=${MODEL:-falcon-h1-73m} LLMC=${LLMC:-} c_length=64
[ -z "$LLMC" ] || { [ "$MODEL" = gpt2-124m ] && [ -x "$LLMC" ]; } || { echo "LLMC=$LLMC: must be the program train_gpt2 of llm.c, and requires MODEL=gpt2-124m" >&2; exit 64; }
dropout=()
if [ "$MODEL" = gpt2-124m ]; then
  LENGTHS=${LENGTHS:-1024} dropout=(model.dropout.embedding=0 model.dropout.residual=0 model.dropout.attention=0)
  [ -z "$LLMC" ] || [[ " $LENGTHS " = *" $c_length "* ]] || LENGTHS+=" $c_length"
fi
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-5} LENGTHS=${LENGTHS:-1024 4096} PRECISIONS=${PRECISIONS:-fp32 bf16} ARGS=${ARGS:-}
venv=${VENV:-build/peer} ranks=2
read -r -a launcher <<< "$(jobscripts/launcher.sh "$BUILD/regression/step_benchmark")"
if [ -z "${VENV:-}" ] && [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$venv/ready"
fi
sequences() { case $1 in "$c_length") echo 4 ;; 1024) echo 2 ;; *) echo 1 ;; esac; }
ours() {  # LENGTH PRECISION
  local layout=()
  if [ "$(sequences "$1")" -ge $ranks ]; then
    layout=(train.micro_batch_size=$(($(sequences "$1") / ranks)))
  else
    layout=("parallel.context=$ranks")
  fi
  # shellcheck disable=SC2086  # ARGS is a list of words
  OMP_NUM_THREADS=1 "${launcher[@]}" -n $ranks "$BUILD/regression/step_benchmark" "input/$MODEL.yaml" windows=2 micros=1 \
    train.seq_length="$1" train.precision="$2" "${dropout[@]}" "${layout[@]}" $ARGS
}
in_c() {  # prints the median time of three llm.c steps after the first one, in seconds, and then stops llm.c
  local took
  took=$(cd "$(dirname "$LLMC")" && { env --default-signal=PIPE OMP_NUM_THREADS=$ranks stdbuf -oL "./$(basename "$LLMC")" 2>/dev/null || true; } |
    awk '/^step [1-9].*took/ { sub(/.*took /, ""); print $1; if (++n == 3) exit }')
  [ "$(wc -w <<< "$took")" = 3 ] || { echo "$LLMC: did not print the time of three steps; run it in its folder to see why" >&2; exit 1; }
  middle <<< "$took" | awk '{ print 1e-3 * $1 }'
}
theirs() { "$venv/bin/python" regression/bench/peer.py --model "$MODEL" --batch "$(sequences "$1")" --length "$1" --precision "$2" --threads $ranks --steps 2 2>/dev/null; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
# Median time of llm.c's steps; prints nothing for lengths and precisions that llm.c does not run.
compared_in_c() { [ -z "$LLMC" ] || [ "$1.$2.$3" != "$c_length.fp32.wall" ] || middle < "$out/in_c"; }
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
  if [ -n "$LLMC" ]; then
    in_c >> "$out/in_c"
    echo "turn $i, $c_length tokens, fp32: llm.c $(tail -n 1 "$out/in_c") s"
  fi
done
"$venv/bin/python" -c 'import torch, transformers; print("PyTorch", torch.__version__, "transformers", transformers.__version__)'
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), 2 cores, $MODEL; medians of $ROUNDS turns; GFLOP/s: model flops without recomputation / seconds of the step"
printf '%-7s %-5s %-10s %10s %10s %7s %10s %10s%s\n' tokens "" seconds gyrfalcon PyTorch ratio GFLOP/s "PyTorch's" "${LLMC:+      llm.c   ratio}"
for length in $LENGTHS; do
  for precision in $PRECISIONS; do
    for clock in wall processor; do
      awk -v a="$(middle < "$out/ours.$clock.$length.$precision")" -v b="$(middle < "$out/theirs.$clock.$length.$precision")" -v f="$(cat "$out/flops.$length")" \
        -v n="$(($(sequences "$length") * length))" -v p="$precision" -v c="$clock" -v llmc="$(compared_in_c "$length" "$precision" "$clock")" 'BEGIN {
        printf "%-7d %-5s %-10s %10.2f %10.2f %7.2f", n, p, c, a, b, b / a
        if (c == "wall") printf " %10.1f %10.1f", 1e-9 * f / a, 1e-9 * f / b
        if (llmc > 0) printf " %10.2f %7.2f", llmc, llmc / a
        print "" }'
    done
  done
done
