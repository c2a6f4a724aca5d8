"""train: distils the target's next-token distributions into the module, unrolled over several depths.

    python -m mtp_training.train RUN [train.key=value …]

(See ranks.py for training with several processes.)

The learning rate is constant until the file RUN/cooldown appears (with the number of tokens over which the rate falls to
zero), or until train.tokens; so a run can end at any time. New shards are used as soon as they have their states
(states.py). RUN/state.pt is written every train.save_minutes and when a signal stops the program, and read at the start.
"""

import json
import math
import random
import signal
import sys
import time
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from . import data as dataset, states
from .config import load
from .export import names
from .module import NORMS, Module, Past, Rows, rms, whole
from .ranks import Ranks
from .target import Target


ROWS = 64   # the numbers of chains in a batch and of rows with loss are multiples of this


class Teacher:
    """The embedding, and the head's rows of the draft vocabulary; `frequent` are indices of its most frequent tokens."""

    def __init__(self, target, vocab, frequent, temperature, device):
        self.dtype, self.device = torch.bfloat16, device
        self.embedding = target.embedding.to(device, self.dtype)
        # dividing the head's rows divides the logits of both sides, so they are compared at this temperature
        self.rows = (target.head / temperature).to(device, self.dtype)
        self.head = self.rows[vocab.to(device)]
        self.frequent = vocab[frequent]
        self.rare = vocab[torch.tensor(sorted(set(range(len(vocab))) - set(frequent.tolist())), dtype=torch.long)]

    def subset(self, rare, tokens):
        """Head rows of the frequent tokens, of all others among `tokens` (a drafter may repeat tokens of the text), and of
        further tokens of the draft vocabulary, drawn each time, until there are `rare`. Both distributions are compared
        given that the token is one of these, which costs less than half and has the same optimum."""
        there = torch.zeros(len(self.rows), dtype=torch.bool)
        there[tokens.flatten().cpu()] = True
        there[self.frequent] = False
        besides = there.nonzero(as_tuple=True)[0]
        others = self.rare[~there[self.rare]]
        drawn = others[torch.randperm(len(others))[: max(0, rare - len(besides))]]
        return self.rows[torch.cat([self.frequent, besides, drawn]).to(self.device)]


def distributions(x, head, states):
    """Logarithms of the drafter's probabilities, and the target's probabilities."""
    return F.linear(x.to(head.dtype), head).float().log_softmax(-1), F.linear(states, head).float().softmax(-1)


@torch.compile(dynamic=True)
def compared(x, head, states):
    """The cross entropy and its gradient with respect to x."""
    log_q, wanted = distributions(x, head, states)
    return -(wanted * log_q).sum(), F.linear((log_q.exp() - wanted).to(head.dtype), head.T).float()


@torch.compile(dynamic=True)
def rejection(x, head, states):
    """The cross entropy, and the gradient with respect to x of 1 − Σ min(p, q), the share that speculative sampling rejects
    (half the L1 distance of the distributions). A small module cannot match the whole distribution, so this is the better
    loss (LK losses, Samarin et al. 2026). A module that is mostly wrong learns little from it, so cross entropy comes first."""
    log_q, wanted = distributions(x, head, states)
    q = log_q.exp()
    below = (q < wanted).float()
    slope = q * ((q * below).sum(-1, keepdim=True) - below)
    return -(wanted * log_q).sum(), F.linear(slope.to(head.dtype), head.T).float()


def agreement(x, head, states):
    log_q, wanted = distributions(x, head, states)
    return (log_q.argmax(-1) == wanted.argmax(-1)).sum(), torch.minimum(log_q.exp(), wanted).sum()


class Difference(torch.autograd.Function):
    """Difference between the drafter's distributions and the target's at `states`, summed over rows. Its value is the cross
    entropy −Σ p log q; its gradient is that of `compare`, computed in the forward pass, in chunks."""

    CHUNK = 1024
    compare = staticmethod(compared)
    measures = True   # also computes agreement and overlap, which takes a tenth of the time

    @staticmethod
    def forward(ctx, x, head, states):
        gradient = torch.empty_like(x)
        loss = hits = overlap = 0.0
        for i in range(0, len(x), Difference.CHUNK):
            rows = slice(i, i + Difference.CHUNK)
            part, gradient[rows] = Difference.compare(x[rows], head, states[rows])
            loss += float(part)
            if Difference.measures:
                same, shared = agreement(x[rows], head, states[rows])
                hits, overlap = hits + float(same), overlap + float(shared)
        ctx.save_for_backward(gradient)
        Difference.last = (loss, hits, overlap, len(x))
        return torch.tensor(loss)

    @staticmethod
    def backward(ctx, grad):
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None


