#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Small tokenizers of many kinds, trained by Hugging Face's `tokenizers`, and the ids it gives them: tokenizers/NAME.json, with what is
expected of texts.json in NAME.expected.json. Also compares the two programs on random text.

Needs tokenizers (made with 0.23.3), sentencepiece, protobuf and, to train on, Debian's dict-gcide.
    ./tokenizer_suite.py write [--gyrfalcon PROGRAM] [NAME ...]      the files, or some; with PROGRAM also `ours`, a vocabulary that it trained
    ./tokenizer_suite.py compare PROGRAM [--strings N] [--seed S] [--characters] [TOKENIZER.json ...]
"""
import argparse
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent / "tokenizers"
Split, ByteLevel, Digits = pre_tokenizers.Split, pre_tokenizers.ByteLevel, pre_tokenizers.Digits
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")

SPECIALS = ["<|pad|>", "<|bos|>", "<|endoftext|>"]

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  b  ", "\n", "\n\n a\n", "\r\n", "line one\r\nline two\r\n\r\n  three\r", "\t\tx = 1;\t// y",
    "Hello world's 123 --go!", "I'll we'd they've I'm it's he're don't", "I'LL WE'D THEY'VE I'M IT'S", "'s's''s ' 's", "it\u2019s \u2018so\u2019",
    "to be, or not to be: that is the question", "The Quick  Brown\tFox   jumps", "ALLCAPS CamelCaseWord snake_case_word kebab-case",
    "0 1 12 123 1234 12345 1234567890", "3.14159e-10 0x1F 1,000,000 1/2 50% $5.00 \u20ac7 \u00a39", "x\u00b2 + y\u00b3 = \u00bd \u2153 \u2460 \u2167 \u3007",
    "\u0661\u0662\u0663 \u06f1\u06f2 \u0967\u0968\u0969 \u17e1\u17e2 \uff11\uff12 \U0001d7ce\U0001d7cf \u096a\u096b\u09ea \U00010d40\U00011f50\U0001e4f0\U0001ccf0",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }\n", "<html><body class=\"x\">&amp;</body></html>",
    "https://example.org/a/b?c=d&e=f#g user@host.com", "/* comment */ #include <vector>\n", "{\"a\": [1, 2.5, null], \"b\\n\": \"\\u00e9\"}", "a==b!=c<=d>=e&&f||g->h::i",
    "!!!???...---___***###", "((((((()))))))", "\"quoted\" `code` ``double'' \u201cfancy\u201d \u00abguillemets\u00bb", "--- ... --- \u2013 \u2014 \u2026",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00c9t\u00e9", "cafe\u0301 nai\u0308ve re\u0301sume\u0301", "\u0041\u030a \u212b \u00c5", "a\u0301\u0316\u0323\u0334 a\u0334\u0316\u0301 q\u0307\u0323",
    "\ufb01ne \ufb03 \u1e9b\u0323 \u2460 \u33a7 \uff21 \u02b0 \u00bc", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u0130stanbul \u0131 I i \u1e9e \u00df \u03a3\u03c3\u03c2 \u01c5",
    "\u0344 \u0958 \u2adc \ufb1d \U0001d15e", "\U00011930\U00011935 \U00011938 \u1133b \u07fd\u0301 a\u08d3\u0301 a\u1df6\u0334 a\U0001e130\u0334 a\u0301\U00010f46",
    "\u6771\u4eac\u90fd \u4e2d\u6587\u5206\u8bcd\u6d4b\u8bd5\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8\u3067\u3059\u3002\u30ab\u30bf\u30ab\u30ca\u30fc", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", "\u1112\u1161\u11ab \ud55c",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u0937", "\u0391\u03bb\u03c6\u03ac\u03b2\u03b7\u03c4\u03bf \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u200f\u0645\u0631\u062d\u0628\u0627 \u202babc\u202c \u0643\u0650\u062a\u064e\u0627\u0628", "\U00020000\U0002a6df \U00031350\U0002ebf0 \U0002b739",
    "\U0001f600\U0001f602 \U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "\U0001f3f3\ufe0f\u200d\U0001f308 \u2764\ufe0f \u0031\ufe0f\u20e3 \U0001f1e9\U0001f1ea", "\U0001fae8\U0001fadf\U0001f6dc new",
    "a\u0085b\u00a0c\u1680d\u2000e\u2009f\u2028g\u2029h\u202fi\u205fj\u3000k", " \u00a0 \u2003 x \u3000", "a\u180eb \u180e c", "a\u200bb\u200cc\u200dd\ufeffe \u2060f", "\u0000 \u0001\u0002 \u001b[0m \u007f \u0080\u009f",
    "\x0b\x0c\x1c\x1d\x1e\x1f", "\ufffd \ufffe \uffff \U0010ffff \U000e0001 \ue000 \U000f0000", "\u0378 \u0380 \u0530 \U0001ffff \U0003fffe \u2fe0", "\u0897\u0cf3\u0ece \u1c89\u1c8a \ua7cb\ua7dc \U000105c0 \U00010d4a\U00010d65",
    "\u1b4e\u1b7f\U00010d6e \u2427\u2ffc\u31ef \U0001cc00", "\u166d \U000111c9 \u1cf2\u1cf3 \u2e52 \u061d", "\u10d0\u10d1 \u1c90 \uab70\u13a0 \U00010400\U00010428 \U00016ea0",
    "a" * 300, " " * 300 + "x", "-" * 257, "\n" * 100, "\u6771" * 100, "ab" * 200, "\U0001f600" * 40, "\u0301" * 60, "9" * 100, "the " * 50, "=" * 64 + "\n" + "~" * 63,
    "<|endoftext|>", "one<|endoftext|>two", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|bos|>text<|pad|>  <|pad|>", "<|endoftext", "endoftext|>", "<|ENDOFTEXT|>",
    "[MASK] a [MASK] b[MASK]", "x  <left>  y  <right>  z  <both>  w", "<left><right><both> <left> <right> <both>", "token tokens mytoken token. (token) token1 \u00e9token token\u0301 tok\u200dtoken token\u200c",
    "Norm norm NORM n\u00f6rm no\u0308rm", "abc abcd abcde abcdef", "<|a b|> <|a  b|>", "\u00e9t\u00e9 \u00c9T\u00c9", "  \n\n  ", "tool<tool>tool </tool>", "\u3000<right>\u3000\u00a0<left>", "user: hi\nassistant:",
]


def corpus():
    """Prose of a dictionary, this file as code, and the texts themselves."""
    with gzip.open("/usr/share/dictd/gcide.dict.dz", "rt", encoding="utf-8", errors="replace") as file:
        prose = file.read(1_500_000)
    return prose.splitlines(keepends=True)[2000:] + pathlib.Path(__file__).read_text().splitlines(keepends=True) * 4 + TEXTS * 4


def trained(lines, pre_tokenizer, vocab=600, normalizer=None, specials=SPECIALS, alphabet=True, limit=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    extra = {"limit_alphabet": limit} if limit else {}
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, show_progress=False, initial_alphabet=ByteLevel.alphabet() if alphabet else [], **extra))
    return t


def template(t, text, *names):
    return processors.TemplateProcessing(single=text, pair=text + " $B", special_tokens=[(n, t.token_to_id(n)) for n in names])


def with_vocab(t, words, **model):
    """The same with these tokens only, numbered in this order, and the merges that remain possible."""
    file = json.loads(t.to_str())
    ids = {w: i for i, w in enumerate(dict.fromkeys(words))}
    file["model"].update(model, vocab=ids, merges=[m for m in file["model"]["merges"] if m[0] in ids and m[1] in ids and m[0] + m[1] in ids])
    for token in file["added_tokens"]:
        token["id"] = ids[token["content"]]
    return Tokenizer.from_str(json.dumps(file))


def word_pieces(lines, normalizer, pre_tokenizer, vocab=700, prefix="##", unknown="[UNK]", longest=100):
    t = Tokenizer(models.WordPiece(unk_token=unknown, max_input_chars_per_word=longest))
    t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=["[PAD]", unknown, "[CLS]", "[SEP]", "[MASK]"],
                                                          continuing_subword_prefix=prefix, limit_alphabet=200, show_progress=False))
    return t


def bert_normalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True):
    return normalizers.BertNormalizer(clean_text=clean_text, handle_chinese_chars=handle_chinese_chars, strip_accents=strip_accents, lowercase=lowercase)


def words_of(t):
    return sorted(t.get_vocab(with_added_tokens=False), key=t.token_to_id)


def with_byte_tokens(t, fuse):
    """Takes letters of the byte alphabet out of a vocabulary and gives it the tokens <0x00> ... for some of their bytes."""
    gone = set("\u0122\u0123\u0124\u0125\u0126xqz\u010a\u00e9\u00c3#")
    kept = [w for w in words_of(t) if not gone & set(w) or w in SPECIALS]
    return with_vocab(t, kept + [f"<0x{b:02X}>" for b in (0xC4, 0xA2, 0xA3, 0xC3, 0xA9, 0x78, 0x71)] + ["<unk>"],
                      byte_fallback=True, unk_token="<unk>", fuse_unk=fuse)


def configurations():
    lines = corpus()
    plain = ByteLevel(add_prefix_space=False)
    letters = ByteLevel(add_prefix_space=False, use_regex=False)
    sequence = pre_tokenizers.Sequence

    t = trained(lines, plain, specials=["<|endoftext|>"], vocab=1200)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", t

    t = trained(lines, ByteLevel(add_prefix_space=True), specials=["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    yield "roberta", t

    t = trained(lines, sequence([Split(Regex(LLAMA3), "isolated"), letters]), vocab=1200, ignore_merges=True)
    t.add_special_tokens(["<|eot|>", "<|header|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(t, "<|bos|> $A", "<|bos|>")])
    yield "llama3", t

    t = trained(lines, sequence([Split(Regex(LLAMA3.replace("{1,3}", "+")), "isolated"), Digits(individual_digits=True), letters]), ignore_merges=True)
    t.add_tokens(["<tool>", AddedToken("</tool>", normalized=False)])
    yield "falcon_h1", t

    t = trained(lines, sequence([pre_tokenizers.Punctuation("contiguous"), plain, Digits(), Split(Regex("[0-9][0-9][0-9]"), "isolated")]))
    t.post_processor = template(t, "<|bos|>:0 $A:0 <|endoftext|>:0 <|endoftext|>:0", "<|bos|>", "<|endoftext|>")
    yield "falcon3", t

    yield "qwen", trained(lines, sequence([Split(Regex(QWEN), "isolated"), letters]), normalizer=normalizers.NFC())
    yield "o200k", trained(lines, sequence([Split(Regex(O200K), "removed", invert=True), letters]))
    yield "deepseek", trained(lines, sequence([Split(Regex(r"\p{N}{1,3}"), "isolated"), Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
                                               Split(Regex(DEEPSEEK), "isolated"), letters]))

    fold = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    t = trained(lines, sequence([pre_tokenizers.Whitespace(), letters]), normalizer=fold)
    t.add_tokens(["Norm", AddedToken("T\u00f6k", normalized=True), AddedToken("NORM", normalized=False)])
    yield "folded", t

    clean = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace("``", '"'), normalizers.Replace(Regex(" {2,}"), " "),
                                  normalizers.Replace(Regex(r"\.$"), "|"), normalizers.Strip(), normalizers.Prepend("\u2581_")])
    t = trained(lines, sequence([pre_tokenizers.WhitespaceSplit(), ByteLevel(add_prefix_space=True)]), normalizer=clean)
    yield "cleaned", with_vocab(t, [w for w in words_of(t) if set(w) <= set(ByteLevel.alphabet())])  # the trainer sees U+2581 itself
    yield "nfkc", trained(lines, sequence([pre_tokenizers.Punctuation(), Digits(), plain]), normalizer=normalizers.NFKC())

    yield "behaviors", trained(lines, sequence([
        Split(" ", "merged_with_next"), Split(Regex(r"\p{Lu}"), "merged_with_next"), Split(Regex("[aeiou]+?"), "merged_with_previous"),
        Split("==", "contiguous"), Split(Regex(r"(?=x)|-+"), "isolated"), Split(Regex(r"^\t|;$"), "removed"),
        Split(Regex(r"\w+"), "contiguous", invert=True), pre_tokenizers.Punctuation("merged_with_previous"), letters]))
    yield "odd", trained(lines, sequence([Split(Regex(r"(?<=\p{Ll})(?=\p{Lu})"), "isolated"), Split("", "merged_with_previous"), Split(Regex("b*"), "merged_with_next"),
                                          Split(Regex(r"(?i:the|an?)\s?|\S{,7}\Z"), "contiguous"), letters]), vocab=400)

    t = trained(lines, plain, alphabet=False, limit=60, specials=["<unk>"], vocab=300, unk_token="<unk>", fuse_unk=True)
    yield "fused_unknown", t
    t = trained(lines, plain, alphabet=False, limit=60, specials=["<unk>"], vocab=300, unk_token="<unk>")
    yield "unknown", t
    yield "dropping", trained(lines, plain, alphabet=False, limit=60, specials=["<|endoftext|>"], vocab=300)
    yield "fallback", with_byte_tokens(trained(lines, plain), False)
    yield "fused_fallback", with_byte_tokens(trained(lines, plain), True)

    t = trained(lines, plain, vocab=400)
    t.add_tokens([AddedToken("token", single_word=True), AddedToken("abc"), AddedToken("abcde", normalized=False), AddedToken("<tool>"),
                  AddedToken("\u00e9t\u00e9"), AddedToken("  ", normalized=True), AddedToken("<|a b|>")])
    t.add_special_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
                          AddedToken("[MASK]", single_word=True, lstrip=True, rstrip=True, normalized=True), AddedToken("norm", special=True, normalized=True)])
    t.post_processor = template(t, "<|bos|> $A", "<|bos|>")
    yield "added", t

    t = trained(lines, plain, vocab=400)
    t.decoder = decoders.Sequence([decoders.Replace("\u0120t", "\u0120T"), decoders.Strip("\u0120", 1, 0), decoders.ByteLevel(), decoders.Fuse(),
                                   decoders.Replace(Regex("[aeiou]{2}"), "*"), decoders.Strip(" ", 2, 0)])
    yield "decoding", t
    yield from word_piece_configurations(lines)
    yield from unigram_configurations(lines)


# What becomes of sequences of characters: longer beside shorter ones, of several characters, of nothing, and more than there was.
MAPPED = {"\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "\ufb01": "fi", "\ufb03": "ffi", "\uff21": "A", "\u2026": "...", "\u00bd": "1/2",
          "e\u0301": "\u00e9", "n\u0303": "\u00f1", "q": "Q", "q\u0308": "\u00f6", "o\u0308": "\u00f6", "\u200b": "", "\u2019": "'", "\U0001f600": ":)", "\u1112\u1161": "\ud558"}


def character_map(rules):
    """SentencePiece's own compilation of these."""
    with tempfile.TemporaryDirectory() as folder:
        text, table, model = (pathlib.Path(folder, name) for name in ("text", "rules.tsv", "model"))
        text.write_text("some words to learn from\n" * 50)
        codes = lambda s: " ".join(f"{ord(c):X}" for c in s)  # noqa: E731
        table.write_text("".join(f"{codes(a)}\t{codes(b)}\n" for a, b in rules.items()))
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(model), vocab_size=20, hard_vocab_limit=False, normalization_rule_tsv=str(table),
                                                 minloglevel=2)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(pathlib.Path(f"{model}.model").read_bytes())
        return proto.normalizer_spec.precompiled_charsmap


