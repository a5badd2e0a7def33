#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# All tests and measurements that need a GPU, in under nine minutes: kernels against reference loops in double precision,
# comparisons with PyTorch and transformers, parallel layouts whose ranks share the GPU, the same training run on GPU and CPU,
# then throughput, compared with rates measured in the same run. Prints one table and writes OUT/gpu.json.
#   regression/gpu.sh
# Environment:
#   BUILD   build folder (build/cuda) with bin/gyrfalcon, regression/{unit_tests,device_rates}, which are built if they are
#           missing; or a folder that gpu/pack.sh made on another machine
#   HOST    CPU program (build/release/bin/gyrfalcon) for the run on both; skipped if it does not exist
#   OUT     folder of logs and results (out/gpu)             LIMIT  total time in seconds (520); later steps are skipped
#   SMALL   1: tiny shapes and no published models, for an emulated GPU
#   PYTHON  interpreter with PyTorch, to compare kernels (default: python3), and with transformers, to compare training steps
#   MAMBA_SSM  folder with the sources of mamba_ssm, whose Triton scan the comparisons then use
#   STEPS   names of the steps to run (default: all)          LENGTHS  sequence lengths of the timed kernels (2048 4096 16384)
# Exit codes: 0 all steps that ran succeeded, 1 a step failed, 66 no program, 69 no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/cuda} HOST=${HOST:-build/release/bin/gyrfalcon} OUT=${OUT:-out/gpu} LIMIT=${LIMIT:-520} SMALL=${SMALL:-0} PYTHON=${PYTHON:-python3} STEPS=${STEPS:-} LENGTHS=${LENGTHS:-2048 4096 16384}
program=${PROGRAM:-$BUILD/bin/gyrfalcon} tests=${TESTS:-$BUILD/regression/unit_tests} rates=${RATES:-$BUILD/regression/device_rates}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 GYR_SOURCE_DIR=$PWD
libraries_before=${LIBRARIES_BEFORE-${LD_LIBRARY_PATH:-}}
export LIBRARIES_BEFORE=$libraries_before
# A folder made by gpu/pack.sh contains libraries and a launcher. The CUDA libraries may be those in PyTorch's packages.
[ ! -d "$BUILD/lib" ] || export PATH=$(realpath "$BUILD")/bin:$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$(realpath "$BUILD")/lib
for folder in $("$PYTHON" -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"))' 2> /dev/null); do
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$folder
done
begun=$SECONDS failed=0

build() {
  if [ -x "$program" ] && [ -x "$tests" ] && [ -x "$rates" ]; then echo "held: already built"; return; fi
  cmake --preset cuda -DGYR_GPUS="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)"
  cmake --build "$BUILD" --parallel "$(nproc)" --target gyrfalcon unit_tests device_rates
}

# step NAME SECONDS COMMAND...: runs a function of this script with a time limit; prints a table row, writes the output
# to OUT/NAME.log.
step() {
  local name=$1 most=$2 left=$((LIMIT - SECONDS + begun)) start=$SECONDS code=0 how
  shift 2
  [[ -z "$STEPS" || " $STEPS " = *" $name "* ]] || return 0
  if [ "$left" -lt 5 ]; then
    how=skipped
  else
    timeout -k 5 $((most < left ? most : left)) regression/gpu.sh _ "$@" > "$OUT/$name.log" 2>&1 || code=$?
    case $code in 0) how=held ;; 77) how=absent ;; 124 | 137) how='too long' ;; *) how="failed, $code" ;; esac
    case $how in held | absent) ;; *) failed=1 ;; esac
  fi
  printf '%-22s %-12s %5d s  %s\n' "$name" "$how" $((SECONDS - start)) "$(summary "$name")"
  printf '{"step":"%s","result":"%s","seconds":%d}\n' "$name" "$how" $((SECONDS - start)) >> "$OUT/records"
}
# The last result line in the log of a step.
summary() { sed -n 's/^\(\[==========\] [0-9].*\|RUN .*\|held: .*\|absent: .*\|\(gyrfalcon\|device_rates\): .*\)$/\1/p' "$OUT/$1.log" 2> /dev/null | tail -n 1 | cut -c1-110; }

