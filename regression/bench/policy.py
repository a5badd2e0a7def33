# SPDX-License-Identifier: BSD-3-Clause
# Policy training in TRL (PyTorch and transformers), for policy.sh. The task is that of input/policy-digits.yaml: a prompt is a digit and a
# colon, and the reward of an answer is the fraction of its tokens that are the digit.
#   write MODEL SEED FOLDER                     writes a Falcon-H1 with random weights as fp32; MODEL: digits or tiny-90m
#   train FOLDER UPDATES PROMPTS TOKENS SEED THREADS PRECISION OUTPUT
#                                               trains it by GRPO with 8 answers per prompt; writes a JSON line per update to OUTPUT
#   ours OUTPUT RANKS COMMAND...                  runs gyrfalcon and writes the same lines from its metrics, OUTPUT.run/metrics.jsonl
#   curves NAME=FILES ...                       prints a table of rewards by update; FILES is a pattern with one file per seed
#   seconds NAME=FILES ...                      prints the seconds per update after the first one, and the peak memory
#   versions                                    prints the versions of TRL, PyTorch and transformers
import glob
import json
import random
import resource
import statistics
import subprocess
import sys
import time

import torch
import transformers

COLON, ANSWERS = 10, 8


def shape(model):
    plain = dict(mamba_rms_norm=False, mamba_norm_before_gate=False, tie_word_embeddings=model == "tiny-90m", pad_token_id=0,
                 bos_token_id=None, eos_token_id=None, attention_in_multiplier=1.0, key_multiplier=1.0, attention_out_multiplier=1.0,
                 ssm_in_multiplier=1.0, ssm_out_multiplier=1.0, ssm_multipliers=[1.0] * 5, mlp_multipliers=[1.0, 1.0], mamba_n_groups=1,
                 mamba_d_conv=4)
    if model == "digits":
        return dict(vocab_size=16, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=16, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=16,
                    rope_parameters={"rope_type": "default", "rope_theta": 1e4}, embedding_multiplier=1.0, lm_head_multiplier=1.0, **plain)
    assert model == "tiny-90m", model
    return dict(vocab_size=32768, hidden_size=512, intermediate_size=768, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
                head_dim=64, mamba_d_ssm=768, mamba_n_heads=24, mamba_d_head=32, mamba_d_state=64, mamba_chunk_size=128,
                rope_parameters={"rope_type": "default", "rope_theta": 1e11}, embedding_multiplier=0.034423828125,
                lm_head_multiplier=0.078125, **plain)


def write(model, seed, folder):
    torch.manual_seed(int(seed))
    transformers.FalconH1ForCausalLM(transformers.FalconH1Config(**shape(model))).save_pretrained(folder)


# A tokenizer with one token per word. The end token lies outside of the model's vocabulary, so that every answer has the full length.
def digit_tokenizer(vocab_size):
    import tokenizers
    words = {**{str(i): i for i in range(10)}, ":": COLON, **{f"w{i}": i for i in range(11, vocab_size)}, "end": vocab_size}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="end"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="end", pad_token="end", padding_side="left")


def fraction_of_digit(completion_ids, digit, **_):
    return [sum(token == d for token in ids) / len(ids) for ids, d in zip(completion_ids, digit)]


