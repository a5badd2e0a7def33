#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Demonstration of RLHF: supervised fine-tuning, a reward model learnt from pairs, and PPO. A Falcon-H1 of 122 thousand parameters first
# learns to write eight random digits. In the first half, the preferred text of a pair has more digits below 5. Column gold is the fraction
# of the answers with eight such digits, which no model has seen. In the second half, the preferred text rises more often, and the reward
# model is trained too little. Its reward grows, while gold, the fraction of neighbouring digits that rise, falls: reward hacking.
# Environment:
#   NP     number of MPI ranks (2)     SEED    seed of the data and the draws (1)
#   LEAST  required gold of the last ten iterations of the first half (0.5)
#   ARGS   deck overrides of the policies      OUT     output folder      BUILD   build folder
# Exit codes: 0 success, 1 gold stays below LEAST, or does not fall in the second half; or those of gyrfalcon.
set -euo pipefail
shopt -s inherit_errexit
set -f
cd "$(dirname "$0")/.."
NP=${NP:-2} SEED=${SEED:-1} LEAST=${LEAST:-0.5} ARGS=${ARGS:-}
OUT=${OUT:-out/rlhf} BUILD=${BUILD:-build/release}
gyrfalcon=$BUILD/bin/gyrfalcon
read -r -a launcher <<< "$(jobscripts/launcher.sh "$gyrfalcon")"
# train NAME WORD...: trains in $OUT/NAME. Its log is $OUT/NAME.log.
train() { "${launcher[@]}" -n "$NP" "$gyrfalcon" train "${@:2}" output.folder="$OUT/$1" data.tokenizer="$OUT/tokenizer.json" --anew > "$OUT/$1.log" 2>&1 ||
  { tail -n 3 "$OUT/$1.log" >&2; exit 1; }; }