# Settings for unit tests that read device memory directly: pinned host memory, and kernel launches that return when the
# kernel has ended.
looking() { GYR_CUDA_MEMORY=pinned CUDA_LAUNCH_BLOCKING=1 "$@"; }
# laws FILTER: runs these unit tests, distributed to one process per core, up to 8.
laws() {
  local shards i failed=0
  shards=$(env -u OMP_NUM_THREADS nproc)
  [ "$shards" -lt 8 ] || shards=8
  rm -f "$OUT"/laws.*
  local -a running
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i looking "$tests" --gtest_filter="$1" > "$OUT/laws.$i" 2>&1 &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || failed=1; done
  grep -hE -B 12 '^\[  FAILED  \].*ms\)$' "$OUT"/laws.* || true
  for i in "$OUT"/laws.*; do grep -qE '^\[  (PASSED|FAILED)  \]' "$i" || tail -n 5 "$i"; done
  echo "held: $(cat "$OUT"/laws.* | grep -cE '^\[       OK \]') tests in $shards processes; failed: $(cat "$OUT"/laws.* | grep -cE '^\[  FAILED  \].*ms\)$' || true)"
  return $failed
}
version() { "$program" --version; }

kernels='activation.*:adamw.*:attention.*:convolution.*:cross_entropy.*:elementwise.*:embedding.*:gate.*:gemm.*:head_norm.*:int8_matrix.*:layernorm.*:rmsnorm.*:rope.*:ssd.*-attention.a_dry_run_counts_millions*'  # the excluded test needs the CPU kernels
few='adamw.*:head_norm.*:layernorm.*:rmsnorm.*:activation.*:gate.*:rope.*'
numbers='*/parity.*:*huggingface.*'
bf16='attention.*bf16*:grouped_gemm.*' by_cudnn='attention.*-attention.a_dry_run_counts_millions*'
[ "$SMALL" = 0 ] || kernels='activation.*:rmsnorm.*' numbers='*/parity.*/T1' few='activation.*' bf16='activation.*' by_cudnn='cudnn.scratch_*:cudnn.split_*'
# As on a GPU without wgmma.
without_warpgroups() { GYR_CUDA_WARPGROUPS=off laws "$bf16"; }
by_cudnn() {
  "$program" --version | grep -q '^backend.*cuDNN' || { echo "absent: cuDNN in this program"; return 77; }
  GYR_CUDA_ATTENTION=cudnn laws "$by_cudnn"
}

material() {
  local build folder=$OUT settings
  build=$OUT/for_material
  mkdir -p "$build/bin"
  ln -sf "$(realpath "$program")" "$build/bin/gyrfalcon"
  . regression/jobs/material.sh
  make_material 50 "$([ "$SMALL" = 0 ] && echo 2000 || echo 60)"
  [ "$SMALL" = 0 ] || settings+=("${few_numbers[@]}" train.steps=4)
  printf '%s\n' "${settings[@]}" > "$OUT/settings"
}

# explained SECONDS COMMAND...: a command that exceeds the time is killed, after a debugger has printed where its
# processes are.
explained() {
  local most=$1 run process debugger=
  shift
  "$@" < /dev/null &
  run=$!
  for ((; most > 0; --most)); do
    kill -0 $run 2> /dev/null || break
    sleep 1
  done
  if [ "$most" = 0 ]; then
    for process in cuda-gdb gdb; do [ -n "$debugger" ] || debugger=$(command -v $process || true); done
    for process in $(pgrep -f "^$program verify .*$OUT/text"); do
      echo "too long: process $process, $(sed -n 's/^State:[[:space:]]*//p' "/proc/$process/status"), $(cat "/proc/$process/wchan")"
      [ -z "$debugger" ] || timeout 10 "$debugger" -p "$process" -batch -ex 'thread apply all bt 20' 2>&1 | grep -E '^(#|Thread)'
    done
    pkill -9 -f "^$program verify .*$OUT/text" || true
    kill -9 $run || true
  fi
  wait $run
}
ranks_sharing() {  # AXIS
  local -a launcher settings
  read -r -a launcher <<< "$(jobscripts/launcher.sh "$program")"
  mapfile -t settings < "$OUT/settings"
  explained 15 "${launcher[@]}" -n 2 "$program" verify input/demo.yaml "${settings[@]}" "parallel.$1=2" train.precision=fp32
}

# The same training run on CPU and GPU; losses must agree to 1e-3.
host_and_gpu() {
  [ -x "$HOST" ] || { echo "absent: $HOST"; return 77; }
  local -a settings
  local side
  mapfile -t settings < "$OUT/settings"
  for side in "$HOST" "$program"; do
    "$side" train input/demo.yaml "${settings[@]}" train.log_every=1 "output.folder=$OUT/run.$([ "$side" = "$HOST" ] && echo host || echo gpu)"
  done
  for side in host gpu; do
    sed -n 's/.*"kind":"step".*"loss":\([-0-9.e+]*\).*/\1/p;t' "$OUT/run.$side/metrics.jsonl" > "$OUT/$side.losses"
    [ -s "$OUT/$side.losses" ] || { echo "no losses in $OUT/run.$side/metrics.jsonl"; return 1; }
  done
  paste "$OUT/host.losses" "$OUT/gpu.losses" | awk '
    { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > worst) worst = d; last = $2 }
    END { printf "held: %d steps, losses within %.1e, the last one %.4f\n", NR, worst, last; exit !(NR > 1 && worst < 1e-3) }'
}

