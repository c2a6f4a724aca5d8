"""Makes batches from shards. Validation is split by prompt: all answers to a prompt are on one side."""

import hashlib
import json
import random
import zlib
from collections import Counter

import numpy as np
import torch

from . import shards, states


def prompt_key(conversation):
    """A number from the tokens before the first answer."""
    answer = np.flatnonzero(conversation.roles == shards.ANSWER)
    end = int(answer[0]) if len(answer) else len(conversation.tokens)
    return int.from_bytes(hashlib.blake2b(conversation.tokens[:end].tobytes(), digest_size=8).digest(), "little")


class Data:
    """Conversations for training and validation. New shards are found at each call. Processes that train together read
    different shards."""

    def __init__(self, config, seed, ranks, wanted):
        """`wanted` are the blocks after which states are read (states.py)."""
        self.config, self.random, self.ranks, self.wanted = config, random.Random(seed), ranks, wanted
        self.uses = Counter()     # shard -> times read
        self.seen = set()         # prompts and temperatures already trained on, to skip repeats in the first pass over a shard
        listed = config.data / "excluded.json"   # too similar to measured prompts (make_data stats)
        self.excluded = set(json.loads(listed.read_text())) if listed.exists() else set()

    def paths(self):
        """Shards that can be used: those whose states exist."""
        there = shards.paths(self.config.data)
        return [p for p in there if not self.apart or states.path(self.config, self.wanted, p).exists()]

    def read(self, path):
        return shards.read(path, states.path(self.config, self.wanted, path) if self.apart else None)

    @property
    def apart(self):
        """Whether the wanted states are in files beside the shards."""
        return self.wanted and self.wanted != shards.within(self.config.data)

    def is_validation(self, conversation):
        return prompt_key(conversation) % self.config["train"]["validation_one_in"] == 0

    def next_pool(self):
        """Training conversations of the least used shards."""
        mine = lambda path: zlib.crc32(path.name.encode()) % self.ranks.size == self.ranks.rank
        there = [path for path in self.paths() if mine(path)]
        self.random.shuffle(there)
        there.sort(key=lambda path: self.uses[path.name])
        pool = []
        for path in there[: self.config["train"]["pool_shards"]]:
            self.uses[path.name] += 1
            for conversation in self.read(path):
                key = (prompt_key(conversation), conversation.temperature)
                if self.is_validation(conversation) or conversation.task in self.excluded or conversation.temperature > self.config["train"]["warmest"] or (key in self.seen and self.uses[path.name] == 1):
                    continue
                self.seen.add(key)
                pool.append(conversation)
        if not pool and all(self.uses[path.name] > 1 for path in there):   # every conversation was skipped, twice
            raise SystemExit(f"nothing to train on for process {self.ranks.rank + 1} of {self.ranks.size}: {len(there)} shards with states; "
                             "run `make_data generate` and `states`, or train with fewer processes")
        return pool

    def validation(self, most):
        """The first `most` validation conversations, each prompt once."""
        found, keys = [], set()
        for path in self.paths():
            for conversation in self.read(path):
                key = prompt_key(conversation)
                if self.is_validation(conversation) and key not in keys:
                    keys.add(key)
                    found.append(conversation)
            if len(found) >= most:
                break
        return found[:most]

    def batches(self, pool, tokens, shuffle=True):
        """Batches of conversations of similar length, at most `tokens` slots each, padding included."""
        length = lambda c: len(c.tokens) + (self.random.random() * 30 if shuffle else 0)
        out, batch = [], []
        for conversation in sorted(pool, key=length):
            longest = max([len(conversation.tokens)] + [len(c.tokens) for c in batch])
            if batch and (len(batch) + 1) * longest > tokens:
                out.append(batch)
                batch = []
            batch.append(conversation)
        out += [batch] if batch else []
        if shuffle:
            self.random.shuffle(out)
        return out


LENGTHS = 32   # batches are padded to a multiple of this many slots: a CPU's products are compiled once for each shape


def tensors(batch, device):
    """tokens [B, T]; hidden [B, T, d] f32; layers [B, T, layers · d] f16, or nothing; answered [B, T] bool: tokens of answers,
    which the target chose."""
    T = -(-max(len(c.tokens) for c in batch) // LENGTHS) * LENGTHS
    d = batch[0].hidden.shape[1]
    tokens = torch.zeros(len(batch), T, dtype=torch.long)
    hidden = torch.zeros(len(batch), T, d, dtype=torch.float16)
    answered = torch.zeros(len(batch), T, dtype=torch.bool)
    layers = None if batch[0].layers is None else torch.zeros(len(batch), T, batch[0].layers.shape[1], dtype=torch.float16)
    for row, c in enumerate(batch):
        n = len(c.tokens)
        tokens[row, :n] = torch.from_numpy(c.tokens.astype(np.int64))
        hidden[row, :n] = torch.from_numpy(c.hidden.copy())
        answered[row, :n] = torch.from_numpy(c.roles == shards.ANSWER)
        if layers is not None:
            layers[row, :n] = torch.from_numpy(np.array(c.layers))
    return tokens.to(device), hidden.to(device).float(), None if layers is None else layers.to(device), answered.to(device)


def said(batch):
    """All tokens of a batch's conversations."""
    return torch.from_numpy(np.concatenate([c.tokens for c in batch]).astype(np.int64))


def draft_vocab(config, size, vocab, specials):
    """The most frequent answer tokens, and always the special ones; ties by id (the earliest merges)."""
    counts = np.zeros(vocab, np.int64)
    for path in shards.paths(config.data):
        for c in shards.read(path):
            np.add.at(counts, c.tokens[c.roles == shards.ANSWER], 1)
    order = np.argsort(-counts, kind="stable")
    keep = list(specials) + [int(i) for i in order if int(i) not in set(specials)]
    kept = sorted(keep[:size])
    return torch.tensor(kept), counts
