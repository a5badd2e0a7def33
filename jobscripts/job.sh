#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Common part of all jobscripts: trains from the newest intact checkpoint, saves a checkpoint before the time limit, and
# requeues or resubmits the job until the run is done.
#   job.sh DECK [key=value ...]
# Runs in any folder, inside a Slurm or PBS allocation or on a machine without a scheduler. Environment, which the site
# file (site.example.sh) may set, too:
#   GYRFALCON   the program; default: bin/gyrfalcon of the installation, or of build/release, with BIND=gpu build/cuda
#   LAUNCHER    command that launches the ranks; default: srun under Slurm, otherwise the mpiexec of the program's MPI
#   RANKS       number of ranks; default: all of the allocation
#   THREADS     OpenMP threads per rank, if Kokkos has OpenMP; default: --cpus-per-task or ompthreads of the allocation, or 1
#   BIND        rank: each rank is bound to THREADS cores; gpu: one device per rank; none: no binding (rank)
#   RESERVE     seconds before the end of a PBS allocation at which the run saves (300); under Slurm, --signal sets this time
#   JOBS        maximum number of jobs in a chain (100)
#   SELFTEST    1: every job tests memory, arithmetic and links of its ranks (gyrfalcon selftest) before it trains (0)
#   VERIFY      1: the first job of a chain verifies the layout on its ranks (gyrfalcon verify) before it trains (0)
# Exit codes are those of gyrfalcon. 75 is returned only if no further job follows, for example after a cancellation.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
# shellcheck source=jobscripts/start.sh
. "$here/start.sh"
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
case " $* " in
  *' --resume '*) refuse 64 "--resume: this script always resumes the run in output.folder, or starts one if there is none; leave it out" ;;
  *' --dry-run '*) refuse 64 "--dry-run: this script trains; \`submit.sh --dry-run SCRIPT DECK\` checks a job without submitting it, and \`gyrfalcon plan DECK --ranks N\` prints the memory of a rank" ;;
esac
read_site
bind=${BIND:-rank} reserve=${RESERVE:-300} most=${JOBS:-100}
check_deck "$@"
find_program "$bind"
say() { printf '%s job: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*"; }

scheduler() {
  if [ -n "${SLURM_JOB_ID:-}" ]; then echo slurm; elif [ -n "${PBS_JOBID:-}" ]; then echo pbs; else echo none; fi
}

# Cores that this process may use. nproc would take OMP_NUM_THREADS for it.
cores_here() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

ranks() {
  case $(scheduler) in
    slurm) [ -n "${SLURM_NTASKS:-}" ] || refuse 64 "SLURM_NTASKS is not set: start the job with --ntasks or --ntasks-per-node"
      echo "$SLURM_NTASKS" ;;
    pbs) wc -l < "$PBS_NODEFILE" ;;
    none) echo $(($(cores_here) < $1 ? 1 : $(cores_here) / $1)) ;;
  esac
}

# Without ompthreads, PBS sets OMP_NUM_THREADS to all cores of a chunk.
threads() {
  local given=
  case $(scheduler) in
    slurm) given=${SLURM_CPUS_PER_TASK:-} ;;
    pbs) given=$(attribute Resource_List.select | sed -n 's/.*ompthreads=\([0-9]*\).*/\1/p') ;;
    none) given=${OMP_NUM_THREADS:-} ;;
  esac
  echo "${given:-1}"
}

# launcher RANKS THREADS: command that launches RANKS processes, each bound to as many cores as it has threads. With
# srun -K1 the other ranks end when one rank dies, instead of waiting until the time limit.
launcher() {
  if [ -n "${LAUNCHER:-}" ]; then
    echo "$LAUNCHER"
  elif [ "$(scheduler)" = slurm ]; then
    echo "srun -K1 --mpi=${SLURM_MPI_TYPE:-pmi2} -n $1 -c $2 $([ "$bind" = none ] && echo --cpu-bind=none || echo --cpu-bind=cores)"
  else
    local mpiexec hosts='' cores='--bind-to core'
    mpiexec=$("$here/launcher.sh" "$gyrfalcon") || return
    [ -n "${PBS_NODEFILE:-}" ] && hosts="--hostfile $PBS_NODEFILE"
    case $2,$mpiexec in
      1,*) ;;
      *,*--oversubscribe*) cores="--map-by slot:PE=$2 $cores" ;;  # Open MPI
      *) cores="$cores:$2" ;;
    esac
    echo "$mpiexec $hosts -n $1 $([ "$bind" = none ] || echo "$cores")"
  fi
}

