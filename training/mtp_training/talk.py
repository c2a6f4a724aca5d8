"""A running conversation, for answers.py: text of the template and the task, invented text, answers, and its end.

The rules are those of `draftscope generate` (crates/engine/src/generate/sequence.rs).
"""

import hashlib

import jinja2
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .shards import ANSWER, GIVEN, INVENTED

INVENTION = dict(temperature=1.0, top_k=50)
FEWEST, MOST = 3, 70              # tokens that the model may invent in a user's turn
WINDOW, DISTINCT, FROM = 36, 10, 48   # an answer of at least FROM tokens with at most DISTINCT different ones in its last WINDOW repeats itself
LOOPS_KEPT = 0.15                 # share of repeating answers that are kept: users see them too
INVENTING, ANSWERING, KEPT, DROPPED = range(4)


class Codec:
    """Tokenizes text (byte-level BPE only), and splits the chat template."""

    def __init__(self, target):
        value = lambda key: target.reader.fields[f"tokenizer.{key}"].contents() if f"tokenizer.{key}" in target.reader.fields else None
        names, rule = value("ggml.tokens"), value("ggml.pre")
        assert value("ggml.model") == "gpt2" and rule in ("gpt-2", "smollm"), f"the tokenizer '{rule}' is not supported here: use `make_data generate` with data.generator=\"draftscope\""
        self.special = set(target.specials)
        merges = [tuple(merge.split(" ")) for merge in value("ggml.merges")]
        self.tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
        digits = [pre_tokenizers.Digits(individual_digits=True)] if rule == "smollm" else []
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.add_special_tokens([AddedToken(names[i], special=True, normalized=False) for i in sorted(self.special)])
        self.end = names[value("ggml.eos_token_id")]
        self.ends = {value("ggml.eos_token_id")} | {i for i in self.special if names[i] in ("<|endoftext|>", "<|im_end|>", "<|eot_id|>")}
        bos = value("ggml.bos_token_id")
        self.names = dict(eos_token=self.end, bos_token=names[bos] if bos is not None else "")
        self.template = jinja2.Environment().from_string(value("chat_template"))
        self.frames = {}

    def tokens(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def frame(self, system):
        """The template's text before the first user message, after a user message, and between an answer and the next message."""
        if system not in self.frames:
            talk = [dict(role=role, content=mark) for role, mark in (("user", "⦃first⦄"), ("assistant", "⦃answer⦄"), ("user", "⦃second⦄"))]
            messages = ([dict(role="system", content=system)] if system else []) + talk
            text = self.template.render(messages=messages, add_generation_prompt=True, **self.names)
            opening, rest = text.split("⦃first⦄")
            closing, rest = rest.split("⦃answer⦄")
            between, last = rest.split("⦃second⦄")
            assert last == closing, "the chat template formats the first turn differently from the second"
            self.frames[system] = opening, closing, between.removeprefix(self.end)
        return self.frames[system]


def uniform(seed, purpose, position):
    """A random number in [0, 1) that depends only on the seed, the purpose and the position in a conversation."""
    drawn = hashlib.blake2b(f"{seed} {purpose} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(drawn, "little") >> 11) / 2.0**53


def circles(answer):
    return len(answer) >= FROM and len(set(answer[-WINDOW:])) <= DISTINCT


class Talk:
    """A task: its tokens so far, how many of them have run, and its state."""

    def __init__(self, line, task, codec, ctx):
        self.line, self.task, self.codec, self.ctx = line, task, codec, ctx
        self.tokens, self.roles, self.fed, self.turn = [], [], 0, 0
        self.most = task.get("max_tokens", 256)
        self.open_turn()

    @property
    def ended(self):
        return self.phase in (KEPT, DROPPED)

    def push(self, tokens, role):
        self.tokens += tokens
        self.roles += [role] * len(tokens)

    def finish(self, kept):
        self.phase = KEPT if kept else DROPPED

    def finish_when_full(self):
        """Ends a conversation whose context is full; answers before that are kept."""
        if len(self.tokens) >= self.ctx:
            self.finish(self.turn > 1 and self.fed > 0)

    def open_turn(self):
        """Adds the user's next turn, up to the answer or to the place where the model continues it."""
        opening, closing, between = self.codec.frame(self.task.get("system"))
        turn, before = self.task["turns"][self.turn], between if self.turn else opening
        whole = isinstance(turn, str)
        self.push(self.codec.tokens(f"{before}{turn.strip()}{closing}" if whole else f"{before}{turn['invent'].strip()}"), GIVEN)
        self.begun, self.phase = len(self.tokens), ANSWERING if whole else INVENTING
        self.turn += 1
        self.finish_when_full()

    def sampling(self):
        """Temperature, top k (0: all) and draw for the token after the last one."""
        temperature, top = (INVENTION["temperature"], INVENTION["top_k"]) if self.phase == INVENTING else (self.task.get("temperature", 0.0), 0)
        return temperature, top, uniform(self.task["seed"], "next", len(self.tokens))

    def take(self, token):
        """Adds the token that the model chose."""
        (self.invent if self.phase == INVENTING else self.answer)(token)

    def invent(self, token):
        count = len(self.tokens) - self.begun
        if token in self.codec.ends or count == MOST:
            if count < FEWEST:
                return self.finish(self.turn > 1)
            self.push(self.codec.tokens(self.codec.frame(self.task.get("system"))[1]), GIVEN)
            self.begun, self.phase = len(self.tokens), ANSWERING
        elif token in self.codec.special:
            return self.finish(self.turn > 1)
        else:
            self.push([token], INVENTED)
        self.finish_when_full()

    def answer(self, token):
        self.push([token], ANSWER)
        answer = self.tokens[self.begun:]
        if token in self.codec.ends:
            if self.turn < len(self.task["turns"]):
                return self.open_turn()
            self.finish(True)
        elif circles(answer):
            self.finish(self.turn > 1 or uniform(self.task["seed"], "keep", len(self.tokens)) < LOOPS_KEPT)
        elif len(answer) >= self.most or len(self.tokens) >= self.ctx:
            self.finish(True)

    def arrays(self):
        """The tokens that ran, and their roles."""
        return np.array(self.tokens[: self.fed], np.int32), np.array(self.roles[: self.fed], np.uint8)
