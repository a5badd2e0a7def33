#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes huggingface/NAME/{config.json, model.safetensors, expected.safetensors}: tiny Falcon-H1 models, and the
outputs of transformers' FalconH1ForCausalLM for them on the CPU.

Needs PyTorch, transformers and safetensors from PyPI; their versions are recorded in expected.safetensors.
    ./huggingface.py [NAME ...]               default: all of them
    ./huggingface.py --accuracy [NAME ...]    writes only huggingface_accuracy.json: the error of fp32 relative to fp64

expected.safetensors contains, for a batch of b sequences of T tokens:
    input_ids, labels (b,T)      labels in transformers' format, not shifted; -100: no label
    attention_mask (b,T)         only if sequences are padded
    logits.P, loss.P             P is fp32 or fp64
    gradient.P.WEIGHT            gradient of every weight
    prompt (p), generated (64)   greedy continuation in fp32
    margin (1)                   smallest lead of a chosen token over the second best, relative to the largest logit. It is far above the
                                 rounding of fp32, so that the tokens are well determined

fp64 is the same model in float64. It includes the places where transformers' code forces float32: norms, gate, scan, softmax, rotary
angles, loss and the buffer of the SSM multipliers. See `widened`.

Weights are drawn so that values are of order one after each multiplier, as after training. With standard random weights and published
multipliers, a branch would be a thousandth of the residual, and a wrong multiplier would not be detected.
"""
import contextlib
import json
import math
import pathlib
import sys

import safetensors.torch
import torch
import transformers
from transformers.models.falcon_h1 import modeling_falcon_h1 as falcon

here = pathlib.Path(__file__).parent / "huggingface"
new_tokens = 64

base = dict(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, intermediate_size=20, rms_norm_eps=1e-5, tie_word_embeddings=False,
    num_attention_heads=4, num_key_value_heads=2, head_dim=6, attention_bias=False, mlp_bias=False, max_position_embeddings=512,
    mamba_d_ssm=24, mamba_n_heads=6, mamba_d_head=4, mamba_n_groups=1, mamba_d_state=4, mamba_d_conv=4, mamba_chunk_size=8,
    mamba_conv_bias=True, mamba_proj_bias=False, projectors_bias=False, mamba_rms_norm=False, mamba_norm_before_gate=False,
    rope_parameters={"rope_type": "default", "rope_theta": 1e4}, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    embedding_multiplier=2.2, lm_head_multiplier=0.5, key_multiplier=0.75, attention_in_multiplier=1.25, attention_out_multiplier=0.8,
    ssm_in_multiplier=1.5, ssm_out_multiplier=1.1, mlp_multipliers=[0.9, 0.65], ssm_multipliers=[0.7, 1.6, 2.0, 1.75, 1.2])
wide_theta = {"rope_type": "default", "rope_theta": 1e11}
root2 = math.sqrt(2)
gate_first = dict(mamba_rms_norm=True, mamba_norm_before_gate=False)
norm_first = dict(mamba_rms_norm=True, mamba_norm_before_gate=True)

# name: changes of the base config, sequences, tokens per sequence; with padding: real tokens of each sequence, side of the padding
cases = {
    "plain_gate": (dict(), 2, 21),
    "gate_first_two_groups": (dict(mamba_n_groups=2, **gate_first), 2, 21),
    "norm_first_one_group": (dict(**norm_first), 2, 21),
    "norm_first_three_groups": (dict(mamba_n_groups=3, **norm_first), 2, 24),
    "tied_multi_query": (dict(tie_word_embeddings=True, num_key_value_heads=1), 2, 5),
    "ssm_biases": (dict(mamba_conv_bias=False, mamba_proj_bias=True, projectors_bias=True), 2, 21),
    "attention_mlp_biases": (dict(attention_bias=True, mlp_bias=True, num_key_value_heads=4), 2, 21),
    "time_step_clamp": (dict(mamba_n_groups=2, time_step_limit=[0.2, 0.9], **gate_first), 2, 21),
    "odd_heads": (dict(head_dim=4, rope_parameters=wide_theta, mamba_d_conv=2, mamba_d_ssm=12, mamba_n_heads=3, mamba_d_state=8,
                       mamba_chunk_size=16), 1, 33),
    "shorter_than_taps": (dict(mamba_n_groups=2, **gate_first), 3, 3),
    "padded_vocabulary": (dict(vocab_size=31, mamba_d_ssm=32, mamba_n_heads=8, mamba_n_groups=2, **gate_first), 2, 21),
    "chunk_minus_one": (dict(num_hidden_layers=1), 2, 7),
    "chunk": (dict(num_hidden_layers=1, **gate_first), 2, 8),
    "chunk_plus_one": (dict(num_hidden_layers=1), 2, 9),
    "two_chunks_plus_one": (dict(num_hidden_layers=1, mamba_n_groups=2, **gate_first), 2, 17),
    "right_padding": (dict(mamba_n_groups=2, **gate_first), 3, 13, [13, 9, 2], "right"),
    "left_padding": (dict(mamba_n_groups=2, **gate_first), 3, 13, [13, 9, 2], "left"),
    "like_7b": (dict(
        vocab_size=41, hidden_size=24, intermediate_size=36, num_attention_heads=12, num_key_value_heads=2, head_dim=4,
        mamba_d_ssm=24, mamba_n_heads=6, mamba_d_state=8, rope_parameters=wide_theta, embedding_multiplier=5.656854249492381,
        lm_head_multiplier=0.013020833333333334, key_multiplier=0.030690398488999456, attention_in_multiplier=1.0,
        attention_out_multiplier=0.10416666666666667, ssm_in_multiplier=0.4166666666666667, ssm_out_multiplier=0.11785113019775793,
        mlp_multipliers=[0.2946278254943948, 0.032552083333333336],
        ssm_multipliers=[root2 / 4, 0.25, root2 / 8, 0.5, root2 / 4], **gate_first), 2, 19),
    "like_34b": (dict(
        vocab_size=40, hidden_size=20, intermediate_size=32, num_attention_heads=10, num_key_value_heads=2, head_dim=4,
        mamba_d_ssm=16, mamba_n_heads=4, mamba_d_state=8, mamba_n_groups=2, rope_parameters=wide_theta,
        embedding_multiplier=5.656854249492381, lm_head_multiplier=0.0078125, key_multiplier=0.011048543456039804,
        attention_in_multiplier=1.0, attention_out_multiplier=0.0375, ssm_in_multiplier=0.25, ssm_out_multiplier=0.08838834764831845,
        mlp_multipliers=[0.1767766952966369, 0.011160714285714284],
        ssm_multipliers=[root2 / 4, 0.25, root2 / 8, 0.5, root2 / 4], **gate_first), 2, 19),
    # Several chunks with the published chunk length, to detect sums over a chunk that lose digits in fp32.
    "long_chunks": (dict(mamba_chunk_size=256), 1, 600),
    "long_chunks_usual_weights": (dict(mamba_chunk_size=256, mamba_d_ssm=32, mamba_n_heads=8, mamba_d_state=16, **gate_first), 1, 600),
    "long_chunks_first_weights": (dict(mamba_chunk_size=256, mamba_d_ssm=48, mamba_n_heads=24, mamba_d_head=2, mamba_d_state=8), 1, 600),
}
# Cases whose scan has the initial weights of an untrained model: decay rates from 1 to the number of heads, and D = 1. Initialisation
# `mamba`: that of Mamba-2, with time steps from 0.001 to 0.1. Initialisation `transformers`: dt_bias = 1.
starts = {"long_chunks_usual_weights": "mamba", "long_chunks_first_weights": "transformers"}


class Wide:
    """Replacement of the torch module in transformers' code, in which float32 means float64."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def widened(*modules):
    """Runs the code of these modules (default: Falcon-H1's) in float64."""
    kept = torch.Tensor.float
    for module in modules or [falcon]:
        module.torch = Wide()
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        for module in modules or [falcon]:
            module.torch = torch
        torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def config_of(changes):
    config = transformers.FalconH1Config(**{**base, **changes})
    config._attn_implementation = "eager"
    return config


