"""The draft module: two norms, a projection and one Llama block, over the target's embedding and head.

Slot t reads the target's state h_t (after its final norm) and the embedding of x_{t+1}; its normed output
y_t predicts x_{t+2} through the target's head. From depth 2 on, the module's own output replaces h.
If the module has a matrix `fuse`, it adds the target's stream after some of its blocks to h_t (EAGLE-3).
"""

import torch
import torch.nn.functional as F
from torch import nn

torch._dynamo.config.recompile_limit = 64   # one for each depth, with gradients and without

NORMS = ("enorm", "hnorm", "n1", "n2", "norm")


def rms(x, weight, eps):
    return F.rms_norm(x.float(), weight.shape, weight, eps)


# Compiled, the operations between two products pass memory once: 1.5 times the chain starts per second of a CPU.
@torch.compile(dynamic=True)
def projection(hidden, embedded, hnorm, enorm, proj, eps, dtype):
    both = torch.cat([rms(embedded, enorm, eps), rms(hidden, hnorm, eps)], -1)
    return F.linear(both.to(dtype), proj.to(dtype)).float()


@torch.compile(dynamic=True)
def normed(x, weight, eps, dtype):
    return rms(x, weight, eps).to(dtype)


@torch.compile(dynamic=True)
def rest_of_block(x, attended, o, n2, gate, up, down, norm, eps, dtype):
    x = x + F.linear(attended, o.to(dtype))
    b = rms(x, n2, eps).to(dtype)
    inner = F.silu(F.linear(b, gate.to(dtype))) * F.linear(b, up.to(dtype))
    return rms(x + F.linear(inner, down.to(dtype)), norm, eps)


@torch.compile(dynamic=True)
def attention(q, keys, values):
    """q [B, heads, T, head_dim] attends causally to the first of `keys`, and in the others each slot only to itself, which
    is one product and no matrix. (Plain products, because PyTorch's fused attention with a mask takes three times as long on
    a CPU.)"""
    B, heads, T, d = q.shape
    kv = keys[0].shape[1]
    grouped = (q * d**-0.5).view(B, kv, heads // kv, T, d)
    together = lambda x: x.reshape(B, kv, -1, x.shape[-1])   # queries that share keys
    scores = (together(grouped) @ keys[0].transpose(-1, -2)).view(B, kv, -1, T, T).float()
    place = torch.arange(T, device=q.device)
    scores = torch.where(place > place[:, None], float("-inf"), scores)
    own = [(grouped * k.unsqueeze(2)).sum(-1, keepdim=True).float() for k in keys[1:]]
    weights = torch.cat([scores, *own], -1).softmax(-1).to(q.dtype)
    out = (together(weights[..., :T]) @ values[0]).view(grouped.shape)
    for i, v in enumerate(values[1:]):
        out = out + weights[..., T + i : T + i + 1] * v.unsqueeze(2)
    return out.view(q.shape)


class Module(nn.Module):
    def __init__(self, shape, layers):
        """`layers` is the number of the target's layers that are read besides its final state."""
        super().__init__()
        self.shape, self.layers = shape, layers
        s = shape
        sizes = dict(proj=(s.hidden, 2 * s.hidden), q=(s.heads * s.head_dim, s.hidden), k=(s.kv_heads * s.head_dim, s.hidden), v=(s.kv_heads * s.head_dim, s.hidden),
                     o=(s.hidden, s.heads * s.head_dim), gate=(s.inner, s.hidden), up=(s.inner, s.hidden), down=(s.hidden, s.inner))
        if layers:
            sizes["fuse"] = (s.hidden, layers * s.hidden)
        self.matrices = tuple(sizes)
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(size)))
        for name in NORMS:
            self.register_parameter(name, nn.Parameter(torch.ones(s.hidden)))
        self.register_buffer("frequencies", 1.0 / (s.theta ** (torch.arange(0, s.head_dim, 2).float() / s.head_dim)), persistent=False)

    def start_from(self, target):
        """Copies the target's last block; train.py computes the projection."""
        with torch.no_grad():
            for name, weight in target.layer(target.layers - 1).items():
                getattr(self, name).copy_(weight)
            self.norm.copy_(target.norm)

    def fed(self, hidden, layers, dtype):
        """The states that slots read: hidden [B, T, d], layers [B, T, layers · d], each state with mean square 1."""
        if not self.layers:
            return hidden
        return hidden + F.linear(layers.to(dtype), self.matrix("fuse", dtype)).float()

    def matrix(self, name, dtype):
        return getattr(self, name).to(dtype)

    def rotate(self, x, positions):
        """x [B, heads, T, head_dim], positions [T]: dimension i is rotated with i + head_dim / 2."""
        angle = positions[:, None].float() * self.frequencies
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def project(self, hidden, embedded, dtype):
        return projection(hidden, embedded, self.hnorm, self.enorm, self.proj, self.shape.eps, dtype)

    def attend(self, x, rows, past):
        """Attention of x [n, d], at `rows` of the grid, over all slots of `past`; returns [n, d] before the output matrix."""
        s, dtype = self.shape, past.dtype
        a = normed(x, self.n1, s.eps, dtype)
        heads = lambda name, count: rows.grid(F.linear(a, self.matrix(name, dtype)).view(-1, count, s.head_dim))
        positions = past.positions()
        q = self.rotate(heads("q", s.heads), positions)
        past.keys.append(self.rotate(heads("k", s.kv_heads), positions))
        past.values.append(heads("v", s.kv_heads))
        return past.read_by(q)

    def finish(self, x, attended, dtype):
        """The rest of the block; returns the normed output."""
        return rest_of_block(x, attended, self.o, self.n2, self.gate, self.up, self.down, self.norm, self.shape.eps, dtype)


def whole(n, multiple):
    """The largest multiple up to n; n itself if it is less than one. Each other number of rows would be compiled again,
    which took an eighth of a CPU's time."""
    return n // multiple * multiple or n


class Rows:
    """Some slots of a grid [B, T]: most operations run on these rows only, attention on the grid."""

    def __init__(self, chosen, multiple=1):
        """Drops the last chosen slots, so that their number is a multiple of `multiple`."""
        self.chosen = chosen
        b, t = chosen.nonzero(as_tuple=True)
        n = whole(len(b), multiple)
        self.b, self.t = b[:n], t[:n]

    def grid(self, x):
        """Puts x [n, heads, head_dim] into the grid, [B, heads, T, head_dim]; zero elsewhere."""
        B, T = self.chosen.shape
        out = x.new_zeros(B, T, *x.shape[1:])
        return out.index_put((self.b, self.t), x).transpose(1, 2)

    def of(self, grid):
        """Values of a grid [B, T, …] at the rows."""
        return grid[self.b, self.t]

    def attended(self, o):
        """Attention's outputs [B, heads, T, head_dim] at the rows, [n, heads · head_dim]."""
        return o[self.b, :, self.t].flatten(1)


class Past:
    """Keys and values of every depth so far, [B, kv_heads, T, head_dim] each. A chain that starts at t attends to all
    depth-1 slots up to t, and to its own later slots."""

    def __init__(self, T, dtype, device):
        self.dtype, self.keys, self.values = dtype, [], []
        self.T, self.device = T, device

    def positions(self):
        """Positions of the depth that is being added."""
        return torch.arange(self.T, device=self.device) + len(self.values)

    def read_by(self, q):
        """Attention of q [B, heads, T, head_dim] of the last depth."""
        return attention(q, self.keys, self.values)