# Value of an attribute of this PBS job. qstat wraps long lines and starts the continuation with a tab.
attribute() {
  qstat -f "$PBS_JOBID" 2> /dev/null | awk -v name="$1" '
    function tell(  at) { at = index(line, " = "); if (at && substr(line, 1, at - 1) ~ "^ *" name "$") print substr(line, at + 3) }
    /^\t/ { line = line substr($0, 2); next }
    { tell(); line = $0 }
    END { tell() }'
}

# selftested COMMAND...: tests the ranks if SELFTEST=1. The job ends with its exit code, 69 for faulty hosts, which it names.
selftested() {
  [ "${SELFTEST:-0}" = 1 ] || return 0
  local code=0
  "$@" || code=$?
  say "gyrfalcon selftest ended with $code"
  return "$code"
}

# verified COMMAND...: verifies the layout if VERIFY=1. Later jobs of a chain skip this.
verified() {
  [ "${VERIFY:-0}" = 1 ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ "${GYR_JOB:-1}" = 1 ] || return 0
  [ "${SLURM_ARRAY_TASK_ID:-1}" = "${SLURM_ARRAY_TASK_MIN:-1}" ] || return 0
  local code=0
  "$@" || code=$?
  say "gyrfalcon verify ended with $code"
  return "$code"
}

# PBS sends no warning before the time limit, so the program gets a train.walltime.
limit() {
  [ "$(scheduler)" = pbs ] || return 0
  local walltime
  walltime=$(attribute Resource_List.walltime)
  if [ -z "$walltime" ]; then
    say "qstat does not show the time limit of $PBS_JOBID: set train.walltime, otherwise the job ends without saving" >&2
    return
  fi
  awk -F: -v reserve="$((reserve + SECONDS))" '{
    s = ($1 * 60 + $2) * 60 + $3 - reserve
    if (s <= 0) exit 1
    printf "train.walltime=%d:%02d:%02d\n", s / 3600, s % 3600 / 60, s % 60 }' <<< "$walltime" ||
    { say "the time limit $walltime is not longer than RESERVE=$reserve seconds for saving: request more time, or lower RESERVE" >&2; return 64; }
}

# Submits the job again with qsub: same limits, name, queue, account, project and environment variables.
submit_again() {
  local name value
  local -a words=(-N "$PBS_JOBNAME" -q "$PBS_O_QUEUE") given=(GYR_JOB)
  for name in select place walltime; do
    value=$(attribute "Resource_List.$name")
    [ -z "$value" ] || words+=(-l "$name=$value")
  done
  value=$(attribute Account_Name)
  [ -z "$value" ] || words+=(-A "$value")
  value=$(attribute project)
  [ "${value:-_pbs_project_default}" = _pbs_project_default ] || words+=(-P "$value")
  for name in DECK CHANGES "${job_variables[@]}"; do [ -z "${!name:-}" ] || given+=("$name"); done
  export DECK CHANGES "${job_variables[@]}"  # qsub -v NAME takes the value from the environment, which may contain commas
  GYR_JOB=$1 qsub "${words[@]}" -v "$(IFS=,; echo "${given[*]}")" "${PBS_SCRIPT:?the jobscript must set PBS_SCRIPT to its own path}"
}

# Requeues or resubmits the job, so that the run continues.
again() {
  local attempt=$((${GYR_JOB:-1} + 1))
  if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    say "the next array task continues"
  elif [ "$(scheduler)" = slurm ]; then
    [ "${SLURM_RESTART_COUNT:-0}" -lt "$most" ] || { say "the run is not done after $most jobs"; return 75; }
    say "requeued"
    scontrol requeue "$SLURM_JOB_ID"
  elif [ "$(scheduler)" = pbs ]; then
    [ "$attempt" -le "$most" ] || { say "the run is not done after $most jobs"; return 75; }
    say "submitted again: $(submit_again "$attempt")"
  else
    return 75
  fi
}

# Variable that sets the threads of a rank, as `threads` reads it.
threads_variable() {
  [ -z "${THREADS:-}" ] || { echo THREADS; return; }
  case $(scheduler) in slurm) echo SLURM_CPUS_PER_TASK ;; pbs) echo ompthreads ;; none) echo OMP_NUM_THREADS ;; esac
}

# check_count VARIABLE VALUE: exit code 64 unless the value is a number above 0.
check_count() {
  case $2 in '' | *[!0-9]* | 0) refuse 64 "$1=$2: must be a number above 0" ;; esac
}

