#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares BM25 with the library `bm25s`, in alternating turns on one core, and prints the recall of approximate indexes of vectors. Both sides index
# the same drawn chunks of 64 tokens and find the ten best ones for the same texts; their scores must agree. Figures are processor time. bm25s
# comes from PyPI into build/peer-search and is used for nothing else.
#   BUILD build folder with search_benchmark   ROUNDS (3) turns   CHUNKS (100000) QUERIES (2000)   BACKEND (numba) of bm25s, or numpy
#   PYTHON an interpreter that already has bm25s and numba   VECTORS (100000) drawn vectors; 0: none
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/release} ROUNDS=${ROUNDS:-3} CHUNKS=${CHUNKS:-100000} QUERIES=${QUERIES:-2000} BACKEND=${BACKEND:-numba} PYTHON=${PYTHON:-}
VECTORS=${VECTORS:-100000} peer=build/peer-search
mkdir -p "$peer"
if [ -z "$PYTHON" ]; then
  PYTHON=$peer/venv/bin/python
  if [ ! -f "$peer/ready" ]; then
    python3 -m venv "$peer/venv"
    "$peer/venv/bin/pip" install --quiet --no-cache-dir bm25s numba
    touch "$peer/ready"
  fi
fi
export OMP_NUM_THREADS=1
core=$(taskset -pc $$ | sed 's/.*[:,-] *//')
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
ours() { taskset -c "$core" "$BUILD/regression/search_benchmark" bm25 "$out"; }
theirs() { taskset -c "$core" "$PYTHON" regression/bench/search.py time "$out" "$BACKEND"; }
middle() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

"$PYTHON" -c 'import bm25s; print("bm25s", bm25s.__version__)'
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
"$PYTHON" regression/bench/search.py write "$out" "$CHUNKS" "$QUERIES"
for ((i = 1; i <= ROUNDS; ++i)); do
  for side in ours theirs; do
    "$side" > "$out/text"
    sed -n 's/^index seconds: //p' "$out/text" >> "$out/$side.index"
    sed -n 's/^queries\/s: //p' "$out/text" >> "$out/$side.queries"
  done
done
"$PYTHON" regression/bench/search.py same "$out" || { echo "the two sides found different scores"; exit 1; }
for what in index queries; do
  awk -v a="$(middle < "$out/ours.$what")" -v b="$(middle < "$out/theirs.$what")" -v what="$what" -v chunks="$CHUNKS" -v backend="$BACKEND" 'BEGIN {
    if (what == "index") printf "index of %d chunks, medians: gyrfalcon %.2f s, bm25s %.2f s, bm25s / gyrfalcon %.2f\n", chunks, a, b, b / a
    else printf "search, medians: gyrfalcon %.0f queries/s, bm25s (%s) %.0f queries/s, gyrfalcon / bm25s %.1f\n", a, backend, b, a / b }'
done
[ "$VECTORS" = 0 ] || taskset -c "$core" "$BUILD/regression/search_benchmark" vectors "$VECTORS"
