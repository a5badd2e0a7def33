#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, CPU nodes: one rank per core. If Kokkos has OpenMP, fewer mpiprocs with more ompthreads are possible. The run
# saves a checkpoint before the time limit, and the script resubmits itself until the run is done.
#   qsub -v DECK=input/NAME.yaml jobscripts/pbs-cpu.sh
# Further variables for -v: CHANGES="key=value ..." overrides deck keys, VERIFY=1 verifies the layout before training.
#PBS -N gyrfalcon
#PBS -l select=1:ncpus=64:mpiprocs=64:ompthreads=1
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
cd "$PBS_O_WORKDIR"

export PBS_SCRIPT=jobscripts/pbs-cpu.sh DECK=${DECK:-input/falcon-h1-0.5b.yaml} CHANGES=${CHANGES:-}
read -r -a changes <<< "$CHANGES"
exec jobscripts/job.sh "$DECK" "${changes[@]}"
