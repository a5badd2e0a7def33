#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of retrieval (RETRO; Borgeaud et al. 2022): planted facts. Each fact is a code of eight random digits with a name
# of four syllables. It is in one document of the database, and in one text whose digits the model has to predict. The facts of the
# training texts and those of the test texts differ. A model without retrieval cannot predict the digits of the test texts better
# than with ln 10 = 2.3026 nats per digit. A model with layers R reads them in the neighbours of its text. Three losses of each pattern:
#   neighbours  a model that reads the neighbours of each chunk
#   shuffled    the same model with the neighbours of other chunks, as a control
#   twin        a model without layers R
# Further parts:
#   questions   a model answers questions greedily: without retrieval, with neighbours, and with a passage in the prompt (RETRO++)
#   fit         layers R are added to a trained model, and only they and their encoder are trained
#   ranks       the training in fp64 on one rank, and on 2 x 2 x 2 ranks (pipeline, context, tensor): equal losses
# Environment:
#   PARTS     parts that run (planted): planted, with the three losses above, questions, fit, ranks
#   NP        number of MPI ranks (2)            STEPS   training steps (default: those of the deck)
#   FACTS     facts of training texts (4000)     TESTS   facts of test texts (400)
#   PATTERNS  values of model.pattern, separated by semicolons (*-*R-*R-;PRPR;M-RM-R)
#   FOUND     largest loss with neighbours (0.1 nats per digit)
#   FITTED    the same for layers R that are added to a trained model (0.3)
#   UNKNOWN   smallest loss of the controls (2.25 nats per digit)
#   ARGS      deck overrides                     OUT     output folder            BUILD   build folder
# Exit codes: 0 success, 1 a figure is beyond its limit, 64 unknown part, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
PARTS=${PARTS:-planted}
NP=${NP:-2} STEPS=${STEPS:-} FACTS=${FACTS:-4000} TESTS=${TESTS:-400} FOUND=${FOUND:-0.1} FITTED=${FITTED:-0.3} UNKNOWN=${UNKNOWN:-2.25} ARGS=${ARGS:-}
PATTERNS=${PATTERNS:-*-*R-*R-;PRPR;M-RM-R} OUT=${OUT:-out/retro} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon deck=input/retrieval.yaml
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# texts FORM: prints the fact of each document, in which every word is one token. The first 16 tokens end with "is", and the digits
# are in the next 16. All texts have the same names and codes in the same order, and their own filler.
#   plain     the document of the database
#   other     63 words of filler, without a fact
#   asked     JSON conversation in which the digits are the answers
#   question  JSON conversation whose answer has the digits and the words between them
#   given     the same, with words of filler, the document and an empty line before the question: 96 tokens
#   prompt    JSON line with the prompt of `generate`; answer: the text that answers it
texts() {
  awk -v form="$1" -v count=$((FACTS + TESTS)) '
    function chance(n) { state = (state * 48271 + 11) % 2147483647; return int(state / 2147483647 * n) }
    function words(count, text) { for (; count > 0; --count) text = text " " other[1 + chance(others)]; return text }
    function filler(of, text) {  # words of each form and fact from a stream of their own, so that the codes stay the same
      saved = state; state = (of == "plain" ? 1 : 2) * 7919 + fact * 104729; chance(2)
      text = words(8)
      state = saved
      return text
    }
    function around(count, text) { saved = state; state = 3 * 7919 + fact * 104729; chance(2); text = words(count); state = saved; return text }
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
        code = ""
        for (i = 1; i <= 8; ++i) digit[i] = chance(10)
        for (i = 1; i <= 8; ++i) code = code " " digit[i] " " after[i]
        document = filler("plain") " the code of" name " is" code
        question = filler("asked") " the code of" name " is"
        if (form == "plain") print document
        if (form == "other") print around(63)
        if (form == "asked") {
          printf "{\"messages\": [{\"role\": \"%s\", \"content\": \"\"}", question
          for (i = 1; i <= 8; ++i) printf ", {\"role\": \"\", \"content\": \" %d\"}, {\"role\": \" %s\", \"content\": \"\"}", digit[i], after[i]
          print "]}"
        }
        before = form == "given" ? around(30) document "\\n\\n" : ""
        if (form == "question" || form == "given")
          printf "{\"messages\": [{\"role\": \"%s\", \"content\": \"\"}, {\"role\": \"\", \"content\": \"%s\"}]}\n", before question, code
        if (form == "prompt") printf "{\"prompt\": \"%s\"}\n", question
        if (form == "answer") print code
      }
    }'
}

# build NAME [OPTION...]: the token file of texts/NAME.jsonl, in which the contents are targets of the loss.
build() {
  run data build "$OUT/texts/$1.jsonl" "$OUT/texts/$1" --tokenizer "$OUT/tokenizer.json" --template '{role}{content}' --assistant '' --no-end --overwrite > /dev/null
}
# part_of NAME FORM FIRST LAST: lines FIRST to LAST of the texts of this form.
part_of() { texts "$2" | sed -n "$3,$4p" > "$OUT/texts/$1.jsonl"; }