# check_cores RANKS THREADS: exit code 64 unless both fit the cores here. A scheduler or a launcher counts its own.
check_cores() {
  local cores need
  cores=$(cores_here) need=$(($1 * $2))
  [ "$(scheduler)" != none ] || [ "$bind" = none ] || [ -n "${LAUNCHER:-}" ] || [ "$need" -le "$cores" ] ||
    refuse 64 "$1 x $2 threads (RANKS x THREADS) need $need cores, but there are $cores; lower RANKS or THREADS, or set BIND=none"
}

# Cause of the exit codes 9 (Hydra) and 137 (srun, Open MPI): a rank received SIGKILL.
killed_text() {
  local look="sudo dmesg | grep -i 'killed process'"
  [ "$(scheduler)" != slurm ] || look="sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS"
  [ "$(scheduler)" != pbs ] || look="qstat -xf $PBS_JOBID"
  echo "a rank was killed by signal 9, often because a node had no memory left: \`$look\` shows it, and \`gyrfalcon plan\` the memory of a" \
    "rank. The same command resumes from the newest checkpoint"
}

main() {
  local count each words watch code=0
  each=${THREADS:-$(threads)}
  check_count "$(threads_variable)" "$each"
  count=${RANKS:-}
  [ -n "$count" ] || count=$(ranks "$each")
  check_count RANKS "$count"
  check_cores "$count" "$each"
  words=$(launcher "$count" "$each")
  export OMP_NUM_THREADS=$each
  # A rank is bound to its cores, and each of its threads to one of them.
  [ "$each" = 1 ] || [ "$bind" != rank ] || export OMP_PLACES=${OMP_PLACES:-cores} OMP_PROC_BIND=${OMP_PROC_BIND:-close}
  local -a start changes=()
  read -r -a start <<< "$words"
  command -v "${start[0]}" > /dev/null || refuse 69 "the launcher ${start[0]} is missing; set LAUNCHER to one, or load its module in the site file"
  [ "$bind" = gpu ] && start+=("$here/rank_gpu.sh")
  name=$(scheduler) number=${SLURM_JOB_ID:-${PBS_JOBID:-}}
  [ "$name" != none ] || name='no scheduler,'
  say "$name${number:+ $number} on ${SLURM_JOB_NODELIST:-$(hostname)}: ranks: $count, threads of each: $each, ${start[*]}"
  selftested "${start[@]}" "$gyrfalcon" selftest
  verified "${start[@]}" "$gyrfalcon" verify "$@"
  watch=$(limit)
  [ -z "$watch" ] || changes=("$watch")
  local said child
  said=$(mktemp)
  trap '' HUP  # ranks and launcher ignore it; this script passes it on below
  # The launcher gets a process group of its own, so that a signal to the group of this script (Ctrl-C, timeout, qdel) reaches
  # only this script.
  set -m
  "${start[@]}" "$gyrfalcon" train "$@" "${changes[@]}" --resume < /dev/null > >(trap '' INT TERM USR1; tee "$said") &
  child=$!
  set +m
  # USR1 (end of the allocation), TERM (scancel, qdel, preemption), INT (Ctrl-C) and HUP (end of a login) make the run save and
  # stop: the launchers forward USR1 to every rank. After TERM, INT and HUP the job is not requeued.
  local cancelled='' name
  trap 'say "the time limit is near: saving"; kill -USR1 "$child" 2> /dev/null' USR1
  for name in TERM INT HUP; do
    # shellcheck disable=SC2064
    trap "say 'SIG$name received: saving (the ranks receive SIGUSR1)'; cancelled=yes; kill -USR1 \$child 2> /dev/null" "$name"
  done
  while kill -0 "$child" 2> /dev/null; do  # a signal interrupts wait while the child still runs
    code=0
    wait "$child" || code=$?
  done
  trap '' USR1 TERM INT HUP  # scontrol requeue also sends a signal to this job
  # A launcher may return 0 for a run that is not done: Hydra after it forwards a signal, srun after a node failure. The
  # last line of the log decides.
  sleep 0.5
  if [ "$code" = 0 ]; then
    case $(tail -n 5 "$said" | grep '^RUN ' | tail -n 1) in
      'RUN OK'*) ;;
      'RUN STOPPED 75'*) code=75 ;;
      *) say "the launcher returned 0, but the log has no line RUN OK or RUN STOPPED 75"; code=70 ;;
    esac
  fi
  rm -f "$said"
  say "gyrfalcon ended with exit code $code"
  case $code in 9 | 137) say "$(killed_text)" ;; esac
  [ "$code" = 75 ] || return "$code"
  if [ -n "$cancelled" ]; then
    if [ "$(scheduler)" = none ]; then say "not started again: start job.sh again to continue the run"
    else say "not queued again: submit the job again to continue the run"; fi
    return 75
  fi
  again
}

main "$@"
