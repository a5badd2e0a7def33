#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/mutants.sh BUILD [--hints] [--list] [NAME...]
# Mutation testing: switches the mistakes of mutants/list.txt on, one by one, and runs the tests of `make test` until one
# fails: first the tests that the list suggests, then the unit, grid and command tests. Prints how many mistakes were
# detected; exit code 1 if fewer than 95 % were.
#   NAME     only these mistakes; shell patterns such as 'optimizer.*'
#   --hints  only the tests that the list suggests: faster, but a mistake with a wrong suggestion counts as undetected
#   --list   print all mistakes
# At first the programs run without a mistake; tests that fail then are listed and excluded.
set -u
cd "$(dirname "$0")/.." || exit 69
build=${1:?usage: regression/mutants.sh BUILD [--hints] [--list] [NAME...]}; shift
list=regression/mutants/list.txt programs=$build/regression/mutants
hints='' names=()
for word; do
  case $word in
    --hints) hints=1 ;;
    --list) "$build/regression/mutate" "$list" names | column -t -s $'\t'; exit ;;
    -*) echo "mutants.sh: unknown option $word; valid options are --hints and --list" >&2; exit 64 ;;
    *) names+=("$word") ;;
  esac
done
for program in "$build"/regression/{mutate,command_tests} "$programs"/mutated_{gyrfalcon,unit_tests,grid_tests}; do
  [ -x "$program" ] || { echo "mutants.sh: $program does not exist; build it with `make mutants`, in build/mutants" >&2; exit 66; }
done
MPIEXEC=${MPIEXEC:-mpiexec.hydra}
work=$(mktemp -d) || exit 74
# Every process of a trial, including ranks and programs that tests launch, has this environment variable, by which
# leftover processes are found.
mark="GYRFALCON_TRIAL=$$.$(basename "$work")"
export "${mark?}" OMP_NUM_THREADS=1 GYRFALCON_BINARY="$PWD/$programs/mutated_gyrfalcon"
case $build in /*) GYRFALCON_BINARY=$programs/mutated_gyrfalcon ;; esac
export TMPDIR=$work/tmp
finish() { end_leftovers; rm -rf "$work"; }
trap finish EXIT
trap 'exit 130' INT TERM

end_leftovers() {
  local environ pid
  while read -r environ; do
    pid=${environ#/proc/}; pid=${pid%/environ}
    [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
  done < <(grep -lzsxF "$mark" /proc/[0-9]*/environ)
  return 0
}

# GoogleTest filters of the tests of `make test`, by program.
suites() {
  ctest --test-dir "$build" -N -LE '^(slow|slurm)$' -R "^$1\\." | sed -n "s/.*: $1\\.\\([a-z_0-9]*\\)\$/\\1.*:*\\/\\1.*:\\1\\/*/p" | paste -sd:
}
declare -A all limit
left_out='mutants.*'  # the test of the list itself, which no mistake affects

# attempt KIND FILTER SECONDS [ARGUMENTS]: runs tests; the log is $work/log. With a mistake switched on, grid tests end
# at the first failure.
attempt() {
  local kind=$1 filter=$2-$left_out seconds=$3; shift 3
  local command=("--gtest_filter=$filter" --gtest_color=no "$@") ranks=8
  case $filter in *equality_table.*) ranks=16 ;; *draws.*) ranks=12 ;; esac  # as in CMakeLists.txt
  [ "$kind" = unit ] && command=("$programs/mutated_unit_tests" "${command[@]}")
  [ "$kind" = grid ] && command=("$MPIEXEC" -n "$ranks" "$programs/mutated_grid_tests" "${command[@]}")
  [ "$kind" = commands ] && command=("$build/regression/command_tests" "${command[@]}")
  rm -rf "$TMPDIR"; mkdir -p "$TMPDIR"
  "${command[@]}" > "$work/log" 2>&1 < /dev/null &
  local pid=$! begin=$SECONDS
  while kill -0 $pid 2>/dev/null; do
    sleep 0.2
    # After a failure on one rank, the other ranks may wait forever.
    if [ $((SECONDS - begin)) -ge "$seconds" ] || { [ "$kind" = grid ] && [ -n "${GYRFALCON_MUTANT:-}" ] && grep -q '^\[  FAILED  \]' "$work/log"; }; then
      kill $pid 2>/dev/null; end_leftovers; wait $pid 2>/dev/null
      grep -q '^\[  FAILED  \]' "$work/log" && return 1
      return 124
    fi
  done
  wait $pid
  local code=$?
  end_leftovers
  if grep -q '^no test matches' "$work/log"; then echo "mutants.sh: no test matches $kind $filter" >&2; exit 70; fi
  return $code
}
failed_test() { sed -n 's/^\[  FAILED  \] \([^ ,]*\).*/\1/p' "$work/log" | head -1; }
running_test() { sed -n 's/^\[ RUN      \] //p' "$work/log" | tail -1; }

