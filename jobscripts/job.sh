#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What every jobscript ends with: trains from the newest whole checkpoint, saves when the time limit warns, and asks for another job
# while there is something left to do.
#   job.sh DECK [key=value ...]
# Started inside an allocation of Slurm or PBS, or on a machine without either. Environment:
#   GYRFALCON   the program (build/release/bin/gyrfalcon; where ranks have devices build/cuda/bin/gyrfalcon)
#   LAUNCHER    starts the ranks; without it srun under Slurm, elsewhere the mpiexec of the program's MPI
#   RANKS       how many; without it all that the allocation has
#   THREADS     of each rank, for builds whose Kokkos has OpenMP; without it what the allocation gives a rank (--cpus-per-task, ompthreads), or 1
#   BIND        rank: as many cores as threads each, gpu: one device each, none (rank)
#   RESERVE     seconds before the end of the allocation at which PBS jobs save (300); Slurm's --signal says it there
#   JOBS        most jobs in a chain (100)
#   VERIFY      1: the first job of a chain proves the layout on its ranks (gyrfalcon verify) and trains only then (0)
# Exit codes are gyrfalcon's; 75 has been turned into a new job, or the job was cancelled.
set -euo pipefail

bind=${BIND:-rank}
gyrfalcon=${GYRFALCON:-build/$([ "$bind" = gpu ] && echo cuda || echo release)/bin/gyrfalcon} reserve=${RESERVE:-300} most=${JOBS:-100}
say() { printf '%s job: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*"; }

scheduler() {
  if [ -n "${SLURM_JOB_ID:-}" ]; then echo slurm; elif [ -n "${PBS_JOBID:-}" ]; then echo pbs; else echo none; fi
}

ranks() {
  case $(scheduler) in
    slurm) echo "${SLURM_NTASKS:?start the job with --ntasks or --ntasks-per-node}" ;;
    pbs) wc -l < "$PBS_NODEFILE" ;;
    none) echo $(($(nproc) / $1)) ;;
  esac
}

# PBS sets OMP_NUM_THREADS to all the cores of a chunk where nobody has asked for ompthreads.
threads() {
  local given=
  case $(scheduler) in
    slurm) given=${SLURM_CPUS_PER_TASK:-} ;;
    pbs) given=$(attribute Resource_List.select | sed -n 's/.*ompthreads=\([0-9]*\).*/\1/p') ;;
    none) given=${OMP_NUM_THREADS:-} ;;
  esac
  echo "${given:-1}"
}

# launcher RANKS THREADS: the command that starts so many copies of what follows, each on as many cores as it has threads. -K1: when one rank dies, the others must not wait for it until the time limit.
launcher() {
  if [ -n "${LAUNCHER:-}" ]; then
    echo "$LAUNCHER"
  elif [ "$(scheduler)" = slurm ]; then
    echo "srun -K1 --mpi=${SLURM_MPI_TYPE:-pmi2} -n $1 -c $2 $([ "$bind" = none ] && echo --cpu-bind=none || echo --cpu-bind=cores)"
  else
    local mpiexec hosts='' cores='--bind-to core'
    mpiexec=$(jobscripts/launcher.sh "$gyrfalcon") || return
    [ -n "${PBS_NODEFILE:-}" ] && hosts="--hostfile $PBS_NODEFILE"
    case $2,$mpiexec in
      1,*) ;;
      *,*--oversubscribe*) cores="--map-by slot:PE=$2 $cores" ;;  # Open MPI
      *) cores="$cores:$2" ;;
    esac
    echo "$mpiexec $hosts -n $1 $([ "$bind" = none ] || echo "$cores")"
  fi
}

# An attribute of this PBS job; qstat breaks long ones, and goes on behind a tab.
attribute() {
  qstat -f "$PBS_JOBID" 2> /dev/null | awk -v name="$1" '
    function tell(  at) { at = index(line, " = "); if (at && substr(line, 1, at - 1) ~ "^ *" name "$") print substr(line, at + 3) }
    /^\t/ { line = line substr($0, 2); next }
    { tell(); line = $0 }
    END { tell() }'
}

# verified COMMAND...: whether the layout is proved, where that is asked for. A job that goes on has proved it before.
verified() {
  [ "${VERIFY:-0}" = 1 ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ "${GYR_JOB:-1}" = 1 ] || return 0
  [ "${SLURM_ARRAY_TASK_ID:-1}" = "${SLURM_ARRAY_TASK_MIN:-1}" ] || return 0
  local code=0
  "$@" || code=$?
  say "gyrfalcon verify ended with $code"
  return "$code"
}