def unigram(lines, vocab, pre_tokenizer, normalizer=None):
    t = Tokenizer(models.Unigram())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=vocab, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return t


def unigram_configurations(lines):
    marks = pre_tokenizers.Metaspace(prepend_scheme="always")
    t = unigram(lines, 900, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks]), normalizers.Precompiled(character_map(MAPPED)))
    t.post_processor = template(t, "$A </s>", "</s>")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.add_special_tokens([AddedToken("<extra_id_1>", lstrip=True, rstrip=True), "<extra_id_0>"])
    yield "t5", t

    # Bytes in place of the unknown, where all of them are tokens; pieces that are not cut at marks.
    t = unigram(lines, 500, pre_tokenizers.Metaspace(replacement="_", prepend_scheme="never", split=False),
                normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKC()]))
    t.decoder = decoders.Metaspace(replacement="_", prepend_scheme="never")
    file = json.loads(t.to_str())
    file["model"]["byte_fallback"] = True
    file["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in (0xC3, 0xA9, 0xAF, 0xE2, 0x82, 0xAC)]
    yield "unigram_bytes", Tokenizer.from_str(json.dumps(file))


def word_piece_configurations(lines):
    bert = pre_tokenizers.BertPreTokenizer()
    t = word_pieces(lines, bert_normalizer(), bert)
    t.post_processor = template(t, "[CLS]:0 $A:0 [SEP]:0", "[CLS]", "[SEP]")
    t.decoder = decoders.WordPiece()
    yield "bert_uncased", t

    t = word_pieces(lines, bert_normalizer(lowercase=False), bert, vocab=900)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.WordPiece()
    t.add_tokens([AddedToken("caf\u00e9"), AddedToken("NORM", normalized=False), AddedToken("token", single_word=True)])
    yield "bert_cased", t

    t = word_pieces(lines, bert_normalizer(handle_chinese_chars=False, strip_accents=False), bert, longest=7)
    t.decoder = decoders.WordPiece(cleanup=False)
    yield "bert_accents", t

    t = word_pieces(lines, bert_normalizer(clean_text=False, strip_accents=True, lowercase=False), pre_tokenizers.Whitespace(), prefix="@@@", unknown="<?>")
    t.decoder = decoders.Sequence([decoders.WordPiece(prefix="@@@"), decoders.Replace("e", "E")])
    yield "bert_odd", t

    t = word_pieces([x.strip() for x in lines], normalizers.Sequence([normalizers.NFKC(), bert_normalizer(lowercase=False)]), None, vocab=500)
    yield "bert_whole", t

    t = word_pieces(lines, bert_normalizer(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), Digits(individual_digits=True)]), prefix="")
    yield "bert_plain", t


