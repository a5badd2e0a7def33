#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, processors: one rank per core; where Kokkos has OpenMP, fewer tasks with more cpus-per-task work as well. Before the time limit the run
# saves; then the job is queued again until the run is done.
#   sbatch jobscripts/slurm-cpu.sh DECK [key=value ...]        VERIFY=1 before it proves the layout first (gyrfalcon verify)
#SBATCH --job-name=gyrfalcon
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"

# The grid, here and nowhere else; the data axis takes the ranks that these leave.
grid="parallel.tensor=2 parallel.pipeline=1"

read -r -a axes <<< "$grid"
deck=${1:-input/falcon-h1-0.5b.yaml}
exec jobscripts/job.sh "$deck" "${axes[@]}" "${@:2}"
