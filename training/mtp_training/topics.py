"""Topics that people ask about: kinds of things in WordNet that are common words.

WordNet files every noun under a more general one; wordfreq has its frequency (Zipf scale: 3 is once in a million words).
To rare words a small model gives short and uniform answers, so only common ones are used. Words that measured prompts
name are excluded (`forbidden`).
"""

import re
from collections import defaultdict
from functools import cached_property
from itertools import accumulate

from wordfreq import zipf_frequency

from .words import AVOID

# field: (WordNet noun, number of its sense, least Zipf frequency, whether its instances are taken and not its kinds)
KINDS = {
    "animal": [("animal", 1, 3.1, False)],
    "plant": [("plant", 2, 3.2, False)],
    "food": [("food", 2, 3.1, False), ("dish", 2, 3.0, False), ("beverage", 1, 3.1, False)],
    "ingredient": [("vegetable", 1, 2.9, False), ("edible_fruit", 1, 2.9, False), ("flavorer", 1, 3.0, False), ("meat", 1, 3.0, False)],
    "instrument": [("musical_instrument", 1, 2.9, False)],
    "sport": [("sport", 1, 3.0, False), ("game", 1, 3.2, False)],
    "hobby": [("diversion", 1, 3.3, False), ("art", 2, 3.2, False)],
    "illness": [("disease", 1, 3.0, False), ("symptom", 1, 3.2, False)],
    "science": [("discipline", 1, 3.0, False)],
    "job": [("worker", 1, 3.2, False), ("professional", 1, 3.2, False), ("expert", 1, 3.3, False)],
    "vehicle": [("vehicle", 1, 3.1, False)],
    "device": [("machine", 1, 3.1, False), ("instrument", 1, 3.2, False), ("electronic_equipment", 1, 3.1, False), ("home_appliance", 1, 2.9, False)],
    "process": [("natural_process", 1, 3.0, False), ("physical_phenomenon", 1, 3.0, False), ("organic_process", 1, 3.0, False)],
    "feeling": [("feeling", 1, 3.4, False), ("trait", 1, 3.6, False)],
    "body": [("body_part", 1, 3.2, False)],
    "clothes": [("clothing", 1, 3.2, False)],
    "room": [("room", 1, 3.2, False), ("building", 1, 3.3, False), ("shop", 1, 3.2, False)],
    "thing": [("furniture", 1, 3.1, False), ("tool", 1, 3.2, False), ("container", 1, 3.3, False), ("toy", 1, 3.0, False)],
    "idea": [("belief", 1, 3.4, False), ("social_group", 1, 3.8, False), ("law", 1, 3.4, False), ("cognition", 1, 4.0, False), ("economy", 1, 3.2, False)],
    "country": [("country", 2, 3.3, True), ("island", 1, 3.3, True)],
    "city": [("city", 1, 3.5, True), ("national_capital", 1, 3.3, True)],
    "person": [("scientist", 1, 2.8, True), ("writer", 1, 2.9, True), ("musician", 1, 2.9, True), ("artist", 1, 2.9, True), ("politician", 2, 2.9, True), ("explorer", 1, 2.9, True), ("philosopher", 1, 2.9, True)],
    "event": [("war", 1, 3.0, True), ("battle", 1, 3.0, True), ("revolution", 2, 2.8, False), ("day", 4, 3.0, True), ("holiday", 2, 3.0, False)],
    "star": [("celestial_body", 1, 3.1, False), ("planet", 1, 3.1, True), ("geological_formation", 1, 3.2, False)],
    "stuff": [("material", 1, 3.3, False), ("chemical_element", 1, 3.0, False)],
}


def weight(name):
    """Square root of the frequency: common topics are preferred, but do not dominate."""
    words = re.split("[ -]", name)
    rarest = min(zipf_frequency(word, "en") for word in words)   # a phrase is taken to be a thirtieth as frequent as its rarest word
    return 10 ** (0.5 * (rarest - 1.5 * (len(words) > 1) - 3))


class Topics:
    """Names of topics, by field: strings and their cumulated weights (`cum_weights` of random.choices)."""

    def __init__(self, root, forbidden):
        self.root = root
        self.named = {word for prompt in forbidden for word in re.findall(r"[a-z]+", prompt.lower()) if zipf_frequency(word, "en") < 5.0}

    @cached_property
    def _senses(self):
        senses = {}
        for line in open(self.root / "usr/share/wordnet/index.noun"):
            if not line.startswith(" "):
                fields = line.split()
                senses[fields[0]] = fields[-int(fields[2]):]
        return senses

    @cached_property
    def _tree(self):
        """Words of each synset, and its kinds and instances."""
        words, below = {}, {False: defaultdict(list), True: defaultdict(list)}
        for line in open(self.root / "usr/share/wordnet/data.noun"):
            if line.startswith(" "):
                continue
            fields = line.split(" | ")[0].split()
            count = int(fields[3], 16)
            words[fields[0]] = [w.replace("_", " ") for w in fields[4:4 + 2 * count:2]]
            pointers = fields[5 + 2 * count:]
            for symbol, offset in zip(pointers[::4], pointers[1::4]):
                if symbol in ("~", "~i"):
                    below[symbol == "~i"][fields[0]].append(offset)
        return words, below

    def _below(self, synset, instances):
        words, below = self._tree
        found, open_ = set(), [synset]
        while open_:
            at = open_.pop()
            if at not in found:
                found.add(at)
                open_ += below[False][at]
        return [n for s in found for n in below[True][s]] if instances else sorted(found - {synset})

    def _good(self, name, least):
        parts = re.findall(r"[a-z]+", name.lower())
        return (re.fullmatch(r"[A-Za-z][A-Za-z' .-]{2,28}", name) and not AVOID.search(name) and not self.named & set(parts)
                and zipf_frequency(name, "en") >= least)

    @cached_property
    def fields(self):
        out = {}
        for field, kinds in KINDS.items():
            found = set()
            for noun, sense, least, instances in kinds:
                for synset in self._below(self._senses[noun][sense - 1], instances):
                    # skips rare senses of common words
                    found |= {w for w in self._tree[0][synset] if self._good(w, least) and w[0].isupper() == instances
                              and (" " in w or "-" in w or synset in self._senses[w.lower().replace(" ", "_")][:2])}
            names = sorted(found)
            out[field] = names, list(accumulate(map(weight, names)))
        return out