say "facts: $FACTS for training, $TESTS for testing"
mkdir -p "$OUT/texts"
rm -rf "$OUT/project"
texts plain > "$OUT/texts/facts.txt"
part_of asked asked 1 '$'
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/texts/facts.txt" --vocab-size 480 --documents line --overwrite
run data build "$OUT/texts/facts.txt" "$OUT/texts/facts" --tokenizer "$OUT/tokenizer.json" --documents line --overwrite
build asked
# settings SPLIT NAME...: the deck's settings for these token files.
settings() {
  local files=("${@:2}")
  files=("${files[@]/#/$OUT/texts/}")
  printf '%s\n' "data.prefixes=[$(IFS=,; echo "${files[*]}")]" "data.split=\"$1\"" "data.tokenizer=$OUT/tokenizer.json" "retro.project=$OUT/project"
}
readarray -t data < <(settings "$FACTS,$TESTS,0" asked)
run retro build-db "$OUT/project" --data "$OUT/texts/facts" --database all --chunk 16
run retro index "$OUT/project"
# query [KEY=VALUE...]: finds the neighbours of the texts of these settings.
query() { run retro query "$OUT/project" "$deck" "$@" > /dev/null; }
query "${data[@]}"

# learn NAME [KEY=VALUE...]: trains a model in OUT/run and prints its loss on the validation texts.
learn() {
  local log=$OUT/$1.log
  rm -rf "$OUT/run"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" ${STEPS:+train.steps=$STEPS train.eval_every=$STEPS} "output.folder=$OUT/run" "${@:2}" $ARGS > "$log" 2>&1 ||
    { cat "$log" >&2; return 1; }
  sed -n 's/^validation at step [0-9]*: loss \([0-9.]*\),.*/\1/p' "$log" | tail -n 1
}
# loss MODEL [OPTION...]: the loss that `eval` prints.
loss() { run eval "$@" 2> /dev/null | sed -n 's/^loss \([0-9.]*\) .*/\1/p'; }
# holds CONDITION NAME=VALUE...: evaluates a condition of awk.
holds() {
  local given=() value
  for value in "${@:2}"; do [[ $value == *=?* ]] || return 1; given+=(-v "$value"); done
  awk "${given[@]}" "BEGIN { exit !($1) }"
}
failed=0
IFS=';' read -r -a patterns <<< "$PATTERNS"

planted() {
  say "loss on the digits of the test texts, in nats per digit (limits: neighbours at most $FOUND, shuffled and twin at least $UNKNOWN)"
  printf '%-12s %11s %11s %11s %9s\n' pattern neighbours shuffled twin seconds
  for pattern in "${patterns[@]}"; do
    SECONDS=0
    found=$(learn neighbours "${data[@]}" "model.pattern=$pattern")
    shuffled=$(loss "$OUT/run" --shuffle-neighbors 1)
    twin=$(learn twin "${data[@]}" "model.pattern=${pattern//R/}")
    printf '%-12s %11s %11s %11s %9s\n' "$pattern" "$found" "$shuffled" "$twin" "$SECONDS"
    holds 'found <= most && shuffled >= least && twin >= least' "found=$found" "shuffled=$shuffled" "twin=$twin" "most=$FOUND" "least=$UNKNOWN" || failed=1
  done
}

# Half of the training facts are in the database. The others are not, and their document is in the prompt.
questions() {
  say "questions answered greedily: share of the $TESTS codes that are completely right"
  local half=$((FACTS / 2)) in_context
  part_of questions question 1 "$half"; part_of given given $((half + 1)) "$FACTS"
  build questions; build given
  texts prompt | tail -n "$TESTS" > "$OUT/texts/prompts.jsonl"
  texts answer | tail -n "$TESTS" > "$OUT/texts/answers.txt"
  texts plain | sed "$((half + 1)),${FACTS}d" > "$OUT/texts/known.txt"
  run data build "$OUT/texts/known.txt" "$OUT/texts/known" --tokenizer "$OUT/tokenizer.json" --documents line --overwrite > /dev/null
  rm -rf "$OUT/known"
  run retro build-db "$OUT/known" --data "$OUT/texts/known" --database all --chunk 16 > /dev/null
  run retro index "$OUT/known" > /dev/null
  readarray -t asked < <(settings 1 questions given)
  asked+=("retro.project=$OUT/known" 'data.weights=[1,2]' train.seq_length=96 train.eval_every=0)
  run retro query "$OUT/known" "$deck" "${asked[@]}" > /dev/null
  # right [OPTION...]: share of the answers that equal the code.
  right() {
    run generate "$OUT/run" --batch "$OUT/texts/prompts.jsonl" --plain --greedy --tokens 16 "$@" 2> /dev/null | sed 's/.*"text":"\([^"]*\)".*/\1/' |
      paste -d '|' - "$OUT/texts/answers.txt" | awk -F '|' '{ right += $1 == $2 } END { printf "%.3f", right / NR }'
  }
  printf '%-12s %11s %11s %11s %9s\n' pattern without neighbours 'in context' seconds
  for pattern in "${patterns[@]}"; do
    SECONDS=0
    learn questions "${asked[@]}" "model.pattern=$pattern" > /dev/null
    without=$(right --retrieval off) neighbours=$(right) in_context=$(right --in-context 1)
    printf '%-12s %11s %11s %11s %9s\n' "$pattern" "$without" "$neighbours" "$in_context" "$SECONDS"
    holds 'c >= b && b >= a && b > 0' "a=$without" "b=$neighbours" "c=$in_context" || failed=1
  done
}

