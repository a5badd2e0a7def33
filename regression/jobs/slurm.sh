#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A real Slurm on this machine, and a jobscript's whole life in it: submitted, warned before its time limit, saved, requeued, finished.
# The loss of every step must then be, bit for bit, that of a run nobody disturbed.
#   regression/jobs/slurm.sh BUILD      BUILD the folder with bin/gyrfalcon
# Needs root and Debian's slurm-wlm; exit code 77 (skipped) where they are not. Everything runs on ports of its own, in a folder that is
# removed at the end. The undisturbed run takes at least 20 seconds, because Slurm looks at time limits twice a minute: STEPS=400.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?give the build folder}")
export PATH=$PATH:/usr/sbin
for need in slurmctld slurmd munged sbatch; do
  command -v "$need" > /dev/null || { echo "SKIPPED: $need is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: starting Slurm takes root"; exit 77; }

folder=$(mktemp -d)
host=$(hostname -s)
port=$((20000 + $$ % 20000))
daemons=()
export SLURM_CONF=$folder/slurm.conf
say() { printf '== %s\n' "$*"; }
failed() { tail -n 30 "${@:2}"; echo "FAILED: $1"; exit 1; }
. regression/jobs/material.sh

stop() {
  [ ${#daemons[@]} -lt 3 ] || timeout 20 scancel --user="$(id -un)" --full 2> /dev/null || true
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2> /dev/null || true
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

cluster() {
  mkdir "$folder/state" "$folder/spool"
  cat > "$SLURM_CONF" << END
ClusterName=regression
SlurmctldHost=$host
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2,interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmi2
ReturnToService=2
KillWait=10
SlurmdParameters=config_overrides
NodeName=$host CPUs=8 State=UNKNOWN
PartitionName=regression Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
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
  slurmd -D &> "$folder/slurmd.out" &
  daemons+=($!)
  for ((i = 0; i < 50; ++i)); do
    [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && return
    sleep 0.2
  done
  failed "Slurm did not start" "$folder"/*.out "$folder"/*.log
}

say "Slurm $(slurmctld -V | cut -d' ' -f2) on $host"
cluster
steps=${STEPS:-400}
make_material "$steps"

say "undisturbed"
begin=$SECONDS
srun --mpi=pmi2 -n 2 "$build/bin/gyrfalcon" train input/demo.yaml "${settings[@]}" output.folder="$folder/plain" > "$folder/plain.log" 2>&1 ||
  failed "the undisturbed run" "$folder/plain.log"
[ $((SECONDS - begin)) -ge 20 ] || failed "$steps steps took $((SECONDS - begin)) s: too few to be warned before the end; set STEPS"

say "under a time limit of a minute, warned 50 seconds before"
job=$(GYRFALCON=$build/bin/gyrfalcon sbatch --parsable --nodes=1 --ntasks=2 --ntasks-per-node=2 --time=1 --signal=B:USR1@50 --output="$folder/job.log" \
  jobscripts/slurm-cpu.sh input/demo.yaml "${settings[@]}" output.folder="$folder/limited")
for ((i = 0; i < 300; ++i)); do
  [ -n "$(squeue -h -j "$job" 2> /dev/null)" ] || break
  sleep 1
done
grep -E 'job:|^RUN' "$folder/job.log" || true
lives=$(grep -c 'job: slurm' "$folder/job.log" || true)
grep -q '^RUN OK' "$folder/job.log" || failed "the chain did not finish" "$folder/job.log"
grep -q '^RUN STOPPED 75' "$folder/job.log" || failed "the job was never warned" "$folder/job.log"
[ "$lives" -ge 2 ] || failed "the job was never requeued" "$folder/job.log"
same_losses "$folder/plain" "$folder/limited" "$steps"
say "the regression table in an allocation"
sbatch --wait --ntasks=2 --output="$folder/table.log" --wrap "regression/run.sh --launcher 'srun --mpi=pmi2' --binary $build/bin/gyrfalcon \
  --work $folder/table --only hybrid-fp32" > /dev/null || failed "the regression table" "$folder/table.log"
cat "$folder/table.log"
say "$lives lives, $steps steps, the same bits, in $SECONDS s"