def untrained(kind, draw, start):
    """Initial values of A_log, dt_bias and D of an untrained model; `draw` is uniform in [-1, 1)."""
    if kind == "A_log":
        return torch.arange(1, len(draw) + 1).log()
    if kind == "D" or start == "transformers":
        return torch.ones_like(draw)
    step = torch.exp((draw + 1) / 2 * math.log(100) + math.log(1e-3))
    return step + torch.log(-torch.expm1(-step))


def drawn(config, seed, start=None):
    """Random float32 weights by name."""
    random = torch.Generator().manual_seed(seed)
    inner, state = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
    z, x, b, c, dt = (m * config.ssm_in_multiplier for m in config.ssm_multipliers)
    rows = torch.cat([torch.full((n,), m) for n, m in ((inner, z), (inner, x), (state, b), (state, c), (config.mamba_n_heads, dt))])
    after = {"embed_tokens": config.embedding_multiplier, "lm_head": config.lm_head_multiplier / 3,
             "q_proj": config.attention_in_multiplier, "v_proj": config.attention_in_multiplier,
             "k_proj": config.attention_in_multiplier * config.key_multiplier / 2, "o_proj": config.attention_out_multiplier / 2,
             "in_proj": rows[:, None], "out_proj": config.ssm_out_multiplier / 2,
             "gate_proj": config.mlp_multipliers[0], "up_proj": 1, "down_proj": config.mlp_multipliers[1] / 2}
    weights = {}
    with torch.device("meta"):
        names = transformers.FalconH1ForCausalLM(config).state_dict()
    for name, meta in names.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        draw = torch.rand(meta.shape, generator=random) * 2 - 1
        kind = next((k for k in after if k in name), "")
        if start and name.endswith(("A_log", "dt_bias", ".D")):
            value = untrained(name.rsplit(".", 1)[1], draw, start)
        elif "norm" in name or name.endswith(".D"):
            value = 1 + 0.4 * draw
        elif name.endswith("A_log"):
            value = 1.5 * draw
        elif name.endswith("dt_bias"):
            value = draw - 1
        elif "conv1d" in name:
            value = draw * (0.3 if name.endswith("bias") else 1)
        elif name.endswith("bias"):
            value = 0.3 * draw / (after[kind].squeeze() if kind == "in_proj" else after[kind])
        elif name == "model.embed_tokens.weight":
            value = 1.7 * draw / after[kind]
        else:
            value = 1.7 * draw / math.sqrt(meta.shape[1]) / after[kind]
        weights[name] = value.float().contiguous()
    return weights


