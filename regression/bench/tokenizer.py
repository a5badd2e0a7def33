# SPDX-License-Identifier: BSD-3-Clause
"""Trains the vocabularies for tokenizer.sh, and times the library `tokenizers`.

tokenizer.py train TEXT FOLDER          writes gpt2.json and llama3.json, 32768 tokens each
tokenizer.py time TOKENIZER.json TEXT   prints the best rate of encode(), encode_batch() and encode_batch_fast() over the paragraphs of a text
"""
import pathlib
import sys
import time

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SECONDS = 2


def paragraphs(path):
    parts = path.read_bytes().decode().split("\n\n")
    return [p + "\n\n" for p in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def train(text, folder):
    level = pre_tokenizers.ByteLevel
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), level(add_prefix_space=False, use_regex=False)])
    for name, pre, options in (("gpt2", level(add_prefix_space=False), {}), ("llama3", split, {"ignore_merges": True})):
        t = Tokenizer(models.BPE(**options))
        t.pre_tokenizer, t.decoder, t.post_processor = pre, decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
        t.train_from_iterator(paragraphs(text), trainers.BpeTrainer(vocab_size=32768, special_tokens=["<|endoftext|>"], show_progress=False,
                                                                    initial_alphabet=level.alphabet()))
        t.save(str(folder / f"{name}.json"))


def rate(function, size):
    function()
    wall, used, passes = time.perf_counter(), time.process_time(), 0
    while time.process_time() - used < SECONDS:
        function()
        passes += 1
    return size * passes / (time.perf_counter() - wall), size * passes / (time.process_time() - used)


def measure(tokenizer, text):
    t = Tokenizer.from_file(str(tokenizer))
    parts = paragraphs(text)
    size = text.stat().st_size / 1e6
    rates = [rate(lambda: [t.encode(p) for p in parts], size), rate(lambda: t.encode_batch(parts), size), rate(lambda: t.encode_batch_fast(parts), size)]
    best = max(rates, key=lambda r: r[1])
    print(f"texts: {len(parts)}\ntokens: {sum(len(t.encode(p).ids) for p in parts)}\nMB/s: {best[0]:.2f}\nprocessor MB/s: {best[1]:.2f}")


if __name__ == "__main__":
    first, second = map(pathlib.Path, sys.argv[2:4])
    (train if sys.argv[1] == "train" else measure)(first, second)
