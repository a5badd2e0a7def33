#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Phonebooks (Waleffe et al., "An Empirical Study of Mamba-based Language Models", 2024): names with a number each, drawn anew for every book, and
# then names alone, whose numbers are to be told. What a state-space model keeps of a book does not grow with it, so beyond some number of entries it
# tells fewer of them; one layer of attention, which sees the book itself, tells all. Three small models learn from books of 1 to 48 entries:
# pattern M-M- (Mamba-2), M-*- (the second Mamba-2 layer is attention instead), *-*- (attention alone, which does not learn
# it in as many steps); each is asked about books that none has seen.
#   NP ranks (2)   STEPS of training (the deck's)   BOOKS to learn from (60000)   TESTS books of each size that are asked about (500)
#   PATTERNS ("M-M- M-*- *-*-")   MARGIN (0.3) by which M-*- has to be right more often than M-M- about 48 entries   ARGS overrides of the deck
#   OUT folder   BUILD build folder
# Exit codes: 0, 1 attention does not mend it; those of gyrfalcon.
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

# books SEED COUNT SIZES FORM: of 64 names and 32 numbers; chance has 1 of 32, or 1 of the entries where it knows which numbers there are.
#   all   turns of a conversation: the book with the first question, and all its names in some order, each with its answer
#   one   {"text"} whose last word is the answer
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

say "phonebooks: $BOOKS to learn from, $TESTS of each size to be asked about"
mkdir -p "$OUT/books"
books 1 "$BOOKS" "1 2 3 4 6 8 12 16 24 32 48" all > "$OUT/books/learned.jsonl"
books 2 2000 48 line > "$OUT/books/words.txt"
for size in $sizes; do books "10$size" "$TESTS" "$size" one > "$OUT/books/$size.jsonl"; done
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/books/words.txt" --vocab-size 400 --documents line
run data build "$OUT/books/learned.jsonl" "$OUT/books/learned" --tokenizer "$OUT/tokenizer.json" --template '{role}{content}' --assistant '' --no-end --overwrite

# The share of books of that size whose first question is answered rightly.
right() {
  run eval "$1" --lambada "$OUT/books/$2.jsonl" --json "$OUT/answers.json" > /dev/null
  grep -o '"accuracy": *[0-9.e-]*' "$OUT/answers.json" | sed 's/.*: *//'
}

: > "$OUT/results"
for pattern in $PATTERNS; do
  say "learning: $pattern"
  rm -rf "$OUT/run"
  # shellcheck disable=SC2086  # ARGS is a list of words
  run train "$deck" "model.pattern=$pattern" "data.prefixes=[$OUT/books/learned]" "data.tokenizer=$OUT/tokenizer.json" \
    ${STEPS:+train.steps=$STEPS} "output.folder=$OUT/run" $ARGS |
    grep -oE '[0-9]+ parameters|iteration +[0-9]+/|lm loss: [0-9.E+-]+|RUN .*' | paste -sd' ' | sed 's/ iteration/\n  iteration/g; s/ RUN/\n  RUN/'
  set +f
  checkpoints=("$OUT"/run/checkpoints/step_????????)
  set -f
  for size in $sizes; do echo "$pattern $size $(right "${checkpoints[-1]}" "$size")" >> "$OUT/results"; done
done

say "numbers that are told rightly, by entries of the book ($TESTS books each)"
awk -v sizes="$sizes" -v margin="$MARGIN" '
  { if (!($1 in known)) order[++patterns] = $1; known[$1] = 1; share[$1, $2] = $3 }
  END {
    n = split(sizes, size, " ")
    printf "%-8s", "entries"
    for (i = 1; i <= n; ++i) printf "%8d", size[i]
    for (p = 1; p <= patterns; ++p) { printf "\n%-8s", order[p]; for (i = 1; i <= n; ++i) printf "%8.3f", share[order[p], size[i]] }
    if (("M-M-" in known) && ("M-*-" in known)) {
      gain = share["M-*-", size[n]] - share["M-M-", size[n]]
      printf "\nat %d entries a layer of attention tells %.3f more of them (%.2f is asked for)\n", size[n], gain, margin
      exit gain < margin
    }
    print "" }' "$OUT/results"
