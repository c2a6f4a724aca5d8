"""evaluate: measures modules in the program itself, on prompts that none was trained on.

    python -m mtp_training.evaluate OUT.json NAME=DIR … [evaluate.key=value …]

Every prompt of evaluate.suite runs through `draftscope run` with each module in turn, greedily, and with sampling once for
each of evaluate.seeds (with a single seed, tokens per round vary by 0.03). Tokens per round count the bonus. Acceptance at
depth j is accepted / tested, where a draft is tested if all drafts before it in its round were accepted.
"""

import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from .config import load

ALL_MODES = {"greedy": [], "sampled": ["--temperature", "0.7", "--verify", "rejection"]}


def run(config, module, prompt, mode, seed):
    e = config["evaluate"]
    command = [config["data"]["draftscope"], "run", "--prompt", prompt, "-k", e["draft_len"], "--max-tokens", e["max_tokens"],
               "--threads", e["threads"], "--seed", seed, "--output", "summary", *ALL_MODES[mode]]
    if module:
        command += ["--mtp", module]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Sums:
    """Sums over rounds."""

    def __init__(self):
        self.rounds = self.accepted = 0
        self.seconds = 0.0
        self.by_depth = defaultdict(lambda: [0, 0])  # depth -> [tested, accepted]

    def add(self, summary):
        self.rounds += summary["rounds"]
        self.accepted += summary["num_accepted_draft_tokens"]
        self.seconds += summary["decode_seconds"]
        tested = summary["rounds"]
        for depth, accepted in enumerate(summary["accepted_per_pos"], 1):
            self.by_depth[depth][0] += tested
            self.by_depth[depth][1] += accepted
            tested = accepted

    def figures(self):
        return dict(rounds=self.rounds, tokens_per_round=round(1 + self.accepted / max(1, self.rounds), 3),
                    acceptance_by_depth={d: round(a / max(1, t), 3) for d, (t, a) in self.by_depth.items()},
                    tokens_per_second=round((self.accepted + self.rounds) / max(1e-9, self.seconds), 1))


def evaluate(config, modules, out):
    """Runs all prompts, and writes the results so far to `out` after each category."""
    e = config["evaluate"]
    suite = tomllib.loads((Path(__file__).resolve().parents[2] / e["suite"]).read_text())
    sums = {name: {mode: defaultdict(Sums) for mode in e["modes"]} for name in modules}
    result = dict(suite=e["suite"], prompts=0, draft_len=e["draft_len"], max_tokens=e["max_tokens"], greedy_answers_that_differ=[])
    for category, prompts in suite.items():
        for prompt in prompts["prompts"]:
            answers = set()
            for mode in e["modes"]:
                for seed in e["seeds"] if mode == "sampled" else e["seeds"][:1]:
                    for name, module in modules.items():
                        summary = run(config, module, prompt, mode, seed)
                        for key in (category, "all"):
                            sums[name][mode][key].add(summary)
                        if mode == "greedy":
                            answers.add(tuple(summary["output_token_ids"]))
            result["prompts"] += 1
            result["greedy_answers_that_differ"] += [prompt] if len(answers) > 1 else []
        figures = lambda by_key: {key: by_key[key].figures() for key in [k for k in by_key if k != "all"] + ["all"]}
        result["modules"] = {name: {mode: figures(sums[name][mode]) for mode in e["modes"]} for name in modules}
        Path(out).write_text(json.dumps(result, indent=1) + "\n")
    return result


def table(result):
    """Tokens per round as Markdown."""
    names = list(result["modules"])
    columns = [(n, m) for m in result["modules"][names[0]] for n in names]
    lines = ["| category | " + " | ".join(f"{n}, {m}" for n, m in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for key in result["modules"][names[0]][columns[0][1]]:
        lines.append(f"| {key} | " + " | ".join(f"{result['modules'][n][m][key]['tokens_per_round']:.2f}" for n, m in columns) + " |")
    for n, m in columns:
        by_depth = result["modules"][n][m]["all"]["acceptance_by_depth"]
        lines.append(f"\n{n}, {m}: acceptance by depth " + ", ".join(f"{d}: {a:.3f}" for d, a in by_depth.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    settings, named = [], {}
    for argument in sys.argv[2:]:
        name, value = argument.split("=", 1)
        if "." in name:
            settings.append(argument)
        else:
            named[name] = value
    print(table(evaluate(load(settings), named, sys.argv[1])))