sanitized() {
  command -v compute-sanitizer > /dev/null || { echo "absent: compute-sanitizer"; return 77; }
  looking compute-sanitizer --error-exitcode 1 "$tests" --gtest_brief=1 --gtest_filter="$few"
}

# Kernel throughput at several lengths, and PyTorch's for comparison.
measure() {
  local length
  if [ "$SMALL" != 0 ]; then
    "$rates" small 2> "$OUT/rates.jsonl"
  else
    for length in $LENGTHS; do "$rates" length=$length sequences=$((16384 / length)) windows=5 seconds=0.03 2>> "$OUT/rates.jsonl"; done
  fi
  echo "held: $(wc -l < "$OUT/rates.jsonl") rates"
}
have_torch() { peer -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null || { echo "absent: PyTorch with CUDA"; return 1; }; }
peer() {  # SCRIPT of gpu/ or -c, ARGUMENTS...: without the libraries of the packed folder
  local script=$1
  [ "$script" = -c ] || script=regression/gpu/$script
  LD_LIBRARY_PATH=$libraries_before "$PYTHON" "$script" "${@:2}"
}
measure_peer() {
  have_torch || return 77
  PYTHONPATH=${MAMBA_SSM:-} peer peer.py $LENGTHS > "$OUT/peer.jsonl"
  echo "held: $(wc -l < "$OUT/peer.jsonl") rates"
}

# Training steps of a published model on 4096 tokens; MFU relative to the peak in the GPU's data sheet. The run is
# killed after 12 steps, so nothing is saved.
train_step() {  # DECK [NAME]
  local -a settings
  local name=${2:-$(basename "$1" .yaml)} run
  mapfile -t settings < "$OUT/settings"
  env -u OMP_NUM_THREADS "$program" train "$1" "${settings[0]}" 'data.tokenizer=""' parallel.tensor=1 parallel.pipeline=1 train.steps=1000 \
    train.global_batch_size=2 train.micro_batch_size=1 train.seq_length=4096 train.eval_every=0 train.log_every=1 checkpoint.every=0 \
    train.precision=bf16 "output.folder=$OUT/$name" &
  run=$!
  while kill -0 $run && [ "$(steps_of "$OUT/$name" | wc -l)" -lt 12 ]; do sleep 0.2; done
  kill -9 $run || true
  steps_of "$OUT/$name" | sort -n |
    awk -v name="$name" -v peak="$(peak)" '{ tokens[NR] = $1; tflops[NR] = $2 }
      END {
        if (NR < 3) exit 1
        m = int((NR + 1) / 2)
        printf "held: %.0f tokens/s, %.1f TFLOP/s, MFU %s\n", tokens[m], tflops[m], peak > 0 ? sprintf("%.3f", tflops[m] / peak) : "unknown"
        printf "{\"training\":\"%s\",\"tokens_per_second\":%g,\"tflops\":%g,\"peak_tflops\":%g}\n", name, tokens[m], tflops[m], peak > "/dev/stderr" }' 2>> "$OUT/records"
}
# The same with CUDA graphs disabled: every kernel is launched individually.
without_graphs() { GYR_CUDA_GRAPHS=off train_step "$1" "$(basename "$1" .yaml)-without-graphs"; }
# Tokens/s and TFLOP/s of every step in a run's output folder.
steps_of() { sed -n 's/.*"kind":"step".*"tokens_per_second":\([0-9.e+]*\),"tflops_per_rank":\([0-9.e+]*\).*/\1 \2/p' "$1/metrics.jsonl" 2> /dev/null; }

# The same training step with transformers, one sequence at a time.
peer_step() {  # DECK
  have_torch || return 77
  peer peer_model.py step "$1" 4096 2 | tee "$OUT/peer_step.$(basename "$1" .yaml)"
  ratio "$OUT/peer_step.$(basename "$1" .yaml)" "$(sed -n 's/.*"training":"'"$(basename "$1" .yaml)"'","tokens_per_second":\([0-9.e+]*\).*/\1/p' "$OUT/records")"
}

