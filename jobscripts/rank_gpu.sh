#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Starts what follows with one GPU in sight: the one with this rank's number on its node. Launchers that bind devices themselves
# (srun --gpus-per-task with --gpu-bind) leave one, which stays.
rank=${SLURM_LOCALID:-${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}}}
case ${CUDA_VISIBLE_DEVICES:-} in
  '') CUDA_VISIBLE_DEVICES=$rank ;;
  *,*) CUDA_VISIBLE_DEVICES=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f $((rank + 1))) ;;
esac
export CUDA_VISIBLE_DEVICES
exec "$@"
