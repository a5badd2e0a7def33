#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, where jobs may not be queued again: a chain of jobs, one at a time, each going on where the last one stopped.
#   sbatch jobscripts/slurm-array.sh DECK [key=value ...]        VERIFY=1 before it proves the layout first (gyrfalcon verify)
#SBATCH --job-name=gyrfalcon
#SBATCH --array=1-20%1
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%A.log
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"

# The grid, here and nowhere else; the data axis takes the ranks that these leave.
grid="parallel.tensor=4 parallel.pipeline=2"

read -r -a axes <<< "$grid"
deck=${1:-input/falcon-h1-1.5b.yaml}
exec jobscripts/job.sh "$deck" "${axes[@]}" "${@:2}"