def unroll(module, teacher, batch, depth, head, device, multiple=1):
    """For each depth: (loss summed over rows, its parts). `head` has the rows of the compared tokens. The numbers of chains
    and of rows with loss are multiples of `multiple`."""
    tokens, hidden, layers, answered = dataset.tensors(batch, device)
    B, T = tokens.shape
    following = lambda grid, k: F.pad(grid, (0, k))[:, k:k + T]
    # chains start where the next token belongs to an answer; they attend to the keys and values of the slots before
    starts = Rows(following(answered, 1) & (torch.arange(T, device=device) < T - 1), multiple)
    slots = Rows(torch.ones_like(answered))
    past, out = Past(T, teacher.dtype, device), []
    x = module.project(slots.of(module.fed(hidden, layers, teacher.dtype)), F.embedding(slots.of(following(tokens, 1)), teacher.embedding), teacher.dtype)
    for k in range(1, depth + 1):
        if k > 1:
            # the chain that starts at t reads x_{t+k}
            x = module.project(current, F.embedding(starts.of(following(tokens, k)), teacher.embedding), teacher.dtype)
        o = module.attend(x, slots if k == 1 else starts, past)
        residual = x.view(B, T, -1)[starts.b, starts.t] if k == 1 else x
        current = module.finish(residual, starts.attended(o), teacher.dtype)
        # the target's distribution of x_{t+k+1} is that of its state at t + k
        tested = starts.of(following(answered, k)).nonzero(as_tuple=True)[0]
        tested = tested[:whole(len(tested), multiple)]
        theirs = hidden[starts.b[tested], starts.t[tested] + k]
        loss = Difference.apply(current[tested], head, theirs.to(teacher.dtype))
        out.append((loss, Difference.last))
    return out


def ridge_projection(module, target, teacher, pool, device):
    """Sets the projection so that the copied block gets about the input of the target's last layer. That input is not stored,
    so the final state, scaled to the size of the residual stream, is used in its place."""
    tokens, hidden, _, _ = dataset.tensors(pool[:48], device)
    keep = tokens[:, 1:] != 0
    e = rms(F.embedding(tokens[:, 1:], teacher.embedding), module.enorm, module.shape.eps)[keep]
    h, goal = rms(hidden[:, :-1], module.hnorm, module.shape.eps)[keep], hidden[:, 1:][keep]
    both = torch.cat([e, h], -1)
    gram = both.T @ both + 10.0 * torch.eye(both.shape[1], device=device)
    with torch.no_grad():
        module.proj.copy_(torch.linalg.solve(gram, both.T @ goal).T)


def stored(tensors, name):
    """A weight of a file as f32; an FP8 weight has a scale for each row."""
    scale = tensors.get(f"{name}_scale")
    return tensors[name].float() if scale is None else tensors[name].float() * scale[:, None]


def initialise(module, target, teacher, config, pool, device, wanted):
    first = config["train"]["init"]
    if first == "layer":
        module.start_from(target)
        ridge_projection(module, target, teacher, pool, device)
        return
    file = Path(__file__).resolve().parents[2] / first
    tensors, read = load_file(file), json.loads((file.parent / "config.json").read_text()).get("hidden_layers", [])
    assert not read or read == wanted, f"{first} reads the states after blocks {read}, but train.hidden_layers mean {wanted}"
    with torch.no_grad():
        for ours, theirs in names().items():
            if hasattr(module, ours) and (ours != "fuse" or read):   # `fuse` starts at zero if the earlier module has none
                getattr(module, ours).copy_(stored(tensors, theirs))


class Optimisers:
    """Muon for matrices (Jordan et al., 2024), AdamW for norms."""

    def __init__(self, module, train):
        matrices, norms = ([getattr(module, n) for n in group] for group in (module.matrices, NORMS))
        if train["optimizer"] == "muon":
            self.parts = [torch.optim.Muon(matrices, lr=train["lr"], weight_decay=train["weight_decay"], momentum=0.95, nesterov=True, adjust_lr_fn="match_rms_adamw"),
                          torch.optim.AdamW(norms, lr=train["lr"], betas=(0.9, 0.95), weight_decay=0.0)]
        else:
            self.parts = [torch.optim.AdamW([dict(params=matrices), dict(params=norms, weight_decay=0.0)], lr=train["lr"], betas=(0.9, 0.95), weight_decay=train["weight_decay"])]

    def step(self, lr):
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self):
        return [part.state_dict() for part in self.parts]

    def restore(self, states):
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)


