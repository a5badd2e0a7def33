# SPDX-License-Identifier: BSD-3-Clause
# Times the Falcon-H1 model of a deck in PyTorch and transformers on a GPU, and prints a line of JSON. transformers uses mamba_ssm and causal_conv1d if they are installed. MAMBA_SSM may name a folder with the sources of mamba_ssm, whose Triton scan is then used. For comparison only; see gpu.sh.
#   peer_model.py step DECK LENGTH SEQUENCES       tokens/s of training steps: one sequence per micro-batch, autocast to bf16, fused AdamW in fp32
#   peer_model.py generate FOLDER PROMPT TOKENS    tokens/s of new tokens after the first one, greedy, bf16, one sequence
import json
import os
import pathlib
import re
import statistics
import sys
import time

import torch
import transformers
import yaml
from transformers.models.falcon_h1 import modeling_falcon_h1

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def config_of(deck):
    model = yaml.safe_load(pathlib.Path(deck).read_text())["model"]
    attention, mamba, mlp = model["attention"], model["mamba"], model["mlp"]
    return transformers.FalconH1Config(
        vocab_size=model["vocab_size"], hidden_size=model["hidden_size"], intermediate_size=mlp["intermediate_size"],
        num_hidden_layers=int(re.fullmatch(r"P x (\d+)", model["pattern"])[1]), tie_word_embeddings=model["tie_word_embeddings"],
        num_attention_heads=attention["num_heads"], num_key_value_heads=attention["num_kv_heads"], head_dim=attention["head_dim"],
        mamba_d_ssm=mamba["num_heads"] * mamba["head_dim"], mamba_n_heads=mamba["num_heads"], mamba_d_head=mamba["head_dim"],
        mamba_n_groups=mamba["num_groups"], mamba_d_state=mamba["state_size"], mamba_chunk_size=mamba["chunk_size"], mamba_d_conv=4,
        mamba_rms_norm=mamba["norm"] != "none", mamba_norm_before_gate=False, max_position_embeddings=16384,
        rope_parameters={"rope_type": "default", "rope_theta": float(attention["rope_theta"])}, pad_token_id=0, bos_token_id=1, eos_token_id=11,
        embedding_multiplier=model["embedding_multiplier"], lm_head_multiplier=model["lm_head_multiplier"],
        attention_in_multiplier=attention.get("in_multiplier", 1.0), key_multiplier=attention.get("key_multiplier", 1.0),
        attention_out_multiplier=attention.get("out_multiplier", 1.0), ssm_in_multiplier=mamba.get("in_multiplier", 1.0),
        ssm_out_multiplier=mamba.get("out_multiplier", 1.0), ssm_multipliers=mamba.get("multipliers", [1.0] * 5),
        mlp_multipliers=[mlp.get("gate_multiplier", 1.0), mlp.get("down_multiplier", 1.0)])


def take_triton_scan():
    """Imported after transformers: if transformers found all of mamba_ssm, it would require compiled kernels."""
    folder = os.environ.get("MAMBA_SSM")
    if not folder:
        return "transformers"
    sys.path.insert(0, folder)
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    names = ("dt_bias", "D", "z", "initial_states", "dt_softplus", "dt_limit", "return_final_states")

    def scan(x, dt, a, b, c, chunk_size, **words):
        return mamba_chunk_scan_combined(x, dt, a, b, c, chunk_size, **{name: words[name] for name in names if name in words})

    modeling_falcon_h1.mamba2_chunk_scan = scan
    modeling_falcon_h1.mamba2_selective_state_update = selective_state_update
    return "Triton"


def step(deck, length, sequences):
    scan = take_triton_scan()
    length, sequences = int(length), int(sequences)
    torch.manual_seed(1)
    with torch.device(DEVICE):
        net = transformers.FalconH1ForCausalLM(config_of(deck)).float().train()
    net.config.use_cache = False
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def one():
        for _ in range(sequences):
            tokens = torch.randint(1, net.config.vocab_size, (1, length), device=DEVICE)
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = net(input_ids=tokens, labels=tokens).loss
            (loss / sequences).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    remembered = ""
    try:
        one()
    except torch.OutOfMemoryError:
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        net.gradient_checkpointing_enable()
        remembered = ", checkpointed"
        one()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        one()
        times.append(time.perf_counter() - start)
    print(json.dumps({"training": pathlib.Path(deck).stem, "scan": scan + remembered, "tokens_per_second": sequences * length / statistics.median(times),
                      "bytes": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0}))


def generate(folder, prompt, tokens):
    scan = take_triton_scan()
    net = transformers.FalconH1ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(DEVICE).eval()
    ids = torch.tensor([[1 + byte for byte in prompt.encode()]], device=DEVICE)

    def seconds(count):
        start = time.perf_counter()
        out = net.generate(ids, do_sample=False, min_new_tokens=count, max_new_tokens=count)
        assert out.shape[1] == ids.shape[1] + count
        return time.perf_counter() - start

    seconds(2)
    first, all_of_them = seconds(1), seconds(int(tokens) + 1)
    print(json.dumps({"generation": "new tokens", "scan": scan, "tokens_per_second": int(tokens) / (all_of_them - first)}))


{"step": step, "generate": generate}[sys.argv[1]](*sys.argv[2:])
