"""answers: lets the target answer the tasks in bf16, hundreds of conversations at once, on matrix units or a GPU.

    python -m mtp_training.answers [I/N]   every N-th shard, beginning with the I-th (make_data generate starts them)

Writes the same files as `draftscope generate`, and the states of states.py from the same pass. It differs from `draftscope
generate` in arithmetic: bf16 instead of the 8-bit activations of inference.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

from . import shards, states
from .config import load
from .talk import KEPT, Codec, Talk
from .target import Target
from .wide import ROWS, Wide

BLOCK = 256   # tokens per block of the vocabulary, for draws


def blocks(logits):
    return F.pad(logits, (0, -logits.shape[1] % BLOCK), value=float("-inf")).view(len(logits), -1, BLOCK)


def highest(logits):
    """The first index of each row's largest value, and the value; in blocks, because PyTorch's argmax takes five times as
    long on a CPU."""
    of = blocks(logits)
    tops = of.amax(-1)
    block = tops.argmax(-1)
    each = torch.arange(len(logits), device=logits.device)
    return block * BLOCK + of[each, block].argmax(-1), tops[each, block]


@torch.compile(dynamic=True)
def shares(logits, best, least, temperatures):
    """Weight of each token, 1 for the best one: logits [rows, …], the other arguments one number per row."""
    one = lambda x: x.view(-1, *[1] * (logits.dim() - 1))
    return torch.where(logits < one(least), 0.0, ((logits.float() - one(best).float()) / one(temperatures)).exp())


@torch.compile(dynamic=True)
def summed(logits, best, least, temperatures):
    return shares(logits, best, least, temperatures).sum(-1)


def drawn(logits, temperatures, tops, draws):
    """A token for each row of logits [rows, vocab]: the best one at temperature 0, else the first at which the cumulated
    probability exceeds the draw; if `tops` is not 0, only that many most probable tokens count."""
    tokens, best = highest(logits)
    rows = (temperatures > 0).nonzero(as_tuple=True)[0]
    if len(rows) == 0:
        return tokens
    some, best, temperatures, least = logits[rows], best[rows], temperatures[rows], torch.full_like(best[rows], float("-inf"))
    for top in set(tops[rows].tolist()) - {0}:
        few = (tops[rows] == top).nonzero(as_tuple=True)[0]
        least[few] = some[few].topk(top).values[:, -1]
    of, each = blocks(some), torch.arange(len(rows), device=logits.device)
    ahead = summed(of, best, least, temperatures).cumsum(-1)   # per block; the weights of the chosen block are computed again
    goal = draws[rows] * ahead[:, -1]
    block = (ahead <= goal[:, None]).sum(-1).clamp_max(ahead.shape[1] - 1)
    inside = shares(of[each, block], best, least, temperatures).cumsum(-1)
    left = goal - torch.where(block > 0, ahead[each, (block - 1).clamp_min(0)], 0)
    place = torch.minimum((inside <= left[:, None]).sum(-1), (inside < inside[:, -1:]).sum(-1))   # never a token of probability 0
    tokens[rows] = block * BLOCK + place
    return tokens


class Open:
    """Shards whose conversations have not all ended."""

    def __init__(self, config, wanted, plan):
        self.config, self.wanted, self.plan, self.kept, self.ended = config, wanted, plan, {}, {}

    def end(self, talk, hidden, layers):
        """Takes the result of a task, with states by position. Returns whether this completed its shard, which is then written."""
        shard = talk.line // self.plan["shard_tasks"]
        kept = self.kept.setdefault(shard, {})
        if talk.phase == KEPT:
            kept[talk.line] = (*talk.arrays(), hidden[: talk.fed].numpy().copy(), layers[: talk.fed].numpy().copy(), talk.task.get("temperature", 0.0))
        self.ended[shard] = self.ended.get(shard, 0) + 1
        if self.ended[shard] < len(lines(self.plan, shard)):
            return False
        self.write(shard, sorted(self.kept.pop(shard).items()))
        return True

    def write(self, shard, kept):
        path = self.config.data / "shards" / f"shard-{shard:05}.safetensors"
        none = (np.empty(0, np.int32), np.empty(0, np.uint8), *(np.empty((0, n * self.plan["hidden_size"]), np.float16) for n in (1, len(self.wanted))), 0.0)
        tokens, roles, hidden, layers, temperatures = zip(none, *(conversation for _, conversation in kept))
        if self.wanted:
            states.write(states.path(self.config, self.wanted, path), np.concatenate(layers))
        tensors = dict(tokens=np.concatenate(tokens), roles=np.concatenate(roles), hidden=np.concatenate(hidden), starts=np.cumsum([len(t) for t in tokens]).astype(np.int64),
                       tasks=np.array([line for line, _ in kept], np.int64), temperatures=np.array(temperatures[1:], np.float32))
        part = path.with_suffix(f".{os.getpid()}.part")
        save_file(tensors, part)
        part.rename(path)


def claimed(config, target):
    """The plan of the shards' folder; fails if the folder has another plan."""
    folder, text = config.data / "shards", (config.data / "tasks.jsonl").read_bytes()
    sha256 = lambda data: hashlib.sha256(data).hexdigest()
    plan = dict(version=1, model=target.reader.fields["general.name"].contents(), model_sha256=sha256(Path(config["train"]["gguf"]).read_bytes()), tasks_sha256=sha256(text),
                tasks=text.count(b"\n"), shard_tasks=config["data"]["shard_tasks"], ctx_len=config["data"]["ctx"], hidden_size=target.shape.hidden)
    folder.mkdir(exist_ok=True)
    file, part = folder / "plan.json", folder / f"plan.{os.getpid()}.part"
    if not file.exists():
        part.write_text(json.dumps(plan, indent=2))
        part.rename(file)
    there = json.loads(file.read_text())
    there["model_sha256"] = there["model_sha256"] or plan["model_sha256"]   # `draftscope generate` may leave it empty
    assert there == plan, f"{folder} has shards of other tasks or settings; delete it"
    return plan


