#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of the full workflow: tokenizer, token files, training, evaluation and text generation.
#   NP     number of MPI ranks (2)         DATA   text files (default: an English dictionary from Debian)
#   ARGS   deck overrides                  BUILD  build folder
#   DECK   training deck (input/demo.yaml)
set -euo pipefail
cd "$(dirname "$0")/.."
NP=${NP:-2} DATA=${DATA:-} ARGS=${ARGS:-} BUILD=${BUILD:-build/release} DECK=${DECK:-input/demo.yaml}
gyrfalcon=$BUILD/bin/gyrfalcon
out=out/demo
mkdir -p "$out/data"
[ -t 1 ] && export GYR_PROGRESS=${GYR_PROGRESS:-live} COLUMNS=${COLUMNS:-$(tput cols 2> /dev/null || echo 80)}
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# The dictionary's entries are paragraphs. Tags that name the edition of an entry are removed.
dictionary() {
  gzip -dc /usr/share/dictd/gcide.dict.dz | sed -e '1,/^$/d' -e '/^ *\[[^]]*\(Webster\|PJC\|WordNet\)[^]]*\]$/d' -e 's/^ *//'
}

# A text of the user may have no paragraphs, and only a few pages.
files=() rule=separator
if [ -n "$DATA" ]; then
  read -r -a files <<< "$DATA"
  rule=page ARGS="data.split=90,5,5 $ARGS"
else
  [ -f "$out/data/dictionary.txt" ] || dictionary > "$out/data/dictionary.txt"
  files=("$out/data/dictionary.txt")
fi

if [ ! -f "$out/tokenizer.json" ] || [ ! -f "$out/data/text.idx" ] || [ "$(cat "$out/data/source" 2>/dev/null)" != "${files[*]}" ]; then
  say "tokenizer: byte-level BPE with 4096 tokens"
  "$gyrfalcon" tokenizer train "$out/tokenizer.json" "${files[@]}" --vocab-size 4096 --documents "$rule" --overwrite
  say "token files"
  run data build "${files[@]}" "$out/data/text" --tokenizer "$out/tokenizer.json" --documents "$rule" --overwrite
  printf '%s' "${files[*]}" > "$out/data/source"
fi

say "training on $NP ranks: $DECK $ARGS"
rm -rf "$out/checkpoints"
# shellcheck disable=SC2086  # ARGS is a list of words
run train "$DECK" $ARGS
checkpoint=$(find "$out/checkpoints" -maxdepth 1 -name 'step_*' ! -name '*.tmp' | sort | tail -n 1)

say "held-out perplexity"
run eval "$checkpoint" --split test --sequences 200

say "a sample"
"$gyrfalcon" generate "$checkpoint" --prompt "Falcon" --prompt "To sail" --tokens 80 --temperature 0.7 --top-p 0.95

say "results"
"$gyrfalcon" report "$out" --svg "$out/loss.svg" > /dev/null
printf '%-12s %s\n' checkpoint "$checkpoint   (gyrfalcon info; h5ls -r, h5py: index.h5)" metrics "$out/metrics.jsonl" "loss curve" "$out/loss.svg" \
  tensorboard "$out/tensorboard" deck "$out/deck.yaml" tokenizer "$out/tokenizer.json" "token files" "$out/data/text.bin, .idx"
