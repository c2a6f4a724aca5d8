"""What a card tells of the files that a run left behind.

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

    def test_the_last_validation_is_told_and_a_line_that_was_cut_off_is_not(self):
        log = self.folder / "log.jsonl"
        self.assertEqual(agreement(log), "Nothing was validated.")
        line = lambda event, tokens, agree: json.dumps(dict(event=event, tokens=tokens, agree=agree, overlap=[0.5, 0.4]))
        log.write_text("\n".join([line("validation", 1000, [0.1, 0.1]), line("validation", 2000, [0.6, 0.55]), line("train", 2500, [0.9, 0.9]), '{"event": "fin']))
        told = agreement(log)
        self.assertIn("after 2,000 chain starts", told)
        self.assertIn("| 1 | 0.600 | 0.500 |\n| 2 | 0.550 | 0.400 |", told)

    def test_answers_are_told_by_category_the_largest_first(self):
        stats = self.folder / "stats.json"
        self.assertIn("not counted", data(stats))
        stats.write_text(json.dumps(dict(total=dict(answer=12000), different_first_turns=30, excluded_as_near=2, answer_tokens_by_category=dict(code=2000, story=10000))))
        self.assertIn("12,000 tokens to 30 different prompts (story 10,000, code 2,000); 2 conversations", data(stats))


if __name__ == "__main__":
    unittest.main()