def lines(plan, shard):
    return range(shard * plan["shard_tasks"], min(plan["tasks"], (shard + 1) * plan["shard_tasks"]))


class Answers:
    """The loop: each conversation has a seat, and a free seat gets the next task."""

    prompt_rows = 2 * ROWS   # rows of prompts in a pass, besides one row for each seat

    def __init__(self, config, part, count):
        data = config["data"]
        self.device, self.seats, self.started = torch.device(config["train"]["device"]), [None] * data["conversations"], time.time()
        target = Target(config["train"]["gguf"])
        self.codec, self.plan, wanted = Codec(target), claimed(config, target), states.claimed(config, target)
        self.tasks = [json.loads(line) for line in open(config.data / "tasks.jsonl")]
        own = range(part, -(-self.plan["tasks"] // self.plan["shard_tasks"]), count)
        missing = [shard for shard in own if not (config.data / "shards" / f"shard-{shard:05}.safetensors").exists()]
        self.waiting = (line for shard in missing for line in lines(self.plan, shard))
        self.open = Open(config, wanted, self.plan)
        spare, ctx = len(self.seats), self.plan["ctx_len"]   # rows of padding write to a slot of their own
        self.spare = (0, spare, 0)
        self.target = Wide(target, spare + 1, ctx, wanted, self.device, config.root)
        self.hidden = torch.zeros(spare + 1, ctx, target.shape.hidden, dtype=torch.float16)
        self.layers = torch.zeros(spare + 1, ctx, len(wanted) * target.shape.hidden, dtype=torch.float16)
        self.counts = dict(shards=len(own) - len(missing), conversations=0, kept=0, tokens=0, answer_tokens=0)

    def rows(self):
        """(token, slot, position) of every conversation's next token and then of prompts, up to the size of a pass."""
        most = len(self.seats) + self.prompt_rows
        found = []
        for slot in sorted((i for i, talk in enumerate(self.seats) if talk), key=lambda i: len(self.seats[i].tokens) - self.seats[i].fed):
            talk = self.seats[slot]
            end = min(len(talk.tokens), talk.fed + most - len(found))
            found += [(talk.tokens[at], slot, at) for at in range(talk.fed, end)]
        return found

    def sit(self):
        """Gives free seats to waiting tasks, as long as their prompts can run soon."""
        pending = sum(len(talk.tokens) - talk.fed - 1 for talk in self.seats if talk)
        for slot, talk in enumerate(self.seats):
            if talk is None and pending < self.prompt_rows:
                line = next(self.waiting, None)
                if line is None:
                    return
                self.seats[slot] = Talk(line, self.tasks[line], self.codec, self.plan["ctx_len"])
                pending += len(self.seats[slot].tokens)
                self.leave(slot)

    def leave(self, slot):
        """Frees the seat of a conversation that has ended."""
        talk = self.seats[slot]
        if not talk.ended:
            return
        self.seats[slot] = None
        self.counts["conversations"] += 1
        if talk.phase == KEPT:
            self.counts["kept"] += 1
            self.counts["answer_tokens"] += int((talk.arrays()[1] == shards.ANSWER).sum())
        if self.open.end(talk, self.hidden[slot], self.layers[slot]):
            self.counts["shards"] += 1
            self.report("shard")

    def padded(self, rows):
        return rows + [self.spare] * (-len(rows) % ROWS)

    def step(self):
        rows = self.rows()
        tokens, slots, positions = torch.tensor(self.padded(rows)).T.contiguous()
        put = lambda x: x.to(self.device)
        states_, layers = self.target(put(tokens), put(slots), put(positions))
        self.hidden[slots, positions] = states_.half().cpu()
        if layers is not None:
            self.layers[slots, positions] = layers.cpu()
        last = []
        for i, (_, slot, position) in enumerate(rows):
            self.seats[slot].fed = position + 1
            if position + 1 == len(self.seats[slot].tokens):
                last.append((i, slot))
        self.counts["tokens"] += len(rows)
        if last:
            self.take(states_, last)

    def take(self, hidden, last):
        """Draws the next token of conversations, each given as (row, slot)."""
        some = torch.tensor([row for row, _ in last] + [0] * (-len(last) % ROWS), device=self.device)
        logits = self.target.logits(hidden[some])[: len(last)]
        temperatures, tops, draws = zip(*(self.seats[slot].sampling() for _, slot in last))
        put = lambda values, dtype: torch.tensor(values, dtype=dtype, device=self.device)
        tokens = drawn(logits, put(temperatures, torch.float32), put(tops, torch.long), put(draws, torch.float32))
        for (_, slot), token in zip(last, tokens.tolist()):
            self.seats[slot].take(token)
            self.leave(slot)

    def run(self):
        reported = time.time()
        while True:
            self.sit()
            if not any(self.seats):
                return self.report("done")
            self.step()
            if time.time() - reported > 10:
                reported = time.time()
                self.report("progress")

    def report(self, event):
        elapsed = time.time() - self.started
        line = dict(event=event, elapsed_s=round(elapsed, 1), **self.counts, answer_tokens_per_s=round(self.counts["answer_tokens"] / elapsed, 1))
        print(json.dumps(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    chosen = (sys.argv[1:2] or ["0/1"])[0].split("/")
    torch.set_num_threads(1)
    Answers(load(sys.argv[2:]), *map(int, chosen)).run()
