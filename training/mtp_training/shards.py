"""Reads the shards of `draftscope generate`: conversations with the target's hidden states.

Each shard is a safetensors file (see crates/engine/src/generate/shard.rs): tokens, roles, hidden (f16, after the final
norm), starts, tasks, temperatures, and layers if the plan names blocks. Files are memory-mapped, so only the parts that a
batch needs are read.
"""

import json
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GIVEN, ANSWER, INVENTED = 0, 1, 2
DTYPES = {"I32": np.int32, "U8": np.uint8, "F16": np.float16, "I64": np.int64, "F32": np.float32}


@dataclass
class Conversation:
    tokens: np.ndarray   # [n] i32
    roles: np.ndarray    # [n] u8
    hidden: np.ndarray   # [n, d] f16
    task: int            # line of the task file
    temperature: float
    layers: np.ndarray | None = None   # [n, layers · d] f16, from the shard or from states.py


def paths(data):
    return sorted(Path(data, "shards").glob("shard-*.safetensors"))


def within(data):
    """The blocks after which the shards themselves have states."""
    plan = Path(data, "shards/plan.json")
    return json.loads(plan.read_text()).get("hidden_layers", []) if plan.exists() else []


def read(path, states=None):
    """All conversations of a shard, as views of the mapped file and of the file of states, if there is one."""
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    size = int.from_bytes(memory[:8], "little")
    header = json.loads(memory[8:8 + size])
    array = {}
    for name, entry in header.items():
        if name != "__metadata__":
            dtype = np.dtype(DTYPES[entry["dtype"]])
            count = int(np.prod(entry["shape"]))
            array[name] = np.frombuffer(memory, dtype, count, 8 + size + entry["data_offsets"][0]).reshape(entry["shape"])
    starts = array["starts"]
    layers = np.load(states, mmap_mode="r") if states else array.get("layers")
    assert layers is None or len(layers) == starts[-1], f"{states} does not belong to {path}; delete it and run `states` again"
    return [Conversation(array["tokens"][a:b], array["roles"][a:b], array["hidden"][a:b], int(array["tasks"][i]), float(array["temperatures"][i]),
                         None if layers is None else layers[a:b])
            for i, (a, b) in enumerate(zip(starts[:-1], starts[1:]))]
