#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every rank has a GPU of its own in sight: what rank_gpu.sh gives it under launchers that bind devices and those that do not, and what the
# ranks of jobscripts/pbs-gpu.sh get under a stand-in for PBS. No device is touched.
#   regression/jobs/gpu.sh BUILD      BUILD the folder with bin/gyrfalcon
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?give the build folder}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. regression/jobs/material.sh
read -r -a launcher <<< "$(jobscripts/launcher.sh "$build/bin/gyrfalcon")"
unset CUDA_VISIBLE_DEVICES
for name in $(compgen -v SLURM_); do unset "$name"; done

# devices EXPECTED WORDS...: what the ranks of this command see.
devices() {
  local expected=$1 seen
  seen=$("${@:2}" jobscripts/rank_gpu.sh printenv CUDA_VISIBLE_DEVICES | sort -n | xargs)
  [ "$seen" = "$expected" ] || failed "'$seen' in sight, not '$expected': ${*:2}"
}
devices '0 1 2 3' "${launcher[@]}" -n 4
devices '4 5 6 7' "${launcher[@]}" -n 4 env CUDA_VISIBLE_DEVICES=4,5,6,7
devices '2' env CUDA_VISIBLE_DEVICES=2 SLURM_LOCALID=1
devices '3' env SLURM_LOCALID=3
devices 'GPU-b' env CUDA_VISIBLE_DEVICES=GPU-a,GPU-b PALS_LOCAL_RANKID=1
devices '1' env OMPI_COMM_WORLD_LOCAL_RANK=1
code=0
CUDA_VISIBLE_DEVICES=0,1 SLURM_LOCALID=2 jobscripts/rank_gpu.sh true 2> "$folder/said" || code=$?
[ "$code" = 69 ] || failed "a third rank with two devices ended with $code"
grep -q 'start one rank per GPU' "$folder/said" || failed "nothing says why"

stand_in_for_pbs
export OMP_NUM_THREADS=1
make_material 5
mkdir "$folder/seen"
cat > "$folder/gyrfalcon" << END
#!/bin/sh
touch "$folder/seen/\$CUDA_VISIBLE_DEVICES"
exec "$build/bin/gyrfalcon" "\$@"
END
chmod +x "$folder/gyrfalcon"
export GYRFALCON=$folder/gyrfalcon DECK=input/demo.yaml CHANGES="${settings[*]} parallel.tensor=2 output.folder=$folder/out"
qsub -l select=1:ncpus=4:mpiprocs=4:ngpus=4 -l walltime=1:00:00 -v DECK,CHANGES,GYRFALCON jobscripts/pbs-gpu.sh > "$folder/job"
timeout 120 regression/jobs/pbs_standin.sh serve || failed "the job did not end"
grep -q '^RUN OK' "$folder/queue/1/output" || failed "the job did not finish the run"
grep -hE 'job:|^RUN' "$folder/queue/1/output"
seen=$(find "$folder/seen" -type f -printf '%f\n' | sort | xargs)
[ "$seen" = '0 1 2 3' ] || failed "the ranks saw '$seen'"
echo "== four ranks, four devices"
