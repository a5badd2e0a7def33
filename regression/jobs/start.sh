#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Test of the start of jobscripts, with imitations of the schedulers, of the launcher and of the program. The scripts run as
# copies in a spool folder, as under Slurm and PBS. Missing decks and programs must be reported before ranks are launched.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec {trace}>&2
BASH_XTRACEFD=$trace  # with bash -x, the captured messages would contain the commands otherwise
scripts=$PWD/jobscripts
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. regression/jobs/material.sh
data=$folder/data
mkdir "$folder"/{bin,spool,home,data,other}
touch "$data/my deck.yaml" "$data/my.yaml"

# imitate NAME: a command that writes its words and these variables to $folder/NAME.
imitate() {
  printf '#!/bin/sh\n{ for word; do echo "$word"; done; echo "at $PWD"; env | grep -E "^(SBATCH_|NCCL_|OMP_NUM|DECK|CHANGES|VERIFY)"; } > %s\necho RUN OK\n' "$folder/$1" > "$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}
for name in sbatch qsub program; do imitate "$name"; done
printf '#!/bin/sh\nprintf "JobId=7 JobName=x\\n   Command=%%s\\n   WorkDir=/\\n" "$COMMAND"\n' > "$folder/bin/scontrol"
printf '#!/bin/sh\nprintf "Job Id: 7\\n    Submit_arguments = -v DECK %%s\\n    project = x\\n" "$COMMAND" | fold -w 40 | sed "3,\\${/^    /!s/^/\\t/}"\n' > "$folder/bin/qstat"
printf '#!/bin/sh\ntouch "%s"\nexec "$@"\n' "$folder/launched" > "$folder/bin/launch"
chmod +x "$folder/bin"/*

# job CODE SCRIPT [VARIABLE=value ...] -- WORD...: runs a copy of SCRIPT as a job that was submitted in `data`.
job() {
  local expected=$1 script=$2 code=0
  local -a variables=()
  for ((; $# > 2; )); do [ "$3" != -- ] || break; variables+=("$3"); set -- "$1" "$2" "${@:4}"; done
  set -- "${@:4}"
  cp "$script" "$folder/spool/copy"
  rm -f "$folder/launched" "$folder/program"
  if [[ $script == *pbs* ]]; then
    variables+=(PBS_JOBID=7 "PBS_O_WORKDIR=$data" "PBS_NODEFILE=$data/my.yaml" "DECK=${1:-}" "CHANGES=${*:2}" "COMMAND=$script") && set --
  else
    variables+=(SLURM_JOB_ID=7 "SLURM_SUBMIT_DIR=$data" SLURM_NTASKS=2 "COMMAND=$script $*")
  fi
  (cd / && env -i PATH="$folder/bin:$PATH" HOME="$folder/home" LAUNCHER=launch GYRFALCON="$folder/bin/program" RANKS=2 "${variables[@]}" \
    bash "$folder/spool/copy" "$@") > "$folder/said" 2>&1 || code=$?
  [ "$code" = "$expected" ] || failed "$(basename "$script") returned $code instead of $expected" "$folder/said"
}
said() { grep -q -- "$1" "$folder/said" || failed "the message '$1' is missing" "$folder/said"; }
not_launched() { [ ! -e "$folder/launched" ] || failed "ranks were launched" "$folder/said"; }
has() { grep -qxF -- "$2" "$folder/$1" || failed "$1 did not get '$2'" "$folder/$1" "$folder/said"; }

for script in "$scripts"/slurm-*.sh "$scripts"/pbs-*.sh; do
  job 0 "$script" -- my.yaml train.steps=3
  for word in train my.yaml train.steps=3 --resume "at $data"; do has program "$word"; done
  job 64 "$script" --
  case $script in
    *pbs*) said 'no deck is given; .* reads its name from the variable DECK, as in qsub -v DECK=FILE SCRIPT or DECK=FILE bash SCRIPT' ;;
    *) said 'no deck is given; name one, as in sbatch' ;;
  esac
  not_launched
  job 66 "$script" -- nosuch.yaml
  said "there is no deck nosuch.yaml in $data"; not_launched
  job 69 "$script" GYRFALCON=/no/program -- my.yaml
  said 'the program GYRFALCON=/no/program is missing'; not_launched
  # A changed copy in another folder needs the folder of job.sh.
  cp "$script" "$folder/other/own-$(basename "$script")"
  job 69 "$folder/other/own-$(basename "$script")" -- my.yaml
  said 'set GYRFALCON_JOBSCRIPTS'; not_launched
  job 0 "$folder/other/own-$(basename "$script")" "GYRFALCON_JOBSCRIPTS=$scripts" -- my.yaml
done
job 64 "$scripts/slurm-cpu.sh" -- train.steps=3
said 'the first word must be a deck, not train.steps=3'
job 0 "$scripts/slurm-cpu.sh" -- 'my deck.yaml'
has program 'my deck.yaml'
echo "== jobs start in the folder of the submission"

# The scripts of a scheduler end alike.
for kind in slurm pbs; do
  for script in "$scripts/$kind"-*.sh; do
    sed -n '/^cd /,$p' "$script" > "$folder/end"
    cmp "$folder/end" <(sed -n '/^cd /,$p' "$scripts/$kind-cpu.sh") || failed "$script starts job.sh in another way than $kind-cpu.sh"
  done
done

# Without GYRFALCON, the program belongs to the clone or installation of the jobscripts.
for kind in clone/jobscripts installed/share/gyrfalcon/jobscripts; do
  mkdir -p "$folder/$kind" && cp "$scripts"/*.sh "$folder/$kind"
done
job 69 "$folder/clone/jobscripts/slurm-cpu.sh" GYRFALCON= -- my.yaml
said "$folder/clone/build/release/bin/gyrfalcon is missing; build it with .make."
job 69 "$folder/clone/jobscripts/slurm-gpu.sh" GYRFALCON= -- my.yaml
said "$folder/clone/build/cuda/bin/gyrfalcon is missing; build it with .make cuda."
mkdir "$folder/installed/bin" && cp "$folder/bin/program" "$folder/installed/bin/gyrfalcon"
job 0 "$folder/installed/share/gyrfalcon/jobscripts/slurm-cpu.sh" GYRFALCON= -- my.yaml
has program my.yaml

# Site files: that of the jobscripts, then that of the user, or only GYRFALCON_SITE.
mkdir -p "$folder/home/.config/gyrfalcon"
echo 'export NCCL_IB_HCA=all NCCL_SOCKET_IFNAME=all; false; PARTITION=gpu ACCOUNT=all SUBMIT_SBATCH=(--qos=long) SUBMIT_QSUB=(-W group_list=g)' > "$folder/clone/jobscripts/site.sh"
echo 'export NCCL_IB_HCA=user; ACCOUNT=user' > "$folder/home/.config/gyrfalcon/site.sh"
echo 'export NCCL_IB_HCA=named; PARTITION=named' > "$folder/named.sh"
job 0 "$folder/clone/jobscripts/slurm-gpu8.sh" -- my.yaml
for word in NCCL_IB_HCA=user NCCL_SOCKET_IFNAME=all NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=22; do has program "$word"; done
job 0 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/named.sh" -- my.yaml
has program NCCL_IB_HCA=named
! grep -q NCCL_SOCKET_IFNAME "$folder/program" || failed "GYRFALCON_SITE does not replace the other site files"
job 66 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE=/no/site.sh -- my.yaml
said 'GYRFALCON_SITE is /no/site.sh, which is not a file'; not_launched
printf 'export NCCL_DEBUG=INFO\nmodule load cray-mpich\nfalse\n' > "$folder/nomodule.sh"
job 69 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/nomodule.sh" -- my.yaml
said "$folder/nomodule.sh:2: module load cray-mpich: command not found; correct the line"; not_launched
sed 's/cray-mpich/& 2> \/dev\/null || true/' "$folder/nomodule.sh" > "$folder/tolerant.sh"
job 0 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/tolerant.sh" -- my.yaml
printf 'NAME=sw\n. "/no/$NAME/modules.sh"\n' > "$folder/nofile.sh"
job 69 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/nofile.sh" -- my.yaml
said "$folder/nofile.sh:2: . \"/no/\$NAME/modules.sh\": the file does not exist; correct its path or remove the line"; not_launched
printf '. "%s/false.sh"\n' "$folder" > "$folder/fails.sh" && echo false > "$folder/false.sh"
job 0 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/fails.sh" -- my.yaml
printf 'if true; then\n' > "$folder/broken.sh"
job 69 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/broken.sh" -- my.yaml
said "$folder/broken.sh is not valid bash"; not_launched
# slip TEXT MESSAGE: a site file with this line ends with 69, its line and the setting that is meant.
slip() {
  printf '# a site\n%s\n' "$1" > "$folder/slip.sh"
  job 69 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/slip.sh" -- my.yaml
  said "$folder/slip.sh:2: $2"; not_launched
}
slip PARTITON=gpu 'PARTITON is not a setting; did you mean PARTITION?'
slip 'export SUBMIT_SBACH=--qos=long' 'SUBMIT_SBACH is not a setting; did you mean SUBMIT_SBATCH?'
slip account=me 'account is not a setting; did you mean ACCOUNT?'
slip '  TREADS=2' 'TREADS is not a setting; did you mean THREADS?'
printf 'export GROUP=mine SITE=x\nPARTS=3\nPARTITION=a\nPARTITION=b\nif true; then\n  ACCOUNT=a\nelse\n  ACCOUNT=b\nfi\n' > "$folder/twice.sh"
job 0 "$folder/clone/jobscripts/slurm-gpu8.sh" GYRFALCON_SITE="$folder/twice.sh" -- my.yaml
said "warning: $folder/twice.sh:4: PARTITION is set a second time; the value of line 3 is not used"
[ "$(grep -c warning "$folder/said")" = 1 ] || failed "further settings are reported" "$folder/said"
echo "== site files"

# A program without a GPU backend is refused by the scripts for GPUs.
for backend in kokkos cuda; do
  printf '#!/bin/sh\n[ "$1" != version ] || echo "backend   %s"\necho RUN OK\n' $backend > "$folder/bin/on-$backend"
  chmod +x "$folder/bin/on-$backend"
done
for script in slurm-gpu slurm-gpu8 pbs-gpu pbs-gpu8; do
  job 69 "$scripts/$script.sh" GYRFALCON=on-kokkos -- my.yaml
  said 'the program on-kokkos is built for CPUs, but the ranks of this script have GPUs'; not_launched
  job 0 "$scripts/$script.sh" GYRFALCON=on-cuda -- my.yaml
done
for script in slurm-cpu pbs-cpu; do job 0 "$scripts/$script.sh" GYRFALCON=on-kokkos -- my.yaml; done
printf '#!/bin/sh\n[ "$1" != selftest ] || exit 69\nexec program "$@"\n' > "$folder/bin/sick"
chmod +x "$folder/bin/sick"
job 0 "$scripts/slurm-cpu.sh" SELFTEST=1 -- my.yaml
said 'gyrfalcon selftest ended with 0'
job 69 "$scripts/slurm-cpu.sh" SELFTEST=1 GYRFALCON="$folder/bin/sick" -- my.yaml
said 'gyrfalcon selftest ended with 69'
job 0 "$scripts/slurm-cpu.sh" GYRFALCON="$folder/bin/sick" -- my.yaml
echo "== program for GPUs"

# submit CODE WORD...: runs submit.sh of the clone with site files and the variables in `with`.
with=()
submit() {
  local code=0
  rm -f "$folder"/{sbatch,qsub,program}
  (cd "$data" && env -i PATH="$folder/bin:$PATH" HOME="$folder/home" GYRFALCON="$folder/bin/program" VERIFY=1 ${with[@]+"${with[@]}"} "$folder/clone/jobscripts/submit.sh" "${@:2}") \
    > "$folder/said" 2>&1 || code=$?
  [ "$code" = "$1" ] || failed "submit.sh ${*:2} returned $code instead of $1" "$folder/said"
}
submit 0 --nodes=2 slurm-gpu.sh my.yaml train.steps=3
for word in --qos=long --nodes=2 "$folder/clone/jobscripts/slurm-gpu.sh" my.yaml train.steps=3 SBATCH_PARTITION=gpu SBATCH_ACCOUNT=user; do has sbatch "$word"; done
submit 0 "$folder/other/own-slurm-cpu.sh" my.yaml
has sbatch "$folder/other/own-slurm-cpu.sh"
submit 0 -l select=1 pbs-cpu.sh my.yaml 'data.prefixes=[a,b]' train.steps=3
! grep -qe --qos "$folder/qsub" || failed "options of sbatch were passed to qsub"
for word in -q gpu -A user group_list=g select=1 "$folder/clone/jobscripts/pbs-cpu.sh" DECK=my.yaml 'CHANGES=data.prefixes=[a,b] train.steps=3'; do has qsub "$word"; done
has qsub DECK,CHANGES,GYRFALCON,GYRFALCON_JOBSCRIPTS,VERIFY
submit 64 --nodes=2 my.yaml
said 'no jobscript is named'
submit 66 slurm-gpu9.sh my.yaml
said 'there is no jobscript slurm-gpu9.sh; there are slurm-array.sh slurm-cpu.sh'
submit 66 jobscripts/slurm-gpu.sh my.yaml
said "there is no jobscript jobscripts/slurm-gpu.sh in $data; write slurm-gpu.sh, without a folder, for the script in $folder/clone/jobscripts"
submit 64 --nodes=abc slurm-gpu.sh my.yaml
said '--nodes=abc: must be a number, as in --nodes=2'
[ ! -e "$folder/sbatch" ] || failed "a wrong number of nodes was submitted"
submit 0 --nodes=1k slurm-gpu.sh my.yaml
said 'the deck is not checked, because the options do not state the number of ranks'
submit 66 slurm-gpu.sh nosuch.yaml
submit 64 slurm-gpu.sh
[ ! -e "$folder/sbatch" ] || failed "a job without a deck was submitted"
(cd "$data" && env -i PATH="$PATH" HOME="$folder/home" "$folder/clone/jobscripts/submit.sh" slurm-gpu.sh my.yaml) > "$folder/said" 2>&1 && failed "a missing program was accepted"
said 'make cuda'
submit 64 slurm-cpu.sh my.yaml --nodes=64
said '--nodes=64: options of sbatch and qsub stand before the script'
submit 64 slurm-cpu.sh --ntasks=2 my.yaml
said '--ntasks=2: options of sbatch and qsub stand before the script'
submit 64 --ntasks=2 my.yaml slurm-cpu.sh train.steps=3
said 'my.yaml: the deck stands after the script; write submit.sh .* slurm-cpu.sh my.yaml'
# Options that look like a number of ranks, but are those of nothing or of the other scheduler.
# Rare options of sbatch, and a partition with the name of an option of PBS
submit 0 --dry-run --sockets-per-node=1 --extra-node-info=2 -p nodes slurm-cpu.sh my.yaml
for words in '--ntask=2 slurm-cpu.sh' '--num-nodes=2 slurm-gpu8.sh' '--nranks 2 slurm-gpu.sh' '-np 2 slurm-cpu.sh'; do
  read -r -a words <<< "$words"
  submit 64 "${words[@]}" my.yaml
  said "${words[0]}: sbatch has no such option; write --ntasks=N for the number of ranks, or --nodes=N for that of nodes"
done
submit 64 -l select=2 slurm-cpu.sh my.yaml
said 'select=2: slurm-cpu.sh goes to sbatch, which has no -l; write --ntasks=N'
for word in --ntasks=2 --nodes=2 -n2; do
  submit 64 "$word" pbs-cpu.sh my.yaml
  said "$word: pbs-cpu.sh goes to qsub, which has no such option; it takes the number of ranks as -l select=1:ncpus=2:mpiprocs=2"
done
[ ! -e "$folder/sbatch" ] && [ ! -e "$folder/qsub" ] || failed "a job with an unknown option was submitted"
for word in --cpus-per-task=2 --nodelist=n1 --gpus-per-node=2 --no-requeue; do submit 0 "$word" slurm-cpu.sh my.yaml; done
submit 0 --dry-run --nodes=2 slurm-gpu.sh my.yaml train.steps=3
for text in 'command:   sbatch --qos=long --nodes=2 .*/slurm-gpu.sh my.yaml train.steps=3' 'signal=B:USR1@300' 'SBATCH_PARTITION=gpu' 'nothing has been submitted'; do said "$text"; done
[ ! -e "$folder/sbatch" ] || failed "a dry run submitted a job"
for text in 'ranks: *8$' 'variable:  NCCL_IB_HCA=user' 'variable:  NCCL_SOCKET_IFNAME=all' 'export NCCL_DEBUG='; do said "$text"; done
printf 'PARTITION=gpu\nSUBMIT_SBATCH=(-p cpu)\nexport UCX_TLS=rc,sm,self FI_PROVIDER=cxi\n' > "$folder/both.sh"
with=(GYRFALCON_SITE="$folder/both.sh")
submit 0 --dry-run slurm-gpu.sh my.yaml
for text in 'sets PARTITION=gpu, and an option names a partition, too (-p)' 'UCX_TLS=rc,sm,self' 'FI_PROVIDER=cxi' 'ranks: *16$'; do said "$text"; done
with=()
with=(GYRFALCON=/no/program)
submit 66 --dry-run slurm-gpu8.sh nosuch.yaml
said 'there is no deck nosuch.yaml'
submit 69 slurm-gpu8.sh my.yaml
submit 0 --dry-run slurm-gpu8.sh my.yaml
for text in 'the program GYRFALCON=/no/program is missing' 'the job itself would be refused (69); the dry run goes on' 'ranks: *64$' 'nothing has been submitted'; do said "$text"; done
with=()
submit 0 --dry-run --nodes=1k slurm-gpu.sh my.yaml
said 'ranks: *unknown'
submit 0 --dry-run pbs-cpu.sh my.yaml 'data.prefixes=[a,b]'
for text in 'command:   qsub -v DECK,CHANGES,.*-q gpu -A user .*/pbs-cpu.sh' 'CHANGES=data.prefixes=.a,b.'; do said "$text"; done
[ ! -e "$folder/qsub" ] || failed "a dry run submitted a job to PBS"
mv "$folder/bin/qsub" "$folder/bin/hidden"
submit 69 pbs-cpu.sh my.yaml
said 'there is no qsub here, but sbatch; take one of the scripts slurm-\*.sh'
submit 0 --dry-run pbs-cpu.sh my.yaml
mv "$folder/bin/hidden" "$folder/bin/qsub"
echo "== submit.sh"

# The deck is planned on the ranks of the job before it is submitted.
planned() {
  submit 0 "${@:2}"
  has program plan; has program --ranks; has program "$1"
}
planned 16 slurm-gpu.sh my.yaml train.steps=3
! grep -q -- --cluster "$folder/program" || failed "the plan is made for a machine that the site file does not name" "$folder/program"
with=(CLUSTER_FILE="$folder/my machine.yaml")
submit 66 slurm-gpu.sh my.yaml
said 'CLUSTER_FILE is .*/my machine.yaml, which is not a file'
touch "$folder/my machine.yaml"
planned 16 slurm-gpu.sh my.yaml
has program --cluster; has program "$folder/my machine.yaml"
with=()
planned 16 slurm-gpu.sh my.yaml train.steps=3
has program train.steps=3
planned 8 --nodes=2 slurm-gpu.sh my.yaml
planned 12 -N3 slurm-gpu.sh my.yaml
planned 20 -N 5 slurm-gpu.sh my.yaml
planned 10 --nodes=2 --ntasks-per-node 5 slurm-gpu.sh my.yaml
planned 7 --nodes=2 -n 7 slurm-gpu.sh my.yaml
planned 16 pbs-gpu.sh my.yaml
planned 24 -l select=3:ncpus=96:mpiprocs=8 pbs-gpu.sh my.yaml
with=(RANKS=5)
planned 5 slurm-gpu.sh my.yaml
with=()
printf '#!/bin/sh\necho "gyrfalcon: train.global_batch_size: 8 sequences do not split on these ranks" >&2\necho "RUN FAILED 78"\nexit 78\n' > "$folder/bin/refuses"
printf '#!/bin/sh\nexit 69\n' > "$folder/bin/unable"
printf '#!/bin/sh\necho "gyrfalcon: command line train.stps=4: unknown key train.stps, rank" >&2\necho "RUN FAILED 78"\nexit 78\n' > "$folder/bin/misspelt"
printf '#!/bin/sh\necho "gyrfalcon: my.yaml: cannot be opened: Permission denied" >&2\necho "RUN FAILED 74"\nexit 74\n' > "$folder/bin/unreadable"
chmod +x "$folder/bin"/{refuses,unable,misspelt,unreadable}
with=(GYRFALCON="$folder/bin/misspelt")
submit 78 --dry-run slurm-gpu.sh my.yaml
said "unknown key train.stps"
! grep -q 'number of ranks comes from' "$folder/said" || failed "a message about a key names the number of ranks" "$folder/said"
with=(GYRFALCON="$folder/bin/unreadable")
submit 74 --dry-run slurm-gpu.sh my.yaml
said 'my.yaml: cannot be opened: Permission denied'
! grep -q 'nothing has been submitted' "$folder/said" || failed "the dry run goes on without a deck" "$folder/said"
with=(GYRFALCON="$folder/bin/refuses")
submit 78 slurm-gpu.sh my.yaml
said 'the deck is refused on the 16 ranks of this job: gyrfalcon: train.global_batch_size: 8 sequences do not split'
submit 78 pbs-gpu.sh my.yaml
! grep -q '^RUN ' "$folder/said" || failed "the refusal repeats the last line of the program" "$folder/said"
# The message names the settings that give the number of ranks. The command that it proposes has fewer ranks.
for pair in slurm-cpu:64 slurm-array:128 slurm-gpu:16 slurm-gpu8:64 pbs-cpu:64 pbs-gpu:16 pbs-gpu8:64; do
  submit 78 "${pair%:*}.sh" my.yaml
  said "the deck is refused on the ${pair#*:} ranks of this job"
  said "the number of ranks comes from .* (#.* lines of ${pair%:*}.sh, unless an option replaces them)"
  read -r -a words <<< "$(sed -n 's/.*as in `submit\.sh \(.*\)`$/\1/p' "$folder/said")"
  [ ${#words[@]} -ge 3 ] || failed "no command is proposed" "$folder/said"
  with=()
  submit 0 --dry-run "${words[@]}"
  case $pair in *8:*) said 'ranks: *8$' ;; *) said 'ranks: *4$' ;; esac
  with=(GYRFALCON="$folder/bin/refuses")
done
submit 78 --nodes=2 slurm-gpu.sh 'my deck.yaml'
said 'comes from --nodes=2 --ntasks-per-node=4 .* `submit.sh --nodes=1 slurm-gpu.sh my\\ deck.yaml`'
submit 78 -l select=2:ncpus=8:mpiprocs=8 pbs-cpu.sh my.yaml
said 'comes from -l select=2:ncpus=8:mpiprocs=8 '
# The proposal differs from what was given.
for given in --nodes=1:slurm-gpu.sh --nodes=1:slurm-gpu8.sh --ntasks=4:slurm-cpu.sh; do
  submit 78 "${given%:*}" "${given#*:}" my.yaml
  ! grep -q "submit.sh ${given%:*} ${given#*:}" "$folder/said" || failed "the proposal repeats ${given%:*}" "$folder/said"
  case $given in
    *gpu8.sh) said 'as in `submit.sh --nodes=1 --ntasks-per-node=4 slurm-gpu8.sh ' ;;
    *gpu.sh) said 'as in `submit.sh --nodes=1 --ntasks-per-node=2 slurm-gpu.sh ' ;;
    *) said 'as in `submit.sh --ntasks=2 ' ;;
  esac
