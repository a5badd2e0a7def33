#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command with one visible GPU: the one whose index is this rank's local rank on its node. If the launcher already
# binds one device (srun --gpus-per-task with --gpu-bind), that device is kept. The command is bound to the job's cores that
# are close to the GPU. MPI uses the network adapter close to it (UCX_NET_DEVICES, unless it is set); NCCL finds its own.
# Exit code 69 if CUDA_VISIBLE_DEVICES lists fewer devices than the node has ranks.
#   SYS   root of the kernel's device information (/sys)
rank=${SLURM_LOCALID:-${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}}}
case ${CUDA_VISIBLE_DEVICES:-} in
  '') mine=$rank ;;
  *,*) mine=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f $((rank + 1))) ;;
  *) mine=$CUDA_VISIBLE_DEVICES ;;
esac
if [ -z "$mine" ]; then
  echo "rank_gpu.sh: rank $rank of $(hostname) has no GPU: only $CUDA_VISIBLE_DEVICES are visible; start one rank per GPU" >&2
  exit 69
fi
export CUDA_VISIBLE_DEVICES="$mine"

# The kernel's folder of this GPU. nvidia-smi prints 00000000:3B:00.0, the kernel uses 0000:3b:00.0.
sys=${SYS:-/sys}
gpu=$(nvidia-smi -i "$mine" --query-gpu=pci.bus_id --format=csv,noheader 2> /dev/null | tr 'A-F' 'a-f' | sed 's/^0000\(0000:\)/\1/')
gpu=$sys/bus/pci/devices/$gpu
if [ -f "$gpu/numa_node" ]; then
  cores=$(cat "$gpu/local_cpulist" 2> /dev/null)
  if [ -n "$cores" ] && taskset -c "$cores" true 2> /dev/null; then set -- taskset -c "$cores" "$@"; fi
  for adapter in "$sys"/class/infiniband/*; do
    if [ -n "${UCX_NET_DEVICES:-}" ] || [ "$(cat "$adapter/device/numa_node" 2> /dev/null)" != "$(cat "$gpu/numa_node")" ]; then continue; fi
    UCX_NET_DEVICES=$(basename "$adapter"):1
    export UCX_NET_DEVICES
  done
fi
exec "$@"
