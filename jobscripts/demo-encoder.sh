#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration: does pretraining on the texts of a field help to classify them? One encoder is pretrained by masked
# language modelling (MLM) on the descriptions of Debian packages, a second one on as much text of a dictionary, and a
# third one not at all. All three are then fine-tuned on a few labelled descriptions to predict the section of a package.
# They are tested on packages whose source packages occur in no training data. The script prints accuracy and macro F1 over
# several seeds, each with its own labels and classifier head, with 95 % confidence intervals.
#   NP      number of MPI ranks (2)              STEPS   pretraining steps (1200)
#   LABELS  labelled training texts (600)        SEEDS   fine-tuning seeds (5)
#   TESTS   test texts (3000)                    CHECKS  validation texts (1500)
#   RATES   learning rates to choose from by validation ("1e-3 3e-3")
#   KEEP    1: existing pretrained models are used again
#   ARGS    deck overrides of pretraining        TUNE    deck overrides of fine-tuning
#   OUT     output folder                        BUILD   build folder
# Exit codes: 0 success, 1 pretraining does not help, 69 no Debian package lists or no dictionary, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
NP=${NP:-2} STEPS=${STEPS:-1200} LABELS=${LABELS:-600} SEEDS=${SEEDS:-5} TESTS=${TESTS:-3000} CHECKS=${CHECKS:-1500} RATES=${RATES:-1e-3 3e-3}
ARGS=${ARGS:-} TUNE=${TUNE:-} OUT=${OUT:-out/encoder-demo} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon deck=input/encoder-demo.yaml sections=12
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }
need() { "$@" > /dev/null 2>&1 || { echo "demo-encoder: $1 fails; this script needs Debian's package lists (apt-get update) and dict-gcide" >&2; exit 69; }; }

# Shuffles the lines of standard input reproducibly: sorts them by a hash of a seed word and the line.
by_chance() {
  awk -v seed="$1" 'BEGIN { for (i = 1; i < 256; ++i) code[sprintf("%c", i)] = i }
    { h = 7; text = seed " " $0; n = length(text); if (n > 200) n = 200
      for (i = 1; i <= n; ++i) h = (h * 131 + code[substr(text, i, 1)]) % 2147483647
      for (i = 0; i < 3; ++i) h = (h * 48271 + 11) % 2147483647
      printf "%d\t%s\n", h, $0 }' | LC_ALL=C sort -n -k1,1 | cut -f2-
}