# Token generation for one sequence with a model of 0.5B parameters in bf16: gyrfalcon and transformers.
generation() {
  have_torch || return 77
  peer ../bench/huggingface.py write "$OUT/model"
  "$program" generate "$OUT/model" --greedy --prompt "The falcon circles over the valley." --tokens 257 --tokenizer "$OUT/model/tokenizer.json" \
    --precision bf16 2>&1 > "$OUT/generated.txt" | tee "$OUT/generation"
  local ours
  ours=$(sed -n 's/.* at \([0-9.]*\) tokens\/s[^ ]*)$/\1/p' "$OUT/generation")
  [ -n "$ours" ] || return 1
  printf '{"generation":"falcon-h1-0.5b","tokens_per_second":%s}\n' "$ours" >> "$OUT/records"
  peer peer_model.py generate "$OUT/model" "The falcon circles over the valley." 64 | tee "$OUT/peer_generation"
  ratio "$OUT/peer_generation" "$ours"
}
# ratio FILE OURS: compares the tokens/s of the peer in FILE with OURS tokens/s.
ratio() {  # FILE OURS
  sed 's/^{/{"peer":true,/' "$1" >> "$OUT/records"
  sed -n 's/.*"scan": "\([^"]*\)".*"tokens_per_second": \([0-9.e+]*\).*/\2 \1/p' "$1" |
    awk -v ours="${2:-0}" '{ t = $1; $1 = ""; printf "held: %.0f tokens/s, transformers %.0f (scan:%s), ratio %.2f\n", ours, t, $0, ours / t }'
}

# Peak TFLOP/s of dense bf16 in the data sheet of this GPU; 0 if unknown.
peak() {
  case $(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1) in
    *H100*PCIe*) echo 756 ;; *H100* | *H200*) echo 989 ;; *A100*) echo 312 ;; *B200*) echo 2250 ;; *) echo 0 ;;
  esac
}

# Table of kernel times compared with PyTorch, by kernel and sequence length.
comparison() {
  [ -s "$OUT/rates.jsonl" ] || return 0
  printf '\n%-22s %8s %12s %10s %12s %8s\n' kernel tokens ms 'of copy' "PyTorch's ms" ratio
  cat "$OUT/rates.jsonl" <(sed 's/^{/{"peer":1,/' "$OUT/peer.jsonl" 2> /dev/null) | awk '
    function field(name,  at, rest) { at = index($0, "\"" name "\":"); if (!at) return ""; rest = substr($0, at + length(name) + 3); sub(/[,}].*/, "", rest); gsub(/[" ]/, "", rest); return rest }
    { key = field("kernel") " " field("length")
      if (field("peer") != "") { theirs[key] = field("seconds"); next }
      order[++n] = key; ours[key] = field("seconds"); of_copy[key] = field("of_copy") }
    END { for (i = 1; i <= n; ++i) { split(order[i], k, " "); t = theirs[order[i]]
      printf "%-22s %8d %12.3f %10.2f %12s %8s\n", k[1], k[2], 1e3 * ours[order[i]], of_copy[order[i]], t == "" ? "" : sprintf("%.3f", 1e3 * t), t == "" ? "" : sprintf("%.2f", t / ours[order[i]]) } }'
}

# All results as one JSON list.
results() {
  echo '['
  cat "$OUT/records" "$OUT/rates.jsonl" <(sed 's/^{/{"peer":true,/' "$OUT/peer.jsonl" 2> /dev/null) 2> /dev/null | paste -sd , -
  echo ']'
}

main() {
  local axis deck
  if [ "$SMALL" = 0 ] && ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
    echo "gpu.sh: no GPU on this machine; use SMALL=1 with a program for emulated GPUs" >&2
    exit 69
  fi
  rm -rf "$OUT"
  mkdir -p "$OUT"
  step build 400 build
  [ -x "$program" ] || { echo "gpu.sh: $program does not exist; see $OUT/build.log" >&2; exit 66; }
  step version 20 version
  step material 60 material
  step kernels 150 laws "$kernels"
  step without_warpgroups 30 without_warpgroups
  step by_cudnn 40 by_cudnn
  step numbers 90 laws "$numbers"
  step rates 120 measure
  step peer 90 measure_peer
  if [ "$SMALL" = 0 ]; then
    for deck in input/falcon-h1-0.5b.yaml input/falcon-h1-1.5b.yaml; do
      step "train_$(basename $deck .yaml)" 60 train_step $deck
      step "peer_$(basename $deck .yaml)" 90 peer_step $deck
    done
    step without_graphs 40 without_graphs input/falcon-h1-0.5b.yaml
  fi
  for axis in tensor pipeline data context; do step "ranks_$axis" 40 ranks_sharing $axis; done
  step host_and_gpu 60 host_and_gpu
  [ "$SMALL" != 0 ] || step generation 90 generation
  step sanitizer 60 sanitized
  comparison
  results > "$OUT/gpu.json"
  echo "$OUT/gpu.json; $((SECONDS - begun)) s"
  exit $failed
}

if [ "${1:-}" = _ ]; then "${@:2}"; else main; fi