def expected(t, texts):
    """Ids with everything on; without specials, where these differ; what they decode to, where that is not the text."""
    result = []
    for text in texts:
        t.encode_special_tokens = False
        ids, inner = t.encode(text).ids, t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = True
        as_text = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = False
        row = {"ids": ids}
        if inner != ids:
            row["inner"] = inner
        if as_text != inner:
            row["as_text"] = as_text
        if (whole := t.decode(ids, skip_special_tokens=False)) != text:
            row["decoded"] = whole
        if (short := t.decode(ids, skip_special_tokens=True)) != whole:
            row["short"] = short
        result.append(row)
    return {"made_by": f"tokenizers {tokenizers.__version__}", "size": 1 + max(t.get_vocab().values()), "texts": result}


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def in_old_form(file):
    """Merges as older versions of the library write them: one string."""
    if "merges" not in file["model"]:
        return file
    file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
    return file


def write(program, names):
    FOLDER.mkdir(exist_ok=True)
    dump(FOLDER / "texts.json", TEXTS)
    for number, (name, t) in enumerate(configurations()):
        if names and name not in names:
            continue
        file = json.loads(t.to_str())
        dump(FOLDER / f"{name}.json", file if number % 2 else in_old_form(file))
        dump(FOLDER / f"{name}.expected.json", expected(Tokenizer.from_file(str(FOLDER / f"{name}.json")), TEXTS))
    if program:
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text.txt")
            text.write_text("".join(corpus()), newline="")
            subprocess.run([program, "tokenizer", "train", FOLDER / "ours.json", text, "--vocab-size", "600"], check=True)
        dump(FOLDER / "ours.expected.json", expected(Tokenizer.from_file(str(FOLDER / "ours.json")), TEXTS))


