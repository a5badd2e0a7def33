#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A training run that outlives its time limit: five minutes before it Slurm sends SIGUSR1, the run saves and ends with code 75, and the job
# goes back to the queue. Any other code ends the chain.
#   sbatch --nodes=4 --ntasks-per-node=8 --time=12:00:00 jobscripts/slurm.sh input/falcon-h1-0.5b.yaml [key=value ...]
#SBATCH --job-name=gyrfalcon
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=gyrfalcon-%j.log
set -uo pipefail
deck=${1:?usage: sbatch jobscripts/slurm.sh DECK [key=value ...]}
shift

# Without -K a rank that dies leaves the others waiting until the limit (or the run's own watchdog).
srun --kill-on-bad-exit=1 "${GYRFALCON:-gyrfalcon}" train "$deck" --resume "$@" &
step=$!
trap 'told=1; kill -USR1 "$step"' USR1
trap 'told=1; kill -TERM "$step"' TERM
told=1
while [ "$told" -eq 1 ]; do  # a trap ends the wait, not the run
  told=0
  wait "$step"
  code=$?
done
[ "$code" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit "$code"
