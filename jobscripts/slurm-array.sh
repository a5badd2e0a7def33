#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, for sites that do not allow requeueing: an array of jobs, one at a time, each continuing from the last checkpoint.
#   sbatch jobscripts/slurm-array.sh DECK [key=value ...]        VERIFY=1 in the environment verifies the layout first
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

exec jobscripts/job.sh "${1:-input/falcon-h1-1.5b.yaml}" "${@:2}"