def model_of(config, weights):
    model = transformers.FalconH1ForCausalLM(config)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def batch_of(config, seed, sequences, length, real, side):
    random = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(0, config.vocab_size, (sequences, length), generator=random)  # may also draw the padding token's id, as an ordinary token
    mask = torch.ones_like(ids)
    for row, n in enumerate(real or []):
        pads = slice(n, None) if side == "right" else slice(0, length - n)
        mask[row, pads] = 0
    ids[mask == 0] = config.pad_token_id
    labels = torch.where(mask == 1, ids, -100)
    for row, n in enumerate(real or []):
        if side == "left" and n < length:
            labels[row, length - n] = -100  # no label, otherwise the last padding token would have to predict the first token
    return ids, mask, labels


def outcome(model, ids, mask, labels):
    model.zero_grad()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, labels=labels, use_cache=False)
    out.loss.backward()
    return out.logits.detach(), out.loss.detach(), {name: p.grad for name, p in model.named_parameters()}


@torch.no_grad()
def greedy(model, prompt):
    """Greedy continuation without a KV cache, and the smallest lead of a chosen token."""
    text, margin = prompt.clone(), math.inf
    for _ in range(new_tokens):
        logits = model(input_ids=text[None], use_cache=False).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        margin = min(margin, (first - second) / logits.abs().max().item())
        text = torch.cat([text, logits.argmax()[None]])
    return text[len(prompt):], margin


def generated(model, prompt):
    model.generation_config.eos_token_id = None
    out = model.generate(prompt[None], do_sample=False, max_new_tokens=new_tokens, attention_mask=torch.ones_like(prompt)[None])
    return out[0, len(prompt):]


def text_of(config, weights, seed):
    """A prompt whose greedy continuation is well determined and no short loop."""
    model = model_of(config, weights)
    for attempt in range(200):
        random = torch.Generator().manual_seed(seed + 2000 + attempt)
        prompt = torch.randint(1, config.vocab_size, (11,), generator=random)
        tokens, margin = greedy(model, prompt)
        if margin > 2e-4 and len(set(tokens[-24:].tolist())) >= 6:
            break
    else:
        raise SystemExit("no prompt gives a sure and varied continuation")
    cached = generated(model, prompt)
    if not torch.equal(cached, tokens):
        first = int((cached != tokens).nonzero()[0])
        print(f"    generate() with its KV cache differs from the argmax without a cache at token {first}")
    return prompt, tokens, margin


