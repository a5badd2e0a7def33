#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Test of the GPU assignment: the device that rank_gpu.sh gives each rank, under launchers that bind devices and under
# launchers that do not. Then jobscripts/pbs-gpu.sh runs under an imitation of PBS, with the program for GPUs on emulated
# devices, whose ranks must communicate through NCCL.
#   regression/jobs/gpu.sh BUILD      build folder that contains bin/gyrfalcon
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?give the build folder}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. regression/jobs/material.sh
read -r -a launcher <<< "$(jobscripts/launcher.sh "$build/bin/gyrfalcon")"
unset CUDA_VISIBLE_DEVICES
for name in $(compgen -v SLURM_); do unset "$name"; done

# devices EXPECTED WORDS...: checks the devices that the ranks of this command see.
devices() {
  local expected=$1 seen
  seen=$("${@:2}" jobscripts/rank_gpu.sh printenv CUDA_VISIBLE_DEVICES | sort -n | xargs)
  [ "$seen" = "$expected" ] || failed "visible devices '$seen' instead of '$expected': ${*:2}"
}
devices '0 1 2 3' "${launcher[@]}" -n 4
devices '4 5 6 7' "${launcher[@]}" -n 4 env CUDA_VISIBLE_DEVICES=4,5,6,7
devices '2' env CUDA_VISIBLE_DEVICES=2 SLURM_LOCALID=1
devices '3' env SLURM_LOCALID=3
devices 'GPU-b' env CUDA_VISIBLE_DEVICES=GPU-a,GPU-b PALS_LOCAL_RANKID=1
devices '1' env OMPI_COMM_WORLD_LOCAL_RANK=1
code=0
CUDA_VISIBLE_DEVICES=0,1 SLURM_LOCALID=2 jobscripts/rank_gpu.sh true 2> "$folder/said" || code=$?
[ "$code" = 69 ] || failed "a third rank with two devices returned $code instead of 69"
grep -q 'start one rank per GPU' "$folder/said" || failed "the error message of the third rank is missing"

# An imitated machine with two NUMA nodes: GPU 1 belongs to the second one, with one of this machine's cores and a
# network adapter.
core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
mkdir -p "$folder/sys/bus/pci/devices/0000:3b:00.0" "$folder/sys/bus/pci/devices/0000:af:00.0" "$folder/sys/class/infiniband"/mlx5_{0,1}/device "$folder/smi"
for half in 0 1; do echo $half > "$folder/sys/class/infiniband/mlx5_$half/device/numa_node"; done
echo 0 > "$folder/sys/bus/pci/devices/0000:3b:00.0/numa_node"
echo 1 > "$folder/sys/bus/pci/devices/0000:af:00.0/numa_node"
echo "$core" > "$folder/sys/bus/pci/devices/0000:af:00.0/local_cpulist"
printf '#!/bin/sh\n[ "$2" = 1 ] && echo 00000000:AF:00.0 || echo 00000000:3B:00.0\n' > "$folder/smi/nvidia-smi"
chmod +x "$folder/smi/nvidia-smi"
near() { PATH=$folder/smi:$PATH SYS=$folder/sys SLURM_LOCALID=$1 jobscripts/rank_gpu.sh sh -c 'echo "$CUDA_VISIBLE_DEVICES $UCX_NET_DEVICES $(taskset -cp $$ | sed "s/.*: //")"'; }
[ "$(near 1)" = "1 mlx5_1:1 $core" ] || failed "wrong device, adapter or core of the second rank: '$(near 1)'"
case $(near 0) in '0 mlx5_0:1 '*) ;; *) failed "wrong device or adapter of the first rank: '$(near 0)'" ;; esac
[ "$(UCX_NET_DEVICES=mlx5_9:1 near 1)" = "1 mlx5_9:1 $core" ] || failed "UCX_NET_DEVICES of the user is not kept"

stand_in_for_pbs
export OMP_NUM_THREADS=1
make_material 2
program=$build/regression/cuda_gyrfalcon
[ -x "$program" ] || program=$build/bin/gyrfalcon  # if the build has no GPU emulation
mkdir "$folder/seen"
cat > "$folder/gyrfalcon" << END
#!/bin/sh
[ "\$1" != version ] || exit 0  # without GPU emulation, a program for CPUs takes the place of one for GPUs
touch "$folder/seen/\$CUDA_VISIBLE_DEVICES"
GYR_EMULATED_DEVICES=4 exec "$program" "\$@"
END
chmod +x "$folder/gyrfalcon"
export GYRFALCON=$folder/gyrfalcon DECK=input/demo.yaml CHANGES="${settings[*]} ${few_numbers[*]} parallel.tensor=2 output.folder=$folder/out"
qsub -l select=1:ncpus=4:mpiprocs=4:ngpus=4 -l walltime=1:00:00 -v DECK,CHANGES,GYRFALCON jobscripts/pbs-gpu.sh > "$folder/job"
timeout 120 regression/jobs/pbs_standin.sh serve || failed "the job did not end"
grep -q '^RUN OK' "$folder/queue/1/output" || failed "the job did not finish the run"
grep -hE 'job:|^RUN' "$folder/queue/1/output"
seen=$(find "$folder/seen" -type f -printf '%f\n' | sort | xargs)
[ "$seen" = '0 1 2 3' ] || failed "the ranks saw '$seen'"
[ "$program" = "$build/bin/gyrfalcon" ] || grep 'communication between ranks: NCCL' "$folder/queue/1/output" || failed "ranks with one device each do not use NCCL"
echo "== four ranks, four devices"