done
submit 78 -l select=64 pbs-gpu8.sh my.yaml
chunk=$(sed -n 's/^#PBS -l *select=[0-9]*://p' "$scripts/pbs-gpu8.sh")
said "as in .submit.sh -l select=1:$chunk pbs-gpu8.sh "
for given in select=1:ncpus=4:mpiprocs=4:pbs-cpu.sh select=1:ncpus=32:mpiprocs=4:ngpus=4:pbs-gpu.sh; do
  submit 78 -l "${given%:*}" "${given##*:}" my.yaml
  ! grep -q "submit.sh -l ${given%:*} " "$folder/said" || failed "the proposal repeats -l ${given%:*}" "$folder/said"
  said 'as in `submit.sh -l select=1:ncpus=[0-9]*:mpiprocs=2'
done
with+=(RANKS=5)
submit 78 slurm-cpu.sh my.yaml
said 'the number of ranks comes from the variable RANKS=5; change or unset it'
with=(GYRFALCON="$folder/bin/refuses")
[ ! -e "$folder/sbatch" ] || failed "a job with a refused deck was submitted to Slurm"
[ ! -e "$folder/qsub" ] || failed "a job with a refused deck was submitted to PBS"
printf '#!/bin/sh\necho "warning: train stops: text.idx: does not exist"\n' > "$folder/bin/no-data" && chmod +x "$folder/bin/no-data"
with=(GYRFALCON="$folder/bin/no-data")
submit 66 slurm-gpu.sh my.yaml
said 'the job would stop at its start: text.idx: does not exist'
[ ! -e "$folder/sbatch" ] || failed "a job without token files was submitted"
# The dry run prints what it prints otherwise, and ends with the code of the missing data.
submit 66 --dry-run slurm-gpu.sh my.yaml
for text in 'stop at its start: text.idx' 'command:   sbatch' 'nothing has been submitted' 'the job itself would be refused (66)'; do said "$text"; done
submit 0 --dependency=afterok:7 slurm-gpu.sh my.yaml
submit 0 -W depend=afterok:7 pbs-gpu.sh my.yaml
with=(GYRFALCON="$folder/bin/unable")
submit 0 slurm-gpu.sh my.yaml
said 'the deck is not checked on 16 ranks, because gyrfalcon plan returned 69 here'
has sbatch my.yaml
with=()
echo "== the deck is checked before submission"

