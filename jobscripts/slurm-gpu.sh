#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, GPU nodes: one rank per GPU on several nodes.
#   sbatch jobscripts/slurm-gpu.sh DECK [key=value ...]        VERIFY=1 in the environment verifies the layout first
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

export BIND=gpu
# NCCL logs the reason of a failure. If it chooses the wrong network, set NCCL_SOCKET_IFNAME (bootstrap) or NCCL_IB_HCA
# (data).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
exec jobscripts/job.sh "${1:-input/falcon-h1-7b.yaml}" "${@:2}"
