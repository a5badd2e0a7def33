# SPDX-License-Identifier: BSD-3-Clause
# Common functions of the jobscript tests: token files, settings of a run, comparison of losses. Sourced with `build`
# and `folder` set.
# shellcheck shell=bash disable=SC2034,SC2154

# make_material STEPS [DOCUMENTS]: creates token files in `folder` and sets `settings`, deck overrides that make
# input/demo.yaml a run of STEPS steps on them.
make_material() {
  awk -v kind=text -v seed=11 -v documents="${2:-400}" -f regression/table/material.awk > "$folder/text.txt"
  "$build/bin/gyrfalcon" tokenizer train "$folder/tokenizer.json" "$folder/text.txt" --vocab-size 300 --documents separator > "$folder/data.log"
  "$build/bin/gyrfalcon" data build "$folder/text.txt" "$folder/text" --tokenizer "$folder/tokenizer.json" --documents separator >> "$folder/data.log"
  settings=("data.prefixes=[$folder/text]" "data.tokenizer=$folder/tokenizer.json" model.vocab_size=300 parallel.tensor=1 "train.steps=$1" train.global_batch_size=4 train.micro_batch_size=2
            train.seq_length=128 train.eval_every=0 checkpoint.every=0)
}

# Overrides for a model small enough for emulated GPUs.
few_numbers=(model.pattern=PP model.hidden_size=32 model.attention.head_dim=8 model.mamba.head_dim=8 model.mamba.num_heads=4 model.mamba.state_size=8
             model.mamba.chunk_size=16 model.mlp.intermediate_size=64 train.seq_length=32)

# failed WHY [FILE...]: ends the test. Prints the last lines of these files and of the outputs of jobs under the PBS
# imitation.
failed() {
  local file
  for file in "${@:2}" "$folder"/queue/*/output; do [ ! -f "$file" ] || tail -n 30 "$file"; done
  echo "FAILED: $1"
  exit 1
}

# Makes qsub and qstat call the PBS imitation, with its queue in `folder`.
stand_in_for_pbs() {
  mkdir "$folder/bin" "$folder/queue"
  ln -s "$PWD/regression/jobs/pbs_standin.sh" "$folder/bin/qsub"
  ln -s "$PWD/regression/jobs/pbs_standin.sh" "$folder/bin/qstat"
  export PBS_STANDIN=$folder/queue PATH=$folder/bin:$PATH
}

# same_losses A B STEPS: both runs have STEPS steps, and loss and gradient norm of every step are bitwise equal.
same_losses() {
  local name
  for name in "$1" "$2"; do
    awk -f regression/table/curve.awk "$name/metrics.jsonl" > "$name.curve"
    [ "$(wc -l < "$name.curve")" = "$3" ] || { echo "FAILED: $name has $(wc -l < "$name.curve") of $3 steps"; return 1; }
  done
  cmp "$1.curve" "$2.curve" || { echo "FAILED: the losses of $1 and $2 differ"; return 1; }
}
