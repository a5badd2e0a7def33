#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, GPU nodes: one rank per GPU on several nodes.
#   qsub -v DECK=FILE jobscripts/pbs-gpu.sh
# Further variables for -v: CHANGES="key=value ..." overrides deck keys, VERIFY=1 verifies the layout before training.
#PBS -N gyrfalcon
#PBS -l select=4:ncpus=32:mpiprocs=4:ngpus=4
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
export BIND=gpu
# NCCL logs the reason of a failure. Other settings of NCCL belong in the site file (site.example.sh).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
cd "${PBS_O_WORKDIR:-.}"

# PBS runs a copy of this script. job.sh is in the folder of the original, the last word of qsub, which qstat prints.
own=$(qstat -f "${PBS_JOBID:-}" 2> /dev/null | sed -z 's/\n\t//g' | sed -n 's/^ *Submit_arguments = \(.* \)\?\(.*\.sh\)$/\2/p' || true)
[ -f "$own" ] || own=$(realpath "$0")
for folder in "${GYRFALCON_JOBSCRIPTS:-}" "$(dirname "$(realpath "$own")")" "$PWD/jobscripts" "${GYRFALCON_ROOT:-}/share/gyrfalcon/jobscripts"; do
  [ -x "$folder/job.sh" ] || continue
  export PBS_SCRIPT=$own GYRFALCON_JOBSCRIPTS=$folder DECK=${DECK:-} CHANGES=${CHANGES:-}
  read -r -a changes <<< "$CHANGES"
  exec "$folder/job.sh" "$DECK" "${changes[@]}"
done
echo "job.sh is neither in the folder of this script nor in $PWD/jobscripts; set GYRFALCON_JOBSCRIPTS to the folder of the jobscripts" >&2
exit 69
