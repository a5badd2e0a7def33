# SPDX-License-Identifier: BSD-3-Clause
# Compares GGUF files of gyrfalcon with those of llama.cpp's converter. TREE is the folder of llama.cpp's sources. See ../gguf.sh.
#   TREE prepare FOLDER NEW                  copies a model folder; adds a tokenizer with one letter per token, removes end-of-text tokens
#   TREE widen FOLDER                        multiplies the widths of the model by 32, so that q8_0 blocks fit, with random weights
#   TREE convert FOLDER FILE TYPE            converts the model with llama.cpp's converter
#   TREE compare OURS THEIRS                 compares tensors bitwise and keys one by one; prints differences; fails if a tensor differs, or a
#                                            key that is not listed in EXCUSED
#   TREE letters TEXT                        prints the token ids of a text for the tokenizer made by prepare
import json
import pathlib
import runpy
import shutil
import sys

tree, what, *words = sys.argv[1:]
sys.path.insert(0, tree)
sys.path.insert(0, str(pathlib.Path(tree) / "gguf-py"))
LETTERS = [chr(c) for c in range(33, 127) if chr(c).isalnum()]

# Keys of llama.cpp's files that may be missing or different in ours, with the reason.
EXCUSED = {
    "general.name": "llama.cpp derives it from the folder name",
    "general.size_label": "only informative",
    "general.basename": "llama.cpp guesses it from the folder name",
    "general.finetune": "llama.cpp guesses it from the folder name",
    "general.version": "llama.cpp guesses it from the folder name",
    "tokenizer.ggml.add_space_prefix": "only for SentencePiece tokenizers, not for byte-level ones",
    "rope.scaling.attn_factor": "llama.cpp stores the value by which it multiplies YaRN's own factor",
}


def prepare(folder, new):
    shutil.copytree(folder, new)
    config = json.loads((pathlib.Path(new) / "config.json").read_text())
    if config["model_type"] == "gpt2":
        config["n_ctx"] = config["n_positions"]  # key of older folders, which llama.cpp's converter needs
    if config["model_type"].startswith("gemma"):
        config["query_pre_attn_scalar"] = config["head_dim"]  # llama.cpp supports no other scale of attention scores
    (pathlib.Path(new) / "config.json").write_text(json.dumps(config))
    size = config["vocab_size"]
    assert size <= len(LETTERS), "the vocabulary has more tokens than there are letters"
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": {LETTERS[i]: i for i in range(size)}, "merges": []}}
    (pathlib.Path(new) / "tokenizer.json").write_text(json.dumps(tokenizer))
    (pathlib.Path(new) / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (pathlib.Path(new) / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    expected = pathlib.Path(new) / "expected.safetensors"
    if expected.exists():  # not part of the model
        expected.unlink()


WIDTHS = ("hidden_size", "intermediate_size", "moe_intermediate_size", "head_dim", "n_embd", "n_inner", "mamba_d_ssm", "mamba_d_head", "mamba_head_dim")


def widen(folder):
    import torch
    import transformers
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text())
    config.update({key: 32 * config[key] for key in WIDTHS if isinstance(config.get(key), int)})
    if config["model_type"].startswith("gemma"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    if config["model_type"] == "qwen3_moe":
        config.update(mlp_only_layers=[], decoder_sparse_step=1)  # llama.cpp supports only models with experts in every layer
    path.write_text(json.dumps(config))
    torch.manual_seed(1)
    model = getattr(transformers, config["architectures"][0])._from_config(transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))  # so that no weight is all zeros or all ones
    model.generation_config = transformers.GenerationConfig(eos_token_id=[])
    model.save_pretrained(folder)
    path.write_text(json.dumps(config))  # removes keys that save_pretrained has added


def convert(folder, file, kind):
    from conversion import base
    # The converter identifies tokenizers by a hash and does not know this one.
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    base.TextModel._set_vocab_sentencepiece = lambda self, add_to_gguf=True: self._set_vocab_gpt2()
    base.TextModel.get_vocab_base = plain_vocabulary
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", file, "--outtype", kind]
    runpy.run_path(str(pathlib.Path(tree) / "convert_hf_to_gguf.py"), run_name="__main__")


# Replaces llama.cpp's function of that name, for a tokenizer without added tokens and without padding of the vocabulary.
def plain_vocabulary(self):
    vocabulary = json.loads((self.dir_model / "tokenizer.json").read_text())["model"]["vocab"]
    return list(vocabulary), [1] * len(vocabulary), "gpt-2"


def contents(file):
    from gguf import GGUFReader
    reader = GGUFReader(file)
    tensors = {t.name: (t.tensor_type.name, tuple(int(n) for n in t.shape), bytes(t.data)) for t in reader.tensors}
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}, tensors


# Maximum difference in units in the last place, for tensors that both programs compute with exp or pow; otherwise None.
def last_places(name, a, b):
    import numpy
    if not a or not b or a[:2] != b[:2] or not name.endswith(("ssm_a", "rope_freqs.weight")):
        return None
    one, other = (numpy.frombuffer(t[2], numpy.int32).astype(numpy.int64) for t in (a, b))
    return int(abs(one - other).max())


def compare(ours_file, theirs_file):
    (ours, our_tensors), (theirs, their_tensors) = contents(ours_file), contents(theirs_file)
    wrong = []
    for name in sorted(our_tensors.keys() | their_tensors.keys()):
        a, b = our_tensors.get(name), their_tensors.get(name)
        if a == b:
            continue
        units = last_places(name, a, b)
        if units == 1:
            print(f"  {name}: differs by one unit in the last place (different exp functions)")
        elif a and b and a[:2] == b[:2]:
            wrong.append(f"{name}: {sum(x != y for x, y in zip(a[2], b[2]))} of {len(a[2])} bytes differ")
        else:
            wrong.append(f"{name}: ours has {a and a[:2]}, llama.cpp has {b and b[:2]}")
    if theirs["general.architecture"] == ours["general.architecture"] + "_moe":
        print("  keys: not compared, because transformers' config class wrongly adds experts to this model and llama.cpp's converter uses them")
        theirs = ours
    for key in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(key, "absent"), theirs.get(key, "absent")
        if a == b:
            continue
        excuse = "only in ours" if key not in theirs else EXCUSED.get(key) or EXCUSED.get(key.split(".", 1)[1])
        print(f"  {key}: ours {str(a)[:60]}, llama.cpp {str(b)[:60]}" + (f" ({excuse})" if excuse else ""))
        if not excuse:
            wrong.append(f"key {key}")
    for line in wrong:
        print("  DIFFERS", line)
    blocks = sum(kind == "Q8_0" for kind, _, _ in our_tensors.values())
    print(f"  {len(our_tensors)} tensors, {blocks} in q8_0 blocks, {len(ours)} keys, {len(wrong)} differ")
    if blocks == 0 and ours_file.endswith(".wide.q8_0.gguf"):
        print("  DIFFERS: no tensor in q8_0 blocks")
        return 1
    return 1 if wrong else 0


if what == "prepare":
    prepare(*words)
elif what == "widen":
    widen(*words)
elif what == "convert":
    convert(*words)
elif what == "compare":
    sys.exit(compare(*words))
elif what == "letters":
    print(*[LETTERS.index(c) for c in words[0]])