def mutated(draw):
    """A text made of others: parts of them, single characters of many kinds, special tokens, white space."""
    parts = []
    for _ in range(draw.randint(1, 8)):
        text = draw.choice(TEXTS)
        kind = draw.randint(0, 9)
        if kind < 4 and text:
            start = draw.randrange(len(text))
            parts.append(text[start:start + draw.randint(1, 30)])
        elif kind == 4:
            parts.append(draw.choice(SPECIALS + ["token", "<left>", "<right>", "<both>", "[MASK]", "norm", "Norm", "abc", "abcde", "  "]))
        elif kind == 5:
            parts.append(draw.choice(" \n\t\r'\u00a0\u2028\u0085-_0aAx") * draw.randint(1, 4))
        elif kind == 6:
            parts.append(chr(draw.randrange(0x20, 0x250)))
        elif kind == 7:
            parts.append("".join(chr(draw.choice([draw.randrange(0x300, 0x370), draw.randrange(0x800, 0xD800)])) for _ in range(draw.randint(1, 5))))
        elif kind == 8:
            parts.append(chr(draw.randrange(0x10000, 0x110000)))
        else:
            parts.append("".join(draw.choice("etaoin 'shrdluETA012.,\n") for _ in range(draw.randint(1, 20))))
    return "".join(parts)


