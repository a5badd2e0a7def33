#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Test of jobscripts/pbs-cpu.sh under an imitation of PBS: the job is submitted, saves before its time limit, resubmits itself
# with the same settings, and finishes. Loss and gradient norm of every step must be bitwise equal to an undisturbed run.
#   regression/jobs/pbs.sh BUILD      build folder that contains bin/gyrfalcon
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?give the build folder}") scripts=$PWD/jobscripts
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. regression/jobs/material.sh

stand_in_for_pbs
mkdir "$folder/site"
ln -s "$PWD/input" "$folder/site"  # without the jobscripts
export OMP_NUM_THREADS=1
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE  # the jobs do not get these variables, and other BLAS kernels round differently

# The number of steps is chosen to take about ten seconds on this machine, so that the time limit ends the job half way.
run() { "${launcher[@]}" -n 2 "$build/bin/gyrfalcon" "$1" input/demo.yaml "${settings[@]}" "${@:2}"; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
read -r -a launcher <<< "$(jobscripts/launcher.sh "$build/bin/gyrfalcon")"
make_material 20
begin=$(milliseconds)
run train output.folder="$folder/trial" > "$folder/trial.log" || failed "the timed run failed" "$folder/trial.log"
steps=$((20 * 10000 / ($(milliseconds) - begin)))
settings+=("train.steps=$steps" 'optimizer.groups=["*.A_log","*embed_tokens*"]' 'optimizer.group_lrs=[1,0.5]')  # contains commas, which separate variables in qsub -v
begin=$(milliseconds)
run train output.folder="$folder/plain" > "$folder/plain.log" || failed "the undisturbed run failed" "$folder/plain.log"
run_time=$(($(milliseconds) - begin))
begin=$(milliseconds)
run verify > "$folder/verify.log" || failed "gyrfalcon verify failed" "$folder/verify.log"
proof_time=$(($(milliseconds) - begin))

# The PBS imitation must refuse unknown directives.
printf '#PBS -W umask=022\n' > "$folder/odd.sh"
if qsub "$folder/odd.sh" 2> "$folder/odd.log"; then failed "the PBS imitation accepts an unknown directive"; fi

half=$((10 + (proof_time + run_time / 2 + 500) / 1000))  # time limit: RESERVE, gyrfalcon verify, and half of the run
export GYRFALCON=$build/bin/gyrfalcon BIND=none RESERVE=10 VERIFY=1 DECK=input/demo.yaml CHANGES="${settings[*]} output.folder=$folder/limited"
(cd "$folder/site" && qsub -N limited -A falcons -l select=1:ncpus=2:mpiprocs=2 -l "walltime=00:$((half / 60)):$(printf %02d $((half % 60)))" \
  -v DECK,CHANGES,GYRFALCON,BIND,RESERVE,VERIFY "$scripts/pbs-cpu.sh") > "$folder/job"
unset GYRFALCON BIND RESERVE VERIFY DECK CHANGES  # a job must use the variables passed to qsub, not those of this shell
timeout 300 regression/jobs/pbs_standin.sh serve || failed "the jobs did not end"

grep -hE 'job:|^RUN' "$folder"/queue/*/output
jobs=$(find "$folder/queue" -name code | wc -l)
settings_of() { sed -z 's/\n\t//g' "$folder/queue/$1/attributes" | grep -vE '^Job Id|Submit_arguments'; }
[ "$jobs" -ge 2 ] || failed "the job was never stopped and resubmitted"
for ((i = 1; i < jobs; ++i)); do
  grep -q '^RUN STOPPED 75' "$folder/queue/$i/output" || failed "job $i did not save and stop"
  cmp <(settings_of "$i") <(settings_of $((i + 1))) || failed "job $((i + 1)) has other attributes than job $i"
done
proofs=$(cat "$folder"/queue/*/output | grep -c 'verify ended with 0' || true)
[ "$proofs" = 1 ] || failed "gyrfalcon verify ran $proofs times instead of once"
grep -q '^RUN OK' "$folder/queue/$jobs/output" || failed "the last job did not finish the run"
[ "$(cat "$folder/queue/$jobs/code")" = 0 ] || failed "the last job ended with code $(cat "$folder/queue/$jobs/code")"
same_losses "$folder/plain" "$folder/limited" "$steps" || exit 1
echo "== $jobs jobs, $steps steps, bitwise equal losses"
