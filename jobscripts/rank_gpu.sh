#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Starts what follows with one GPU in sight: the one with this rank's number on its node. Launchers that bind devices themselves
# (srun --gpus-per-task with --gpu-bind) leave one, which stays. Exit code 69 where a node has fewer devices than ranks.
rank=${SLURM_LOCALID:-${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}}}
case ${CUDA_VISIBLE_DEVICES:-} in
  '') mine=$rank ;;
  *,*) mine=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f $((rank + 1))) ;;
  *) mine=$CUDA_VISIBLE_DEVICES ;;
esac
if [ -z "$mine" ]; then
  echo "rank_gpu.sh: rank $rank of $(hostname) has no GPU, only $CUDA_VISIBLE_DEVICES are in sight: start one rank per GPU" >&2
  exit 69
fi
export CUDA_VISIBLE_DEVICES="$mine"
exec "$@"
