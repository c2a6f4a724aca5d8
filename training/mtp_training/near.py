"""Finds prompts that are too similar to those on which drafters are measured."""

import json
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path


def grams(text, n=4):
    """Character n-grams of the text without punctuation and case."""
    bare = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    return {bare[i:i + n] for i in range(max(1, len(bare) - n + 1))}


def forbidden(paths):
    """Prompts of suites (TOML), of golden files (JSON: [{"prompt": …}]) and of text files (one per line)."""
    found = []
    for path in map(Path, paths):
        if path.suffix == ".toml":
            found += [p for c in tomllib.loads(path.read_text()).values() for p in c["prompts"]]
        elif path.suffix == ".json":
            found += [entry["prompt"] for entry in json.loads(path.read_text())]
        else:
            found += [line for line in path.read_text().splitlines() if line.strip()]
    return sorted(set(found))


class Near:
    """Finds the forbidden prompt most similar to a text."""

    def __init__(self, prompts):
        self.prompts = [(p, len(grams(p))) for p in prompts]
        self.holders = defaultdict(list)   # gram -> indices of the prompts with it
        for i, p in enumerate(prompts):
            for gram in grams(p):
                self.holders[gram].append(i)

    def nearest(self, text):
        """(Jaccard index, prompt); (0, "") if no gram is shared."""
        own = grams(text)
        shared = Counter(i for gram in own for i in self.holders.get(gram, ()))
        score = lambda i, both: both / max(1, len(own) + self.prompts[i][1] - both)
        return max(((score(i, both), self.prompts[i][0]) for i, both in shared.items()), default=(0.0, ""))
