#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Test of the jobscripts under a real Slurm with two nodes on this machine, each with its own host name. Jobs are warned
# before their time limit, save, are requeued and finish. Others are cancelled and submitted again, or lose a node. The loss
# of every step must be bitwise equal to an undisturbed run. Each rank of the GPU script must see its own device (plain
# files imitate devices), and the program for GPUs, on emulated devices, must use NCCL.
#   regression/jobs/slurm.sh BUILD      build folder that contains bin/gyrfalcon
# Needs root and Debian's slurm-wlm, otherwise the exit code is 77 (skipped). All daemons use separate ports and a temporary
# folder. The undisturbed run must take at least 20 seconds, because Slurm checks time limits twice a minute: STEPS=700.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?give the build folder}")
export PATH=$PATH:/usr/sbin
for need in slurmctld slurmd munged sbatch; do
  command -v "$need" > /dev/null || { echo "SKIPPED: $need is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: starting Slurm needs root"; exit 77; }

# The names of the nodes are known only in a private mount namespace.
[ -n "${SLURM_TEST_INSIDE:-}" ] || SLURM_TEST_INSIDE=yes exec unshare -m "$PWD/regression/jobs/slurm.sh" "$build"

folder=$(mktemp -d)
host=$(hostname -s)
{ cat /etc/hosts; echo "127.0.0.1 $host east west"; } > "$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
port=$((20000 + $$ % 20000))
daemons=()
export SLURM_CONF=$folder/slurm.conf OMP_NUM_THREADS=1  # both nodes share the cores of this machine
say() { printf '== %s\n' "$*"; }
. regression/jobs/material.sh

