#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Submits a jobscript with the partition, account and options of the site file (site.example.sh). #SBATCH and #PBS lines
# cannot contain variables. Program and deck are checked before the job waits in a queue, the deck on the ranks of the job.
#   submit.sh [--dry-run] [OPTION of sbatch or qsub ...] SCRIPT DECK [key=value ...]
# --dry-run checks the deck and prints the command, the number of ranks, the settings of the script and those of the site
# file with NCCL, UCX and libfabric. It submits nothing and needs neither a scheduler nor a program for GPUs.
# SCRIPT is the name of a jobscript in this folder, or the path of your own copy. Variables of the environment, such as
# VERIFY=1, reach the job under Slurm and PBS. Exit codes: 64 command line, 65 wrong or no token files (except for a job that
# waits for another one; a dry run prints the command first), 66 no such file, 69 no program, no scheduler or a missing command in the site file, 74 a file that
# cannot be read, 78 a deck that cannot run on the ranks of the job. After 78, the last line names the settings that give the
# number of ranks, if the reason depends on it.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=jobscripts/start.sh
. "$here/start.sh"

scripts() { (cd "$here" && echo slurm-*.sh pbs-*.sh); }

# check_options WORD...: exit code 64 for an option that looks like a number of ranks or nodes and that the scheduler of the
# script does not have. The scheduler itself would refuse it only at the submission, or read something else.
check_options() {
  local word ranks='--ntasks=N for the number of ranks, or --nodes=N for that of nodes'
  if grep -q '^#SBATCH' "$script"; then
    for word; do
      case $word in
        select=* | nodes=*) refuse 64 "$word: $(basename "$script") goes to sbatch, which has no -l; write $ranks" ;;
      esac
      case ${word%%=*} in
        --ntasks | --ntasks-per-* | --tasks-per-node | --nodes | --nodelist | --nodefile | --use-min-nodes | --sockets-per-node | --extra-node-info) ;;
        --cpus-per-task | --gpus-per-task | --tres-per-task | --gpus-per-node | --tres-per-node) ;;
        --*task* | --*node* | --*rank* | --*proc* | --np | --n | -np) refuse 64 "$word: sbatch has no such option; write $ranks" ;;
      esac
    done
  else
    for word; do
      case $word in
        --version) ;;
        --* | -n | -n[0-9]* | -np) refuse 64 "$word: $(basename "$script") goes to qsub, which has no such option; it takes the number of ranks as -l select=1:ncpus=2:mpiprocs=2, for 2 ranks on one node" ;;
      esac
    done
  fi
}

options=() script='' dry_run=''
while [ $# -gt 0 ] && [ -z "$script" ]; do
  case $1 in
    --dry-run) dry_run=yes ;;
    -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit ;;
    *.sh)
      if [ -f "$1" ]; then script=$(realpath "$1"); elif [ -f "$here/$1" ]; then script=$here/$1
      elif [ -f "$here/$(basename "$1")" ]; then refuse 66 "there is no jobscript $1 in $PWD; write $(basename "$1"), without a folder, for the script in $here"
      else refuse 66 "there is no jobscript $1; there are $(scripts)"; fi ;;
    *) options+=("$1") ;;
  esac
  shift
done
[ -n "$script" ] || refuse 64 "no jobscript is named; write submit.sh [OPTION ...] SCRIPT DECK [key=value ...], where SCRIPT is one of $(scripts)"
for word in "$@"; do
  case $word in
    -*) refuse 64 "$word: options of sbatch and qsub stand before the script, and keys of the deck are written section.key=value" ;;
  esac
done
for word in ${options[@]+"${options[@]}"}; do
  case $word,${1:-} in
    *.y*ml,*.y*ml) ;;
    *.yaml,* | *.yml,*) refuse 64 "$word: the deck stands after the script; write submit.sh [OPTION ...] $(basename "$script") $(printf %q "$word")" ;;
  esac
done
check_options ${options[@]+"${options[@]}"}
read_site
check_deck "$@"
bind=${BIND:-rank}
! grep -q '^export BIND=gpu' "$script" || bind=gpu
# A dry run needs no program of the script's kind: any program plans the deck.
if [ -n "$dry_run" ] && ! lacks=$(find_program "$bind" 2>&1); then
  printf '%s\nsubmit.sh: the job itself would be refused (69); the dry run goes on\n' "$lacks" >&2
  gyrfalcon=''
  case $lacks in *'built for CPUs'*) ;; *) unset GYRFALCON ;; esac
  if (find_program rank) 2> /dev/null; then find_program rank; else gyrfalcon=$(command -v gyrfalcon || true); fi
else
  find_program "$bind"