def write_case(name, seed):
    changes, sequences, length, *padding = cases[name]
    real, side = padding or (None, None)
    config = config_of(changes)
    weights = drawn(config, seed, starts.get(name))
    ids, mask, labels = batch_of(config, seed, sequences, length, real, side)
    expected = {"input_ids": ids, "labels": labels}
    if real:
        expected["attention_mask"] = mask
    results = {"fp32": outcome(model_of(config, weights), ids, mask, labels)}
    with widened():
        results["fp64"] = outcome(model_of(config_of(changes), weights), ids, mask, labels)
    for precision, (logits, loss, gradients) in results.items():
        wanted = {"fp32": torch.float32, "fp64": torch.float64}[precision]
        assert all(x.dtype == wanted for x in (logits, loss, *gradients.values())), precision
        expected[f"logits.{precision}"], expected[f"loss.{precision}"] = logits, loss.reshape(1)
        expected.update({f"gradient.{precision}.{weight}": g for weight, g in gradients.items()})
    prompt, tokens, margin = text_of(config, weights, seed)
    expected.update(prompt=prompt, generated=tokens, margin=torch.tensor([margin], dtype=torch.float64))

    folder = here / name
    model = model_of(config, weights)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    safetensors.torch.save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors", metadata={
        "torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]})
    for file in folder.iterdir():
        file.chmod(0o644)
    reread = transformers.FalconH1ForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    again = outcome(reread, ids, mask, labels)[0]
    assert torch.equal(again, results["fp32"][0]), "from_pretrained reads another model"
    gap = ((results["fp32"][0].double() - results["fp64"][0]).abs() * (mask[..., None] == 1)).max() / results["fp64"][0].abs().max()
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {results['fp64'][1].item():.6f}, "
          f"logits to {results['fp64'][0].abs().max().item():.2f}, fp32 off by {gap:.1e}, margin {margin:.1e}", flush=True)


def reordered(tensors, order):
    """Weights or gradients of the same model with permuted hidden channels, which changes the rounding of sums."""
    changed = {}
    for name, x in tensors.items():
        if any(part in name for part in ("layernorm", ".o_proj.", ".out_proj.", ".down_proj.")):
            x = x[order]
        elif x.ndim == 2 and "conv1d" not in name:
            x = x[:, order]
        changed[name] = x.contiguous().clone()
    return changed


def accuracy_of(name, orders=16):
    """Relative error of the fp32 gradients, by kind of weight over all layers: norm of the difference to fp64 divided by the norm. It is the
    root mean square over several permutations of the hidden channels, because a single one depends on chance."""
    folder = here / name
    expected = safetensors.torch.load_file(folder / "expected.safetensors")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    config = config_of(cases[name][0])
    ids, labels = expected["input_ids"], expected["labels"]
    mask = expected.get("attention_mask", torch.ones_like(ids))
    begin = "gradient.fp64."
    exact = {key.removeprefix(begin): x for key, x in expected.items() if key.startswith(begin)}
    random = torch.Generator().manual_seed(1)
    apart, length = {}, {}
    for number in range(orders):
        order = torch.randperm(config.hidden_size, generator=random) if number else torch.arange(config.hidden_size)
        gradients = outcome(model_of(config, reordered(weights, order)), ids, mask, labels)[2]
        for weight, x in reordered(exact, order).items():
            kind = weight.split(".", 3)[3] if weight.startswith("model.layers.") else weight
            apart[kind] = apart.get(kind, 0) + (gradients[weight].double() - x).square().sum().item()
            length[kind] = length.get(kind, 0) + x.square().sum().item()
    return {kind: float(f"{math.sqrt(apart[kind] / length[kind]):.3e}") for kind in sorted(apart)}


def write_accuracy(names):
    file = here.parent / "huggingface_accuracy.json"
    known = json.loads(file.read_text())["errors"] if file.exists() else {}
    for name in names:
        known[name] = accuracy_of(name)
        print(f"{name}: {max(known[name].values()):.1e}", flush=True)
    about = f"fp32 against fp64, torch {torch.__version__}, transformers {transformers.__version__}; written by huggingface.py --accuracy"
    file.write_text(json.dumps({"about": about, "errors": known}, indent=1, sort_keys=True) + "\n")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    asked = [word for word in sys.argv[1:] if word != "--accuracy"] or list(cases)
    if "--accuracy" in sys.argv:
        return write_accuracy(asked)
    for seed, name in enumerate(cases):
        if name in asked:
            write_case(name, 31 * seed + 1)


if __name__ == "__main__":
    main()
