"""answers.py compared with plain PyTorch and with shards of the program.

    python -m unittest discover tests     (in the folder `training`, with its environment)
"""

import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from mtp_training import shards
from mtp_training.answers import Open, drawn, highest
from mtp_training.config import load
from mtp_training.shards import ANSWER, GIVEN, INVENTED
from mtp_training.talk import ANSWERING, DROPPED, INVENTING, KEPT, Codec, Talk, circles
from mtp_training.target import Target
from mtp_training.wide import Kept, Plain, compiled

CONFIG = load()


class Drawing(unittest.TestCase):
    def test_the_best_token_is_the_first_as_in_pytorch(self):
        logits = (torch.randn(8, 1000, generator=torch.manual_seed(1)) * 3).round()   # many values are equal
        tokens, values = highest(logits)
        self.assertTrue(torch.equal(tokens, logits.argmax(-1)) and torch.equal(values, logits.amax(-1)))

    def test_draws_follow_the_cumulated_probabilities(self):
        logits, draws = torch.randn(1, 3000, generator=torch.manual_seed(2)) * 2, torch.rand(5000)
        rows = len(draws)
        tokens = drawn(logits.expand(rows, -1).contiguous(), torch.full((rows,), 0.7), torch.zeros(rows, dtype=torch.long), draws)
        cumulated = (logits[0].double() / 0.7).softmax(-1).cumsum(0)
        wanted = torch.searchsorted(cumulated, draws.double(), right=True)
        self.assertGreater((tokens == wanted).float().mean(), 0.998)   # rounding differs at the edges

    def test_greedy_rows_and_top_k(self):
        logits = torch.randn(1, 1000, generator=torch.manual_seed(3)).expand(600, -1).contiguous()
        temperatures, tops = torch.tensor([0.0, 1.0]).repeat(300), torch.full((600,), 5)
        tokens = drawn(logits, temperatures, tops, torch.rand(600))
        self.assertEqual(set(tokens[::2].tolist()), {int(logits[0].argmax())})
        self.assertEqual(set(tokens[1::2].tolist()), set(logits[0].topk(5).indices.tolist()))


class Attention(unittest.TestCase):
    def test_the_kernel_equals_pytorchs_attention(self):
        for heads, kv_heads, head_dim in ((9, 3, 64), (8, 8, 64), (14, 2, 64), (16, 8, 128)):
            s = SimpleNamespace(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
            with tempfile.TemporaryDirectory() as cache:
                pasts = Kept(s, 1, 3, 64, compiled(Path(cache))), Plain(s, 1, 3, 64, torch.device("cpu"))
            angle = torch.arange(64)[:, None] / 100.0 ** torch.linspace(0, 1, head_dim // 2)
            positions = dict.fromkeys(range(3), 0)
            for step in range(12):
                rows = []
                for slot in range(3):
                    for _ in range((step + slot) % 4):
                        rows.append((slot, positions[slot]))
                        positions[slot] += 1
                slots, at = torch.tensor(rows).T.contiguous()
                qkv = torch.randn(len(rows), (heads + 2 * kv_heads) * head_dim).bfloat16()
                ours, theirs = (past.attend(0, qkv, slots, at, angle.cos(), angle.sin()).float() for past in pasts)
                self.assertLess(float((ours - theirs).norm() / theirs.norm()), 0.01, (heads, kv_heads, head_dim, step))


class Talking(unittest.TestCase):
    """With a codec of one token per letter."""

    codec = SimpleNamespace(tokens=lambda text: [ord(c) for c in text], frame=lambda system: ("<", ">", "|"), ends={0}, special={0, 1})

    def talk(self, turns, ctx=1000, **more):
        return Talk(0, dict(turns=turns, seed=1, **more), self.codec, ctx)

    def test_a_user_turn_follows_an_answer(self):
        talk = self.talk([" hi ", "bye"])
        self.assertEqual((talk.tokens, talk.phase), ([ord(c) for c in "<hi>"], ANSWERING))
        for token in (65, 66, 0):
            talk.take(token)
        self.assertEqual(bytes(talk.tokens), b"<hi>AB\0|bye>")
        talk.take(0)
        talk.fed = len(talk.tokens) - 1
        self.assertEqual(talk.phase, KEPT)
        self.assertEqual(talk.arrays()[1].tolist(), [GIVEN] * 4 + [ANSWER] * 3 + [GIVEN] * 5)

    def test_the_model_continues_a_beginning(self):
        talk = self.talk([dict(invent="Wh")])
        self.assertEqual(talk.phase, INVENTING)
        for token in (97, 98, 99, 0):
            talk.take(token)
        self.assertEqual((bytes(talk.tokens), talk.phase, talk.roles.count(INVENTED)), (b"<Whabc>", ANSWERING, 3))
        short = self.talk([dict(invent="Wh")])
        short.take(0)
        self.assertEqual(short.phase, DROPPED)

    def test_answers_end_if_they_are_long_or_repeat_themselves(self):
        talk = self.talk(["hi"], max_tokens=2)
        talk.take(65), talk.take(66)
        self.assertEqual(talk.phase, KEPT)
        self.assertTrue(circles([1, 2, 3] * 16) and not circles([1, 2, 3] * 15) and not circles(list(range(60))))


class Shards(unittest.TestCase):
    def test_a_shard_is_read_as_it_was_written_and_may_be_empty(self):
        plan = dict(shard_tasks=2, tasks=4, hidden_size=3)
        talk = lambda line, phase: SimpleNamespace(line=line, phase=phase, fed=2, task=dict(temperature=0.5), arrays=lambda: (np.array([7, line], np.int32), np.array([GIVEN, ANSWER], np.uint8)))
        states = torch.arange(12).view(4, 3).half()
        with tempfile.TemporaryDirectory() as data:
            (Path(data) / "shards").mkdir()
            shelf = Open(SimpleNamespace(data=Path(data)), [], plan)
            ends = [shelf.end(talk(line, phase), states + line, states[:, :0]) for line, phase in ((1, KEPT), (2, DROPPED), (0, KEPT), (3, DROPPED))]
            self.assertEqual(ends, [False, False, True, True])
            whole, empty = map(shards.read, shards.paths(data))
        self.assertEqual(([c.task for c in whole], empty), ([0, 1], []))
        for c in whole:
            self.assertEqual((c.tokens.tolist(), c.roles.tolist(), c.temperature), ([7, c.task], [GIVEN, ANSWER], 0.5))
            np.testing.assert_array_equal(c.hidden, (states + c.task)[:2])


@unittest.skipUnless(Path(CONFIG["train"]["gguf"]).exists(), "needs the default model")
class Tokens(unittest.TestCase):
    def test_conversations_begin_like_those_of_the_program(self):
        written = shards.paths(CONFIG.data)
        if not written:
            self.skipTest("needs shards")
        codec, tasks = Codec(Target(CONFIG["train"]["gguf"])), [json.loads(line) for line in (CONFIG.data / "tasks.jsonl").read_text().splitlines()]
        for conversation in shards.read(written[0]):
            talk = Talk(conversation.task, tasks[conversation.task], codec, CONFIG["data"]["ctx"])
            np.testing.assert_array_equal(conversation.tokens[: len(talk.tokens)], talk.tokens)


if __name__ == "__main__":
    unittest.main()
