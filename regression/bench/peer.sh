#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One training step of input/falcon-h1-73m.yaml here and in PyTorch with transformers, in turns on the same two cores: 2 sequences of
# 1024 tokens, fp32, forward, backward and AdamW. PyTorch comes from PyPI into BUILD/peer (6 GB, because PyPI's wheel brings CUDA) and
# is used for nothing else.
#   BUILD build folder with step_benchmark   ROUNDS (3) turns   BATCH (2) sequences   ARGS overrides of the deck
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-3} BATCH=${BATCH:-2} ARGS=${ARGS:-}
venv=build/peer
mpiexec=$(command -v mpiexec.hydra || command -v mpiexec.mpich || command -v mpiexec)
if [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir torch transformers
  touch "$venv/ready"
fi
ours() {  # shellcheck disable=SC2086  # ARGS is a list of words
  OPENBLAS_NUM_THREADS=1 "$mpiexec" -n "$BATCH" "$BUILD/regression/step_benchmark" input/falcon-h1-73m.yaml windows=2 $ARGS
}
theirs() { "$venv/bin/python" regression/bench/peer.py --batch "$BATCH" --threads 2 --steps 2 2>/dev/null; }
seconds() { sed -n 's/^seconds per step: //p'; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

a=() b=()
for ((i = 1; i <= ROUNDS; ++i)); do
  a+=("$(ours | seconds)")
  b+=("$(theirs | seconds)")
  echo "turn $i: gyrfalcon ${a[-1]} s, PyTorch ${b[-1]} s"
done
"$venv/bin/python" -c 'import torch, transformers; print("PyTorch", torch.__version__, "transformers", transformers.__version__)'
ours_middle=$(printf '%s\n' "${a[@]}" | middle) theirs_middle=$(printf '%s\n' "${b[@]}" | middle)
awk -v a="$ours_middle" -v b="$theirs_middle" -v n="$BATCH" 'BEGIN {
  printf "median: gyrfalcon %.2f s (%.0f tokens/s), PyTorch %.2f s (%.0f tokens/s), PyTorch / gyrfalcon %.2f\n", a, n * 1024 / a, b, n * 1024 / b, b / a }'
