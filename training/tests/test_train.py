"""Training after failures, signals and bad gradients.

    python -m unittest discover tests
"""

import io
import json
import os
import signal
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import torch

from mtp_training.make_data import status
from mtp_training.train import Log, Run, StopSignal


class Ends(unittest.TestCase):
    def test_a_process_that_a_signal_ended_counts_as_failed(self):
        self.assertEqual(status([0, 0]), 0)
        self.assertEqual(status([0, -9]), 137)
        self.assertEqual(status([3, -9]), 3)

    def test_the_first_signal_is_recorded_and_a_second_one_kills(self):
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            stop = StopSignal()
            self.assertEqual(stop.signal, 0)
            os.kill(os.getpid(), signal.SIGTERM)
            self.assertEqual(stop.signal, signal.SIGTERM)
            self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), before):
                signal.signal(number, handler)


class Numbers(unittest.TestCase):
    def run_of_one_weight(self, gradient):
        run = object.__new__(Run)
        run.train, run.state = dict(step_rows=4, clip=1.0, lr=0.5), dict(step=7)
        run.module = torch.nn.Linear(1, 1, bias=False)
        run.module.weight.grad = torch.full((1, 1), gradient)
        optimiser = torch.optim.SGD(run.module.parameters(), lr=1.0)

        class Optimisers:
            def step(self, lr):
                optimiser.param_groups[0]["lr"] = lr
                optimiser.step()

        run.optimisers = Optimisers()
        return run

    def test_gradients_that_are_not_numbers_end_the_run_and_change_no_weight(self):
        for gradient in (float("nan"), float("inf")):
            run = self.run_of_one_weight(gradient)
            before = run.module.weight.detach().clone()
            with self.assertRaises(SystemExit) as ended:
                run.step(0.1, 2)
            self.assertIn("step 7", str(ended.exception.code))
            self.assertTrue(torch.equal(run.module.weight, before))

    def test_a_step_uses_the_mean_over_its_rows(self):
        run = self.run_of_one_weight(0.1)
        before = run.module.weight.item()
        self.assertAlmostEqual(run.step(0.5, 2), 0.2, places=6)   # step_rows is twice the number of rows
        self.assertAlmostEqual(run.module.weight.item(), before - 0.1, places=6)

    def test_a_log_is_json(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            log = Log(Path(folder) / "log.jsonl")
            log(event="train", ce=[1.5])
            with self.assertRaises(ValueError):
                log(event="train", ce=[float("nan")])
            log.file.close()
            self.assertEqual([json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()], [dict(event="train", ce=[1.5])])


if __name__ == "__main__":
    unittest.main()