fi
# value LONG SHORT: last value of this option of sbatch, on the command line or else in the script; nothing if it is not given.
value() {
  { sed -n 's/^#SBATCH //p' "$script"; printf '%s\n' ${options[@]+"${options[@]}"}; } | tr '= ' '\n' |
    awk -v long="--$1" -v short="-$2" 'take { found = $0; take = 0; next } $0 == long || $0 == short { take = 1; next }
      length(short) > 1 && index($0, short) == 1 && substr($0, 3) ~ /^[0-9]+$/ { found = substr($0, 3) } END { print found }'
}

# number OPTION VALUE: exit code 64 for a value that does not begin with a digit. An option that is not given has none.
number() {
  case $2 in '' | [0-9]*) ;; *) refuse 64 "--$1=$2: must be a number, as in --$1=2" ;; esac
}

# pbs_select: the last select of the options or else of the #PBS lines, without "select=".
pbs_select() {
  { sed -n 's/^#PBS -l *//p' "$script"; printf '%s\n' ${options[@]+"${options[@]}"}; } | sed -n 's/^select=//p' | tail -n 1
}

# Number of ranks that the job will have: RANKS, or those of the options and the #SBATCH or #PBS lines; nothing if they do
# not state it.
ranks() {
  local nodes tasks each line
  if [ -n "${RANKS:-}" ]; then
    echo "$RANKS"
  elif grep -q '^#SBATCH' "$script"; then
    nodes=$(value nodes N) tasks=$(value ntasks n) each=$(value ntasks-per-node '')
    number nodes "$nodes"
    number ntasks "$tasks"
    number ntasks-per-node "$each"
    nodes=${nodes#*-}  # the maximum of MIN-MAX
    case $nodes$tasks$each in *[!0-9]*) return ;; esac  # sbatch knows forms that are not counted here
    if [ -n "$tasks" ]; then echo "$tasks"; elif [ -n "$each" ]; then echo $((${nodes:-1} * each)); else echo "${nodes:-1}"; fi
  else
    line=$(pbs_select)
    case $line in
      '' | *+*) ;;
      *) each=$(sed -n 's/.*:mpiprocs=\([0-9]*\).*/\1/p' <<< "$line") && echo $((${line%%:*} * ${each:-1})) ;;
    esac
  fi
}

# depends_on_ranks MESSAGE: false for a message about the name or the value of a key, which any number of ranks gives.
depends_on_ranks() {
  case $1 in *'unknown key'* | *'; allowed: '*) return 1 ;; *rank*) ;; *) return 1 ;; esac
}

# origin DECK: the settings from which `ranks` takes the number, and how to change them. The proposal differs from the
# number of the job.
origin() {
  local long number name given='' lines other nodes=1 each chunk
  name=$(basename "$script")
  if [ -n "${RANKS:-}" ]; then
    echo "the number of ranks comes from the variable RANKS=$RANKS; change or unset it"
    return
  elif grep -q '^#SBATCH' "$script"; then
    lines=SBATCH other=--ntasks=4
    for long in nodes:N ntasks:n ntasks-per-node:; do
      number=$(value "${long%:*}" "${long#*:}")
      [ -z "$number" ] || given="$given --${long%:*}=$number"
    done
    [ "$count" != 4 ] || other=--ntasks=2
    each=$(value ntasks-per-node '')
    # One node has the fewest ranks; fewer than those are fewer on the node.
    case $bind,$(value nodes N),$each in
      gpu,1,[2-9]*) other="--nodes=1 --ntasks-per-node=$((each / 2))" ;;
      gpu,1,*) other=--nodes=2 ;;
      gpu,*) other=--nodes=1 ;;
    esac
  else
    lines=PBS given=" -l select=$(pbs_select)" other='-l select=1:ncpus=4:mpiprocs=4'
    [ "$count" != 4 ] || other='-l select=1:ncpus=2:mpiprocs=2'
    # The resources of a chunk: those of the options, or else those of the script.
    chunk=$(pbs_select | sed -n 's/^[0-9]*://p')
    [ -n "$chunk" ] || chunk=$(sed -n 's/^#PBS -l *select=[0-9]*://p' "$script" | tail -n 1)
    each=$(sed -n 's/.*mpiprocs=\([0-9]*\).*/\1/p' <<< "$chunk")
    case $(pbs_select),$each in
      1:*,[2-9]*) chunk=${chunk/mpiprocs=$each/mpiprocs=$((each / 2))} ;;
      1 | 1:*) nodes=2 ;;
    esac
    [ "$bind" != gpu ] || other="-l select=$nodes:$chunk"
  fi
  echo "the number of ranks comes from$given (#$lines lines of $name, unless an option replaces them); for another number, give an" \
    "option before the script, as in \`submit.sh $other $name $(printf %q "$1")\`"
}

