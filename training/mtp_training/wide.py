"""Runs the target over rows of hundreds of conversations at once, in bf16, each with its own keys and values.

A row is one token of one conversation; several rows of one conversation may run together (its prompt). Matrices are packed
once for the processor's matrix units, and attention is C++ (attention.cpp, compiled on first use), because PyTorch's takes
six times as long for single queries. On a GPU, both are PyTorch's.
"""

import ctypes
import hashlib
import os
import subprocess
from pathlib import Path

import torch
import torch.nn.functional as F

from .states import Stream

ROWS = 64   # the number of rows is a multiple of this: each other number would be compiled again


def compiled(cache):
    """The attention kernel for this processor, built once per version of its source."""
    source = Path(__file__).with_name("attention.cpp")
    flags = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-shared", "-fPIC"]
    built = cache / f"attention-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}.part")
        subprocess.run(["c++", *flags, source, "-o", part], check=True)
        part.rename(built)
    return ctypes.CDLL(str(built)).attend


class Matrix:
    """A weight [out, in], in the layout that is fastest on the device."""

    def __init__(self, weight, rows):
        weight = weight.bfloat16().contiguous()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows) if weight.device.type == "cpu" else weight

    def __call__(self, x):
        if self.packed.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return F.linear(x, self.packed)


@torch.compile(dynamic=True)
def normed(x, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps).bfloat16()


@torch.compile(dynamic=True)
def added(x, y, weight, eps):
    """The stream after a part of a block, and the input of the next part."""
    x = x + y
    return x, F.rms_norm(x, weight.shape, weight, eps).bfloat16()


@torch.compile(dynamic=True)
def gated(both):
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


@torch.compile(dynamic=True)
def unit(x, eps):
    return F.rms_norm(x, x.shape[-1:], None, eps).half()


class Kept:
    """Keys and values of all slots, for the C++ kernel."""

    def __init__(self, s, layers, slots, ctx, kernel):
        self.s, self.ctx, self.kernel = s, ctx, kernel
        self.keys, self.values = ([torch.zeros(slots, s.kv_heads, ctx * s.head_dim, dtype=torch.bfloat16) for _ in range(layers)] for _ in range(2))

    def attend(self, layer, qkv, slots, positions, cos, sin):
        """qkv [rows, …]; returns [rows, heads · head_dim] and stores keys and values."""
        s, out = self.s, torch.empty(len(qkv), self.s.heads * self.s.head_dim, dtype=torch.bfloat16)
        at = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        sizes = (s.heads, s.kv_heads, s.head_dim, self.ctx)
        failed = self.kernel(at(qkv), ctypes.c_int64(len(qkv)), at(slots), at(positions), at(cos), at(sin), at(self.keys[layer]), at(self.values[layer]), at(out), *sizes)
        assert not failed, f"the kernel does not support the sizes {sizes}"
        return out


class Plain:
    """The same in plain PyTorch."""

    def __init__(self, s, layers, slots, ctx, device):
        self.s = s
        self.keys, self.values = ([torch.zeros(slots, ctx, s.kv_heads, s.head_dim, dtype=torch.bfloat16, device=device) for _ in range(layers)] for _ in range(2))

    def attend(self, layer, qkv, slots, positions, cos, sin):
        s, keys, values = self.s, self.keys[layer], self.values[layer]
        q, k, v = qkv.view(len(qkv), -1, s.head_dim).split([s.heads, s.kv_heads, s.kv_heads], 1)

        def rotated(x):
            a, b = x.float().chunk(2, -1)
            c, d = cos[positions][:, None], sin[positions][:, None]
            return torch.cat([a * c - b * d, b * c + a * d], -1).bfloat16()

        keys[slots, positions], values[slots, positions] = rotated(k), v
        reach = int(positions.max()) + 1
        seen = torch.arange(reach, device=qkv.device) <= positions[:, None]
        mine = lambda x: x[slots, :reach].transpose(1, 2)
        o = F.scaled_dot_product_attention(rotated(q)[:, :, None], mine(keys), mine(values), attn_mask=seen[:, None, None], enable_gqa=True)
        return o.reshape(len(qkv), -1)


class Wide(Stream):
    """The target for `slots` conversations of up to `ctx` tokens."""

    def __init__(self, target, slots, ctx, wanted, device, cache):
        """`wanted` are the blocks after which the stream is returned; compiled code is stored in the folder `cache`."""
        super().__init__(target)
        s, self.wanted, self.device = self.s, wanted, device
        put = lambda w: w.to(device)
        matrix = lambda *parts: Matrix(put(torch.cat(parts)), 4 * ROWS)
        self.blocks = [dict(n1=put(w["n1"]), n2=put(w["n2"]), qkv=matrix(w["q"], w["k"], w["v"]), o=matrix(w["o"]), both=matrix(w["gate"], w["up"]), down=matrix(w["down"])) for w in self.blocks]
        self.embedding, self.norm, self.head = put(self.embedding), put(target.norm), matrix(target.head)
        angle = torch.arange(ctx)[:, None].float() * self.frequencies
        self.cos, self.sin = put(angle.cos().contiguous()), put(angle.sin().contiguous())
        self.past = Kept(s, target.layers, slots, ctx, compiled(cache)) if device.type == "cpu" else Plain(s, target.layers, slots, ctx, device)

    @torch.no_grad()
    def __call__(self, tokens, slots, positions):
        """Runs rows, [rows] i64 each. Returns the states after the final norm [rows, d] bf16, and those after the `wanted`
        blocks, each with mean square 1, side by side [rows, layers · d] f16."""
        eps, found = self.s.eps, []
        x = F.embedding(tokens, self.embedding).float()
        a = normed(x, self.blocks[0]["n1"], eps)
        for i, w in enumerate(self.blocks):
            o = self.past.attend(i, w["qkv"](a), slots, positions, self.cos, self.sin)
            x, b = added(x, w["o"](o), w["n2"], eps)
            x, a = added(x, w["down"](gated(w["both"](b))), self.blocks[i + 1]["n1"] if i + 1 < len(self.blocks) else self.norm, eps)
            if i + 1 in self.wanted:
                found.append(unit(x, eps))
        return a, torch.cat(found, -1) if found else None

    @torch.no_grad()
    def logits(self, states):
        """[rows, d] to [rows, vocab], both bf16."""
        return self.head(states)
