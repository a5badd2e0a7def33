#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A real Slurm on this machine, and a jobscript's whole life in it: submitted, warned before its time limit, saved, requeued, finished.
# The loss of every step must then be, bit for bit, that of a run nobody disturbed.
#   regression/jobs/slurm.sh BUILD      BUILD the folder with bin/gyrfalcon
# Needs root and Debian's slurm-wlm; exit code 77 (skipped) where they are not. Everything runs on ports of its own, in a folder that is
# removed at the end.
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
ports=$((20000 + $$ % 20000))
own_munge=
export SLURM_CONF=$folder/slurm.conf
say() { printf '== %s\n' "$*"; }

stop() {
  for daemon in slurmd slurmctld ${own_munge:+munged}; do
    [ -f "$folder/$daemon.pid" ] && kill "$(cat "$folder/$daemon.pid")" 2> /dev/null
  done
  sleep 1
  rm -rf "$folder"
}
trap stop EXIT

cluster() {
  mkdir "$folder/state" "$folder/spool"
  cat > "$SLURM_CONF" << END
ClusterName=regression
SlurmctldHost=$host
SlurmctldPort=$ports
SlurmdPort=$((ports + 1))
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
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
SchedulerParameters=requeue_delay=1
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
  setpriv --reuid munge --regid munge --clear-groups munged --key-file "$folder/munge/key" --socket "$folder/munge/socket" \
    --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" --seed-file "$folder/munge/seed"
  ln -s munge/pid "$folder/munged.pid"
  own_munge=yes
  slurmctld
  slurmd
  for ((i = 0; i < 50; ++i)); do
    [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && return
    sleep 0.2
  done
  cat "$folder"/*.log
  echo "Slurm did not start"
  return 1
}

# Loss by step; of a step done twice the later one.
losses() {
  sed -n 's/.*"kind":"step".*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1" | awk '{ loss[$1] = $2 } END { for (s in loss) print s, loss[s] }' | sort -n
}

# A run of about 20 seconds on two ranks.
settings=(data.prefixes=["$folder/text"] data.tokenizer= model.vocabulary=512 train.steps=400 train.batch=4 train.micro_batch=2 train.length=256
          train.eval_every=0 checkpoint.every=100)

material() {
  for ((i = 0; i < 4000; ++i)); do echo "the falcon $((i * 7919 % 1000)) flies over $((i * 104729 % 997)) hills"; done > "$folder/text.txt"
  "$build/bin/gyrfalcon" tokenizer train "$folder/tokenizer.json" "$folder/text.txt" --vocabulary 512 > /dev/null
  "$build/bin/gyrfalcon" data build "$folder/text.txt" "$folder/text" --tokenizer "$folder/tokenizer.json" --documents line > /dev/null
}

say "Slurm $(slurmctld -V | cut -d' ' -f2) on $host"
cluster
material
say "undisturbed"
srun --mpi=pmi2 -n 2 "$build/bin/gyrfalcon" train input/demo.yaml "${settings[@]}" output.folder="$folder/plain" > "$folder/plain.log" ||
  { tail -n 20 "$folder/plain.log"; exit 1; }

say "under a time limit of a minute, warned 50 seconds before"
job=$(GYRFALCON=$build/bin/gyrfalcon sbatch --parsable --nodes=1 --ntasks=2 --ntasks-per-node=2 --time=1 --signal=B:USR1@50 --output="$folder/job.log" \
  jobscripts/slurm-cpu.sh input/demo.yaml "${settings[@]}" parallel.tensor=1 output.folder="$folder/limited")
for ((i = 0; i < 300; ++i)); do
  [ -n "$(squeue -h -j "$job" 2> /dev/null)" ] || break
  sleep 1
done
grep -E 'job:|RUN' "$folder/job.log" || true
lives=$(grep -c 'job: slurm' "$folder/job.log" || true)
grep -q 'RUN OK' "$folder/job.log" || { tail -n 30 "$folder/job.log"; echo "FAILED: the chain did not finish"; exit 1; }
[ "$lives" -ge 2 ] || { echo "FAILED: the job was never requeued"; exit 1; }
losses "$folder/plain/metrics.jsonl" > "$folder/plain.losses"
losses "$folder/limited/metrics.jsonl" > "$folder/limited.losses"
[ "$(wc -l < "$folder/plain.losses")" = 400 ] || { echo "FAILED: the undisturbed run has $(wc -l < "$folder/plain.losses") losses"; exit 1; }
cmp "$folder/plain.losses" "$folder/limited.losses" || { echo "FAILED: the losses differ"; exit 1; }
say "$lives lives, 400 losses, the same bits"
