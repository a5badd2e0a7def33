#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/page.sh GYRFALCON [PICTURE]: opens the HTML pages of `gyrfalcon report` and `gyrfalcon plan` in a browser. All plots
# must be drawn, no coordinate may be NaN or undefined, and no script may fail. Screenshots are written to
# PICTURE-report.png and PICTURE-plan.png. Exit code 77 if there is no Chromium.
set -euo pipefail
gyrfalcon=$(realpath "${1:?usage: regression/page.sh GYRFALCON [PICTURE]}")
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
show() { # PAGE HEIGHT OPTION...
  local page=$1 height=$2
  shift 2
  echo "$page"
  browse "$page" --enable-logging=stderr "$@" --dump-dom > "$work/dom"
  expect "invalid numbers" "$(count '="[^"]*(NaN|Infinity|undefined)[^"]*"')" 0
  expect "scripts that fail" "$(grep -cE 'Uncaught|CONSOLE.*[Ee]rror' "$work/log" || true)" 0
  [ -z "$picture" ] || { browse "$page" --window-size=1400,"$height" "$@" --screenshot="$work/picture.png" > "$work/out" && mv "$work/picture.png" "$picture-$page.png" && echo "picture: $picture-$page.png"; }
}

show report 2000
expect "plots and memory bars" "$(count '<svg [^>]*role="img"')" 8
expect "curves" "$(count '<path d="M[0-9][^"]*" fill="none"')" 14
expect "bands from minimum to maximum" "$(count '<path d="M[0-9][^"]*" class="band"')" 8
expect "checkpoints on the timeline" "$(count '<path class="checkpoint"')" 20
expect "kills on the timeline" "$(count '<path class="killed"')" 2
expect "keys that differ" "$(count '<td[^>]*>optimizer.lr</td><td[^>]*>0.0008</td><td[^>]*>0.002</td>')" 1

# Use of the page: a title sorts the runs, the pointer on a curve highlights its run, the arrow keys read values, the check boxes
# hide runs, and the CSV file has the shown points.
act() { # PAGE NAME: appends the script on standard input to a copy of the page
  { sed '/<\/body>/,$d' "$work/$1.html"; printf '<script>\n'; cat; printf '</script>\n</body>\n</html>\n'; } > "$work/$2.html"
}
act report used << 'SCRIPT'
const plot = document.querySelector("#plots svg"), box = plot.getBoundingClientRect(), result = text => document.body.append(make("p", { class: "result" }, text));
document.querySelectorAll("#runs th button")[3].click();
result("order " + [...document.querySelectorAll("#runs tbody label")].map(l => l.textContent).join(" "));
document.querySelector("#runs tbody tr").dispatchEvent(new PointerEvent("pointerenter"));
result("highlighted " + document.querySelectorAll(".curve.chosen").length);
plot.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
result("tip " + tip.textContent.match(/step 4.000/) + " " + tip.children.length);
result("csv " + (csv_text().split("\n").length - 2) + " " + sum_of_points());
document.querySelectorAll("#runs input")[0].click();
result("left " + new Set([...document.querySelectorAll(".curve")].map(c => c.dataset.run)).size);
document.querySelectorAll("#runs button.choice")[1].click();
result("none " + document.querySelectorAll(".curve").length);
function sum_of_points() { return runs.reduce((all, r) => all + Object.values(r.curves).reduce((n, c) => n + (c ? c.value.length : 0), 0), 0); }
SCRIPT
show used 2000
expect "runs sorted by loss" "$(count 'class="result">order quick slow<')" 1
expect "curves of the highlighted run" "$(count 'class="result">highlighted 7<')" 1
expect "values at the last step" "$(count 'class="result">tip step 4.000 5<')" 1
expect "lines of the CSV file" "$(count 'class="result">csv ([0-9]+) \1<')" 1
expect "runs left by a check box, and by none" "$(count 'class="result">(left 1|none 0)<')" 2

# Runs without steps, without times and with a single step.
mkdir "$work/none" "$work/bare"
printf '{"kind":"start","time":1,"step":0}\n{"kind":"end","time":5,"state":"failed","code":80,"message":"<b>"}\n' > "$work/none/metrics.jsonl"
printf '{"kind":"step","step":1,"loss":2}\n' > "$work/bare/metrics.jsonl"
for runs in none bare "none bare"; do
  # shellcheck disable=SC2086  # a list of words
  (cd "$work" && "$gyrfalcon" report $runs --html few.html)
  show few 1000
done
expect "states" "$(count '>failed</span>')" 2

# On a telephone of 400 pixels a plot fills the width without being scaled, and its x axis keeps enough labels.
act report phone << 'SCRIPT'
document.body.style.width = "400px";
dispatchEvent(new Event("resize"));  // as a turned telephone does: without frames, which a browser on virtual time may not show
const plot = document.querySelector("#plots svg"), size = plot.viewBox.baseVal, labels = [...plot.querySelectorAll("text[text-anchor]")].filter(t => Number(t.getAttribute("y")) === size.height - 19);
document.body.append(make("p", { class: "result" }, `phone ${document.body.scrollWidth} ${Math.round(size.width - plot.clientWidth)} ${labels.length >= 4}`));
SCRIPT
show phone 2000
expect "phone: width, scale and labels" "$(count 'class="result">phone 400 0 true<')" 1

# 32 micro-batches on 8 stages: one box per forward pass. The first micro-batch, which waits for weights, has one box
# per each of the 72 layers, embedding and head. 7 stage boundaries are crossed in both directions. Each of the 8 nodes
# sends to itself and to its replica, and each replica has 3 boundaries between nodes.
show plan 2300
drawn() { { grep -oE "<path d=\"[^\"]*\" data-kind=\"$1\"" "$work/dom" || true; } | grep -oE 'M[0-9]' | wc -l; }
expect "plots" "$(count '<svg [^>]*role="img"')" 3
expect "forward passes" "$(drawn forward)" $((31 * 8 + 74))
expect "messages" "$(drawn send)" $((32 * 7 * 2))
expect "optimizer steps" "$(drawn optimizer)" 8
expect "cells of the traffic matrix" "$(count '<g [^>]*class="cell"')" $((8 + 8 + 2 * 3 * 2))
expect "rows of stages" "$(count '<td>[0-7](, computes longest)?</td><td>[0-9.]+</td>')" 8
expect "figures" "$(count '<div class="figure">')" 4
expect "parts of the step" "$(count '<div style="flex:[0-9.]+ 1 0')" 4

# The grid lies below the tasks. In a matrix of 32 blocks of two nodes, the diagonal shows links inside nodes and between them.
"$gyrfalcon" plan "$input/falcon-h1-34b.yaml" --ranks 512 --cluster "$input/clusters/h100.yaml" --html "$work/wide.html" parallel.pipeline=1 parallel.tensor=2 \
  parallel.shard=gradients train.global_batch_size=256 2> "$work/wide.err" || [ $? = 78 ]  # 78: it does not fit in memory, and the page shows that
act wide divided << 'SCRIPT'
const tasks = document.querySelector("path[data-kind]"), above = [...tasks.ownerSVGElement.querySelectorAll("line[stroke='var(--grid)']")].filter(l => tasks.compareDocumentPosition(l) & Node.DOCUMENT_POSITION_FOLLOWING);
document.body.append(make("p", { class: "result" }, `above ${above.length}`));
SCRIPT
show divided 2300
expect "grid lines above tasks" "$(count 'class="result">above 0<')" 1
expect "cells of two kinds of links" "$(count '<g [^>]*class="cell" data-links="2"')" 32
exit "$failed"
