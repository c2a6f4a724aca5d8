"""Reading shards with and without the target's inner states."""

import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.numpy import save_file

from mtp_training import data, shards, states

WANTED, D = [7, 16, 25], 4


class Config(dict):
    """A configuration with only what reading needs."""

    def __init__(self, folder):
        super().__init__(train=dict(validation_one_in=40, warmest=1.0, pool_shards=1))
        self.data = Path(folder)


class Shards(unittest.TestCase):
    def written(self, folder, within):
        """One shard of two conversations; `within` are the blocks whose states it has."""
        config = Config(folder)
        (config.data / "shards").mkdir()
        (config.data / "shards/plan.json").write_text(json.dumps(dict(hidden_layers=within) if within else {}))
        n = 5
        tensors = dict(tokens=np.arange(n, dtype=np.int32), roles=np.array([0, 1, 1, 0, 1], np.uint8), hidden=np.ones((n, D), np.float16),
                       starts=np.array([0, 3, n], np.int64), tasks=np.array([0, 1], np.int64), temperatures=np.zeros(2, np.float32))
        if within:
            tensors["layers"] = np.arange(n * len(within) * D, dtype=np.float16).reshape(n, -1)
        save_file(tensors, config.data / "shards/shard-00000.safetensors")
        return config

    def test_states_in_the_shard_are_read_from_it(self):
        with tempfile.TemporaryDirectory() as folder:
            config = self.written(folder, WANTED)
            read = data.Data(config, 1, SimpleNamespace(rank=0, size=1), WANTED)
            (path,) = read.paths()
            first, second = read.read(path)
            self.assertEqual((first.layers.shape, second.layers.shape), ((3, 3 * D), (2, 3 * D)))
            self.assertEqual(float(second.layers[0, 0]), 3 * 3 * D)
            layers = data.tensors([first, second], torch.device("cpu"))[2]
            np.testing.assert_array_equal(layers[1, :2].numpy(), second.layers)

    def test_shards_without_the_wanted_states_wait_for_them(self):
        for within in ([], [1, 2, 3]):
            with tempfile.TemporaryDirectory() as folder:
                config = self.written(folder, within)
                read = data.Data(config, 1, SimpleNamespace(rank=0, size=1), WANTED)
                self.assertEqual(read.paths(), [])
                (path,) = shards.paths(config.data)
                beside = states.path(config, WANTED, path)
                beside.parent.mkdir()
                states.write(beside, np.full((5, 3 * D), 2, np.float16))
                self.assertEqual(read.paths(), [path])
                self.assertEqual({float(x) for c in read.read(path) for x in c.layers.flat}, {2.0})


if __name__ == "__main__":
    unittest.main()