class Lines(transformers.TrainerCallback):
    """Writes the reward, the time since the begin of the training and the peak memory of each update."""

    def __init__(self, name):
        self.file = open(name, "w")

    def on_train_begin(self, *_, **__):
        self.begin = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **_):
        if "reward" in (logs or {}):
            line = {"update": state.global_step, "reward": logs["reward"], "seconds": time.perf_counter() - self.begin,
                    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
            print(json.dumps(line), file=self.file, flush=True)


def train(folder, updates, prompts, tokens, seed, threads, precision, output):
    import datasets
    import trl
    updates, prompts, tokens, seed = int(updates), int(prompts), int(tokens), int(seed)
    torch.set_num_threads(int(threads))
    model = transformers.FalconH1ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rng = random.Random(seed)  # every epoch has each digit once, as in gyrfalcon
    digits = [digit for _ in range(updates * prompts // 10 + 1) for digit in rng.sample(range(10), 10)]
    config = trl.GRPOConfig(
        output_dir=output + ".trl", max_steps=updates, per_device_train_batch_size=prompts * ANSWERS, num_generations=ANSWERS,
        max_completion_length=tokens, temperature=1.0, top_p=1.0, top_k=0, beta=0.0, num_iterations=1, epsilon=0.2, loss_type="grpo",
        scale_rewards="group", learning_rate=3e-3, lr_scheduler_type="constant", warmup_steps=0, adam_beta1=0.9, adam_beta2=0.95,
        weight_decay=0.0, max_grad_norm=1.0, bf16=precision == "bf16", gradient_checkpointing=False, seed=seed, use_cpu=True,
        logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, shuffle_dataset=False)
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=fraction_of_digit, args=config, processing_class=digit_tokenizer(model.config.vocab_size),
        train_dataset=datasets.Dataset.from_dict({"prompt": [f"{d} :" for d in digits], "digit": digits}), callbacks=[Lines(output)])
    trainer.train()


# Peak memory is that of the largest rank times the number of ranks.
def ours(output, ranks, *command):
    subprocess.run(command, stdout=open(output + ".log", "w"), stderr=subprocess.STDOUT, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 * int(ranks)
    begin, reward, update = 0, 0, 0
    with open(output, "w") as file:
        for event in map(json.loads, open(output + ".run/metrics.jsonl")):
            if event["kind"] == "start":
                begin = event["time"]
            elif event["kind"] == "iteration":
                reward = event["reward"]
            elif event["kind"] == "step":
                update += 1
                print(json.dumps({"update": update, "reward": reward, "seconds": event["time"] - begin, "bytes": peak}), file=file)


def runs_of(names):
    for name in names:
        title, pattern = name.split("=")
        yield title, [[json.loads(line) for line in open(file)] for file in sorted(glob.glob(pattern))]


def deviation(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


# The first update whose last ten rewards have a mean of at least `least`.
def update_with(run, least):
    rewards = [line["reward"] for line in run]
    return next((i for i in range(10, len(rewards) + 1) if statistics.mean(rewards[i - 10:i]) >= least), None)


def curves(*names):
    spans = [(1, 10), (21, 30), (41, 50), (71, 80), (111, 120)]
    print(f"{'mean reward of updates':<26}" + "".join(f"{f'{a}-{b}':>15}" for a, b in spans) + f"{'0.9 at update':>16}")
    for title, runs in runs_of(names):
        cells = []
        for first, last in spans:
            means = [statistics.mean(line["reward"] for line in run[first - 1:last]) for run in runs if len(run) >= last]
            cells.append(f"{statistics.mean(means):.3f} +- {deviation(means):.3f}" if means else "-")
        reached = [update_with(run, 0.9) for run in runs]
        when = f"{statistics.mean(reached):.0f} +- {deviation(reached):.0f}" if all(reached) else "not reached"
        print(f"{title:<26}" + "".join(f"{cell:>15}" for cell in cells) + f"{when:>16}")


def seconds(*names):
    print(f"{'medians':<26}{'runs':>6}{'ms per update':>15}{'updates/s':>11}{'MiB':>8}")
    for title, runs in runs_of(names):
        each = statistics.median((run[-1]["seconds"] - run[0]["seconds"]) / (len(run) - 1) for run in runs)
        peak = statistics.median(run[-1]["bytes"] for run in runs)
        print(f"{title:<26}{len(runs):>6}{1e3 * each:>15.1f}{1 / each:>11.2f}{peak / 2**20:>8.0f}")


def versions():
    import trl
    print("TRL", trl.__version__, "PyTorch", torch.__version__, "transformers", transformers.__version__)


if __name__ == "__main__":
    {"write": write, "train": train, "ours": ours, "curves": curves, "seconds": seconds, "versions": versions}[sys.argv[1]](*sys.argv[2:])