# The decoder is trained on texts whose digits it cannot know, and on other text. Without R at both ends, R finds the digits of a neighbour, but
# not their places: rows of the embedding say which digit comes next, and rows after the last block write it.
fit() {
  local base=$OUT/base other
  say "layers R added to a trained model: loss on the digits (at most $FITTED) and on other text (changed by at most 0.001), in nats per token"
  part_of asked_test asked $((FACTS + 1)) '$'; build asked_test
  for other in "other_train 1 $((FACTS / 2))" "other_test $((FACTS + 1)) \$"; do
    read -r -a part <<< "$other"
    texts other | sed -n "${part[1]},${part[2]}p" > "$OUT/texts/${part[0]}.txt"
    run data build "$OUT/texts/${part[0]}.txt" "$OUT/texts/${part[0]}" --tokenizer "$OUT/tokenizer.json" --documents line --overwrite > /dev/null
  done
  for other in asked_test other_test; do
    readarray -t read_alone < <(settings 1 "$other")
    query "${read_alone[@]}" train.eval_every=0
  done
  readarray -t mixture < <(settings "$FACTS,$TESTS,0" asked other_train)
  printf '%-12s %10s %10s %12s %10s %9s\n' pattern digits 'with R' 'other text' 'with R' seconds
  for pattern in "${patterns[@]}"; do
    SECONDS=0
    learn base "${mixture[@]}" 'data.weights=[4,1]' "model.pattern=${pattern//R/}" > /dev/null
    rm -rf "$base"; mv "$OUT/run" "$base"
    frozen='"model.embed_tokens.*","model.final_layernorm.*"'
    for ((layer = 0; layer < ${#pattern}; ++layer)); do [[ ${pattern:layer:1} == R ]] || frozen+=",\"model.layers.$layer.*\""; done
    learn fitted "${data[@]}" "model.pattern=$pattern" "optimizer.frozen=[$frozen]" --init-from "$base" > /dev/null
    digits=$(loss "$base" --data "$OUT/texts/asked_test") found=$(loss "$OUT/run" --data "$OUT/texts/asked_test")
    before=$(loss "$base" --data "$OUT/texts/other_test") after=$(loss "$OUT/run" --data "$OUT/texts/other_test")
    printf '%-12s %10s %10s %12s %10s %9s\n' "$pattern" "$digits" "$found" "$before" "$after" "$SECONDS"
    holds 'digits >= least && found <= most && (before - after)^2 <= 1e-6' "digits=$digits" "found=$found" "before=$before" "after=$after" \
      "most=$FITTED" "least=$UNKNOWN" || failed=1
  done
}

ranks() {
  say "the training in fp64 on one rank, and on 2 x 2 x 2 ranks (pipeline, context, tensor): loss of the last step"
  printf '%-12s %20s %20s %9s\n' pattern 'one rank' '8 ranks' seconds
  # last_loss RANKS [KEY=VALUE...]
  last_loss() {
    NP=$1 learn ranks "${data[@]}" train.precision=fp64 train.eval_every=0 "model.pattern=$pattern" "${@:2}" > /dev/null
    sed -n 's/.*"kind":"step".*"loss":\([-+.e0-9]*\).*/\1/p' "$OUT/run/metrics.jsonl" | tail -n 1
  }
  for pattern in "${patterns[@]}"; do
    SECONDS=0
    one=$(last_loss 1) eight=$(last_loss 8 parallel.pipeline=2 parallel.context=2 parallel.tensor=2)
    printf '%-12s %20s %20s %9s\n' "$pattern" "$one" "$eight" "$SECONDS"
    holds 'one > 0 && (one - eight)^2 <= 1e-18' "one=$one" "eight=$eight" || failed=1
  done
}

for part in $PARTS; do
  case $part in
    planted) planted ;;
    questions) questions ;;
    fit) fit ;;
    ranks) ranks ;;
    *) echo "PARTS=$PARTS: $part is no part; give some of planted, questions, fit, ranks" >&2; exit 64 ;;
  esac
done
((!failed)) || echo "a figure is beyond its limit" >&2
exit "$failed"
