"""states: computes the target's residual stream after some of its blocks, for all tokens of all shards.

    python -m mtp_training.states [train.threads=1]

A module that reads several of the target's layers (EAGLE-3, Li et al. 2025) needs more than the final state. If shards of
`draftscope generate` were made with the same layers, they already have these states, and nothing is done here. Otherwise
the conversations run through the target once more, in bf16. Each state is divided by its root mean square and stored as
f16, side by side, one file per shard. Existing files are kept.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

from . import shards
from .config import load
from .target import Target

ROWS = 4096   # tokens per pass, padding included


def after_blocks(config, layers):
    """The numbers of blocks after which states are read."""
    return [round(share * layers) for share in config["train"]["hidden_layers"]]


def folder(config, wanted):
    return config.data / ("states-" + "-".join(map(str, wanted)))


def path(config, wanted, shard):
    return folder(config, wanted) / (shard.name.removesuffix(".safetensors") + ".npy")


@torch.compile(dynamic=True)
def block(x, w, angles, shape):
    """x [B, T, d] f32 through one block, weights in bf16."""
    heads, kv_heads, head_dim, eps = shape
    B, T, _ = x.shape
    cos, sin = angles

    def rotated(y):
        a, b = y.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).bfloat16()

    a = F.rms_norm(x, w["n1"].shape, w["n1"], eps).bfloat16()
    split = lambda name, count: F.linear(a, w[name]).view(B, T, count, head_dim).transpose(1, 2)
    q, k, v = rotated(split("q", heads)), rotated(split("k", kv_heads)), split("v", kv_heads)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(o.transpose(1, 2).reshape(B, T, -1), w["o"])
    b = F.rms_norm(x, w["n2"].shape, w["n2"], eps).bfloat16()
    return x + F.linear(F.silu(F.linear(b, w["gate"])) * F.linear(b, w["up"]), w["down"])


class Stream:
    """The target's residual stream."""

    def __init__(self, target):
        self.target, self.s = target, target.shape
        self.embedding = target.embedding.bfloat16()
        narrow = lambda weight: weight if weight.dim() == 1 else weight.bfloat16()
        self.blocks = [{name: narrow(weight) for name, weight in target.layer(i).items()} for i in range(target.layers)]
        self.frequencies = 1.0 / (self.s.theta ** (torch.arange(0, self.s.head_dim, 2).float() / self.s.head_dim)) / target.frequency_factors

    @torch.no_grad()
    def __call__(self, tokens, wanted):
        """tokens [B, T]; returns the states after each of the `wanted` numbers of blocks, [B, T, d] f32 each."""
        s = self.s
        x = F.embedding(tokens, self.embedding).float()
        found = {0: x}
        angle = torch.arange(tokens.shape[1])[:, None].float() * self.frequencies
        for i, w in enumerate(self.blocks[: max(wanted)], 1):
            x = block(x, w, (angle.cos(), angle.sin()), (s.heads, s.kv_heads, s.head_dim, s.eps))
            if i in wanted:
                found[i] = x
        return [found[i] for i in wanted]


def batches(conversations):
    """Indices of conversations, batched by similar length."""
    batch = []
    for i in sorted(range(len(conversations)), key=lambda i: len(conversations[i].tokens)):
        if batch and (len(batch) + 1) * len(conversations[i].tokens) > ROWS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def grid(conversations):
    tokens = torch.zeros(len(conversations), max(len(c.tokens) for c in conversations), dtype=torch.long)
    for row, c in enumerate(conversations):
        tokens[row, : len(c.tokens)] = torch.from_numpy(c.tokens.astype(np.int64))
    return tokens


def check(stream, conversations):
    """Checks the final states against those of the program: with another architecture, a module would train on noise."""
    some = max(conversations, key=lambda c: len(c.tokens))   # far positions show a wrong rotation
    (last,) = stream(grid([some]), [stream.target.layers])
    ours, theirs = F.rms_norm(last, stream.target.norm.shape, stream.target.norm, stream.s.eps)[0], torch.from_numpy(some.hidden.copy()).float()
    error = float((ours - theirs).norm() / theirs.norm())
    assert error < 0.15, f"the computed states of the target differ from the program's by {error:.2f}: set hidden_layers = [] in training/config.toml"


def claimed(config, target):
    """The wanted blocks; claims their folder for the shards' plan."""
    wanted = after_blocks(config, target.layers)
    if wanted:
        folder(config, wanted).mkdir(exist_ok=True)
        plan, of = config.data / "shards/plan.json", folder(config, wanted) / "plan.json"
        if not of.exists():
            of.write_bytes(plan.read_bytes())
        assert of.read_bytes() == plan.read_bytes(), f"{of.parent} has states of other conversations; delete it"
    return wanted


def write(out, states):
    part = out.with_suffix(".part.npy")
    np.save(part, states)
    part.rename(out)


def compute(config):
    torch.set_num_threads(config["train"]["threads"])
    target = Target(config["train"]["gguf"])
    wanted = after_blocks(config, target.layers)
    if wanted == shards.within(config.data):
        return
    stream = Stream(target)
    claimed(config, target)
    checked, begun, tokens = False, time.time(), 0
    for shard in shards.paths(config.data):
        out = path(config, wanted, shard)
        if out.exists():
            continue
        conversations = shards.read(shard)
        if not checked:
            check(stream, conversations)
            checked = True
        starts = np.cumsum([0] + [len(c.tokens) for c in conversations])
        states = np.empty((starts[-1], len(wanted) * stream.s.hidden), np.float16)
        for batch in batches(conversations):
            found = stream(grid([conversations[i] for i in batch]), wanted)
            unit = torch.cat([F.rms_norm(x, x.shape[-1:], None, stream.s.eps) for x in found], -1).half().numpy()
            for row, i in enumerate(batch):
                n = len(conversations[i].tokens)
                states[starts[i] : starts[i] + n] = unit[row, :n]
        write(out, states)
        tokens += len(states)
        print(json.dumps(dict(event="states", shard=shard.name, tokens=tokens, tokens_per_s=round(tokens / (time.time() - begun)))), flush=True)


if __name__ == "__main__":
    compute(load(sys.argv[1:]))
