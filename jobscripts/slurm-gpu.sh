#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, GPUs: one rank per device on several nodes.
#   sbatch jobscripts/slurm-gpu.sh DECK [key=value ...]        VERIFY=1 before it proves the layout first (gyrfalcon verify)
#SBATCH --job-name=gyrfalcon
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"

# The grid, here and nowhere else; the data axis takes the ranks that these leave.
grid="parallel.tensor=4 parallel.pipeline=1"

export BIND=gpu
# NCCL says why it fails. Where it takes the wrong network: NCCL_SOCKET_IFNAME (to meet), NCCL_IB_HCA (to talk).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
read -r -a axes <<< "$grid"
deck=${1:-input/falcon-h1-7b.yaml}
exec jobscripts/job.sh "$deck" "${axes[@]}" "${@:2}"