# `train --dry-run` prints a plan and no line RUN OK, so job.sh refuses it.
for script in slurm-cpu pbs-cpu; do
  job 64 "$scripts/$script.sh" -- my.yaml train.steps=3 --dry-run
  said '--dry-run: this script trains; `submit.sh --dry-run SCRIPT DECK` checks a job'; not_launched
done

# alone CODE VARIABLE=value...: job.sh without a scheduler.
alone() {
  local code=0
  rm -f "$folder"/{launched,program}
  (cd "$data" && env -i PATH="$folder/bin:$PATH" HOME="$folder/home" GYRFALCON="$folder/bin/program" "${@:2}" "$scripts/job.sh" my.yaml) \
    > "$folder/said" 2>&1 || code=$?
  [ "$code" = "$1" ] || failed "job.sh with ${*:2} returned $code instead of $1" "$folder/said"
}
cores=$(env -u OMP_NUM_THREADS nproc)
alone 0 LAUNCHER=launch OMP_NUM_THREADS=1
said "no scheduler, on .*: ranks: $cores, threads of each: 1, "
alone 64 LAUNCHER=launch RANKS=abc; said 'RANKS=abc: must be a number above 0'; not_launched
alone 64 LAUNCHER=launch THREADS=0; said 'THREADS=0: must be'; not_launched
alone 64 RANKS=2 THREADS=$((cores + 1)); not_launched
said "2 x $((cores + 1)) threads (RANKS x THREADS) need $((2 * cores + 2)) cores, but there are $cores; lower RANKS or THREADS, or set BIND=none"
alone 64 RANKS=$((cores + 1)); said "$((cores + 1)) x 1 threads (RANKS x THREADS) need"; not_launched
alone 64 OMP_NUM_THREADS=$((cores + 1)); said "1 x $((cores + 1)) threads (RANKS x THREADS) need .*; lower RANKS or THREADS, or set BIND=none"; not_launched
alone 64 OMP_NUM_THREADS=x LAUNCHER=launch; said 'OMP_NUM_THREADS=x: must be a number above 0'; not_launched
alone 64 BIND=foo LAUNCHER=launch; said 'BIND=foo: must be rank, gpu or none'; not_launched
printf '#!/bin/sh\nexit 137\n' > "$folder/bin/dies" && chmod +x "$folder/bin/dies"
alone 137 LAUNCHER=launch GYRFALCON="$folder/bin/dies"
said 'a rank was killed by signal 9, often because a node had no memory left'
alone 64 SLURM_JOB_ID=7 LAUNCHER=launch; said 'SLURM_NTASKS is not set'; not_launched
alone 69 LAUNCHER=/no/launcher; said 'the launcher /no/launcher is missing'; not_launched
echo "== ranks and threads"