export GYRFALCON_JOBSCRIPTS=$here
if grep -q '^#SBATCH' "$script"; then scheduler=sbatch other=qsub others='pbs-*.sh'; else scheduler=qsub other=sbatch others='slurm-*.sh'; fi
if [ "$scheduler" = sbatch ]; then given=(${SUBMIT_SBATCH[@]+"${SUBMIT_SBATCH[@]}"}); else given=(${SUBMIT_QSUB[@]+"${SUBMIT_QSUB[@]}"}); fi
options=(${SUBMIT[@]+"${SUBMIT[@]}"} ${given[@]+"${given[@]}"} ${options[@]+"${options[@]}"})
if [ -z "$dry_run" ] && ! command -v "$scheduler" > /dev/null; then
  ! command -v "$other" > /dev/null || refuse 69 "there is no $scheduler here, but $other; take one of the scripts $others"
  refuse 69 "there is no $scheduler here; submit on a login node of the cluster, or give --dry-run"
fi
count=$(ranks) stops=0
case " ${options[*]}" in *' --dependency'* | *' -d'* | *depend=*) waits=yes ;; esac
if [ -z "$gyrfalcon" ]; then
  echo "submit.sh: the deck is not checked, because there is no program" >&2
elif [ -n "$count" ]; then
  code=0
  said=$(check_grid "$count" "$@" 2>&1) || code=$?
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  [ "$code" != 78 ] || ! depends_on_ranks "${said#*ranks of this job: }" || printf 'submit.sh: %s\n' "$(origin "$1")" >&2
  case $code,$dry_run,$said in
    0,*) ;;
    *,yes,*'the job would stop at its start: '*) stops=$code ;;  # the dry run goes on, and ends with this code
    *) exit "$code" ;;
  esac
else
  echo "submit.sh: the deck is not checked, because the options do not state the number of ranks; RANKS=N would" >&2
fi

# A partition that is named twice: by PARTITION of the site file, and by an option.
for word in ${options[@]+"${options[@]}"}; do
  case $scheduler$word in
    sbatch--partition* | sbatch-p* | qsub-q*)
      [ -z "${PARTITION:-}" ] || printf '%s: warning: the site file sets PARTITION=%s, and an option names a partition, too (%s): the option is used\n' \
        "$(basename "$0")" "$PARTITION" "$word" >&2 ;;
  esac
done

# submit COMMAND...: runs it, or prints it with the settings of the script and of the site.
submit() {
  [ -n "$dry_run" ] || exec "$@"
  local name word
  printf 'command:  '
  for word; do
    case $word in *[!A-Za-z0-9_./:=,@%+-]*) printf ' %q' "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\nscript:    %s\n' "$script"
  sed -n 's/^#\(SBATCH\|PBS\) /             /p; s/^export /           export /p' "$script"
  printf 'ranks:     %s\n' "${count:-unknown: the options do not state the number}"
  for name in SBATCH_PARTITION SBATCH_ACCOUNT SLURM_MPI_TYPE "${!NCCL_@}" "${!UCX_@}" "${!FI_@}" "${job_variables[@]}" DECK CHANGES; do
    [ -z "${!name:-}" ] || printf 'variable:  %s=%s\n' "$name" "${!name}"
  done
  echo 'dry run: nothing has been submitted; options in the command take precedence over the settings of the script'
  [ "$stops" = 0 ] || echo "the job itself would be refused ($stops), because it would stop at its start (see above)"
  exit "$stops"
}

if [ "$scheduler" = sbatch ]; then
  # Slurm reads these variables. Options of its command line take precedence.
  [ -z "${PARTITION:-}" ] || export SBATCH_PARTITION=${SBATCH_PARTITION:-$PARTITION}
  [ -z "${ACCOUNT:-}" ] || export SBATCH_ACCOUNT=${SBATCH_ACCOUNT:-$ACCOUNT}
  submit sbatch ${options[@]+"${options[@]}"} "$script" "$@"
  exit
fi
[[ -z ${PARTITION:-} || " ${options[*]}" == *' -q'* ]] || options+=(-q "$PARTITION")
[[ -z ${ACCOUNT:-} || " ${options[*]}" == *' -A'* ]] || options+=(-A "$ACCOUNT")
export DECK=$1 CHANGES="${*:2}"
names=()
for name in DECK CHANGES "${job_variables[@]}"; do [ -z "${!name:-}" ] || names+=("$name"); done
export "${job_variables[@]}"
submit qsub -v "$(IFS=,; echo "${names[*]}")" ${options[@]+"${options[@]}"} "$script"
