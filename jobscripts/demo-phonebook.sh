#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration after Waleffe et al., "An Empirical Study of Mamba-based Language Models" (2024): phonebook recall. A book
# lists names, each with a number. Then the model is asked for the number of a name. The state of Mamba-2 has a fixed size,
# so recall falls once a book has too many entries. One attention layer can look entries up in the book itself. Three small
# models are trained on books of 1 to 48 entries and tested on new books:
#   M-M-  only Mamba-2    M-*-  attention in place of the second Mamba-2 layer    *-*-  only attention (needs more steps)
# Environment:
#   NP        number of MPI ranks (2)            STEPS   training steps (default: those of the deck)
#   BOOKS     training books (60000)             TESTS   test books of each size (500)
#   PATTERNS  values of model.pattern to compare ("M-M- M-*- *-*-")
#   MARGIN    required lead of M-*- over M-M- in accuracy at 48 entries (0.3)
#   ARGS      deck overrides                     OUT     output folder            BUILD   build folder
# Exit codes: 0 success, 1 attention does not improve the accuracy by MARGIN, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} STEPS=${STEPS:-} BOOKS=${BOOKS:-60000} TESTS=${TESTS:-500} PATTERNS=${PATTERNS:-M-M- M-*- *-*-} MARGIN=${MARGIN:-0.3} ARGS=${ARGS:-}
OUT=${OUT:-out/phonebook} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon deck=input/phonebook.yaml sizes="4 8 16 32 48"
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
run() { "${launcher[@]}" -n "$NP" "$gyrfalcon" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# books SEED COUNT SIZES FORM: prints books with 64 possible names and 32 possible numbers. A random guess is right in 1 of 32 cases.
#   all   JSON conversation: the book with the first question, then all of its names in random order, each with its answer
#   one   JSON {"text"} whose last word is the answer to the only question
#   line  the same as plain text
books() {
  awk -v state="$1" -v count="$2" -v sizes="$3" -v form="$4" '
    function chance(n) { state = (state * 48271 + 11) % 2147483647; return int(state / 2147483647 * n) }
    function shuffle(x, n, i, j, t) { for (i = n; i > 1; --i) { j = 1 + chance(i); t = x[i]; x[i] = x[j]; x[j] = t } }
    BEGIN {
      for (i = 0; i < 9; ++i) chance(2)
      split("b c d f g h k l m n p r s t v z", consonant, " ")
      split("a e i o", vowel, " ")
      for (i = 1; i <= 16; ++i) for (j = 1; j <= 4; ++j) name[++names] = consonant[i] vowel[j]
      choices = split(sizes, size, " ")
      for (b = 1; b <= count; ++b) {
        n = size[1 + chance(choices)]
        shuffle(name, names)
        book = ""
        for (i = 1; i <= n; ++i) { asked[i] = i; number[i] = 10 + chance(32); book = book " " name[i] " " number[i] }
        shuffle(asked, n)
        question = book " ? " name[asked[1]]
        if (form == "line") print question " " number[asked[1]]
        else if (form == "one") printf "{\"text\": \" ?%s %d\"}\n", question, number[asked[1]]
        else {
          printf "{\"messages\": ["
          for (i = 1; i <= n; ++i)
            printf "%s{\"role\": \" ?\", \"content\": \"%s\"}, {\"role\": \"\", \"content\": \" %d\"}", (i > 1 ? ", " : ""),
              (i > 1 ? " " name[asked[i]] : question), number[asked[i]]
          print "]}"
        }
      }
    }'
}

say "phonebooks: $BOOKS for training, $TESTS of each size for testing"
mkdir -p "$OUT/books"
books 1 "$BOOKS" "1 2 3 4 6 8 12 16 24 32 48" all > "$OUT/books/learned.jsonl"
books 2 2000 48 line > "$OUT/books/words.txt"
for size in $sizes; do books "10$size" "$TESTS" "$size" one > "$OUT/books/$size.jsonl"; done
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/books/words.txt" --vocab-size 400 --documents line --overwrite
run data build "$OUT/books/learned.jsonl" "$OUT/books/learned" --tokenizer "$OUT/tokenizer.json" --template '{role}{content}' --assistant '' --no-end --overwrite

# Fraction of books of the given size whose question is answered correctly.
right() {
  run eval "$1" --lambada "$OUT/books/$2.jsonl" --json "$OUT/answers.json" > /dev/null
  grep -o '"accuracy": *[0-9.e-]*' "$OUT/answers.json" | sed 's/.*: *//'
}

: > "$OUT/results"
for pattern in $PATTERNS; do
  say "training: $pattern"
  rm -rf "$OUT/run"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" "model.pattern=$pattern" "data.prefixes=[$OUT/books/learned]" "data.tokenizer=$OUT/tokenizer.json" \
    ${STEPS:+train.steps=$STEPS} "output.folder=$OUT/run" $ARGS |
    grep -oE '[0-9]+ parameters|^step [0-9]+/|loss [0-9.]+ |RUN .*' | paste -sd' ' | sed 's/ step/\n  step/g; s/ RUN/\n  RUN/'
  set +f
  checkpoints=("$OUT"/run/checkpoints/step_????????)
  set -f
  for size in $sizes; do echo "$pattern $size $(right "${checkpoints[-1]}" "$size")" >> "$OUT/results"; done
done

say "accuracy by number of entries per book ($TESTS books each)"
awk -v sizes="$sizes" -v margin="$MARGIN" '
  { if (!($1 in known)) order[++patterns] = $1; known[$1] = 1; share[$1, $2] = $3 }
  END {
    n = split(sizes, size, " ")
    printf "%-8s", "entries"
    for (i = 1; i <= n; ++i) printf "%8d", size[i]
    for (p = 1; p <= patterns; ++p) { printf "\n%-8s", order[p]; for (i = 1; i <= n; ++i) printf "%8.3f", share[order[p], size[i]] }
    if (("M-M-" in known) && ("M-*-" in known)) {
      gain = share["M-*-", size[n]] - share["M-M-", size[n]]
      printf "\nat %d entries one attention layer improves the accuracy by %.3f (required: %.2f)\n", size[n], gain, margin
      exit gain < margin
    }
    print "" }' "$OUT/results"
