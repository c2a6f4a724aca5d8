"""The card that is made from the files of a run.

    python -m unittest discover tests
"""

import json
import tempfile
import unittest
from pathlib import Path

from mtp_training.card import agreement, data


class Card(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_card_has_the_last_validation_and_skips_a_truncated_line(self):
        log = self.folder / "log.jsonl"
        self.assertEqual(agreement(log), "There was no validation.")
        line = lambda event, tokens, agree: json.dumps(dict(event=event, tokens=tokens, agree=agree, overlap=[0.5, 0.4]))
        log.write_text("\n".join([line("validation", 1000, [0.1, 0.1]), line("validation", 2000, [0.6, 0.55]), line("train", 2500, [0.9, 0.9]), '{"event": "fin']))
        text = agreement(log)
        self.assertIn("after 2,000 chain starts", text)
        self.assertIn("| 1 | 0.600 | 0.500 |\n| 2 | 0.550 | 0.400 |", text)

    def test_a_card_has_answer_tokens_by_category_largest_first(self):
        stats = self.folder / "stats.json"
        self.assertIn("not counted", data(stats))
        stats.write_text(json.dumps(dict(total=dict(answer=12000), different_first_turns=30, excluded_as_near=2, answer_tokens_by_category=dict(code=2000, story=10000))))
        self.assertIn("12,000 tokens to 30 different prompts (story 10,000, code 2,000); 2 conversations", data(stats))


if __name__ == "__main__":
    unittest.main()
