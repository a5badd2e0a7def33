# SPDX-License-Identifier: BSD-3-Clause
# Times PyTorch's counterparts of the kernels of rates.cpp on a GPU, and prints a line of JSON for each, with the same names. For comparison only; see gpu.sh.
#   peer.py LENGTH...
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

TOKENS, HIDDEN, WIDE, HEADS, KV_HEADS, HEAD_DIM = 16384, 2048, 4608, 8, 2, 128
SSM_HEADS, SSM_HEAD_DIM, STATE, CHUNK, VOCAB, LOGITS, PRODUCT, PARAMETERS, COPIED = 48, 64, 256, 128, 65536, 1024, 8192, 1 << 27, 1 << 27


def seconds_of(body, window=0.05, windows=7):
    """Seconds per call in the median window; each window starts and ends with torch.cuda.synchronize()."""
    for _ in range(3):
        body()
    times = []
    for _ in range(windows):
        torch.cuda.synchronize()
        start, calls = time.perf_counter(), 0
        while True:
            for _ in range(max(1, calls)):
                body()
            calls += max(1, calls)
            torch.cuda.synchronize()
            if time.perf_counter() - start >= window:
                break
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def normal(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def forward_and_backward(report, name, function, inputs):
    """Times function(*inputs) without gradients, and only the backward pass on a retained graph."""
    with torch.no_grad():
        report(name + "_forward", lambda: function(*inputs))
    out = function(*inputs)
    dout = torch.randn_like(out)
    wanted = [x for x in inputs if x.requires_grad]
    report(name + "_backward", lambda: torch.autograd.grad(out, wanted, dout, retain_graph=True))


def attention(report, batch, length):
    q = normal(batch, HEADS, length, HEAD_DIM, grad=True)
    k, v = (normal(batch, KV_HEADS, length, HEAD_DIM, grad=True) for _ in range(2))
    forward_and_backward(report, "attention",
                         lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), [q, k, v])


def scan(report, batch, length):
    """Times the fused scan of mamba_ssm if it is installed; otherwise the chunked matmuls of transformers' fallback, without its loops."""
    x, dt = normal(batch, length, SSM_HEADS, SSM_HEAD_DIM, grad=True), normal(batch, length, SSM_HEADS, grad=True)
    b, c = (normal(batch, length, 1, STATE, grad=True) for _ in range(2))
    a, d = -torch.ones(SSM_HEADS, device="cuda"), torch.ones(SSM_HEADS, device="cuda")
    bias = torch.full((SSM_HEADS,), -2.0, device="cuda")
    try:
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

        function = lambda x, dt, b, c: mamba_chunk_scan_combined(x, dt, a, b, c, CHUNK, D=d, dt_bias=bias, dt_softplus=True)
    except ImportError:
        function = torch.compile(lambda x, dt, b, c: chunked_scan(x, F.softplus(dt.float() + bias), a, b, c, d))
    forward_and_backward(report, "scan", function, [x, dt, b, c])


