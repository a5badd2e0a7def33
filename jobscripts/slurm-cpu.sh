#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, CPU nodes: one rank per core. If Kokkos has OpenMP, fewer tasks with more cpus-per-task are possible. The run saves
# a checkpoint before the time limit, and the job is requeued until the run is done.
#   sbatch jobscripts/slurm-cpu.sh DECK [key=value ...]        VERIFY=1 in the environment verifies the layout first
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

exec jobscripts/job.sh "${1:-input/falcon-h1-0.5b.yaml}" "${@:2}"
