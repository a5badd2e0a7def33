#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Imitation of the parts of PBS Pro that the jobscripts use, on one machine. Links named qsub and qstat act as those commands.
# `serve` runs the queued jobs one after the other. PBS_STANDIN is the folder of the queue:
# NUMBER/{script,environment,attributes,nodes,output,code}.
#   qsub [-N NAME] [-l LIMITS] [-v VARIABLES] [-j oe] [-r y|n] [-q QUEUE] [-A ACCOUNT] [-P PROJECT] SCRIPT     qstat -f JOB
# #PBS lines of the script have the same meaning; the command line has priority. All other options are refused with exit
# code 2, because an ignored option would first be tested at a user's site.
set -euo pipefail
queue=${PBS_STANDIN:?must be the folder of the queue}
refuse() { printf '%s: %s\n' "$(basename "$0")" "$1" >&2; exit 2; }

declare -A job=()  # attributes by their names in qstat; the first value of each is kept
attribute() { [ -n "${job[$1]:-}" ] || job[$1]=$2; }

limits() {
  local limit
  local -a list
  IFS=, read -r -a list <<< "$1"
  for limit in "${list[@]}"; do
    case $limit in
      select=*) [[ $limit =~ ^select=[0-9]+(:(ncpus|mpiprocs|ompthreads|ngpus|mem)=[0-9]+(gb|mb)?)*$ ]] || refuse "-l $limit is not supported" ;;
      walltime=*) [[ $limit =~ ^walltime=([0-9]+:)?[0-5]?[0-9]:[0-5][0-9]$ ]] || refuse "-l $limit is not supported" ;;
      place=free | place=scatter | place=scatter:excl | place=pack) ;;
      *) refuse "-l $limit is not supported" ;;
    esac
    attribute "Resource_List.${limit%%=*}" "${limit#*=}"
  done
}

# option FLAG VALUE: an option of the command line or of a #PBS directive.
option() {
  case $1 in
    -N) attribute Job_Name "$2" ;;
    -l) limits "$2" ;;
    -v) attribute Variables "$2" ;;
    -j) [ "$2" = oe ] || refuse "-j $2 is not supported"; attribute Join_Path oe ;;
    -r) [[ $2 = [yn] ]] || refuse "-r takes y or n"; attribute Rerunable "$2" ;;
    -q) attribute queue "$2" ;;
    -A) attribute Account_Name "$2" ;;
    -P) attribute project "$2" ;;
    *) refuse "option '$1' is not supported" ;;
  esac
}

# Environment variables of a job (qsub -v). A name without a value takes the value in this shell.
variables() {
  local rest=$1 name
  while [ -n "$rest" ]; do
    name=${rest%%[,=]*} rest=${rest#"${rest%%[,=]*}"}
    if [[ $rest == =* ]]; then
      rest=${rest#=}
      printf '%s=%s\0' "$name" "${rest%%,*}"
      rest=${rest#"${rest%%,*}"}
    else
      printf '%s=%s\0' "$name" "${!name:-}"
    fi
    rest=${rest#,}
  done
}

# field CHUNK NAME DEFAULT: the value of NAME in a chunk such as 1:ncpus=2:mpiprocs=2.
field() { if [[ :$1: =~ :$2=([0-9]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo "$3"; fi; }

nodes() {
  local i
  for ((i = ${1%%:*} * $(field "$1" mpiprocs 1); i > 0; --i)); do hostname; done
}

qsub() {
  local script='' line flag value number name words="$*"
  while [ $# -gt 0 ]; do
    case $1 in
      -*) [ $# -gt 1 ] || refuse "$1 takes a value"; option "$1" "$2"; shift 2 ;;
      *) [ -z "$script" ] || refuse "only one script is possible, not '$script' and '$1'"; script=$1; shift ;;
    esac
  done
  [ -f "$script" ] || refuse "there is no script '$script'"
  while read -r line; do
    read -r flag value <<< "${line#\#PBS}"
    option "$flag" "${value%%  #*}"
  done < <(grep '^#PBS' "$script")
  attribute Job_Name "$(basename "$script")" && attribute queue workq && attribute Resource_List.select 1:ncpus=1
  number=$(($(find "$queue" -mindepth 1 -maxdepth 1 -type d | wc -l) + 1))
  mkdir "$queue/$number"
  cp "$script" "$queue/$number/script"
  {
    variables "${job[Variables]:-}"
    printf '%s\0' "PBS_JOBID=$number.standin" "PBS_JOBNAME=${job[Job_Name]}" "PBS_ENVIRONMENT=PBS_BATCH" "PBS_O_WORKDIR=$PWD" "PBS_O_HOME=$HOME" \
      "PBS_O_PATH=$PATH" "PBS_O_QUEUE=${job[queue]}" "PBS_QUEUE=${job[queue]}" "PBS_NODEFILE=$queue/$number/nodes" "PBS_JOBDIR=$HOME" \
      "NCPUS=$(field "${job[Resource_List.select]}" ncpus 1)" "PATH=$PATH" "HOME=$HOME" "TMPDIR=${TMPDIR:-/tmp}" "PBS_STANDIN=$queue"
  } > "$queue/$number/environment"
  nodes "${job[Resource_List.select]}" > "$queue/$number/nodes"
  {
    echo "Job Id: $number.standin"
    { echo "    Submit_arguments = $words"; for name in "${!job[@]}"; do [ "$name" = Variables ] || echo "    $name = ${job[$name]}"; done; } | sort | fold -w 78 | sed '/^    [A-Z_a-z.]* = /!s/^/\t/'
  } > "$queue/$number/attributes"
  echo "$number.standin"
}

qstat() {
  [[ $# = 2 && $1 = -f ]] || refuse "only qstat -f JOB is supported"
  cat "$queue/${2%%.*}/attributes"
}

# Runs a job in another folder than the one it was submitted from. At the time limit it gets SIGTERM, and SIGKILL ten
# seconds later, as in PBS.
execute() {
  local folder=$queue/$1 limit code=0
  local -a environment
  mapfile -d '' environment < "$folder/environment"
  limit=$(awk '$1 == "Resource_List.walltime" { n = split($3, t, ":"); for (i = 1; i <= n; ++i) s = 60 * s + t[i]; print s }' "$folder/attributes")
  (cd / && exec env -i "${environment[@]}" timeout -k 10 "${limit:-0}" bash "$folder/script") > "$folder/output" 2>&1 < /dev/null || code=$?
  echo "$code" > "$folder/code"
}

serve() {
  local number
  for ((number = 1; ; ++number)); do
    [ -d "$queue/$number" ] || return 0
    execute "$number"
  done
}

case $(basename "$0") in
  qsub) qsub "$@" ;;
  qstat) qstat "$@" ;;
  *) [ "$*" = serve ] || refuse "use `serve`, or call this script through a link named qsub or qstat"; serve ;;
esac
