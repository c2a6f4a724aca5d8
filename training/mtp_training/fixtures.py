"""fixtures: computes reference values for the program's tests from a module's files, in plain f32 arithmetic.

    python -m mtp_training.fixtures MODULE OUT [train.key=value …]

MODULE is a folder for `--mtp`, with `mtp.safetensors` or `mtp.fp8.safetensors`. The target's weights are widened from its
GGUF file and the module's from its own; every text is computed from its first token without a cache. The code is
independent of training and of the program: if they disagree, one of the three is wrong. It writes in OUT:

    parity.safetensors  for each prompt N: `N.mtp1_hidden` [T, d], the module's states; `N.mtp1_logits_last` and `N.mtpJ_logits`,
                        [tokens that may be drafted] each, of a chain of J = 1…4 after the last slot; if the module reads only
                        the target's last state, also `N.hidden` [T, d], `N.last_logits` [v], `N.top_ids` and `N.top_values`
                        [T, 32] of the target
    parity.json         the prompts' token ids, the target's next token, the four that the module drafts
    golden.json         draft and verify (greedy, k = 4): for each round the drafts and the number accepted

The prompts are those of the files that are in OUT, whose greedy answers must be reproduced.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from .config import load
from .export import names
from .target import Target

DRAFTS = 4
LONGEST = 96   # tokens of an answer in golden.json
END = 2


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def block(x, w, shape):
    """x [T, d] at positions 0…T−1 through one Llama block."""
    T, pairs = len(x), shape.head_dim // 2
    angle = torch.arange(T)[:, None].float() * shape.theta ** (-torch.arange(pairs).float() / pairs)

    def rotated(y):
        a, b = y.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    a = rms(x, w["n1"], shape.eps)
    heads = lambda name, count: (a @ w[name].T).view(T, count, shape.head_dim).transpose(0, 1)
    q, k, v = rotated(heads("q", shape.heads)), rotated(heads("k", shape.kv_heads)), heads("v", shape.kv_heads)
    k, v = (y.repeat_interleave(shape.heads // shape.kv_heads, 0) for y in (k, v))
    scores = (q @ k.transpose(1, 2)) / shape.head_dim**0.5
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    x = x + (scores.softmax(-1) @ v).transpose(0, 1).reshape(T, -1) @ w["o"].T
    b = rms(x, w["n2"], shape.eps)
    return x + (F.silu(b @ w["gate"].T) * (b @ w["up"].T)) @ w["down"].T


class Reference:
    """The target and one module over it, in f32."""

    def __init__(self, target, folder):
        config = json.loads((folder / "config.json").read_text())
        self.shape, self.norm = target.shape, target.norm
        self.embedding, self.head = target.embedding, target.head
        self.blocks = [target.layer(i) for i in range(target.layers)]
        (file,) = folder.glob("mtp*.safetensors")
        stored = load_file(file)
        self.w = {ours: widened(stored, theirs) for ours, theirs in names().items() if theirs in stored}
        self.vocab = stored["mtp.draft_vocab"]
        self.layers, self.room = config.get("hidden_layers", []), config.get("context_vocab_size", 0)

    def target(self, tokens):
        """(logits [T, v], the states that slots read [T, d])."""
        x, extra = self.embedding[torch.tensor(tokens)], []
        for i, w in enumerate(self.blocks, 1):
            x = block(x, w, self.shape)
            if i in self.layers:
                extra.append(x / x.pow(2).mean(-1, keepdim=True).sqrt())
        h = rms(x, self.norm, self.shape.eps)
        fed = h + torch.cat(extra, -1) @ self.w["fuse"].T if extra else h
        return h @ self.head.T, fed

    def module(self, fed, tokens):
        """States [T, d] of slots that read these rows and tokens."""
        w, eps = self.w, self.shape.eps
        both = torch.cat([rms(self.embedding[torch.tensor(tokens)], w["enorm"], eps), rms(fed, w["hnorm"], eps)], -1)
        return rms(block(both @ w["proj"].T, w, self.shape), w["norm"], eps)

    def proposed(self, tokens):
        """Tokens that may be drafted after slots that read these tokens, in the order of the logits."""
        known, joined = set(self.vocab.tolist()), []
        for token in tokens:
            if token not in known and len(joined) < self.room:
                known.add(token)
                joined.append(token)
        return self.vocab.tolist() + joined

    def chain(self, fed, tokens):
        """Drafts after slots that read `fed` and `tokens`."""
        proposed, drafts, all_logits, states = self.proposed(tokens), [], [], None
        for _ in range(DRAFTS):
            y = self.module(fed, tokens + drafts)
            states = y if states is None else states
            logits = y[-1] @ self.head[torch.tensor(proposed)].T
            drafts.append(proposed[int(logits.argmax())])
            all_logits.append(logits.contiguous())
            fed = torch.cat([fed, y[-1:]])
        return Chain(drafts, all_logits, states)


@dataclass
class Chain:
    drafts: list
    logits: list           # of each draft, [proposed]
    states: torch.Tensor   # [slots, d]


def widened(stored, name):
    weight = stored[name].float()
    scale = stored.get(f"{name}_scale")
    return weight if scale is None else weight * scale[:, None]


def parity(reference, prompts):
    tensors, entries = {}, []
    for i, p in enumerate(prompts):
        logits, fed = reference.target(p["ids"])
        following = int(logits[-1].argmax())
        assert following == p["next"], f"another answer to {p['prompt']!r}"
        chain = reference.chain(fed, p["ids"][1:] + [following])
        tensors |= {f"{i}.mtp1_hidden": chain.states, f"{i}.mtp1_logits_last": chain.logits[0]}
        tensors |= {f"{i}.mtp{depth}_logits": chain.logits[depth - 1] for depth in range(2, DRAFTS + 1)}
        if not reference.layers:
            top = logits.topk(32)
            tensors |= {f"{i}.hidden": fed, f"{i}.last_logits": logits[-1].clone(), f"{i}.top_ids": top.indices.int(), f"{i}.top_values": top.values}
        entries.append(dict(prompt=p["prompt"], ids=p["ids"], next=following, drafted=chain.drafts))
    return tensors, entries


def greedy(reference, prompt, known):
    """The target's greedy text after the prompt, which begins with `known`, with as many tokens after its end as a round may
    draft; and the states of prompt and text."""
    text = prompt + known
    while True:
        logits, fed = reference.target(text)
        following = logits[len(prompt) - 1 :].argmax(-1).tolist()
        assert following[:-1] == text[len(prompt) :], "another answer"
        end = following.index(END) + 1 if END in following else LONGEST
        if len(following) > end + DRAFTS:
            return following[:-1], fed
        text = text + following[-1:]


def rounds(reference, prompt, known):
    """Greedy draft and verify: (answer, rounds)."""
    text, fed = greedy(reference, prompt, known)
    whole, length, steps = prompt + text, 1, []
    while length < LONGEST and END not in text[:length]:
        at = len(prompt) + length
        drafts = reference.chain(fed[: at - 1], whole[1:at]).drafts   # all tokens except the anchor have states
        accepted = next((i for i, draft in enumerate(drafts) if draft != text[length + i]), DRAFTS)
        length += accepted + 1
        steps.append(dict(drafted=drafts, accepted=accepted))
    answer = text[:length]
    return (answer[: answer.index(END) + 1] if END in answer else answer), steps


def golden(reference, known):
    traces = []
    for g in known:
        answer, steps = rounds(reference, g["prompt_ids"], g["output_ids"])
        traces.append(dict(category=g["category"], prompt=g["prompt"], prompt_ids=g["prompt_ids"], output_ids=answer, steps=steps))
    return traces


@torch.no_grad()
def main(module, out, *settings):
    reference = Reference(Target(load(settings)["train"]["gguf"]), Path(module))
    out = Path(out)
    read = lambda name: json.loads((out / name).read_text())
    tensors, entries = parity(reference, read("parity.json"))
    traces = golden(reference, read("golden.json"))
    save_file(tensors, out / "parity.safetensors", metadata={"format": "pt"})
    (out / "parity.json").write_text(json.dumps(entries) + "\n")
    (out / "golden.json").write_text(json.dumps(traces) + "\n")
    steps = [step for trace in traces for step in trace["steps"]]
    print(json.dumps(dict(prompts=len(traces), rounds=len(steps), tokens_per_round=round(1 + sum(s["accepted"] for s in steps) / len(steps), 3))))


if __name__ == "__main__":
    main(*sys.argv[1:])
