#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, GPUs: one rank per device on several nodes.
#   qsub -v DECK=input/NAME.yaml jobscripts/pbs-gpu.sh        CHANGES="key=value ..." in -v changes the deck, VERIFY=1 proves the layout first
#PBS -N gyrfalcon
#PBS -l select=4:ncpus=32:mpiprocs=4:ngpus=4
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
cd "$PBS_O_WORKDIR"

# The grid, here and nowhere else; the data axis takes the ranks that these leave.
grid="parallel.tensor=4 parallel.pipeline=1"

export BIND=gpu
# NCCL says why it fails. Where it takes the wrong network: NCCL_SOCKET_IFNAME (to meet), NCCL_IB_HCA (to talk).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export PBS_SCRIPT=jobscripts/pbs-gpu.sh DECK=${DECK:-input/falcon-h1-7b.yaml} CHANGES=${CHANGES:-}
read -r -a changes <<< "$grid $CHANGES"
exec jobscripts/job.sh "$DECK" "${changes[@]}"