# build NAME OPTION...: token files $OUT/NAME from $OUT/NAME.jsonl.
build() { "$gyrfalcon" data build "$OUT/$1.jsonl" "$OUT/$1" --tokenizer "$OUT/tokenizer.json" --overwrite "${@:2}" > "$OUT/data.log"; }
# pairs RULE COUNT: pairs whose chosen text has more digits below 5 (below), or rises more often (rising).
pairs() {
  awk -v rule="$1" -v count="$2" -v seed="$SEED" '
    function text(  j, d, last) {
      score = 0; s = ""
      for (j = 0; j < 8; j++) { d = int(10 * rand()); score += rule == "below" ? d < 5 : (j > 0 && d > last); last = d; s = s d }
      return s
    }
    BEGIN {
      srand(seed)
      while (count > 0) {
        a = text(); first = score; b = text()
        if (first == score) continue
        if (score > first) { c = a; a = b; b = c }
        printf "{\"prompt\": \"write:\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", a, b; count--
      }
    }'
}
# mean KEY FIRST LAST METRICS: mean of a key over iterations, counted from 1.
mean() {
  sed -n "s/.*\"kind\":\"iteration\".*\"$1\":\([-0-9.e+]*\)[,}].*/\1/p" "$4" | awk -v first="$2" -v last="$3" 'NR >= first && NR <= last { sum += $1; n++ } END { printf "%.2f", n ? sum / n : 0 }'
}
# table NAME: rewards of the model, gold, tokens of an answer and divergence, by iterations.
table() {
  printf '%-12s %8s %8s %8s %8s\n' iterations model gold tokens KL
  for span in 1:10 11:20 21:30 41:50 51:60; do
    local f=${span%:*} l=${span#*:} metrics=$OUT/$1/metrics.jsonl
    printf '%-12s %8s %8s %8s %8s\n' "$f-$l" "$(mean preference "$f" "$l" "$metrics")" "$(mean gold "$f" "$l" "$metrics")" "$(mean length "$f" "$l" "$metrics")" "$(mean kl "$f" "$l" "$metrics")"
  done
}

mkdir -p "$OUT"
begin=$(date +%s)
awk -v seed="$SEED" 'BEGIN { srand(seed + 1); for (i = 0; i < 2000; i++) { s = ""; for (j = 0; j < 8; j++) s = s int(10 * rand()); printf "{\"prompt\": \"write:\", \"response\": \"%s\"}\n", s } }' > "$OUT/texts.jsonl"
for _ in 1 2 3 4 5 6 7 8; do echo '{"prompt": "write:"}'; done > "$OUT/prompts.jsonl"
pairs below 4000 > "$OUT/below.jsonl"
pairs rising 4000 > "$OUT/rising.jsonl"
cp "$OUT/texts.jsonl" "$OUT/texts.txt"
"$gyrfalcon" tokenizer train "$OUT/tokenizer.json" "$OUT/texts.txt" --vocab-size 259 --overwrite > "$OUT/data.log"
build texts --template '{prompt}{response}'
build prompts --prompts
build below --pairs
build rising --pairs
cat > "$OUT/rising.sh" << 'END'
#!/usr/bin/env bash
# Reads a JSON line per answer, and rewards the fraction of neighbouring digits that rise.
while IFS= read -r line; do
  [[ $line =~ \"id\":\"([^\"]*)\" ]] && id=${BASH_REMATCH[1]}
  [[ $line =~ \"answer\":\"([^\"]*)\" ]] && a=${BASH_REMATCH[1]}
  n=0 m=$((${#a} > 1 ? ${#a} - 1 : 1))
  for ((i = 1; i < ${#a}; ++i)); do [[ ${a:i:1} > ${a:i-1:1} ]] && n=$((n + 1)); done
  printf '{"id": "%s", "reward": %d.%03d}\n' "$id" $((n / m)) $((n % m * 1000 / m))
done
END

model="model.pattern=PP model.vocab_size=264 model.hidden_size=64 model.attention.num_heads=4 model.attention.num_kv_heads=2 model.attention.head_dim=16 model.attention.rope_theta=1e4 model.mamba.num_heads=4 model.mamba.head_dim=16 model.mamba.state_size=16 model.mamba.chunk_size=16 model.mlp.intermediate_size=128"
common="train.precision=fp32 train.seq_length=64 train.eval_every=0 train.seed=$SEED"
reward="$common train.init_head=new train.global_batch_size=24 train.micro_batch_size=4 optimizer.lr=2e-3 optimizer.warmup_steps=5 checkpoint.keep_best=false"
policy="$common train.micro_batch_size=4 data.prefixes=[$OUT/prompts] rl.iterations=60 rl.generate.max_new_tokens=16 rl.seed=$SEED rl.rewards.gold.weight=0 models.reference.init_from=$OUT/sft optimizer.lr=1e-3"
# shellcheck disable=SC2086
{
  train sft input/finetune.yaml $model $common "data.prefixes=[$OUT/texts]" train.global_batch_size=16 train.micro_batch_size=4 train.steps=150 optimizer.lr=3e-3 optimizer.warmup_steps=10
  train below input/reward.yaml --init-from "$OUT/sft" $reward "data.prefixes=[$OUT/below]" train.steps=80
  train ppo input/rlhf.yaml --init-from "$OUT/sft" $policy models.judge.init_from="$OUT/below" models.critic.init_from="$OUT/below" rl.rewards.gold.type=regex "rl.rewards.gold.pattern=\"^[0-4]{8}\$\"" $ARGS
  echo "PPO, a reward model of 80 steps; gold: answers of eight digits below 5"
  table ppo
  train rising input/reward.yaml --init-from "$OUT/sft" $reward "data.prefixes=[$OUT/rising]" train.steps=90
  train hacked input/rlhf.yaml --init-from "$OUT/sft" $policy rl.algorithm=rloo rl.prompts=8 rl.num_generations=8 rl.critic.warmup_iterations=0 rl.epochs=1 rl.minibatches=1 rl.kl.coefficient=0.02 models.judge.init_from="$OUT/rising" rl.rewards.gold.type=process "rl.rewards.gold.command=[bash, $OUT/rising.sh]" $ARGS
}
echo "RLOO, a reward model that has learnt too little; gold: neighbouring digits that rise"
table hacked
echo "$(($(date +%s) - begin)) s"
awk -v gold="$(mean gold 51 60 "$OUT/ppo/metrics.jsonl")" -v least="$LEAST" 'BEGIN { exit !(gold >= least) }' || { echo "gold of the first half is below $LEAST" >&2; exit 1; }
awk -v before="$(mean gold 1 10 "$OUT/hacked/metrics.jsonl")" -v after="$(mean gold 51 60 "$OUT/hacked/metrics.jsonl")" 'BEGIN { exit !(after < before) }' || { echo "gold of the second half does not fall" >&2; exit 1; }
