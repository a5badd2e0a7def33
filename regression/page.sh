#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/page.sh GYRFALCON [PICTURE]: opens the HTML pages of `gyrfalcon report` and `gyrfalcon plan` in a browser. All plots
# must be drawn, no coordinate may be NaN or undefined, and no script may fail. Screenshots are written to
# PICTURE-report.png and PICTURE-plan.png. Exit code 77 if there is no Chromium.
set -euo pipefail
gyrfalcon=${1:?usage: regression/page.sh GYRFALCON [PICTURE]}
picture=${2:-}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "SKIPPED: no chromium"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run NAME RATE: writes metrics of a run with 4000 steps that was killed at step 1500 and resumed at 1200, with
# validations and checkpoints.
run() {
  mkdir "$work/$1"
  awk -v rate="$2" 'BEGIN {
    t = 1.7e9
    start(0)
    for (i = 1; i <= 1500; ++i) step(i)
    start(1200)
    for (i = 1201; i <= 4000; ++i) step(i)
    printf "{\"kind\":\"timers\",\"sections\":[{\"name\":\"forward\",\"calls\":9,\"min_seconds\":1,\"mean_seconds\":2,\"max_seconds\":3,\"slowest_rank\":5,\"part\":1}]}\n"
    printf "{\"kind\":\"end\",\"state\":\"done\",\"code\":0,\"step\":4000,\"message\":\"\",\"time\":%f}\n", t
  }
  function start(at) {
    printf "{\"kind\":\"start\",\"time\":%f,\"step\":%d,\"ranks\":8,\"grid\":\"8 data\",\"precision\":\"bf16\",\"parameters\":1000000,\"memory\":{\"weights\":1048576,\"gradients\":2097152}}\n", t += 60, at
  }
  function step(i) {
    printf "{\"kind\":\"step\",\"time\":%f,\"step\":%d,\"steps\":4000,\"consumed_tokens\":%d,\"seconds\":1,\"tokens_per_second\":%f,\"mfu\":%f,\"learning_rate\":%g,\"loss\":%f,\"grad_norm\":%f,\"memory_bytes\":4194304}\n", \
      t += 1, i, i * 4096, 4096 + i % 97, 0.5 + i % 97 / 1000, rate * (1 - i / 4001), 2 + 6 * exp(-i * rate) + i % 31 / 300, 1 + i % 13 / 13
    if (i % 500 == 0) printf "{\"kind\":\"validation\",\"time\":%f,\"step\":%d,\"loss\":%f}\n", t, i, 2 + 6 * exp(-i * rate)
    if (i % 400 == 0) printf "{\"kind\":\"checkpoint\",\"time\":%f,\"step\":%d,\"bytes\":1000000,\"blocked_seconds\":0.1}\n", t, i
  }' > "$work/$1/metrics.jsonl"
  printf 'optimizer:\n  lr: %s\n' "$2" > "$work/$1/deck.yaml"
}
run slow 0.0008
run quick 0.002
"$gyrfalcon" report "$work/slow" "$work/quick" --html "$work/report.html"
input=$(dirname "$0")/../input
"$gyrfalcon" plan "$input/falcon-h1-34b.yaml" --ranks 64 --cluster "$input/clusters/h100.yaml" --html "$work/plan.html" parallel.pipeline=8 parallel.tensor=4 \
  parallel.schedule=zero_bubble parallel.shard=optimizer train.global_batch_size=64

failed=0
browse() { # PAGE OPTION...
  local page=$1
  shift
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --virtual-time-budget=3000 "$@" "file://$work/$page.html" 2> "$work/log"
}
expect() { # WHAT FOUND WANTED
  printf '%-44s %s\n' "$1" "$2"
  [ "$2" = "$3" ] || { echo "  should be $3"; failed=1; }
}
count() { { grep -oE "$1" "$work/dom" || true; } | wc -l; }
show() { # PAGE HEIGHT
  echo "$1"
  browse "$1" --enable-logging=stderr --dump-dom > "$work/dom"
  expect "invalid numbers" "$(count '="[^"]*(NaN|Infinity|undefined)[^"]*"')" 0
  expect "scripts that fail" "$(grep -cE 'Uncaught|CONSOLE.*[Ee]rror' "$work/log" || true)" 0
  [ -z "$picture" ] || { browse "$1" --window-size=1400,"$2" --screenshot="$work/picture.png" > "$work/out" && mv "$work/picture.png" "$picture-$1.png" && echo "picture: $picture-$1.png"; }
}

show report 2000
expect "plots" "$(count '<svg [^>]*role="img"')" 5
expect "curves" "$(count '<path d="M[0-9][^"]*" fill="none"')" 14
expect "bands from minimum to maximum" "$(count '<path d="M[0-9][^"]*" fill="var')" 10
expect "checkpoints on the timeline" "$(count '<rect [^>]*width="2" height="26"')" 20
expect "kills on the timeline" "$(count '<circle [^>]*fill="var\(--bad\)"')" 2
expect "keys that differ" "$(count '<td[^>]*>optimizer.lr</td><td[^>]*>0.0008</td><td[^>]*>0.002</td>')" 1

# 32 micro-batches on 8 stages: one box per forward pass. The first micro-batch, which waits for weights, has one box
# per each of the 72 layers, embedding and head. 7 stage boundaries are crossed in both directions. Each of the 8 nodes
# sends to itself and to its replica, and each replica has 3 boundaries between nodes.
show plan 2300
drawn() { { grep -oE "<path d=\"[^\"]*\" data-kind=\"$1\"" "$work/dom" || true; } | grep -oE 'M[0-9]' | wc -l; }
expect "plots" "$(count '<svg [^>]*role="img"')" 3
expect "forward passes" "$(drawn forward)" $((31 * 8 + 74))
expect "messages" "$(drawn send)" $((32 * 7 * 2))
expect "optimizer steps" "$(drawn optimizer)" 8
expect "cells of the traffic matrix" "$(count '<rect [^>]*class="cell"')" $((8 + 8 + 2 * 3 * 2))
expect "rows of stages" "$(count '<td class="text">[0-7](, computes longest)?</td><td>[0-9.]+ [mµ]?s</td>')" 8
exit "$failed"