def chunked_scan(x, dt, a, b, c, d):
    """Mamba-2's SSD scan as matmuls over chunks; one group. x (B, T, H, P), dt (B, T, H), b and c (B, T, 1, N)."""
    batch, length, heads, width = x.shape
    cut = lambda t: t.reshape(batch, length // CHUNK, CHUNK, *t.shape[2:])
    xc, bc, cc = cut(x * dt.to(x.dtype)[..., None]), cut(b[:, :, 0]), cut(c[:, :, 0])
    sums = cut(dt * a).cumsum(2)
    between = (sums[:, :, :, None] - sums[:, :, None]).permute(0, 1, 4, 2, 3)
    seen = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
    decay = between.masked_fill(~seen, -math.inf).exp()
    scores = torch.einsum("bkqn,bksn->bkqs", cc, bc)[:, :, None] * decay
    inside = torch.einsum("bkhqs,bkshp->bkqhp", scores.to(x.dtype), xc)
    left = (sums[:, :, -1:] - sums).exp().to(x.dtype)
    states = torch.einsum("bksn,bksh,bkshp->bkhpn", bc, left, xc).float()
    ends = F.pad(sums[:, :, -1], (0, 0, 1, 0)).cumsum(1)
    across = (ends[:, :, None] - ends[:, None]).permute(0, 3, 1, 2)
    chunks = across.shape[-1]
    before = torch.ones(chunks, chunks, dtype=torch.bool, device=x.device).tril()
    carry = across.masked_fill(~before, -math.inf).exp()[:, :, :-1, 1:]
    carry = torch.where(before[:-1, 1:], carry, torch.zeros_like(carry))
    initial = torch.einsum("bhkj,bjhpn->bkhpn", carry, states)
    outside = torch.einsum("bkqn,bkhpn,bkqh->bkqhp", cc, initial.to(x.dtype), sums.exp().to(x.dtype))
    return (inside + outside).reshape(batch, length, heads, width) + d[:, None].to(x.dtype) * x


def rows(report):
    x, w = normal(TOKENS, HIDDEN, grad=True), normal(HIDDEN, grad=True)
    forward_and_backward(report, "rmsnorm", lambda x, w: F.rms_norm(x, (HIDDEN,), w, 1e-5), [x, w])
    gate_up = normal(TOKENS, 2 * WIDE, grad=True)
    swiglu = torch.compile(lambda t: F.silu(0.7 * t[:, :WIDE]) * t[:, WIDE:])
    forward_and_backward(report, "swiglu", swiglu, [gate_up])
    table, tokens = normal(VOCAB, HIDDEN), torch.randint(VOCAB, (TOKENS,), device="cuda")
    report("embedding_forward", lambda: F.embedding(tokens, table))
    y, more = normal(TOKENS, HIDDEN), normal(TOKENS, HIDDEN)
    report("residual", lambda: y.add_(more))


def products(report):
    a, b = normal(PRODUCT, PRODUCT), normal(PRODUCT, PRODUCT)
    report("product", lambda: a @ b.t())
    torch.backends.cuda.matmul.allow_tf32 = False
    a32, b32 = normal(PRODUCT, PRODUCT, dtype=torch.float32), normal(PRODUCT, PRODUCT, dtype=torch.float32)
    report("product_fp32", lambda: a32 @ b32.t())
    x, w, dy = normal(TOKENS, HIDDEN), normal(2 * WIDE, HIDDEN), normal(TOKENS, 2 * WIDE)
    report("layer_forward", lambda: x @ w.t())
    report("layer_backward", lambda: (dy @ w, dy.t() @ x))
    source, target = normal(COPIED, dtype=torch.float32), normal(COPIED, dtype=torch.float32)
    report("copy", lambda: target.copy_(source))


def optimizer(report):
    w = torch.nn.Parameter(normal(PARAMETERS, dtype=torch.float32))
    w.grad = normal(PARAMETERS, dtype=torch.float32)
    adamw = torch.optim.AdamW([w], lr=1e-4, fused=True)
    report("adamw", adamw.step)
    report("norm_of_gradients", lambda: torch.linalg.vector_norm(w.grad))
    logits, labels = normal(LOGITS, VOCAB, dtype=torch.float32, grad=True), torch.randint(VOCAB, (LOGITS,), device="cuda")
    report("cross_entropy", lambda: torch.autograd.grad(F.cross_entropy(logits, labels), logits))


def main():
    lengths = [int(word) for word in sys.argv[1:]] or [4096]

    for length in lengths:
        def report(name, body):
            try:
                seconds = seconds_of(body)
            except Exception as error:  # continue with the other kernels if one is not available
                print(f"{name}: {error}", file=sys.stderr)
                return
            print(json.dumps({"kernel": name, "length": length, "seconds": seconds}), flush=True)

        attention(report, TOKENS // length, length)
        scan(report, TOKENS // length, length)
        if length == lengths[0]:
            products(report)
            rows(report)
            optimizer(report)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
