"""make_data: writes the tasks, and lets `draftscope generate` or PyTorch (answers.py) answer them.

    python -m mtp_training.make_data tasks     writes DATA/tasks.jsonl (once; the same config gives the same file)
    python -m mtp_training.make_data generate  runs data.processes of data.generator until all shards exist, or until stopped
    python -m mtp_training.make_data stats     counts what exists
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter

import numpy as np

from . import asks, prompts, shards, states
from .config import load
from .near import Near, forbidden
from .target import Target
from .topics import Topics
from .words import Words


def tasks(config):
    data = config["data"]
    rng = random.Random(data["seed"])
    words, measured = Words(data["material"]), forbidden(data["forbidden"])
    topics, near = Topics(words.root, measured), Near(measured)
    path = config.data / "tasks.jsonl"
    seen, count, dropped, nearest, categories = set(), 0, [], 0.0, Counter()
    with open(path.with_suffix(".part"), "w") as out:
        while count < data["tasks"]:
            category, turns = asks.conversation(rng, topics) if rng.random() < data["asks"] else prompts.conversation(rng, words)
            first = turns[0] if isinstance(turns[0], str) else None
            if first is not None:
                key = " ".join(first.lower().split())
                if key in seen and not (category == "chat" and rng.random() < 0.02):
                    continue
                seen.add(key)
                score, prompt = near.nearest(first)
                if score >= data["near"]:
                    dropped.append((round(score, 2), first[:80], prompt[:80]))
                    continue
                nearest = max(nearest, score)
            task = {
                "turns": turns,
                "seed": data["seed"] * 1_000_000 + count,
                "temperature": rng.choices([0.0, 0.7, 1.0], data["temperatures"])[0],
                "max_tokens": rng.choices(data["max_tokens"], data["max_tokens_weights"])[0],
                "category": category,
            }
            categories[category] += 1
            out.write(json.dumps(task) + "\n")
            count += 1
    path.with_suffix(".part").rename(path)
    report = dict(tasks=count, different_first_prompts=len(seen), categories=dict(categories), forbidden=len(near.prompts),
                  dropped_as_near=len(dropped), nearest_kept=round(nearest, 3), examples_dropped=sorted(dropped, reverse=True)[:20])
    (config.data / "tasks.report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


def generators(config):
    """A command for each of data.processes, with one thread each."""
    data = config["data"]
    count = data["processes"]
    parts = [f"{i}/{count}" for i in range(count)]
    if data["generator"] == "pytorch":
        return [[sys.executable, "-m", "mtp_training.answers", part, *sys.argv[2:]] for part in parts]
    command = [data["draftscope"], "generate", "--tasks", config.data / "tasks.jsonl", "--out", config.data / "shards",
               "--ctx", data["ctx"], "--shard-tasks", data["shard_tasks"]]
    if wanted := states.after_blocks(config, Target(config["train"]["gguf"]).layers):
        command += ["--hidden-layers", ",".join(map(str, wanted))]
    return [[*map(str, command), "--part", part] for part in parts]


def generate(config):
    running = [subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}) for command in generators(config)]
    try:
        return status([process.wait() for process in running])
    except KeyboardInterrupt:
        return 130


def status(codes):
    """The exit status that a shell would report for these codes: that of the first failure; a negative code is a signal."""
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def first_turn(target, conversation):
    """The first message of the user, also if the model invented it."""
    answers = np.flatnonzero(conversation.roles == shards.ANSWER)
    text = target.text(conversation.tokens[:answers[0]] if len(answers) else conversation.tokens)
    return text.split("<|im_start|>user\n", 1)[-1].split("<|im_end|>", 1)[0]   # with other templates: all text before the answer


def stats(config):
    """Counts tokens, and checks all first turns for near-duplicates: `tasks` could not check invented prompts, and measured
    prompts may have been added since. Training skips the conversations that this finds."""
    target = Target(config["train"]["gguf"])
    near = Near(forbidden(config["data"]["forbidden"]))
    total, categories, excluded, prompts_seen = Counter(), Counter(), [], set()
    lines = [json.loads(line) for line in open(config.data / "tasks.jsonl")]
    for path in shards.paths(config.data):
        for conversation in shards.read(path):
            answer = int((conversation.roles == shards.ANSWER).sum())
            total.update(conversations=1, tokens=len(conversation.tokens), answer=answer, greedy=answer * (conversation.temperature == 0))
            categories[lines[conversation.task]["category"]] += answer
            first = first_turn(target, conversation)
            prompts_seen.add(first)
            if near.nearest(first)[0] >= config["data"]["near"]:
                excluded.append(conversation.task)
        total["shards"] += 1
    (config.data / "excluded.json").write_text(json.dumps(excluded))
    report = dict(total=total, different_first_turns=len(prompts_seen), excluded_as_near=len(excluded), answer_tokens_by_category=categories)
    (config.data / "stats.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    sys.exit({"tasks": tasks, "generate": generate, "stats": stats}[sys.argv[1]](load(sys.argv[2:])))
