#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of reinforcement learning with verifiable rewards: a Falcon-H1 of 220 thousand parameters is fine-tuned on sums of two numbers
# of two digits until it solves some of them. GRPO continues with a rule that compares the number in the answer with the sum. The table shows
# the fraction of right answers to 500 other sums before and after it.
# Environment:
#   NP     number of MPI ranks (2)     SEED   seed of the sums and the draws (1)
#   LEAST  required fraction of right answers afterwards (0.85)
#   ARGS   deck overrides of GRPO      OUT    output folder      BUILD   build folder
# Exit codes: 0 success, 1 the fraction stays below LEAST, or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} SEED=${SEED:-1} LEAST=${LEAST:-0.85} ARGS=${ARGS:-}
OUT=${OUT:-out/sums} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
build() { "$gyrfalcon" data build "$OUT/$1.jsonl" "$OUT/$1" --tokenizer "$OUT/tokenizer.json" --overwrite "${@:2}" > "$OUT/data.log"; }
train() { "${launcher[@]}" -n "$NP" "$gyrfalcon" train "${@:2}" output.folder="$OUT/$1" data.tokenizer="$OUT/tokenizer.json" --anew > "$OUT/$1.log" 2>&1 ||
  { tail -n 3 "$OUT/$1.log" >&2; exit 1; }; }
# right MODEL: fraction of right answers to the sums of the test.
right() {
  "$gyrfalcon" rollout input/policy.yaml --init-from "$OUT/$1" "data.prefixes=[$OUT/test]" data.tokenizer="$OUT/tokenizer.json" train.seq_length=64 rl.generate.max_new_tokens=8 2> "$OUT/test.log" > "$OUT/$1-answers.jsonl"
  awk '$1 == "answer" { print $2 }' "$OUT/test.log"
}

mkdir -p "$OUT"
begin=$(date +%s)
# All 8100 sums in a drawn order; the last 500 are the test.
awk -v seed="$SEED" 'BEGIN { srand(seed); for (a = 10; a < 100; a++) for (b = 10; b < 100; b++) printf "%.9f %d %d\n", rand(), a, b }' | sort > "$OUT/sums.txt"
head -n 7000 "$OUT/sums.txt" | awk '{ printf "{\"prompt\": \"%d+%d=\", \"response\": \"%d\"}\n", $2, $3, $2 + $3 }' > "$OUT/texts.jsonl"
head -n 7000 "$OUT/sums.txt" | awk '{ printf "{\"prompt\": \"%d+%d=\", \"target\": %d}\n", $2, $3, $2 + $3 }' > "$OUT/prompts.jsonl"
tail -n 500 "$OUT/sums.txt" | awk '{ printf "{\"prompt\": \"%d+%d=\", \"target\": %d}\n", $2, $3, $2 + $3 }' > "$OUT/test.jsonl"
head -n 500 "$OUT/texts.jsonl" > "$OUT/texts.txt"
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/texts.txt" --vocab-size 259 --overwrite > "$OUT/data.log"
build texts --template '{prompt}{response}'
build prompts --prompts
build test --prompts

model="model.pattern=PP model.vocab_size=264 model.hidden_size=96 model.attention.num_heads=4 model.attention.num_kv_heads=2 model.attention.head_dim=24 model.attention.rope_theta=1e4 model.mamba.num_heads=4 model.mamba.head_dim=24 model.mamba.state_size=16 model.mamba.chunk_size=16 model.mlp.intermediate_size=256"
common="train.precision=fp32 train.seq_length=64 train.micro_batch_size=16 train.eval_every=0 train.seed=$SEED"
# shellcheck disable=SC2086
train sft input/finetune.yaml $model $common "data.prefixes=[$OUT/texts]" train.global_batch_size=32 train.steps=225 optimizer.lr=3e-3 optimizer.warmup_steps=50
before=$(right sft)
# shellcheck disable=SC2086
train grpo input/policy.yaml --init-from "$OUT/sft" $common "data.prefixes=[$OUT/prompts]" rl.iterations=400 rl.prompts=64 rl.num_generations=8 rl.generate.max_new_tokens=8 rl.kl.coefficient=0.001 models.reference.init_from="$OUT/sft" rl.rewards.shape.type=regex 'rl.rewards.shape.pattern="^[0-9]{2,3}$"' rl.rewards.shape.weight=0.1 rl.seed="$SEED" optimizer.lr=5e-4 $ARGS
after=$(right grpo)
printf '%-22s %10s\n' model 'right' 'fine-tuned, 225 steps' "$before" 'GRPO, 400 iterations' "$after"
grep -E '^iteration (1|100|200|300|400)/' "$OUT/grpo.log" || true
echo "$(($(date +%s) - begin)) s"
awk -v after="$after" -v least="$LEAST" 'BEGIN { exit !(after >= least) }' || { echo "fewer right answers than $LEAST" >&2; exit 1; }
