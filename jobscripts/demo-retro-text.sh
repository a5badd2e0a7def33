#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Retrieval (RETRO; Borgeaud et al. 2022) with real text: the changelogs of the installed Debian packages, each once. Every second one is in the
# database, and these are also the training text. The others are the test text. Bits per byte of the test text:
#   twin        a model without layers R
#   neighbours  a model that reads the neighbours of each chunk, passages of the database
#   shuffled    the same model with the neighbours of other chunks, as a control
# The windows of the test text are then divided by their overlap with the neighbours: the fraction of predicted tokens that occur in them.
# Environment:
#   NP        number of MPI ranks (2)                  STEPS   training steps of each model (400)
#   TEXTS     pattern of the files (changelogs)        LARGEST largest file, compressed, in KiB (4)
#   ARGS      deck overrides                           OUT     output folder              BUILD   build folder
# Exit codes: 0 success, 66 there are fewer than 20 files, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} STEPS=${STEPS:-400} TEXTS=${TEXTS:-/usr/share/doc/*/changelog.Debian.gz} LARGEST=${LARGEST:-4} ARGS=${ARGS:-}
OUT=${OUT:-out/retro-text} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon deck=input/retrieval.yaml
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# Prints the files that match TEXTS and are at most LARGEST, one of those with equal content.
files() {
  find "${TEXTS%%\**}" -wholename "$TEXTS" -type f -size "-$((LARGEST + 1))k" -exec cksum {} + | sort -n | awk '!known[$1 " " $2]++ { print $3 }' | sort
}

SECONDS=0
rm -rf "$OUT/text" "$OUT/project"
mkdir -p "$OUT/text/database" "$OUT/text/test"
mapfile -t chosen < <(files)
if ((${#chosen[@]} < 20)); then
  echo "$TEXTS: ${#chosen[@]} files of at most $LARGEST KiB, and 20 are needed; name others with TEXTS=" >&2
  exit 66
fi
for i in "${!chosen[@]}"; do
  half=$([ $((i % 2)) = 0 ] && echo database || echo test)
  gzip -dcf "${chosen[i]}" | iconv -c -f utf-8 -t utf-8 > "$OUT/text/$half/$i.txt"
done
for half in database test; do find "$OUT/text/$half" -size 0 -delete; done
bytes_of() { find "$OUT/text/$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }'; }
say "${#chosen[@]} files: $(bytes_of database) bytes in the database, $(bytes_of test) bytes to test"
run tokenizer train "$OUT/tokenizer.json" "$OUT/text/database/*.txt" --vocab-size 2000 --overwrite > "$OUT/data.log"
for half in database test; do
  run data build "$OUT/text/$half/*.txt" "$OUT/$half" --tokenizer "$OUT/tokenizer.json" --documents file --overwrite >> "$OUT/data.log"
done
bytes_per_token=$(awk -v bytes="$(bytes_of test)" -v tokens="$(($(stat -c %s "$OUT/test.bin") / 2))" 'BEGIN { print bytes / tokens }')
run retro build-db "$OUT/project" --data "$OUT/database" --database all --chunk 32
run retro index "$OUT/project"
model=("data.split=1" "data.tokenizer=$OUT/tokenizer.json" "retro.project=$OUT/project" model.vocab_size=2000 model.hidden_size=128 model.attention.head_dim=32
       model.mlp.intermediate_size=384 model.init_std=0.05 model.retrieval.chunk=32 model.retrieval.neighbors=2 'model.pattern=*-*-*R-*-*R-' model.retrieval.encoder_dropout=0
       train.seq_length=256 "train.steps=$STEPS" train.eval_every=0 train.log_every=100)
for half in database test; do run retro query "$OUT/project" "$deck" "${model[@]}" "data.prefixes=[$OUT/$half]"; done
echo "$SECONDS s for the data"

# learn NAME [KEY=VALUE...]: trains a model in OUT/NAME.
learn() {
  rm -rf "${OUT:?}/$1"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" "${model[@]}" "data.prefixes=[$OUT/database]" "output.folder=$OUT/$1" "${@:2}" $ARGS > "$OUT/$1.log" 2>&1 ||
    { cat "$OUT/$1.log" >&2; return 1; }
}
# score NAME MODEL [OPTION...]: writes the loss of each window of the test text to OUT/NAME.jsonl.
score() { run eval "$OUT/$2" --data "$OUT/test" --records "$OUT/$1.jsonl" --overwrite "${@:3}" > "$OUT/$1.eval"; }
SECONDS=0
learn neighbours
score neighbours neighbours
score shuffled neighbours --shuffle-neighbors 1
echo "$SECONDS s for the model with layers R"
SECONDS=0
learn twin 'model.pattern=*-*-*-*-*-'
score twin twin
echo "$SECONDS s for its twin"

say "bits per byte of the test text after $STEPS steps ($bytes_per_token bytes per token), by overlap with the neighbours"
field() { sed -n "s/.*\"$1\":\([-+.e0-9]*\|null\).*/\1/p" "$OUT/$2.jsonl"; }
paste <(field overlap neighbours) <(field tokens neighbours) <(field loss neighbours) <(field loss shuffled) <(field loss twin | head -n "$(wc -l < "$OUT/neighbours.jsonl")") |
  awk -v per_token="$bytes_per_token" '
    function line(name, bin) {
      printf "%-14s %9d %8.3f %11.3f %9.3f %8.1f\n", name, tokens[bin], bits(twin[bin], bin), bits(found[bin], bin), bits(shuffled[bin], bin), 100 * (1 - found[bin] / twin[bin])
    }
    function bits(sum, bin) { return sum / tokens[bin] / log(2) / per_token }
    { bin = $1 == 1 ? 9 : int(10 * $1); for (i = 0; i < 2; ++i) { b = i ? "all" : bin; tokens[b] += $2; found[b] += $2 * $3; shuffled[b] += $2 * $4; twin[b] += $2 * $5 } }
    END {
      printf "%-14s %9s %8s %11s %9s %8s\n", "overlap", "tokens", "twin", "neighbours", "shuffled", "gain %"
      for (bin = 0; bin < 10; ++bin) if (tokens[bin]) line(bin / 10 " to " (bin + 1) / 10, bin)
      line("all", "all")
    }'
