#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs all fault-injection tests (label fault) and prints a table of the faults tried and the faults survived.
#   regression/faults.sh BUILD [CTEST ARGUMENTS]      BUILD: build folder with tests; '-LE slow' excludes tests that take many minutes
# Exit code: that of ctest, or 1 if a fault was not survived.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 64; }
build=$1
shift

ctest --test-dir "$build" --label-regex fault --verbose "$@" 2>&1 | awk -F ' [|] ' -v report="$build/Testing/Temporary/LastTest.log" '
  function test(line) { sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, "", line); sub(/ \.+/, "", line); return line }
  /Test +#[0-9]+: /   { print test($0); fflush(); ran = 1 }
  /TRIALS [|]/        { if (!($2 in tried)) order[++kinds] = $2; tried[$2] += $3; survived[$2] += $4; next }
  /tests passed/      { passed = $0 }
  /, detected \(\|\) by|effective training time|s between two steps|saves of|descriptors|with a save unfinished/ { sub(/^[0-9]+: /, ""); said[++lines] = $0 }
  END {
    if (!ran) { print "no test ran"; exit 1 }
    printf "\n%-66s %8s %9s\n", "injected fault", "tried", "survived"
    for (i = 1; i <= kinds; ++i) {
      k = order[i]
      printf "%-66s %8d %9d%s\n", k, tried[k], survived[k], survived[k] < tried[k] ? "  LOST" : ""
      all += tried[k]; whole += survived[k]
    }
    printf "%-66s %8d %9d\n\n", "all", all, whole
    for (i = 1; i <= lines; ++i) print said[i]
    print passed
    if (whole < all || passed !~ /^100%/) print "failures are logged in " report
    exit whole < all
  }'
