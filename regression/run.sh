#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The regression table: trains small models on several grids and compares loss, gradient norm, validation loss and final
# weights of each run with a golden curve, or bitwise with an uninterrupted run. Prints one table with a row per run.
#   regression/run.sh [--launcher WORDS] [--ranks N] [--only PATTERNS] [--binary PATH] [--work DIR] [--rewrite REASON] [--list]
#     --launcher  launches ranks as `WORDS -n RANKS PROGRAM`; default: the mpiexec of the program's MPI, or srun
#     --ranks     maximum number of ranks of a run (default: those of the allocation, or 8); larger runs are listed as skipped
#     --only      names of cases, as in 'restart*,bf16'
#     --binary    the program (build/release/bin/gyrfalcon)
#     --work      folder of the runs (out/regression), on a file system that all nodes share; failed runs are kept there
#     --rewrite   replaces the golden curve if all grids agree; the reason is written into the file
#     --list      prints the cases and their runs
# Environment: LIMIT time limit of a launcher in seconds (600).
# Exit codes: 0 all runs held, 1 a run failed, 64 wrong arguments, 65 a case file is wrong, 66 no program, 69 the launcher fails.
#
# A case is regression/table/NAME.case with the golden curve NAME.golden. Its lines have the form KEY VALUE:
#   about      purpose of the case                         deck   deck in that folder     steps  number of training steps
#   data       token files: text, verse, chat              set    deck overrides, may be repeated
#   precision  fp32, fp64, bf16; PRECISION.tolerances contain the permitted deviations and their reasons
#   grids      one run each: DATAxPIPELINExTENSOR; the first one makes the golden curve. A>B is stopped on grid A and resumed on
#              grid B; if B equals A, it must be bitwise equal to the run A, which must precede it
#   stop       STEP steps | file: the first part ends after STEP by train.steps, or shortly after STEP by a file STOP
#   reshard    number of files that the checkpoint of the first part is resharded into
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd) cases=$here/table
limit=${LIMIT:-600}  # time limit of a launcher in seconds
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} COLUMNS=400  # diff prints each tensor in one line
fail() { printf 'regression: %s\n' "$2" >&2; exit "$1"; }

# ---- The command line -----------------------------------------------------------------------------------------------------------------
read_options() {
  list='' reason='' only='*' binary=$here/../build/release/bin/gyrfalcon work=$here/../out/regression ranks=$(allocated_ranks) words=''
  while [ $# -gt 0 ]; do
    local name=$1 value=${2:-}
    case $name in
      --list) list=yes; shift; continue ;;
      --help) sed -n '3,/^set /{/^#/s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
      --rewrite) [[ $value =~ [^[:space:]] && $value != --* ]] || fail 64 "--rewrite takes the reason, as in --rewrite 'the scan sums in another order'" ;;
      --launcher | --ranks | --only | --binary | --work) [ -n "$value" ] || fail 64 "$name takes a value; see --help" ;;
      *) fail 64 "unknown word '$name'; see --help" ;;
    esac
    case $name in
      --launcher) words=$value ;; --ranks) ranks=$value ;; --only) only=$value ;; --binary) binary=$value ;; --work) work=$value ;;
      --rewrite) reason=${value//$'\n'/ } ;;
    esac
    shift 2
  done
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || fail 64 "--ranks takes a number, 1 or more, not '$ranks'"
  read -r -a launcher <<< "${words:-$("$here/../jobscripts/launcher.sh" "$binary" 2> /dev/null || echo srun)}"
}

allocated_ranks() {
  if [ -n "${SLURM_NTASKS:-}" ]; then echo "$SLURM_NTASKS"; elif [ -f "${PBS_NODEFILE:-}" ]; then wc -l < "$PBS_NODEFILE"; else echo 8; fi
}