# A signal to the process group of job.sh, as from Ctrl-C or timeout, reaches the ranks once, as SIGUSR1.
cat > "$folder/bin/waits" << 'END'
#!/bin/bash
for name in TERM INT; do trap "echo RUN FAILED; exit 1" $name; done
trap 'echo "RUN STOPPED 75 (stopped early)"; exit 75' USR1
echo started
for i in {1..200}; do sleep 0.1; done
END
chmod +x "$folder/bin/waits"
for name in INT TERM HUP; do
  code=0
  : > "$folder/said"
  (cd "$data" && exec env -i --default-signal=INT PATH="$folder/bin:$PATH" HOME="$folder/home" GYRFALCON="$folder/bin/waits" LAUNCHER=env BIND=none RANKS=1 \
    setsid "$scripts/job.sh" my.yaml) > "$folder/said" 2>&1 &
  group=$!
  for _ in {1..100}; do grep -q started "$folder/said" && break; sleep 0.1; done
  kill "-$name" -- "-$group"
  wait "$group" || code=$?
  [ "$code" = 75 ] || failed "SIG$name to the group of job.sh gave $code instead of 75" "$folder/said"
  said "SIG$name received"; said 'RUN STOPPED 75'
  said 'not started again: start job.sh again to continue the run'
done
echo "== signals to the process group"
