#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, processors: one rank per core; where Kokkos has OpenMP, fewer mpiprocs with more ompthreads work as well. The run saves before the time
# limit, and the script submits itself again until it is done.
#   qsub -v DECK=input/NAME.yaml jobscripts/pbs-cpu.sh        CHANGES="key=value ..." in -v changes the deck, VERIFY=1 proves the layout first
#PBS -N gyrfalcon
#PBS -l select=1:ncpus=64:mpiprocs=64:ompthreads=1
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
cd "$PBS_O_WORKDIR"

# The grid, here and nowhere else; the data axis takes the ranks that these leave.
grid="parallel.tensor=2 parallel.pipeline=1"

export PBS_SCRIPT=jobscripts/pbs-cpu.sh DECK=${DECK:-input/falcon-h1-0.5b.yaml} CHANGES=${CHANGES:-}
read -r -a changes <<< "$grid $CHANGES"
exec jobscripts/job.sh "$DECK" "${changes[@]}"