# Names of the cases that match --only.
choose_cases() {
  local pattern file name
  local -a patterns
  IFS=, read -r -a patterns <<< "$only"
  names=()
  for file in "$cases"/*.case; do
    name=$(basename "$file" .case)
    for pattern in "${patterns[@]}"; do
      # shellcheck disable=SC2053  # a pattern
      if [[ $name == $pattern ]]; then names+=("$name"); break; fi
    done
  done
  [ ${#names[@]} -gt 0 ] || fail 64 "no case is called '$only'; there are: $(cd "$cases" && echo *.case | sed 's/\.case//g')"
}

# ---- Cases ----------------------------------------------------------------------------------------------------------------------------
declare -A the  # the current case, by key
read_case() {
  local file=$cases/$1.case key value number=0
  the=([case]=$1)
  while read -r key value || [ -n "$key" ]; do
    number=$((number + 1))
    case $key in
      '' | '#'*) continue ;;
      set) the[set]="${the[set]:-} $value"; continue ;;
      about | deck | data | precision | steps | grids | stop | reshard) ;;
      *) fail 65 "$file:$number: unknown key '$key'; valid keys are about, deck, data, precision, set, steps, grids, stop, reshard" ;;
    esac
    [ -z "${the[$key]:-}" ] || fail 65 "$file:$number: '$key' occurs twice"
    the[$key]=$value
  done < "$file"
  check_case "$file"
}

check_case() {
  local key grid cell='[1-9][0-9]*x[1-9][0-9]*x[1-9][0-9]*' before=' '
  for key in about deck data precision steps grids; do [ -n "${the[$key]:-}" ] || fail 65 "$1: '$key' is missing"; done
  [ -f "$cases/${the[deck]}" ] || fail 65 "$1: deck ${the[deck]} is not in $cases"
  [ -f "$cases/${the[precision]}.tolerances" ] || fail 65 "$1: precision '${the[precision]}' has no file of tolerances in $cases"
  [[ ${the[steps]} =~ ^[1-9][0-9]*$ ]] || fail 65 "$1: steps '${the[steps]}' is not a number"
  [[ ${the[data]} =~ ^(text|verse|chat)(\ (text|verse|chat))*$ ]] || fail 65 "$1: data '${the[data]}' must be made of text, verse, chat"
  [[ ${the[reshard]:-1} =~ ^[1-9][0-9]*$ ]] || fail 65 "$1: reshard '${the[reshard]}' is not a number of files"
  for grid in ${the[grids]}; do
    [[ $grid =~ ^$cell(\>$cell)?$ ]] || fail 65 "$1: grid '$grid' must be DATAxPIPELINExTENSOR, or two of them with > between"
    if [[ $grid == *'>'* ]]; then
      [ "$before" != ' ' ] || fail 65 "$1: the first grid makes the golden curve and cannot be '$grid'"
      if [[ ! ${the[stop]:-} =~ ^[1-9][0-9]*\ (steps|file)$ ]] || [ "${the[stop]% *}" -ge "${the[steps]}" ]; then
        fail 65 "$1: '$grid' needs a line 'stop STEP steps' or 'stop STEP file' with STEP below the number of steps"
      fi
      [ "${grid%>*}" != "${grid#*>}" ] || [[ $before == *" ${grid%>*} "* ]] || fail 65 "$1: '$grid' needs the run ${grid%>*} before it"
    fi
    before+="$grid "
  done
}

product() { echo $((${1//x/*})); }
ranks_of() {  # number of ranks of a run; a run of two parts needs the larger number
  local a b
  a=$(product "${1%>*}") b=$(product "${1#*>}")
  echo $((a > b ? a : b))
}

# ---- Token files ----------------------------------------------------------------------------------------------------------------------
# Builds all token files from material.awk with the program itself, because those of another version may differ.
make_data() {
  rm -rf "$work/data"
  mkdir -p "$work/data"
  write_texts
  build_tokens > "$work/data.log" 2>&1 ||
    fail 69 "'${launcher[*]} -n 1 $binary' fails; try it with --version. The last line of its output is '$(tail -n 1 "$work/data.log")', all are in $work/data.log"
}

write_texts() {
  awk -v kind=text -v seed=11 -v documents=400 -f "$cases/material.awk" > "$work/data/text.txt"
  awk -v kind=text -v seed=13 -v documents=100 -f "$cases/material.awk" > "$work/data/verse.txt"
  awk -v kind=chat -v seed=17 -v documents=600 -f "$cases/material.awk" > "$work/data/chat.jsonl"
}

build_tokens() {
  local name=$work/data/tokenizer.json
  launch 1 tokenizer train "$name" "$work/data/text.txt" --vocab-size 300 --documents separator || return 1
  for name in "${!sources[@]}"; do
    local -a how=("$work/data/$name.txt" "$work/data/$name" --documents separator)
    [ "$name" != chat ] || how=("$work/data/chat.jsonl" "$work/data/chat" --no-end --template '<|bos|>user: {prompt}<|pad|>model: {response}<|endoftext|>')
    launch 1 data build "${how[@]}" --tokenizer "$work/data/tokenizer.json" || return 1
  done
}

data_sum() {
  local name
  for name in ${the[data]}; do cat "$work/data/$name.bin"; done | cksum | cut -d' ' -f1
}

# ---- Runs -----------------------------------------------------------------------------------------------------------------------------
launch() {
  local count=$1
  shift
  timeout --foreground -k 10 "$limit" "${launcher[@]}" -n "$count" "$binary" "$@" < /dev/null
}

# train FOLDER GRID LOG [ARGUMENTS]: one attempt of a run.
train() {
  local folder=$1 grid=$2 log=$3 data pipeline tensor
  local -a settings prefixes
  shift 3
  read -r -a settings <<< "${the[set]:-}"
  read -r -a prefixes <<< "${the[data]}"
  IFS=x read -r data pipeline tensor <<< "$grid"
  prefixes=("${prefixes[@]/#/$work/data/}")
  launch "$(product "$grid")" train "$cases/${the[deck]}" "${settings[@]}" train.precision="${the[precision]}" train.steps="${the[steps]}" \
    data.prefixes="[$(IFS=,; echo "${prefixes[*]}")]" optimizer.decay_steps="${the[steps]}" parallel.data="$data" parallel.pipeline="$pipeline" \
    parallel.tensor="$tensor" output.folder="$folder" "$@" > "$log" 2>&1
}

# ended LOG LAST: true if the last line of the run begins with LAST. The launchers' exit codes are not always reliable.
ended() {
  local last said
  last=$(grep -a '^RUN ' "$1" | tail -n 1) || true
  [[ $last == "$2"* ]] && return
  said=$(grep -a '^gyrfalcon: ' "$1" | tail -n 1) || true
  why="the last line must be '$2' but is '${last:-$(tail -n 1 "$1")}'${said:+: $said}; log $1"
  return 1
}

# The first part of a run. It ends at its step by train.steps, or by a file STOP that is created when that step is done.
first_part() {
  local folder=$1 grid=$2 log=$3 step=${the[stop]% *} child
  if [ "${the[stop]#* }" = steps ]; then
    train "$folder" "$grid" "$log" train.steps="$step" || true
    ended "$log" 'RUN OK'
    return
  fi
  train "$folder" "$grid" "$log" watchdog.heartbeat=0.01 &
  child=$!
  while kill -0 "$child" 2> /dev/null && ! grep -qs "\"step\":$step," "$folder/metrics.jsonl"; do sleep 0.01; done
  touch "$folder/STOP"
  wait "$child" || true
  ended "$log" 'RUN STOPPED 75'
}

newest() { find "$1/checkpoints" -maxdepth 1 -name 'step_*' ! -name '*.tmp' 2> /dev/null | sort | tail -n 1; }

reshard() {
  local from
  from=$(newest "$1")
  "$binary" reshard "$from" "$1/anew" --files "${the[reshard]}" > "$2" 2>&1 && rm -r "$from" && mv "$1/anew" "$from" && return
  why="gyrfalcon reshard $from failed: $(tail -n 1 "$2"); log $2"
  return 1
}

# run FOLDER GRID: all parts of a run; FOLDER.log is the log of the last part.
run() {
  local folder=$1 grid=$2
  if [[ $grid != *'>'* ]]; then
    train "$folder" "$grid" "$folder.log" || true
    ended "$folder.log" 'RUN OK'
    return
  fi
  first_part "$folder" "${grid%>*}" "$folder.first.log" || return 1
  if [ -n "${the[reshard]:-}" ]; then reshard "$folder" "$folder.reshard.log" || return 1; fi
  train "$folder" "${grid#*>}" "$folder.log" --resume || true
  ended "$folder.log" 'RUN OK' || return 1
  grep -q '^resumed from .* at step' "$folder.log" || { why="the run started over instead of resuming; log $folder.log"; return 1; }
}

# ---- Comparisons ----------------------------------------------------------------------------------------------------------------------
# compare FOLDER BITS REFERENCE: compares curves. Sets worst, of and allowed, and `why` if the deviation is too large.
compare() {
  local folder=$1 bits=$2 reference=$3 off quantity step room said here there
  read -r off quantity step room said here there < <(
    awk -v bits="$bits" -f "$cases/compare.awk" "$cases/${the[precision]}.tolerances" "$reference" "$folder.curve")
  worst=$off of="$quantity $step" allowed=$room
  [ "$said" = held ] && return
  why="step $step: $quantity is $here, in the $([ "$bits" = 1 ] && echo uninterrupted run || echo golden curve) $there: off by $off, allowed $room; log $folder.log"
  return 1
}

# compare_weights FOLDER BITS REFERENCE: compares final weights and optimizer state in checkpoints of any two grids.
# Sets `weights`, the largest difference relative to the largest value of its tensor, and `why` if a tensor exceeds its
# tolerance.
compare_weights() {
  local folder=$1 bits=$2 reference=$3 code=0 tensor
  local -a tolerances=(--tolerances "$cases/${the[precision]}.tolerances")
  [ "$bits" = 0 ] || tolerances=(--tolerance 0)
  "$binary" diff "$(newest "$reference")" "$(newest "$folder")" "${tolerances[@]}" > "$folder.diff" 2>&1 || code=$?
  read -r weights tensor < <(awk '
    /^\// && $3 + 0 > most { most = $3 + 0 }
    /^\// && /beyond|only in|against/ && (tensor == "" || $3 + 0 > far) { tensor = $1; far = $3 + 0 }
    END { print most ? sprintf("%.1e", most) : 0, tensor == "" ? "" : tensor " by " far " of its largest value" }' "$folder.diff")
  [ "$code" = 0 ] && return
  why="final weights differ from $(basename "$reference"), ${tensor:-$(tail -n 1 "$folder.diff")}; complete list in $folder.diff"
  return 1
}

# The golden curve of the case must have been made from the same token files.
golden_is_ours() {
  local file=$cases/${the[case]}.golden
  if [ ! -f "$file" ]; then why="there is no golden curve; make one with --only ${the[case]} --rewrite REASON"; return 1; fi
  grep -q "^# data *$(data_sum)\$" "$file" && return
  why="the token files (checksum $(data_sum)) are not those of $file: the tokenizer or data build has changed"
  return 1
}

# ---- The table ------------------------------------------------------------------------------------------------------------------------
row() { printf "%-${wide}s %5s  %-${broad}s %5s  %-7s %9s  %-13s %7s %8s %8s  %s\n" "$@"; }

folder_of() { echo "$work/${the[case]}/${1/>/-to-}"; }

# judge GRID: runs the current case on one grid and prints a row.
judge() {
  local grid=$1 folder reference begin against=golden verdict=held bits=0 base
  worst=- of=- allowed=- weights=- why=
  folder=$(folder_of "$grid") base=${the[grids]%% *} begin=$(date +%s.%N)
  [ "${grid%>*}" = "${grid#*>}" ] && [ "$grid" != "${grid%>*}" ] && bits=1 base=${grid%>*}
  reference=$cases/${the[case]}.golden
  [ -z "$reason" ] || against=new reference=$(folder_of "${the[grids]%% *}").curve  # becomes golden if all grids agree
  [ "$bits" = 0 ] || against=bits reference=$(folder_of "$base").curve
  if run "$folder" "$grid"; then
    awk -f "$cases/curve.awk" "$folder/metrics.jsonl" > "$folder.curve"
    if [ ! -f "$reference" ]; then why="there is no curve of the run $base to compare with"
    elif compare "$folder" "$bits" "$reference" && [ "$base" != "$grid" ]; then compare_weights "$folder" "$bits" "$(folder_of "$base")" || true; fi
  fi
  [ -z "$why" ] || verdict=FAILED
  row "${the[case]}" "$(ranks_of "$grid")" "$grid" "${the[steps]}" "$against" "$worst" "$of" "$allowed" "$weights" \
    "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')" "$verdict"
  if [ -n "$why" ]; then failures+=("${the[case]} $grid: $why"); return 1; fi
  held=$((held + 1)) ran+=" $grid"
}

judge_case() {
  local grid why failed=${#failures[@]}
  ran=
  rm -rf "${work:?}/${the[case]}"
  mkdir -p "$work/${the[case]}"
  if [ -z "$reason" ] && ! golden_is_ours; then
    row "${the[case]}" - - "${the[steps]}" golden - - - - - FAILED
    failures+=("${the[case]}: $why")
    return
  fi
  for grid in ${the[grids]}; do
    if [ "$(ranks_of "$grid")" -gt "$ranks" ]; then
      row "${the[case]}" "$(ranks_of "$grid")" "$grid" "${the[steps]}" - - - - - - skipped
      skipped=$((skipped + 1))
    else
      judge "$grid" || true
    fi
  done
  [ ${#failures[@]} = "$failed" ] || return 0
  [ -z "$reason" ] || [ -z "$ran" ] || rewrite
  rm -rf "${work:?}/${the[case]}"
}

rewrite() {
  local file=$cases/${the[case]}.golden
  {
    echo "# Written by regression/run.sh --rewrite. Do not edit."
    printf '# %-10s %s\n' reason "$reason" date "$(date -u +%Y-%m-%d)" \
      version "$("$binary" --version | awk '$1 == "Gyrfalcon" { v = $2 } $1 == "git" { g = $2 } END { print v ", git " g }')" \
      grid "${the[grids]%% *}" "agreed on" "${ran:1}" data "$(data_sum)"
    printf '# step\tloss\tgrad_norm\tvalidation\n'
    cat "$(folder_of "${the[grids]%% *}").curve"
  } > "$file.new"
  mv "$file.new" "$file"
  rewritten=$((rewritten + 1))
}

# Reads and checks all cases before any run starts, and determines column widths and the token files to build.
declare -A sources
survey() {
  local name grid source
  wide=4 broad=4
  for name in "${names[@]}"; do
    read_case "$name"
    [ ${#name} -le "$wide" ] || wide=${#name}
    for grid in ${the[grids]}; do [ ${#grid} -le "$broad" ] || broad=${#grid}; done
    for source in ${the[data]}; do sources[$source]=needed; done
  done
}

list_cases() {
  local name
  for name in "${names[@]}"; do
    read_case "$name"
    printf "%-${wide}s %4s steps  %s  %s\n%$((wide + 13))s%s\n" "$name" "${the[steps]}" "${the[precision]}" "${the[grids]}" '' "${the[about]}"
  done
}

main() {
  local name
  read_options "$@"
  choose_cases
  survey
  if [ -n "$list" ]; then list_cases; return; fi
  [ -x "$binary" ] || fail 66 "$binary does not exist; build it (make), or name it with --binary"
  command -v "${launcher[0]}" > /dev/null || fail 69 "launcher ${launcher[0]} does not exist; name another with --launcher"
  mkdir -p "$work" || fail 69 "$work cannot be created; choose another folder with --work"
  binary=$(realpath "$binary") work=$(realpath "$work")
  failures=() held=0 skipped=0 rewritten=0
  SECONDS=0
  make_data
  row case ranks grid steps against worst of allowed weights seconds verdict
  for name in "${names[@]}"; do
    read_case "$name"
    judge_case
  done
  rm -rf "$work/data"
  report
}

report() {
  printf '\n%d held, %d failed, %d skipped%s, in %d s\n' "$held" "${#failures[@]}" "$skipped" \
    "$([ "$skipped" = 0 ] || echo " (they need more than $ranks ranks: --ranks)")" "$SECONDS"
  [ -z "$reason" ] || printf '%d golden curves rewritten\n' "$rewritten"
  [ ${#failures[@]} = 0 ] || { printf 'FAILED %s\n' "${failures[@]}"; return 1; }
  [ "$held" -gt 0 ] || fail 69 "no run was started: all runs need more than $ranks ranks"
}

main "$@"
