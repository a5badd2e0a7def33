#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Small SentencePiece-style BPE tokenizers, as in Llama 2, Mistral, Gemma and Phi-3, and the ids that Hugging Face's `tokenizers` gives them:
tokenizers/NAME.json, with the results for texts.json in NAME.expected.json. Also compares the two programs on random text of all Unicode planes.

Needs tokenizers (made with 0.23.3), sentencepiece, protobuf and, to train on, Debian's dict-gcide.
    ./tokenizer_sentencepiece.py write [NAME ...]
    ./tokenizer_sentencepiece.py compare PROGRAM [--strings N] [--seed S] [TOKENIZER.json | MODEL.model ...]
    ./tokenizer_sentencepiece.py convert MODEL.model KIND TOKENIZER.json     as transformers converts it; KIND is llama2, mistral or gemma
"""
import argparse
import collections
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import tokenizer_suite as suite
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MARK = "\u2581"
NAMES = ["llama2", "llama2_old", "mistral", "gemma", "phi3", "marks_split", "words_apart", "some_bytes", "odd_merges", "no_unknown"]


# ---- SentencePiece models and their conversion ----

def trained(lines, vocab, **options):
    """A BPE model of the SentencePiece library, with all byte tokens."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=vocab, byte_fallback=True, hard_vocab_limit=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
        character_coverage=0.998, num_threads=1, minloglevel=2, **options)
    return model.getvalue()


def merges_of(vocab, scores):
    """All pairs of tokens that form a token, by its score, as transformers derives them."""
    merges = []
    for piece, score in scores.items():
        local = [(piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]]))
    return [(left, right) for left, right, _ in sorted(merges, key=lambda m: m[2], reverse=True)]


def converted(model, kind, added=(), normalized=False):
    """The tokenizer of a SentencePiece model. `added`: further added tokens."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    vocab = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    t = Tokenizer(models.BPE(vocab, merges_of(vocab, {p.piece: p.score for p in proto.pieces}), unk_token="<unk>", fuse_unk=True, byte_fallback=True,
                             dropout=None))
    bos = "<bos>" if kind == "gemma" else "<s>"
    t.add_special_tokens([AddedToken(p.piece, normalized=normalized, special=True) for p in proto.pieces if p.type in (2, 3)])
    user = [AddedToken(p.piece, normalized=False) for p in proto.pieces if p.type == 4]
    t.add_tokens(user)
    for token in added:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    replace = normalizers.Replace(" ", MARK)
    decoder = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "gemma":
        t.normalizer = replace
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif kind == "mistral":
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replace])
    t.decoder = decoders.Sequence(decoder if kind == "gemma" else decoder + [decoders.Strip(" ", 1, 0)])
    t.post_processor = suite.template(t, f"{bos} $A", bos)
    return t


# ---- the golden tokenizers ----

def edited(t, change):
    file = json.loads(t.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))


def odd_merges(file):
    """Merges of byte tokens and of the unknown token; tokens that only whole pieces become; tokens with spaces."""
    model = file["model"]
    for left, right in [("<0xC3>", "<0xA9>"), ("<unk>", "e"), ("a", "<0xE2>"), ("<0xF0>", "<0x9F>"), ("<unk>", "<unk>")]:
        model["vocab"][left + right] = len(model["vocab"])
        model["merges"].insert(0, [left, right])
    for whole in ("line one\r\n", "Alpha beta", "\n"):
        model["vocab"].setdefault(whole, len(model["vocab"]))
    for byte in ("<0xE3>", "<0x81>", "<0xCC>"):  # characters with these bytes are unknown
        spelling = byte.replace("<", "<<")
        model["vocab"] = {spelling if token == byte else token: id for token, id in model["vocab"].items()}
    model.update(ignore_merges=True, fuse_unk=False)


def with_frequent_characters(lines, limit=120):
    """The lines without rare characters. (The trainer's own limit depends on hash values where counts are equal.)"""
    counts = collections.Counter(c for line in lines for c in line)
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:limit])
    return ["".join(c for c in line if c in kept) for line in lines]


