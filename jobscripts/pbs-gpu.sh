#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, GPU nodes: one rank per GPU on several nodes.
#   qsub -v DECK=input/NAME.yaml jobscripts/pbs-gpu.sh
# Further variables for -v: CHANGES="key=value ..." overrides deck keys, VERIFY=1 verifies the layout before training.
#PBS -N gyrfalcon
#PBS -l select=4:ncpus=32:mpiprocs=4:ngpus=4
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
cd "$PBS_O_WORKDIR"

export BIND=gpu
# NCCL logs the reason of a failure. If it chooses the wrong network, set NCCL_SOCKET_IFNAME (bootstrap) or NCCL_IB_HCA
# (data).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export PBS_SCRIPT=jobscripts/pbs-gpu.sh DECK=${DECK:-input/falcon-h1-7b.yaml} CHANGES=${CHANGES:-}
read -r -a changes <<< "$CHANGES"
exec jobscripts/job.sh "$DECK" "${changes[@]}"