# noticed KIND FILTER SECONDS: true if these tests detect the mistake; sets `by` (test) and `how`.
noticed() {
  attempt "$1" "$2" "$3" --gtest_fail_fast
  local code=$?
  [ $code = 0 ] && return 1
  by=$(failed_test) how=failed
  [ -n "$by" ] || { by=$(running_test); how="ended with $code"; }
  [ $code = 124 ] && how="hangs"
  by="$1 ${by:-at the start}"
  return 0
}

selected() {
  local name=$1 pattern
  [ ${#names[@]} = 0 ] && return 0
  for pattern in "${names[@]}"; do
    # shellcheck disable=SC2053
    [[ $name == $pattern ]] && return 0
  done
  return 1
}

begin=$SECONDS
mapfile -t entries < <("$build/regression/mutate" "$list" names)
for kind in unit grid commands; do
  all[$kind]=$(suites $kind)
  filter=${all[$kind]}
  if [ -n "$hints" ]; then
    filter=$(for line in "${entries[@]}"; do selected "${line%%$'\t'*}" && tr '\t' '\n' <<< "$line"; done | sed -n "s/^$kind //p" | sort -u | paste -sd:)
    [ -n "$filter" ] || continue
  fi
  start=$SECONDS
  attempt $kind "$filter" 3600
  while read -r test; do
    echo "$kind $test fails without any mistake and is excluded"
    left_out+=:$test
  done < <(sed -n 's/^\[  FAILED  \] \([^ ,]*\)\(,.*\)\? ([0-9]* ms)$/\1/p' "$work/log" | sort -u)
  limit[$kind]=$((3 * (SECONDS - start) + 60))
  printf 'no mistake switched on: %s tests in %d s\n' "$kind" $((SECONDS - start))
done

tried=0 seen=0 survivors=()
printf '%-48s %-9s %6s  %s\n' mutant '' s 'by'
for line in "${entries[@]}"; do
  IFS=$'\t' read -r -a entry <<< "$line"
  name=${entry[0]}
  selected "$name" || continue
  export GYRFALCON_MUTANT=$name
  tried=$((tried + 1)) start=$SECONDS by='' how='' found=
  for try in "${entry[@]:2}"; do
    noticed "${try%% *}" "${try#* }" 240 && { found=1; break; }
  done
  if [ -z "$found" ] && [ -z "$hints" ]; then
    for kind in unit grid commands; do
      noticed $kind "${all[$kind]}" "${limit[$kind]}" && { found=1; break; }
    done
  fi
  unset GYRFALCON_MUTANT
  if [ -n "$found" ]; then seen=$((seen + 1)); else survivors+=("$name"); fi
  printf '%-48s %-9s %6d  %s\n' "$name" "$([ -n "$found" ] && echo detected || echo SURVIVED)" $((SECONDS - start)) \
    "$by$([ -n "$how" ] && [ "$how" != failed ] && echo " ($how)")"
done

[ $tried -gt 0 ] || { echo "mutants.sh: no mistake has that name; see --list" >&2; exit 64; }
printf '%d of %d mistakes detected (%d %%) in %d s\n' $seen $tried $((100 * seen / tried)) $((SECONDS - begin))
for name in "${survivors[@]}"; do echo "survived: $name"; done
[ $((100 * seen)) -ge $((95 * tried)) ]