def hugging_face_trained(lines, pre_tokenizer, normalizer=None, specials=("<unk>",), vocab=500, **model):
    t = Tokenizer(models.BPE(**model))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(with_frequent_characters(lines), trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(specials), show_progress=False))
    return t


def configurations():
    lines = [line for line in suite.corpus() if line.strip()]
    flat = [line.rstrip("\n") for line in lines if len(line) < 4000]
    llama = trained(flat, 900, pad_id=-1)
    yield "llama2", converted(llama, "llama2")
    yield "llama2_old", converted(llama, "llama2", normalized=True)
    yield "mistral", converted(trained(flat, 700, pad_id=-1, control_symbols=["[INST]", "[/INST]"]), "mistral", [AddedToken("token", single_word=True)])
    runs = [c * n for c in ("\n", MARK, "\t") for n in range(2, 6)]
    gemma = trained(flat, 800, pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>", user_defined_symbols=runs + ["<table>", "abc"])
    yield "gemma", converted(gemma, "gemma")
    yield "phi3", converted(trained(flat, 600, pad_id=-1), "llama2", [
        AddedToken("<|endoftext|>", special=True, normalized=False), AddedToken("<|bos|>", special=True, normalized=False, rstrip=True),
        AddedToken("<right>", special=True, normalized=False, rstrip=True), AddedToken("<left>", special=True, normalized=False, lstrip=True),
        AddedToken("Norm", normalized=True), AddedToken("</tool>", normalized=False)])

    t = hugging_face_trained(lines, pre_tokenizers.Metaspace(prepend_scheme="always"), vocab=600, unk_token="<unk>", fuse_unk=True)
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    yield "marks_split", t
    fold = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    words = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    yield "words_apart", hugging_face_trained(lines, words, fold, unk_token="<unk>", ignore_merges=True)

    def few_bytes(file):
        names = {f"<0x{b:02X}>": f"<0x{b:02X}>" if b % 3 else f"<{b}>" for b in range(256)}
        file["model"]["vocab"] = {names.get(token, token): id for token, id in file["model"]["vocab"].items()}
    yield "some_bytes", edited(converted(llama, "llama2"), few_bytes)
    odd = edited(converted(llama, "llama2"), odd_merges)
    odd.normalizer = None
    yield "odd_merges", odd

    t = hugging_face_trained(flat, None, normalizers.Replace(" ", MARK), specials=["<|endoftext|>"], vocab=350)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    yield "no_unknown", t


def write(names):
    texts = json.loads((suite.FOLDER / "texts.json").read_text())
    for number, (name, t) in enumerate(configurations()):
        if names and name not in names:
            continue
        file = json.loads(t.to_str())
        spaces = any(" " in token for token in file["model"]["vocab"])
        suite.dump(suite.FOLDER / f"{name}.json", file if number % 2 or spaces else suite.in_old_form(file))
        suite.dump(suite.FOLDER / f"{name}.expected.json", suite.expected(Tokenizer.from_file(str(suite.FOLDER / f"{name}.json")), texts))


# ---- comparison on random text ----

def character(draw):
    """A code point of any plane; half of them from the planes that have characters."""
    while True:
        plane = draw.choice([0, 0, 1, 2, 3, 14]) if draw.random() < 0.5 else draw.randrange(17)
        point = plane << 16 | draw.randrange(0x10000)
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def of_all_planes(draw, specials):
    parts = []
    for _ in range(draw.randint(1, 10)):
        kind = draw.randint(0, 7)
        if kind == 0:
            parts.append(draw.choice(specials))
        elif kind == 1:
            parts.append(draw.choice([" ", MARK, "\n", "\t", "\u00a0", "<0x41>", "<0xFF>", "<unk>"]) * draw.randint(1, 6))
        elif kind == 2:
            parts.append(draw.choice("etaoin shrdlu.,0\u00e9\u6771\U0001f600") * draw.randint(1, 40))
        elif kind in (3, 4):
            parts.append("".join(character(draw) for _ in range(draw.randint(1, 8))))
        elif kind == 5:
            parts.append("".join(chr(draw.randrange(0x20, 0x3000)) for _ in range(draw.randint(1, 12))))
        else:
            parts.append(suite.mutated(draw))
    return "".join(parts)


def loaded(path, folder):
    """A tokenizer.json, or the conversions of a SentencePiece model."""
    if path.suffix != ".model":
        return [path]
    files = []
    for kind in ("llama2", "mistral"):
        files.append(folder / f"{path.stem}.{kind}.json")
        converted(path.read_bytes(), kind).save(str(files[-1]))
    return files


def compared(program, path, count, draw):
    t = Tokenizer.from_file(str(path))
    specials = [token.content for token in t.get_added_tokens_decoder().values()]
    texts = [of_all_planes(draw, specials or [" "]) for _ in range(count)]
    ids = [e.ids for e in t.encode_batch(texts)]
    size = t.get_vocab_size()
    bytes_ = [i for i in (t.token_to_id(f"<0x{b:02X}>") for b in range(256)) if i is not None] or [0]
    some = lambda: draw.choice(bytes_) if draw.random() < 0.4 else draw.randrange(size)  # noqa: E731
    drawn = [[i for i in (some() for _ in range(draw.randint(0, 14))) if t.id_to_token(i) is not None] for _ in texts]
    t.encode_special_tokens = True
    as_text = [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]
    lines = lambda *words, of: suite.lines_of(program, words[0], path, *words[1:], lines=of)  # noqa: E731
    pairs = [("encode --special", texts, lines("encode", "--special", of=texts), ids), ("encode", texts, lines("encode", of=texts), as_text),
             ("decode", ids, lines("decode", of=ids), t.decode_batch(ids, skip_special_tokens=False)),
             ("decode of drawn ids", drawn, lines("decode", of=drawn), t.decode_batch(drawn, skip_special_tokens=False)),
             ("decode --skip-special", drawn, lines("decode", "--skip-special", of=drawn), t.decode_batch(drawn, skip_special_tokens=True))]
    wrong = 0
    for what, given, ours, theirs in pairs:
        differ = [i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y]
        wrong += len(differ)
        for i in differ[:3]:
            print(f"{path.name}: {what} of {ascii(given[i])}:\n  {ascii(ours[i])}\n  {ascii(theirs[i])}")
    return len(pairs) * count, wrong


def compare(program, files, count, seed):
    draw = random.Random(seed)
    done = wrong = tokenizers = 0
    with tempfile.TemporaryDirectory() as folder:
        for given in files or [suite.FOLDER / f"{name}.json" for name in NAMES]:
            for path in loaded(given, pathlib.Path(folder)):
                more, differ = compared(program, path, count, draw)
                done, wrong, tokenizers = done + more, wrong + differ, tokenizers + 1
                print(f"{path.name}: {done} comparisons, {wrong} differences so far", flush=True)
    print(f"{done} comparisons with {tokenizers} tokenizers, seed {seed}: {wrong} differences")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    w = commands.add_parser("write")
    w.add_argument("names", nargs="*")
    c = commands.add_parser("compare")
    c.add_argument("program")
    c.add_argument("files", nargs="*", type=pathlib.Path)
    c.add_argument("--strings", type=int, default=2000)
    c.add_argument("--seed", type=int, default=1)
    v = commands.add_parser("convert")
    v.add_argument("model", type=pathlib.Path)
    v.add_argument("kind", choices=["llama2", "mistral", "gemma"])
    v.add_argument("json")
    a = parser.parse_args()
    if a.command == "write":
        return write(a.names)
    if a.command == "convert":
        return converted(a.model.read_bytes(), a.kind).save(a.json)
    return compare(a.program, a.files, a.strings, a.seed)


if __name__ == "__main__":
    sys.exit(main())
