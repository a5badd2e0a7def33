#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, nodes with 8 GPUs, at scale: one rank per GPU, complete nodes.
#   sbatch --nodes=64 jobscripts/slurm-gpu8.sh DECK [key=value ...]        VERIFY=1 in the environment verifies the layout first
# Consecutive ranks share a node (--distribution=block), so that axes of up to 8 ranks that vary fastest (parallel.order)
# communicate over NVLink. Every task of a node must see all 8 GPUs (--gpus-per-node, not --gpus-per-task), because NCCL
# needs the devices of its peers for NVLink; rank_gpu.sh selects the one of each rank and the adapter next to it. The warning
# comes 10 minutes before the limit: all ranks of a large job must finish their step and write a checkpoint.
#SBATCH --job-name=gyrfalcon
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --distribution=block
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@600
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
export BIND=gpu
# NCCL logs the reason of a failure. Settings of the network belong in the site file (site.example.sh).
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# Time until a lost packet counts as an error: 4.096 us * 2^22 = 17 s per try. On large fabrics, rerouting around a failed
# link can take longer than NCCL waits by default (2^18, since NCCL 2.23 2^20), and ibv_poll_cq would end the run (error 12).
export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-22}
cd "${SLURM_SUBMIT_DIR:-.}"

# Slurm runs a copy of this script. job.sh is in the folder of the original, whose path scontrol prints.
original=$(scontrol show job "${SLURM_JOB_ID:-}" 2> /dev/null | sed -n 's|^ *Command=\(.*\)/[^/ ]*\.sh\( .*\)\?$|\1|p; T; q' || true)
for folder in "${GYRFALCON_JOBSCRIPTS:-}" "$original" "$(dirname "$(realpath "$0")")" "$PWD/jobscripts" "${GYRFALCON_ROOT:-}/share/gyrfalcon/jobscripts"; do
  [ ! -x "$folder/job.sh" ] || exec "$folder/job.sh" "$@"
done
echo "job.sh is neither in the folder of this script nor in $PWD/jobscripts; set GYRFALCON_JOBSCRIPTS to the folder of the jobscripts" >&2
exit 69
