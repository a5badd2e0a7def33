#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/peft.sh GYRFALCON PYTHON: compares LoRA adapters with PEFT, for Llama and Falcon-H1. An adapter folder written by
# gyrfalcon must give PEFT the logits of the merged model, and a folder written by PEFT must keep its bytes after import and
# export. PYTHON needs torch, transformers and peft from PyPI, otherwise the exit code is 77.
set -euo pipefail
gyrfalcon=$(realpath "${1:?usage: regression/peft.sh GYRFALCON PYTHON}") python=${2:?usage: regression/peft.sh GYRFALCON PYTHON}
"$python" -c 'import peft, torch, transformers' 2> /dev/null || { echo "SKIPPED: $python has no peft, torch and transformers"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 OMP_NUM_THREADS=1

"$python" - 2> log << 'END' || { cat log; exit 1; }
import torch
from transformers import FalconH1Config, FalconH1ForCausalLM, LlamaConfig, LlamaForCausalLM
from peft import LoraConfig, get_peft_model
torch.manual_seed(0)
sizes = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
models = {
    "llama": LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, **sizes)),
    "falcon_h1": FalconH1ForCausalLM(FalconH1Config(num_hidden_layers=2, head_dim=16, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16,
                                                    mamba_n_groups=1, mamba_chunk_size=32, **sizes)),
}
models["uneven"] = LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, **sizes))
targets = {"uneven": ["1.self_attn.q_proj", "model.layers.2.mlp.down_proj", "v_proj"]}  # full module names, name suffixes, and last components
for name, model in models.items():
    model.float().save_pretrained(name)
    modules = targets.get(name, ["q_proj", "o_proj", "up_proj", "down_proj"])
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=modules, task_type="CAUSAL_LM"))
    for key, weight in adapted.named_parameters():
        if "lora_B" in key: torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(name + ".theirs")
END

failed=0
for name in llama falcon_h1 uneven; do
  "$gyrfalcon" import-hf "$name" "$name.checkpoint" --adapters "$name.theirs"
  "$gyrfalcon" export-hf "$name.checkpoint" "$name.ours" --adapters
  "$gyrfalcon" export-hf "$name.checkpoint" "$name.sum"
  cmp "$name.ours/adapter_model.safetensors" "$name.theirs/adapter_model.safetensors" && echo "$name: import and export keep every byte" || failed=1
done
"$python" - 2> log << 'END' || { cat log; failed=1; }
import torch
from transformers import AutoModelForCausalLM
from peft import PeftModel
ids = torch.randint(0, 512, (2, 60), generator=torch.Generator().manual_seed(1))
for name in "llama", "falcon_h1", "uneven":
    load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        ours = PeftModel.from_pretrained(load(name), name + ".ours").eval()(ids).logits
        both, base = load(name + ".sum")(ids).logits, load(name)(ids).logits
    scale = float(ours.abs().max())
    error, moved = float((ours - both).abs().max()) / scale, float((ours - base).abs().max()) / scale
    print(f"{name}: logits with PEFT differ from the merged model by {error:.1e} of the largest logit, from the base model by {moved:.2f}")
    assert error < 1e-5 < moved
END
exit "$failed"
