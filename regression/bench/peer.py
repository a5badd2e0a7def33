# SPDX-License-Identifier: BSD-3-Clause
# Times training steps of the models of input/falcon-h1-73m.yaml and input/gpt2-124m.yaml in PyTorch with transformers,
# on CPU: forward, backward and AdamW, in fp32 or with autocast to bf16, on random tokens. For comparison only; see
# peer.sh.
import argparse
import statistics
import time

import torch
import transformers


def falcon_h1():
    config = transformers.FalconH1Config(
        vocab_size=32768, hidden_size=512, intermediate_size=1024, num_hidden_layers=12,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=16384,
        mamba_d_ssm=768, mamba_n_heads=12, mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128, mamba_d_conv=4,
        mamba_chunk_size=128, mamba_rms_norm=False, mamba_norm_before_gate=False, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e11}, pad_token_id=0, bos_token_id=1, eos_token_id=11,
        embedding_multiplier=5.656854249492381, lm_head_multiplier=0.078125,
        attention_in_multiplier=1.0, key_multiplier=1.5625, attention_out_multiplier=3.75,
        ssm_in_multiplier=2.5, ssm_out_multiplier=0.47140452079103173,
        ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
        mlp_multipliers=[1.7677669529663689, 2.34375], use_cache=False)
    return transformers.FalconH1ForCausalLM(config)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))


models = {"falcon-h1-73m": falcon_h1, "gpt2-124m": gpt2}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="falcon-h1-73m", choices=models)
    parser.add_argument("--batch", type=int, default=2, help="sequences per step")
    parser.add_argument("--length", type=int, default=1024, help="tokens per sequence")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="timed steps, after one warm-up step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    net = models[args.model]().float().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    parameters = sum(p.numel() for p in net.parameters())
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.threads} threads, "
          f"{parameters} parameters, {args.batch} x {args.length} tokens", flush=True)

    def step():
        tokens = torch.randint(1, 32768, (args.batch, args.length))
        start, used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = net(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times = time.perf_counter() - start, time.process_time() - used
        print(f"  loss {loss.item():.4f} in {times[0]:.2f} s, {times[1]:.2f} processor seconds", flush=True)
        return times

    step()
    seconds, used = zip(*(step() for _ in range(args.steps)))
    print(f"seconds per step: {statistics.median(seconds):.3f}")
    print(f"processor seconds per step: {statistics.median(used):.3f}")


main()
