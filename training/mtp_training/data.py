"""From shards to batches. Validation is split by prompt: all that was answered to a prompt is on one side."""

import hashlib
import json
import random
from collections import Counter

import numpy as np
import torch

from . import shards


def prompt_key(conversation):
    """A number from the tokens before the first answer."""
    answer = np.flatnonzero(conversation.roles == shards.ANSWER)
    end = int(answer[0]) if len(answer) else len(conversation.tokens)
    return int.from_bytes(hashlib.blake2b(conversation.tokens[:end].tobytes(), digest_size=8).digest(), "little")


class Data:
    """Conversations for training and validation; new shards are found when they are asked for."""

    def __init__(self, config, seed):
        self.config, self.random = config, random.Random(seed)
        self.uses = Counter()     # shard -> times read
        self.seen = set()         # greedy prompts that were trained on: (prompt, shard) keeps a second pass possible
        listed = config.data / "excluded.json"   # too near to measured prompts (make_data stats)
        self.excluded = set(json.loads(listed.read_text())) if listed.exists() else set()

    def is_validation(self, conversation):
        return prompt_key(conversation) % self.config["train"]["validation_one_in"] == 0

    def next_pool(self):
        """Training conversations of the least used shards."""
        there = shards.paths(self.config.data)
        self.random.shuffle(there)
        there.sort(key=lambda path: self.uses[path.name])
        pool = []
        for path in there[: self.config["train"]["pool_shards"]]:
            self.uses[path.name] += 1
            for conversation in shards.read(path):
                key = (prompt_key(conversation), conversation.temperature)
                if self.is_validation(conversation) or conversation.task in self.excluded or (key in self.seen and self.uses[path.name] == 1):
                    continue
                self.seen.add(key)
                pool.append(conversation)
        return pool

    def validation(self, most):
        """The first `most` validation conversations, with no prompt twice."""
        found, keys = [], set()
        for path in shards.paths(self.config.data):
            for conversation in shards.read(path):
                key = prompt_key(conversation)
                if self.is_validation(conversation) and key not in keys:
                    keys.add(key)
                    found.append(conversation)
            if len(found) >= most:
                break
        return found[:most]

    def batches(self, pool, tokens, shuffle=True):
        """Conversations of like length together, at most `tokens` slots a batch, padding included."""
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


def tensors(batch, device):
    """tokens [B, T], hidden [B, T, d] f32, answered [B, T] bool: rows whose next token the target chose as part of an answer."""
    T = max(len(c.tokens) for c in batch)
    d = batch[0].hidden.shape[1]
    tokens = torch.zeros(len(batch), T, dtype=torch.long)
    hidden = torch.zeros(len(batch), T, d, dtype=torch.float16)
    answered = torch.zeros(len(batch), T, dtype=torch.bool)
    for row, c in enumerate(batch):
        n = len(c.tokens)
        tokens[row, :n] = torch.from_numpy(c.tokens.astype(np.int64))
        hidden[row, :n] = torch.from_numpy(c.hidden.copy())
        answered[row, :n] = torch.from_numpy(c.roles == shards.ANSWER)
    return tokens.to(device), hidden.to(device).float(), answered.to(device)


def draft_vocab(config, size, vocab, specials):
    """The most frequent answer tokens, special ones always; ties and the rest by id (the earliest merges)."""
    counts = np.zeros(vocab, np.int64)
    for path in shards.paths(config.data):
        for c in shards.read(path):
            np.add.at(counts, c.tokens[c.roles == shards.ANSWER], 1)
    order = np.argsort(-counts, kind="stable")
    keep = list(specials) + [int(i) for i in order if int(i) not in set(specials)]
    kept = sorted(keep[:size])
    return torch.tensor(kept), counts