class StopSignal:
    """The number of the first signal that asked this process to stop, or 0."""

    def __init__(self):
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number, _frame):
        signal.signal(number, signal.SIG_DFL)   # a second signal ends the process at once
        self.signal = self.signal or number


class Log:
    """Writes JSON lines to a file and to standard output; NaN is an error, because JSON has none."""

    def __init__(self, path):
        self.file = open(path, "a")

    def __call__(self, **line):
        text = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}, allow_nan=False)
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()


def add(sums, parts):
    for k, (_, last) in enumerate(parts):
        while len(sums) <= k:
            sums.append([0.0] * 4)
        sums[k] = [a + b for a, b in zip(sums[k], last)]


def figures(sums):
    """For each depth: cross entropy, agreement of the best tokens, Σ min(p, q) (acceptance when sampling)."""
    rate = lambda i: [round(s[i] / max(1, s[3]), 4) for s in sums]
    return dict(ce=rate(0), agree=rate(1), overlap=rate(2))


@torch.no_grad()
def validate(module, teacher, data, config, conversations, device):
    sums = []
    for batch in data.batches(conversations, config["train"]["batch_tokens"], shuffle=False):
        add(sums, unroll(module, teacher, batch, config["train"]["validate_depth"], teacher.head, device))
    return figures(sums)


