#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes huggingface_evaluation/: a tiny Falcon-H1 model trained on sentences of a small grammar, its tokenizer, evaluation data,
and expected.json: the results of transformers and tokenizers on this data, one passage at a time, in float32.

Needs PyTorch, transformers and tokenizers from PyPI; their versions are recorded in expected.json.    ./huggingface_evaluation.py

expected.json: {"versions", "runs": [{"arguments", "results", "records"}]}: `arguments` are those of `gyrfalcon eval` after the checkpoint,
with file names relative to the folder; `results` and `records` have the format of that command, with the figures defined in its help.
"""
import json
import math
import pathlib
import random

import tokenizers
import torch
import transformers

here = pathlib.Path(__file__).parent / "huggingface_evaluation"
end = "<|endoftext|>"

places = {"river": "water", "forest": "trees", "desert": "sand", "harbour": "ships", "kitchen": "bread", "library": "books"}
birds = ["falcon", "heron", "raven", "swallow"]
times = ["morning", "evening", "night", "winter"]


def sentence(draw):
    place, bird, time = draw.choice(list(places)), draw.choice(birds), draw.choice(times)
    return draw.choice([
        f"In the {time} the {bird} flew to the {place} and saw {places[place]}",
        f"Every {time} a {bird} leaves the {place}, because it is tired of {places[place]}",
        f"The {place} is full of {places[place]}, said the {bird} to another {bird}"])


def tokenizer_of(texts):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=310, special_tokens=[end], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def model_of(vocabulary):
    torch.manual_seed(3)
    config = transformers.FalconH1Config(
        vocab_size=vocabulary, hidden_size=16, num_hidden_layers=2, intermediate_size=20, tie_word_embeddings=True,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=512, mamba_d_ssm=24, mamba_n_heads=6,
        mamba_d_head=4, mamba_n_groups=2, mamba_d_state=4, mamba_d_conv=4, mamba_chunk_size=8, mamba_rms_norm=True,
        mamba_norm_before_gate=False, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, pad_token_id=0, bos_token_id=0,
        eos_token_id=0, embedding_multiplier=2.0, lm_head_multiplier=0.5, key_multiplier=0.75, attention_in_multiplier=1.25,
        attention_out_multiplier=0.8, ssm_in_multiplier=1.5, ssm_out_multiplier=1.1, mlp_multipliers=[0.9, 0.7],
        ssm_multipliers=[0.7, 1.6, 2.0, 1.75, 1.2], initializer_range=0.15)
    config._attn_implementation = "eager"
    return transformers.FalconH1ForCausalLM(config)


def train(model, tokenizer, draw, steps=250, length=48):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        rows = []
        for _ in range(8):
            text = " ".join(sentence(draw) + "." for _ in range(6))
            rows.append([0] + tokenizer.encode(text).ids[:length - 1])
        ids = torch.tensor(rows)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / steps)
    print(f"trained to a loss of {loss.item():.3f}")


class Judge:
    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model.eval(), tokenizer

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    @torch.no_grad()
    def losses(self, tokens, labels):
        """-ln p of the last len(labels) predictions, and for each label: true if it is the most likely token."""
        logits = self.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -len(labels):].double()
        labels = torch.tensor(labels)
        own = logits.gather(1, labels[:, None])[:, 0]
        second = logits.scatter(1, labels[:, None], -math.inf).max(1).values
        assert ((own - second).abs() > 1e-4).all(), "two tokens are almost equally likely"
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist(), (own > second).tolist()

    def text(self, text, window, stride, begin):
        y = ([0] if begin else []) + self.encode(text)
        n, scored, stop, losses, records = len(y) - 1, 1, 0, [], []
        while scored <= n:
            stop = min(n, window if stop == 0 else stop + stride)
            first = max(0, stop - window)
            these, _ = self.losses(y[first:stop], y[scored:stop + 1])
            records.append({"document": 0, "first": first, "scored": scored, "last": stop, "loss": sum(these)})
            losses += these
            scored = stop + 1
        total, words, size = sum(losses), len(text.split()), len(text.encode())
        mean, error = mean_and_error(losses)
        return {"loss": mean, "loss_stderr": error, "perplexity": math.exp(mean), "word_perplexity": math.exp(total / words),
                "byte_perplexity": math.exp(total / size), "bits_per_byte": total / size / math.log(2), "log_likelihood": -total,
                "tokens": len(losses), "words": words, "bytes": size, "documents": 1, "windows": len(records)}, records

    def continuation(self, context, continuation, window):
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        before = self.encode(context)
        after = self.encode(context + continuation)[len(before):]
        whole = ((before or [0]) + after)[-(window + 1):]
        losses, likeliest = self.losses(whole[:-1], after)
        return sum(losses), len(after), all(likeliest), len(before or [0]) + len(after) > window + 1

    def last_words(self, examples, window):
        losses, right, cuts, records = [], [], 0, []
        for i, example in enumerate(examples):
            context, word = example["text"].rsplit(" ", 1)
            loss, tokens, correct, cut = self.continuation(context, " " + word, window)
            losses.append(loss), right.append(correct)
            cuts += cut
            records.append({"example": i, "tokens": tokens, "log_likelihood": -loss, "correct": correct})
        mean, error = mean_and_error(losses)
        accuracy, accuracy_error = mean_and_error(right)
        return {"accuracy": accuracy, "accuracy_stderr": accuracy_error, "correct": sum(right), "perplexity": math.exp(mean),
                "perplexity_stderr": math.exp(mean) * error, "log_likelihood": -sum(losses), "examples": len(examples), "cut": cuts}, records

    def choices(self, examples, window):
        hits, records, cuts = {"acc": [], "acc_norm": [], "acc_token": []}, [], 0
        for i, example in enumerate(examples):
            answers = [self.continuation(example["context"], " " + choice, window) for choice in example["choices"]]
            cuts += sum(a[3] for a in answers)
            likelihoods, tokens = [-a[0] for a in answers], [a[1] for a in answers]
            sizes = [len(choice.encode()) for choice in example["choices"]]
            best = {"acc": likelihoods, "acc_norm": [x / n for x, n in zip(likelihoods, sizes)],
                    "acc_token": [x / n for x, n in zip(likelihoods, tokens)]}
            chosen = {name: max(range(len(sizes)), key=scores.__getitem__) for name, scores in best.items()}
            for name in hits:
                hits[name].append(chosen[name] == example["answer"])
            records.append({"example": i, "answer": example["answer"], "chosen": chosen["acc"], "chosen_norm": chosen["acc_norm"],
                            "chosen_token": chosen["acc_token"], "log_likelihoods": likelihoods, "bytes": sizes, "tokens": tokens})
        results = {}
        for name, list_of in hits.items():
            results[name], results[name + "_stderr"] = mean_and_error(list_of)
        return {**results, "examples": len(examples), "choices": sum(len(e["choices"]) for e in examples), "cut": cuts}, records


def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def choice_example(draw):
    place = draw.choice(list(places))
    wrong = draw.sample([thing for thing in places.values() if thing != places[place]], 2)
    choices = [places[place], f"{wrong[0]} and {wrong[0]}", wrong[1] + "."]
    if draw.random() < 0.5:
        choices[0] += ", said the falcon to another falcon"
    draw.shuffle(choices)
    context = draw.choice([f"The {place} is full of", f"The {place} is full of ", "", f"Two words:\n\nThe {place} is full of"])
    return {"context": context, "choices": choices, "answer": next(i for i, c in enumerate(choices) if c.startswith(places[place]))}


def lines(examples):
    return "".join(json.dumps(e) + "\n" for e in examples)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    draw = random.Random(11)
    tokenizer = tokenizer_of([sentence(draw) + "." for _ in range(400)])
    model = model_of(tokenizer.get_vocab_size())
    train(model, tokenizer, draw)
    here.mkdir(exist_ok=True)
    model.save_pretrained(here)
    (here / "generation_config.json").unlink()
    tokenizer.save(str(here / "tokenizer.json"))

    text = "".join(sentence(draw) + draw.choice([".\n", ". ", ".\n\n"]) for _ in range(30))
    last_words = [{"text": " ".join(sentence(draw) + "." for _ in range(draw.randrange(3))).replace(".", "!") + " " + sentence(draw)}
                  for _ in range(24)]
    questions = [choice_example(draw) for _ in range(20)]
    (here / "text.txt").write_text(text)
    (here / "last_words.jsonl").write_text(lines(last_words))
    (here / "choices.jsonl").write_text(lines(questions))

    judge = Judge(transformers.FalconH1ForCausalLM.from_pretrained(here, attn_implementation="eager", dtype=torch.float32), tokenizer)
    runs = []

    def run(arguments, outcome):
        runs.append({"arguments": arguments, "results": outcome[0], "records": outcome[1]})
        print(*arguments, {k: round(v, 4) for k, v in outcome[0].items()})

    for window, stride, begin in ((48, 48, True), (48, 12, True), (48, 48, False), (31, 5, False), (20, 3, True), (2000, 2000, True)):
        arguments = ["--text", "text.txt", "--length", str(window), "--stride", str(stride), *([] if begin else ["--begin", "none"])]
        run(arguments, judge.text(text, window, stride, begin))
    for window in (64, 24):
        run(["--lambada", "last_words.jsonl", "--length", str(window)], judge.last_words(last_words, window))
    for window in (64, 16):
        run(["--choices", "choices.jsonl", "--length", str(window)], judge.choices(questions, window))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    # Rounded to eight digits, because float32 has only seven.
    short = json.loads(json.dumps({"versions": versions, "runs": runs}), parse_float=lambda x: float(f"{float(x):.8g}"))
    (here / "expected.json").write_text(json.dumps(short, separators=(",", ":")) + "\n")
    for file in here.iterdir():
        file.chmod(0o644)


main()