def lines_of(program, *words, lines):
    done = subprocess.run([program, "tokenizer", *map(str, words), "--json"], input="\n".join(map(json.dumps, lines)) + "\n", text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def every_character():
    """All code points, a few at a time, each between letters and after a space."""
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    return ["".join(f"a{c}b {c}" for c in points[i:i + 48]) for i in range(0, len(points), 48)]


def compare(program, files, count, seed, characters):
    draw = random.Random(seed)
    done = wrong = 0
    files = files or sorted(p for p in FOLDER.glob("*.json") if "expected" not in p.name and p.name != "texts.json")
    for path in files:
        t = Tokenizer.from_file(str(path))
        texts = every_character() if characters else [mutated(draw) for _ in range(count)]
        ids = [e.ids for e in t.encode_batch(texts)]
        pairs = [("encode --special", texts, lines_of(program, "encode", path, "--special", lines=texts), ids)]
        if not characters:
            size = t.get_vocab_size()
            drawn = [[i for i in (draw.randrange(size) for _ in range(draw.randint(0, 12))) if t.id_to_token(i) is not None] for _ in texts]
            t.encode_special_tokens = True
            as_text = [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]
            pairs += [("encode", texts, lines_of(program, "encode", path, lines=texts), as_text),
                      ("decode", ids, lines_of(program, "decode", path, lines=ids), t.decode_batch(ids, skip_special_tokens=False)),
                      ("decode --skip-special", drawn, lines_of(program, "decode", path, "--skip-special", lines=drawn),
                       t.decode_batch(drawn, skip_special_tokens=True))]
        for what, given, ours, theirs in pairs:
            differ = [i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y]
            wrong += len(differ)
            done += len(given)
            for i in differ[:3]:
                print(f"{path.name}: {what} of {ascii(given[i])}:\n  {ascii(ours[i])}\n  {ascii(theirs[i])}")
        print(f"{path.name}: {done} comparisons, {wrong} differences so far", flush=True)
    print(f"{done} comparisons with {len(files)} tokenizers, seed {seed}: {wrong} differences")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    w = commands.add_parser("write")
    w.add_argument("--gyrfalcon")
    w.add_argument("names", nargs="*")
    c = commands.add_parser("compare")
    c.add_argument("program")
    c.add_argument("files", nargs="*", type=pathlib.Path)
    c.add_argument("--strings", type=int, default=2000)
    c.add_argument("--seed", type=int, default=1)
    c.add_argument("--characters", action="store_true", help="every code point instead of random strings")
    a = parser.parse_args()
    return write(a.gyrfalcon, a.names) if a.command == "write" else compare(a.program, a.files, a.strings, a.seed, a.characters)


if __name__ == "__main__":
    sys.exit(main())
