#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Slurm, CPU nodes: one rank per core. If Kokkos has OpenMP, fewer tasks with more cpus-per-task are possible. The run saves
# a checkpoint before the time limit, and the job is requeued until the run is done.
#   sbatch jobscripts/slurm-cpu.sh DECK [key=value ...]        VERIFY=1 in the environment verifies the layout first
#SBATCH --job-name=gyrfalcon
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"

# Slurm runs a copy of this script. job.sh is in the folder of the original, whose path scontrol prints.
original=$(scontrol show job "${SLURM_JOB_ID:-}" 2> /dev/null | sed -n 's|^ *Command=\(.*\)/[^/ ]*\.sh\( .*\)\?$|\1|p; T; q' || true)
for folder in "${GYRFALCON_JOBSCRIPTS:-}" "$original" "$(dirname "$(realpath "$0")")" "$PWD/jobscripts" "${GYRFALCON_ROOT:-}/share/gyrfalcon/jobscripts"; do
  [ ! -x "$folder/job.sh" ] || exec "$folder/job.sh" "$@"
done
echo "job.sh is neither in the folder of this script nor in $PWD/jobscripts; set GYRFALCON_JOBSCRIPTS to the folder of the jobscripts" >&2
exit 69