stop() {
  [ ${#daemons[@]} -lt 4 ] || timeout 20 scancel --user="$(id -un)" --full 2> /dev/null || true
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2> /dev/null || true
  for ((i = 0; i < 100; ++i)); do
    [ -n "$(jobs -r)" ] || break
    sleep 0.1
  done
  [ -z "$(jobs -r)" ] || kill -KILL "${daemons[@]}" 2> /dev/null || true  # slurmd may wait for a job that hangs
  wait
  umount /etc/hosts
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

declare -A slurmds=()
start_node() {
  unshare -u sh -c "hostname $1 && exec slurmd -D -N $1" &>> "$folder/slurmd-$1.out" &
  slurmds[$1]=$! daemons+=($!)
}
# Imitates a power loss of a node: all processes with its host name are killed at once.
lose_node() {
  local name process number
  name=$(readlink "/proc/${slurmds[$1]}/ns/uts")
  for number in STOP KILL; do
    for process in /proc/[0-9]*; do
      [ "$(readlink "$process/ns/uts" 2> /dev/null)" != "$name" ] || kill -$number "${process#/proc/}" 2> /dev/null || true
    done
  done
}

cluster() {
  mkdir "$folder/state" "$folder/spool"
  cat > "$SLURM_CONF" << END
ClusterName=regression
SlurmctldHost=$host
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2,interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmi2
ReturnToService=1
KillWait=10
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=east,west NodeHostname=east,west NodeAddr=127.0.0.1 Port=$((port + 1)),$((port + 2)) CPUs=8 Gres=gpu:2 State=UNKNOWN
PartitionName=regression Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  printf 'Name=gpu File=%s\n' "$folder/gpu0" "$folder/gpu1" > "$folder/gres.conf"
  touch "$folder/gpu0" "$folder/gpu1"
  chmod 755 "$folder"
  install -d -o munge -g munge "$folder/munge"
  dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 status=none
  chown munge:munge "$folder/munge/key"
  chmod 400 "$folder/munge/key"
  setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file "$folder/munge/key" --socket "$folder/munge/socket" \
    --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" --seed-file "$folder/munge/seed" &> "$folder/munged.out" &
  daemons+=($!)
  for ((i = 0; i < 50; ++i)); do [ -S "$folder/munge/socket" ] || sleep 0.1; done
  slurmctld -D &> "$folder/slurmctld.out" &
  daemons+=($!)
  start_node east
  start_node west
  for ((i = 0; i < 50; ++i)); do
    [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && return
    sleep 0.2
  done
  failed "Slurm did not start" "$folder"/*.out "$folder"/*.log
}

say "Slurm $(slurmctld -V | cut -d' ' -f2) on $host"
cluster
steps=${STEPS:-700}
make_material "$steps"
scripts=$PWD/jobscripts
cp input/demo.yaml "$folder"  # jobs are submitted in a folder of data

say "undisturbed"
begin=$SECONDS
srun --mpi=pmi2 --nodes=2 --ntasks=2 "$build/bin/gyrfalcon" train input/demo.yaml "${settings[@]}" output.folder="$folder/plain" > "$folder/plain.log" 2>&1 ||
  failed "the undisturbed run failed" "$folder/plain.log"
[ $((SECONDS - begin)) -ge 20 ] || failed "$steps steps took $((SECONDS - begin)) s: too short for a warning before the time limit; set STEPS"

# submit NAME OPTION...: submits the run with output folder folder/NAME; prints the job id.
submit() {
  (cd "$folder" && GYRFALCON=$build/bin/gyrfalcon sbatch --parsable --nodes=2 --ntasks=2 --ntasks-per-node=1 --output="$folder/$1.log" "${@:2}" \
    "$scripts/slurm-cpu.sh" demo.yaml "${settings[@]}" output.folder="$folder/$1")
}
has_left() { [ -z "$(squeue -h -j "$1" 2> /dev/null)" ]; }
has_steps() { [ -f "$folder/$1/metrics.jsonl" ] && [ "$(grep -c '"kind":"step"' "$folder/$1/metrics.jsonl")" -ge "$2" ]; }
await() {  # await PROBLEM COMMAND...: repeats COMMAND every second until it succeeds
  for ((i = 0; i < 300; ++i)); do
    if "${@:2}"; then return; fi
    sleep 1
  done
  failed "$1 within 300 s" "$folder"/*.log
}
attempts() { grep -c 'job: slurm' "$folder/$1.log" || true; }
finished() {
  grep -E 'job:|^RUN' "$folder/$1.log" || true
  grep -q '^RUN OK' "$folder/$1.log" || failed "the chain did not finish" "$folder/$1.log"
  same_losses "$folder/plain" "$folder/$1" "$steps"
}

say "time limit of one minute, with a warning 50 seconds before it"
job=$(submit limited --time=1 --signal=B:USR1@50)
await "the chain of jobs did not end" has_left "$job"
finished limited
grep -q '^RUN STOPPED 75' "$folder/limited.log" || failed "the job was never warned" "$folder/limited.log"
[ "$(attempts limited)" -ge 2 ] || failed "the job was never requeued" "$folder/limited.log"

say "the same with the tasks of a job array, one after the other"
job=$(GYRFALCON=$build/bin/gyrfalcon sbatch --parsable --array=1-6%1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --time=1 --signal=B:USR1@50 \
  --output="$folder/array.log" jobscripts/slurm-array.sh input/demo.yaml parallel.pipeline=1 "${settings[@]}" output.folder="$folder/array")
await "the array did not end" has_left "$job"
finished array
grep -q 'the next array task continues' "$folder/array.log" || failed "no array task was warned" "$folder/array.log"

say "job that is cancelled and submitted again"
job=$(submit cancelled)
await "the job did not start" has_steps cancelled 20
scancel "$job"
await "the job did not end" has_left "$job"
sleep 12  # time in which a requeued job would start again
has_left "$job" || failed "the cancelled job was requeued" "$folder/cancelled.log"
grep -q 'not queued again' "$folder/cancelled.log" || failed "the job script did not end by itself" "$folder/cancelled.log"
ls -d "$folder"/cancelled/checkpoints/step_* > /dev/null || failed "nothing was saved" "$folder/cancelled.log"
job=$(submit cancelled --open-mode=append)
await "the second job did not end" has_left "$job"
finished cancelled

say "one node of the job goes down and comes back"
job=$(submit lost)
await "the job did not start" has_steps lost 20
scontrol update NodeName=west State=DOWN Reason=test
sleep 20  # until slurmd has killed the job's processes on that node
scontrol update NodeName=west State=RESUME
await "the chain of jobs did not end" has_left "$job"
finished lost
[ "$(attempts lost)" -ge 2 ] || failed "Slurm did not start the job again" "$folder/lost.log"

say "job on one node, which loses power; the job continues on the other node"
job=$(submit moved --nodes=1 --ntasks-per-node=2)
await "the job did not start" has_steps moved 20
first=$(squeue -h -j "$job" -o %N)
lose_node "$first"
scontrol update NodeName="$first" State=DOWN Reason=test
await "the chain of jobs did not end" has_left "$job"
start_node "$first"
scontrol update NodeName="$first" State=RESUME
finished moved
grep -E "taken over from process [0-9]+ on $first, job $job, .*: its job has been started again" "$folder/moved.log" ||
  failed "the job did not take over the output folder on the other node" "$folder/moved.log"

say "two ranks on each node, each with its own device"
program=$build/regression/cuda_gyrfalcon
[ -x "$program" ] || program=$build/bin/gyrfalcon  # if the build has no GPU emulation
printf '#!/bin/sh\ntouch "%s"\nGYR_EMULATED_DEVICES=2 exec "%s" "$@"\n' "$folder/\$SLURMD_NODENAME-\$CUDA_VISIBLE_DEVICES" "$program" > "$folder/gyrfalcon"
chmod +x "$folder/gyrfalcon"
GYRFALCON=$folder/gyrfalcon sbatch --wait --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1 --output="$folder/devices.log" \
  jobscripts/slurm-gpu.sh input/demo.yaml "${settings[@]}" "${few_numbers[@]}" train.steps=2 parallel.tensor=2 output.folder="$folder/devices" > /dev/null || failed "the job with devices failed" "$folder/devices.log"
grep -E 'job:|^RUN' "$folder/devices.log"
for device in east-0 east-1 west-0 west-1; do
  [ -f "$folder/$device" ] || failed "no rank saw device $device, only $(cd "$folder" && echo east-* west-*)" "$folder/devices.log"
done

[ "$program" = "$build/bin/gyrfalcon" ] || grep 'communication between ranks: NCCL' "$folder/devices.log" || failed "ranks with one device each do not use NCCL" "$folder/devices.log"

say "the regression table in a Slurm allocation"
sbatch --wait --ntasks=2 --output="$folder/table.log" --wrap "regression/run.sh --launcher 'srun --mpi=pmi2' --binary $build/bin/gyrfalcon \
  --work $folder/table --only hybrid-fp32" > /dev/null || failed "the regression table failed" "$folder/table.log"
cat "$folder/table.log"
say "$steps steps, bitwise equal losses in all cases, in $SECONDS s"
