#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes reward_models/NAME/{config.json, model.safetensors, scores.json}: tiny reward models of several Hugging Face families, and
the scores that transformers' classes give to texts on the CPU, each text alone. transformers has no such class for Falcon-H1.

    ./reward_models.py [NAME ...]      default: all of them
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1PreTrainedModel

here = pathlib.Path(__file__).parent / "reward_models"
texts = 6
decoder = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
               max_position_embeddings=512, pad_token_id=None, bos_token_id=1, eos_token_id=2, num_labels=1)


class FalconH1ForSequenceClassification(GenericForSequenceClassification, FalconH1PreTrainedModel):
    pass


cases = {
    "llama": (transformers.LlamaForSequenceClassification, transformers.LlamaConfig(**decoder)),
    "qwen3": (transformers.Qwen3ForSequenceClassification, transformers.Qwen3Config(**decoder)),
    "gemma3": (transformers.Gemma3TextForSequenceClassification, transformers.Gemma3TextConfig(**decoder, sliding_window=7)),
    "mixtral": (transformers.MixtralForSequenceClassification, transformers.MixtralConfig(**decoder, num_local_experts=4)),
    "gpt2": (transformers.GPT2ForSequenceClassification, transformers.GPT2Config(
        vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=96, bos_token_id=1, eos_token_id=2, num_labels=1)),
    "falcon_h1": (FalconH1ForSequenceClassification, transformers.FalconH1Config(
        **decoder, mamba_d_ssm=32, mamba_n_heads=8, mamba_d_head=4, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8)),
}


def write_case(name, seed):
    make, config = cases[name]
    torch.manual_seed(seed)
    config._experts_implementation = "eager"
    model = make(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        drawn = [torch.randint(3, config.vocab_size, (4 + 5 * i,)) for i in range(texts)]
        scores = [model(input_ids=ids[None], use_cache=False).logits.item() for ids in drawn]
    folder = here / name
    model.save_pretrained(folder)
    (folder / "scores.json").write_text(json.dumps({"texts": [ids.tolist() for ids in drawn], "scores": scores, "transformers": transformers.__version__}) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, scores {', '.join(f'{s:.4f}' for s in scores)}", flush=True)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for seed, name in enumerate(cases):
        if name in (sys.argv[1:] or list(cases)):
            write_case(name, 11 * seed + 3)


if __name__ == "__main__":
    main()
