#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of retrieval (RETRO; Borgeaud et al. 2022): planted facts. Each fact is a code of eight random digits with a name
# of four syllables. It is in one document of the database, and in one text whose digits the model has to predict. The facts of the
# training texts and those of the test texts differ. A model without retrieval cannot predict the digits of the test texts better
# than with ln 10 = 2.3026 nats per digit. A model with layers R reads them in the neighbours of its text. Three losses of each pattern:
#   neighbours  a model that reads the neighbours of each chunk
#   shuffled    the same model with the neighbours of other chunks, as a control
#   twin        a model without layers R
# Environment:
#   NP        number of MPI ranks (2)            STEPS   training steps (default: those of the deck)
#   FACTS     facts of training texts (4000)     TESTS   facts of test texts (400)
#   PATTERNS  values of model.pattern, separated by semicolons (*-*R-*R-;PRPR;M-RM-R)
#   FOUND     largest loss with neighbours (0.1 nats per digit)
#   UNKNOWN   smallest loss of the controls (2.25 nats per digit)
#   ARGS      deck overrides                     OUT     output folder            BUILD   build folder
# Exit codes: 0 success, 1 a loss is beyond its limit, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} STEPS=${STEPS:-} FACTS=${FACTS:-4000} TESTS=${TESTS:-400} FOUND=${FOUND:-0.1} UNKNOWN=${UNKNOWN:-2.25} ARGS=${ARGS:-}
PATTERNS=${PATTERNS:-*-*R-*R-;PRPR;M-RM-R} OUT=${OUT:-out/retro} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon deck=input/retrieval.yaml
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# texts FORM: prints the fact of each document, in which every word is one token. The first 16 tokens end with "is", and the digits
# are in the next 16. All texts have the same names and codes in the same order, and their own filler.
#   plain  the document of the database
#   asked  JSON conversation in which the digits are the answers
texts() {
  awk -v form="$1" -v count=$((FACTS + TESTS)) '
    function chance(n) { state = (state * 48271 + 11) % 2147483647; return int(state / 2147483647 * n) }
    function filler(i, text) {  # words of each form and fact from a stream of their own, so that the codes stay the same
      saved = state; state = (form == "plain" ? 1 : 2) * 7919 + fact * 104729; chance(2)
      for (i = 1; i <= 8; ++i) text = text " " other[1 + chance(others)]
      state = saved
      return text
    }
    BEGIN {
      state = 1
      for (i = 0; i < 9; ++i) chance(2)
      split("b c d f g h k l m n p r s t v z", consonant, " ")
      split("a e i o", vowel, " ")
      for (i = 1; i <= 16; ++i) for (j = 1; j <= 4; ++j) syllable[++syllables] = consonant[i] vowel[j]
      others = split("and also note that here we say now then once more you see how some may read it well", other, " ")
      split("two three four five six seven eight .", after, " ")
      while (fact < count) {
        for (i = 1; i <= syllables; ++i) known[i] = 0
        name = key = ""
        for (i = 1; i <= 4; ++i) { do s = 1 + chance(syllables); while (known[s]); known[s] = 1; name = name " " syllable[s] }
        for (i = 1; i <= syllables; ++i) if (known[i]) key = key i " "
        if (key in used) continue
        used[key] = 1
        ++fact
        question = filler() " the code of" name " is"
        if (form == "plain") printf "%s", question
        else printf "{\"messages\": [{\"role\": \"%s\", \"content\": \"\"}", question
        for (i = 1; i <= 8; ++i)
          if (form == "plain") printf " %d %s", chance(10), after[i]
          else printf ", {\"role\": \"\", \"content\": \" %d\"}, {\"role\": \" %s\", \"content\": \"\"}", chance(10), after[i]
        print form == "plain" ? "" : "]}"
      }
    }'
}

say "facts: $FACTS for training, $TESTS for testing"
mkdir -p "$OUT/texts"
rm -rf "$OUT/project"
texts plain > "$OUT/texts/facts.txt"
texts asked > "$OUT/texts/asked.jsonl"
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/texts/facts.txt" --vocab-size 480 --documents line --overwrite
run data build "$OUT/texts/facts.txt" "$OUT/texts/facts" --tokenizer "$OUT/tokenizer.json" --documents line --overwrite
run data build "$OUT/texts/asked.jsonl" "$OUT/texts/asked" --tokenizer "$OUT/tokenizer.json" --template '{role}{content}' --assistant '' --no-end --overwrite
data=("data.prefixes=[$OUT/texts/asked]" "data.split=\"$FACTS,$TESTS,0\"" "data.tokenizer=$OUT/tokenizer.json" "retro.project=$OUT/project")
run retro build-db "$OUT/project" --data "$OUT/texts/facts" --database all --chunk 16
run retro index "$OUT/project"
run retro query "$OUT/project" "$deck" "${data[@]}"

# learn NAME [KEY=VALUE...]: trains a model and prints its loss on the digits of the test texts.
learn() {
  local log=$OUT/$1.log
  rm -rf "$OUT/run"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" "${data[@]}" ${STEPS:+train.steps=$STEPS train.eval_every=$STEPS} "output.folder=$OUT/run" "${@:2}" $ARGS > "$log" 2>&1 ||
    { cat "$log" >&2; return 1; }
  sed -n 's/^validation at step [0-9]*: loss \([0-9.]*\),.*/\1/p' "$log" | tail -n 1
}

say "loss on the digits of the test texts, in nats per digit (limits: neighbours at most $FOUND, shuffled and twin at least $UNKNOWN)"
printf '%-12s %11s %11s %11s %9s\n' pattern neighbours shuffled twin seconds
failed=0
IFS=';' read -r -a patterns <<< "$PATTERNS"
for pattern in "${patterns[@]}"; do
  begin=$(date +%s.%N)
  found=$(learn neighbours "model.pattern=$pattern")
  shuffled=$(run eval "$OUT/run" --shuffle-neighbors 1 2> /dev/null | sed -n 's/^loss \([0-9.]*\) .*/\1/p')
  twin=$(learn twin "model.pattern=${pattern//R/}")
  printf '%-12s %11s %11s %11s %9.0f\n' "$pattern" "$found" "$shuffled" "$twin" "$(awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { print end - begin }')"
  awk -v found="$found" -v shuffled="$shuffled" -v twin="$twin" -v most="$FOUND" -v least="$UNKNOWN" \
    'BEGIN { exit !(found != "" && found <= most && shuffled >= least && twin >= least) }' || failed=1
done
((!failed)) || echo "a loss is beyond its limit" >&2
exit "$failed"
