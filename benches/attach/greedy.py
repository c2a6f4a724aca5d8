"""The greedy text of llama-server and of draftscope's own engine on one file: where they part, with the margin.

Each prompt is recorded once by either engine, raw and without drafts on our side; `draftscope diff --json` names the first
difference and the margin between the two best tokens there (ours; the server's are asked with --probe).
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

from server import PROGRAM, PYTHON, Server

PROMPTS = [
    "The capital of France is", "Once upon a time", "Water boils at", "The three primary colors are", "def add(a, b):",
    "The opposite of hot is", "In 1969, humans", "A triangle has", "The largest planet is", "To bake bread, you need",
    "The sun rises in the", "My favorite book is", "The quick brown fox", "Photosynthesis is", "Two plus two equals",
    "The ocean is", "She opened the door and", "A good teacher", "The first step is to", "Music is",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--python", default=PYTHON)
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--port", type=int, default=18332)
    args = parser.parse_args()
    parted = 0
    with tempfile.TemporaryDirectory() as folder, Server(args.python, args.model, "ngram-simple", args.port) as server:
        common = ["--raw", "--max-tokens", str(args.tokens), "--output", "summary"]
        for number, prompt in enumerate(PROMPTS, 1):
            ours, theirs = (pathlib.Path(folder) / f"{number}-{name}.dscope.jsonl" for name in ("ours", "theirs"))
            run = [args.program, "run", *common, prompt]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
            subprocess.run([*run, "-k", "0", "--model", args.model, "--trace", ours], **quiet)
            subprocess.run([*run, "--attach", server.url, "--probe", "--trace", theirs], **quiet)
            diff = json.loads(subprocess.run([args.program, "diff", "--json", ours, theirs], capture_output=True, text=True).stdout)
            turn = diff["turns"][0]
            if not turn["same_prompt"]:
                print(f"{number:2}: the prompts are encoded differently")
            elif turn["divergence"] is None:
                print(f"{number:2}: identical, {turn['identical']} tokens")
            else:
                parted += 1
                at = turn["divergence"]
                sides = ", ".join(
                    f"{name} {side['token'].get('text')!r} margin {side['margin'] if side['margin'] is None else round(side['margin'], 4)}"
                    for name, side in zip(("ours", "theirs"), at["sides"])
                )
                print(f"{number:2}: token {at['index'] + 1} of {args.tokens}: {sides}{' (near tie)' if at['near_tie'] else ''}")
    print(f"{len(PROMPTS) - parted} of {len(PROMPTS)} alike, {parted} part")


main()
