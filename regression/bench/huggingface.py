# SPDX-License-Identifier: BSD-3-Clause
# Runs transformers on one thread, for huggingface.sh.
#   write FOLDER                       writes a model of Falcon-H1-0.5B's shape with random bf16 weights, and a byte-level tokenizer
#   same FOLDER OTHER                  fails unless both folders hold the same tensors, bit for bit
#   prompt FOLDER N                    prints text of N tokens
#   generate FOLDER PROMPT N           prints tokens/s of N new tokens, greedy, fp32, including the time to read the prompt
#   versions                           prints the versions of PyTorch and transformers
import pathlib
import sys
import time

import tokenizers
import torch
import transformers
from safetensors.torch import load_file


def write(folder):
    config = transformers.FalconH1Config(
        vocab_size=32784, hidden_size=1024, intermediate_size=2048, num_hidden_layers=36, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, max_position_embeddings=16384, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_n_groups=1,
        mamba_d_state=128, mamba_d_conv=4, mamba_chunk_size=128, mamba_rms_norm=False, mamba_norm_before_gate=False,
        tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1e11}, pad_token_id=0, bos_token_id=1,
        eos_token_id=11, embedding_multiplier=5.656854249492381, lm_head_multiplier=0.0390625, attention_in_multiplier=1.0,
        key_multiplier=0.39062499999999994, attention_out_multiplier=0.9375, ssm_in_multiplier=1.25,
        ssm_out_multiplier=0.23570226039551587,
        ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
        mlp_multipliers=[0.8838834764831844, 0.5859375])
    torch.manual_seed(1)
    transformers.FalconH1ForCausalLM(config).bfloat16().save_pretrained(folder)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(pathlib.Path(folder) / "tokenizer.json"))


def tensors(folder):
    everything = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        everything.update(load_file(file))
    return everything


def same(one, other):
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys(), set(a) ^ set(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name
    print(f"{len(a)} tensors are unchanged bit for bit")


def prompt(_, count):
    line = "The falcon circles over the valley and waits for the wind to turn. "
    print((line * (int(count) // len(line) + 1))[:int(count) - 1] + ".")


def generate(folder, text, count):
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    ids = torch.tensor([tokenizer.encode(text).ids])
    model = transformers.FalconH1ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    options = dict(do_sample=False, attention_mask=torch.ones_like(ids))
    model.generate(ids[:, :8], do_sample=False, attention_mask=torch.ones_like(ids[:, :8]), max_new_tokens=2)
    begin = time.perf_counter()
    out = model.generate(ids, max_new_tokens=int(count), **options)
    seconds = time.perf_counter() - begin
    assert out.shape[1] == ids.shape[1] + int(count)
    print(f"{int(count) / seconds:.2f}")


def versions():
    print("PyTorch", torch.__version__, "transformers", transformers.__version__)


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
globals()[sys.argv[1]](*sys.argv[2:])