class Run:
    """A training run, with everything that is needed to resume it."""

    def __init__(self, config, folder):
        train = config["train"]
        self.config, self.train, self.folder = config, train, folder
        self.ranks = Ranks()
        self.device = torch.device(train["device"])
        torch.set_num_threads(train["threads"])
        self.target = Target(config["train"]["gguf"])
        self.log = Log(folder / "log.jsonl") if self.ranks.first else lambda **line: None
        saved = folder / "state.pt"
        resumed = torch.load(saved, weights_only=False, map_location="cpu") if saved.exists() else None
        self.state = resumed["state"] if resumed else dict(step=0, tokens=0, cooldown_from=None, cooldown_tokens=None)
        # a resumed run keeps its layers
        self.wanted = resumed.get("hidden_layers", []) if resumed else states.after_blocks(config, self.target.layers)
        seed = f"{train['seed']} {self.ranks.rank} {self.state['step']}"   # a resumed run draws other random numbers
        torch.manual_seed(zlib.crc32(seed.encode()))
        self.data = dataset.Data(config, seed, self.ranks, self.wanted)
        self.vocab, self.frequent = map(self.ranks.same, (resumed["vocab"], resumed["frequent"]) if resumed else self._vocab())
        self.teacher = Teacher(self.target, self.vocab, self.frequent, train["temperature"], self.device)
        self.module = Module(self.target.shape, len(self.wanted)).to(self.device)
        self.optimisers = Optimisers(self.module, train)
        self.validation = self.data.validation(train["validation_conversations"])
        if resumed:
            self.module.load_state_dict(resumed["module"])
            self.optimisers.restore(resumed["optimisers"])
            self.data.uses = resumed["uses"]
            self.log(event="resumed", **self.state, hidden_layers=self.wanted)
        else:
            initialise(self.module, self.target, self.teacher, config, self.data.next_pool(), self.device, self.wanted)
            self.data.uses.clear()
            self.data.seen.clear()
        for parameter in self.module.parameters():
            self.ranks.same(parameter.data)

    def _vocab(self):
        vocab, counts = dataset.draft_vocab(self.config, self.train["draft_vocab"], self.target.shape.vocab, self.target.specials)
        kept = counts[vocab.numpy()]
        frequent = torch.from_numpy(kept.argsort()[::-1][: self.train["frequent_tokens"]].copy())
        share = lambda part: float(part.sum() / max(1, counts.sum()))
        self.log(event="vocabulary", size=len(vocab), covers=share(kept), frequent_cover=share(kept[frequent.numpy()]), answer_tokens=int(counts.sum()))
        return vocab, frequent

    def save(self):
        """Called in all processes at once: each counts the reads of its own shards."""
        for uses in self.ranks.gather(self.data.uses):
            self.data.uses |= uses   # the larger count
        if not self.ranks.first:
            return
        state = dict(module=self.module.state_dict(), optimisers=self.optimisers.state(), state=self.state, uses=self.data.uses, vocab=self.vocab, frequent=self.frequent, hidden_layers=self.wanted)
        temporary = self.folder / "state.part"
        torch.save(state, temporary)
        temporary.rename(self.folder / "state.pt")

    def depth(self, batch):
        """The depth of a step's batch. The schedule has the tokens from which a depth is allowed; most batches use one depth
        less. All processes use the same depth, so that none waits long."""
        allowed = 1 + sum(self.state["tokens"] >= t for t in self.train["deeper_at_tokens"])
        weights = self.train["depth_weights"][allowed - 1]
        drawn = random.Random(f"{self.train['seed']} {self.state['step']} {batch}")
        return drawn.choices(range(1, allowed + 1), weights)[0]

    def rate(self):
        """The learning rate: warm-up, constant, then linear to zero."""
        state, train = self.state, self.train
        ask = self.folder / "cooldown"
        if state["cooldown_from"] is None and (ask.exists() or state["tokens"] >= train["tokens"]):
            state["cooldown_from"] = state["tokens"]
            state["cooldown_tokens"] = int(ask.read_text().strip() or train["cooldown_tokens"]) if ask.exists() else train["cooldown_tokens"]
            self.log(event="cooldown", **state)
        warm = min(1.0, (state["step"] + 1) / train["warmup_steps"])
        if state["cooldown_from"] is None:
            return warm * train["lr"]
        left = 1 - (state["tokens"] - state["cooldown_from"]) / state["cooldown_tokens"]
        return warm * train["lr"] * max(0.0, left)

    def validate(self, event="validation"):
        if not self.ranks.first:
            return
        Difference.measures = True
        self.log(event=event, **self.state, **validate(self.module, self.teacher, self.data, self.config, self.validation, self.device))

    def step(self, lr, rows):
        """A step of the optimiser with the gradients of `rows` rows; returns their norm."""
        for p in self.module.parameters():
            p.grad.mul_(self.train["step_rows"] / rows)
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.train["clip"]))
        if not math.isfinite(norm):   # the same in all processes, which have the same sums
            sys.exit(f"the gradients of step {self.state['step']} are not numbers; the checkpoint is unchanged. Try a lower train.lr than {self.train['lr']}")
        self.optimisers.step(lr)
        return norm

    def loop(self):
        """Trains; returns the number of the signal that stopped it early, or 0."""
        train, state, stop_signal = self.train, self.state, StopSignal()
        started = saved = validated = time.time()
        begun, sums, rows, batches = state["tokens"], [], 0, 0
        if state["step"] == 0:
            self.validate("start")
        lr, due, stop = self.ranks.of_first([self.rate(), 0.0, 0.0])
        while True:
            for batch in self.data.batches(self.data.next_pool(), train["batch_tokens"]):
                if lr <= 0:
                    self.validate("final")
                    self.save()
                    return 0
                Difference.measures = state["step"] % train["log_steps"] == 0
                Difference.compare = rejection if state["tokens"] >= train["overlap_at_tokens"] else compared
                head = self.teacher.subset(train["rare_tokens"], dataset.said(batch))
                parts = unroll(self.module, self.teacher, batch, self.depth(batches), head, self.device, ROWS)
                loss = sum(loss * w for (loss, _), w in zip(parts, train["loss_weights"]))
                (loss / train["step_rows"]).backward()
                if Difference.measures:
                    add(sums, parts)
                rows, batches = rows + parts[0][1][3], batches + 1
                if rows < train["step_rows"] / self.ranks.size:
                    continue
                rows = self.ranks.add_up(self.module.parameters(), rows)
                norm = self.step(lr, rows)
                state["tokens"], state["step"] = state["tokens"] + rows, state["step"] + 1
                rows = batches = 0
                lr, due, stop = self.ranks.of_first([self.rate(), float(time.time() - saved > 60 * train["save_minutes"]), float(stop_signal.signal)])
                if state["step"] % train["log_steps"] == 0:
                    rate = (state["tokens"] - begun) / (time.time() - started)
                    self.log(event="train", **state, lr=lr, norm=norm, tokens_per_s=rate, reads=sum(self.data.uses.values()), **figures(sums))
                    sums = []  # one step in log_steps is measured
                if due or stop:
                    self.save()
                    saved = time.time()
                if stop:
                    return int(stop)
                if time.time() - validated > 60 * train["validate_minutes"]:
                    self.validate()
                    validated = time.time()


if __name__ == "__main__":
    configuration = load(sys.argv[2:])
    where = configuration.runs / sys.argv[1]
    where.mkdir(exist_ok=True)
    stopped = Run(configuration, where).loop()
    sys.exit(128 + stopped if stopped else 0)