# Source package, section and description of every package, separated by tabs. Only the first package with a given
# description is used.
packages() {
  apt-cache dumpavail | LC_ALL=C awk 'BEGIN { RS = ""; FS = "\n" }
    { name = source = section = text = ""
      for (i = 1; i <= NF; ++i) {
        if ($i ~ /^Package: /) name = substr($i, 10)
        else if ($i ~ /^Source: /) { source = substr($i, 9); sub(/ .*/, "", source) }
        else if ($i ~ /^Section: /) { section = substr($i, 10); sub(/^.*\//, "", section) }
        else if ($i ~ /^Description: /) text = substr($i, 14)
      }
      gsub(/\t/, " ", text)
      if (section != "" && text != "" && !(text in seen)) { seen[text] = 1; print (source == "" ? name : source) "\t" section "\t" text } }'
}

dictionary() {
  gzip -dc /usr/share/dictd/gcide.dict.dz | sed -e '1,/^$/d' -e '/^ *\[[^]]*\(Webster\|PJC\|WordNet\)[^]]*\]$/d' -e 's/^ *//' |
    awk 'BEGIN { RS = ""; FS = "\n" } { gsub(/\n/, " "); print }'
}

json() { awk -F'\t' '{ gsub(/\\/, "\\\\", $3); gsub(/"/, "\\\"", $3); printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", $3, $2 }'; }

# Distributes source packages over training, validation and test: text/{train,validation,test}.tsv.
deal() {
  cut -f1 "$OUT/text/packages.tsv" | LC_ALL=C sort -u | by_chance sources |
    awk -v train="$OUT/text/train.tsv" -v validation="$OUT/text/validation.tsv" -v test="$OUT/text/test.tsv" -F'\t' '
      FNR == NR { part[$1] = FNR % 10 == 0 ? validation : FNR % 10 < 3 ? test : train; next }
      { print > part[$1] }' - "$OUT/text/packages.tsv"
  # Only texts of the most frequent sections get labels.
  cut -f2 "$OUT/text/packages.tsv" | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2 | awk -v n=$sections 'NR <= n { print $2 }' > "$OUT/text/sections"
  for part in train validation test; do
    awk -F'\t' 'FNR == NR { known[$1] = 1; next } $2 in known' "$OUT/text/sections" "$OUT/text/$part.tsv" | by_chance "$part" > "$OUT/text/$part.labelled"
  done
}

build() { run data build "$@" --tokenizer "$OUT/tokenizer.json" --overwrite > /dev/null; }
checkpoint_in() { find "$1/checkpoints" -maxdepth 1 -name 'step_*' ! -name '*.tmp' | sort | tail -n 1; }

if [ ! -f "$OUT/data/ready" ]; then
  say "texts: descriptions of Debian packages, and as many bytes of a dictionary"
  need apt-cache dumpavail
  need test -f /usr/share/dictd/gcide.dict.dz
  mkdir -p "$OUT/text" "$OUT/data"
  packages > "$OUT/text/packages.tsv"
  deal
  cut -f3 "$OUT/text/train.tsv" | by_chance texts > "$OUT/text/packages.txt"
  dictionary | by_chance texts > "$OUT/text/entries.txt"
  head -c "$(wc -c < "$OUT/text/packages.txt")" "$OUT/text/entries.txt" > "$OUT/text/dictionary.txt"
  "$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/text/packages.txt" "$OUT/text/dictionary.txt" --vocab-size 4096 --documents line --overwrite > /dev/null
  for field in packages dictionary; do build "$OUT/text/$field.txt" "$OUT/data/$field" --documents line; done
  wc -lc "$OUT/text/packages.txt" "$OUT/text/dictionary.txt"
  touch "$OUT/data/ready"
fi
classes=$(paste -sd, "$OUT/text/sections")
ask() {
  awk -v n="$2" 'NR <= n' "$OUT/text/$1.labelled" | json > "$OUT/text/$1.jsonl"
  build "$OUT/text/$1.jsonl" "$OUT/data/$1" --classes "$classes"
}
ask validation "$CHECKS"
ask test "$TESTS"

for field in packages dictionary; do
  [ -z "${KEEP:-}" ] || [ ! -d "$OUT/read-$field/checkpoints" ] || continue
  say "pretraining on: $field"
  rm -rf "$OUT/read-$field"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" "data.prefixes=[$OUT/data/$field]" "data.tokenizer=$OUT/tokenizer.json" "train.steps=$STEPS" "output.folder=$OUT/read-$field" $ARGS |
    grep -E '^step|parameters' | tail -n 3
done

# learn FIELD SEED LR DATA: prints accuracy and macro F1 on DATA of a classifier fine-tuned from the model pretrained on
# FIELD.
learn() {
  local from=()
  [ "$1" = nothing ] || from=(--init-from "$(checkpoint_in "$OUT/read-$1")" train.init_head=new)
  rm -rf "$OUT/learn"
  # shellcheck disable=SC2086  # TUNE is a list of words
  run train "$deck" "${from[@]}" "data.prefixes=[$OUT/data/labels]" data.split="1,0,0" "data.tokenizer=$OUT/tokenizer.json" train.objective=classify \
    "train.classify.labels=[$classes]" "train.seed=$2" "data.seed=$2" "output.folder=$OUT/learn" train.steps=200 train.global_batch_size=4 \
    train.micro_batch_size=2 "optimizer.lr=$3" optimizer.warmup_steps=20 $TUNE > "$OUT/log"
  run eval "$(checkpoint_in "$OUT/learn")" --data "$OUT/data/$4" --json "$OUT/answers.json" > /dev/null
  for key in accuracy macro_f1; do grep -o "\"$key\": *[0-9.e-]*" "$OUT/answers.json" | sed -n '1s/.*: *//p'; done | paste -sd' '
}
draw_labels() {
  by_chance "labels $1" < "$OUT/text/train.labelled" | awk -v n="$LABELS" 'NR <= n' | json > "$OUT/text/labels.jsonl"
  build "$OUT/text/labels.jsonl" "$OUT/data/labels" --classes "$classes"
}

say "fine-tuning on $LABELS labelled descriptions; classes: $classes"
# Each model uses the learning rate that is best on the validation texts, with other labels than the final runs.
declare -A rate
draw_labels 0
for field in packages dictionary nothing; do
  best=0
  for lr in $RATES; do
    answer=$(learn $field 0 "$lr" validation)
    read -r accuracy f1 <<< "$answer"
    echo "$field at lr $lr: accuracy $accuracy, macro F1 $f1 on $CHECKS validation texts"
    if awk -v a="$accuracy" -v b="$best" 'BEGIN { exit !(a > b) }'; then best=$accuracy rate[$field]=$lr; fi
  done
done

say "accuracy and macro F1 on $TESTS test texts of unseen source packages"
: > "$OUT/results"
for seed in $(seq "$SEEDS"); do
  draw_labels "$seed"
  for field in packages dictionary nothing; do
    answer=$(learn $field "$seed" "${rate[$field]}" test)
    echo "$field $seed $answer" | tee -a "$OUT/results"
  done
done

say "accuracy and macro F1, mean over $SEEDS seeds with 95 % confidence intervals"
awk -v labels="$LABELS" '
  # Student'"'"'s t at 97.5 %, for 1 to 20 degrees of freedom
  BEGIN { split("12.71 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 2.120 2.110 2.101 2.093 2.086", t, " ") }
  { for (k = 3; k <= 4; ++k) { sum[$1, k] += $k; squares[$1, k] += $k * $k }; n[$1]++; value[$1, $2] = $3 }
  function interval(s, q, m) { return m < 2 ? 0 : (m - 1 > 20 ? 1.96 : t[m - 1]) * sqrt((q - s * s / m) / (m - 1) / m) }
  function row(name, f, m) { m = n[f]
    printf "%-28s %.4f +- %.4f   %.4f +- %.4f\n", name, sum[f, 3] / m, interval(sum[f, 3], squares[f, 3], m), sum[f, 4] / m, interval(sum[f, 4], squares[f, 4], m) }
  function gain(f, m, s, q, d, i) { m = n["packages"]
    for (i = 1; i <= m; ++i) { d = value["packages", i] - value[f, i]; s += d; q += d * d }
    low = s / m - interval(s, q, m)
    printf "gain over %-18s %+.4f +- %.4f in accuracy, paired by seed\n", f, s / m, interval(s, q, m)
    return low > 0 }
  END { row("pretrained on packages", "packages"); row("pretrained on dictionary", "dictionary"); row("not pretrained", "nothing")
        exit !(gain("dictionary") + gain("nothing") == 2) }' "$OUT/results"