# PBS gives no warning before its limit: the program watches the clock itself.
limit() {
  [ "$(scheduler)" = pbs ] || return 0
  local walltime
  walltime=$(attribute Resource_List.walltime)
  if [ -z "$walltime" ]; then
    say "PBS does not tell the time limit of $PBS_JOBID: give train.walltime, or the job ends without saving" >&2
    return
  fi
  awk -F: -v reserve="$((reserve + SECONDS))" '{
    s = ($1 * 60 + $2) * 60 + $3 - reserve
    if (s <= 0) exit 1
    printf "train.walltime=%d:%02d:%02d\n", s / 3600, s % 3600 / 60, s % 60 }' <<< "$walltime" ||
    { say "a time limit of $walltime leaves nothing beside RESERVE=$reserve seconds for saving: ask for more, or lower RESERVE" >&2; return 64; }
}

# qsub with what this job was given: limits, name, queue, account, project, and our own variables.
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
  for name in DECK CHANGES GYRFALCON LAUNCHER RANKS THREADS BIND RESERVE JOBS VERIFY; do [ -z "${!name:-}" ] || given+=("$name"); done
  export DECK CHANGES GYRFALCON LAUNCHER RANKS THREADS BIND RESERVE JOBS VERIFY  # qsub takes the values of -v NAME from here, commas and all
  GYR_JOB=$1 qsub "${words[@]}" -v "$(IFS=,; echo "${given[*]}")" "${PBS_SCRIPT:?the jobscript names itself in PBS_SCRIPT}"
}

# Another job goes on where this one stopped.
again() {
  local attempt=$((${GYR_JOB:-1} + 1))
  if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    say "the next element of the array goes on"
  elif [ "$(scheduler)" = slurm ]; then
    [ "${SLURM_RESTART_COUNT:-0}" -lt "$most" ] || { say "$most jobs did not finish it"; return 75; }
    say "requeued"
    scontrol requeue "$SLURM_JOB_ID"
  elif [ "$(scheduler)" = pbs ]; then
    [ "$attempt" -le "$most" ] || { say "$most jobs did not finish it"; return 75; }
    say "submitted again: $(submit_again "$attempt")"
  else
    return 75
  fi
}

main() {
  local count each words watch code=0
  each=${THREADS:-$(threads)}
  count=${RANKS:-$(ranks "$each")}
  words=$(launcher "$count" "$each")
  export OMP_NUM_THREADS=$each
  # A rank is bound to its cores, and its threads to one each.
  [ "$each" = 1 ] || [ "$bind" != rank ] || export OMP_PLACES=${OMP_PLACES:-cores} OMP_PROC_BIND=${OMP_PROC_BIND:-close}
  local -a start changes=()
  read -r -a start <<< "$words"
  [ "$bind" = gpu ] && start+=(jobscripts/rank_gpu.sh)
  say "$(scheduler) ${SLURM_JOB_ID:-${PBS_JOBID:-}} on ${SLURM_JOB_NODELIST:-$(hostname)}: $count ranks of $each threads, ${start[*]}"
  verified "${start[@]}" "$gyrfalcon" verify "$@"
  watch=$(limit)
  [ -z "$watch" ] || changes=("$watch")
  local said child
  said=$(mktemp)
  "${start[@]}" "$gyrfalcon" train "$@" "${changes[@]}" --resume > >(tee "$said") &
  child=$!
  # Both mean: save and stop; the launchers pass USR1 on to every rank. TERM is what scancel, qdel and preemption say: who wants the job
  # to go on then says so.
  local cancelled=''
  trap 'say "the end of the allocation is near"; kill -USR1 "$child" 2> /dev/null' USR1
  trap 'say "told to end"; cancelled=yes; kill -USR1 "$child" 2> /dev/null' TERM
  while kill -0 "$child" 2> /dev/null; do  # a signal ends wait before the child has ended
    code=0
    wait "$child" || code=$?
  done
  trap '' USR1 TERM  # to requeue a job ends it
  # Launchers say 0 of runs that were not done, Hydra when it has passed on a signal, srun when its node was lost: the last line counts.
  sleep 0.5
  if [ "$code" = 0 ]; then
    case $(tail -n 5 "$said" | grep '^RUN ' | tail -n 1) in
      'RUN OK'*) ;;
      'RUN STOPPED 75'*) code=75 ;;
      *) say "the launcher ended with 0, and the run has not said that it was done"; code=70 ;;
    esac
  fi
  rm -f "$said"
  say "gyrfalcon ended with $code"
  [ "$code" = 75 ] || return "$code"
  if [ -n "$cancelled" ]; then
    say "not queued again: submit it to go on"
    return 75
  fi
  again
}

main "$@"
