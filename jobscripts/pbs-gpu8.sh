#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# PBS Pro, nodes with 8 GPUs, at scale: one rank per GPU, complete nodes. slurm-gpu8.sh gives the reasons.
#   qsub -v DECK=FILE -l select=64:ncpus=96:mpiprocs=8:ngpus=8 jobscripts/pbs-gpu8.sh
# Further variables for -v: CHANGES="key=value ..." overrides deck keys, VERIFY=1 verifies the layout before training.
#PBS -N gyrfalcon
#PBS -l select=8:ncpus=96:mpiprocs=8:ngpus=8
#PBS -l place=scatter:excl
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
set -euo pipefail
export BIND=gpu
# NCCL logs the reason of a failure. Settings of the network belong in the site file (site.example.sh).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# Time until a lost packet counts as an error: 4.096 us * 2^22 = 17 s per try. On large fabrics, rerouting around a failed
# link can take longer than NCCL waits by default (2^18, since NCCL 2.23 2^20), and ibv_poll_cq would end the run (error 12).
export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-22}
export RESERVE=${RESERVE:-600}
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
