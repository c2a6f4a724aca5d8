#!/usr/bin/env python3
"""Race draftscope with llama.cpp on several files and print one table: a row a file.

    benches/shapes/race.py FOLDER/llama-1b.*.gguf

The turns, rounds and ratios are those of ../peers/compare.py: the programs alternate, ratios are formed within an
alternation, and a cell has the median with the 10th to 90th percentile. The lines after the table are about draftscope
alone: T(1) of each file over that of the first file, and that ratio over the ratio of their sizes.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import compare  # noqa: E402

HEADINGS = (
    "file", "MB", "llama.cpp, ms", "draftscope, ms", "advantage", "llama.cpp T(2), T(4), T(8) ÷ T(1)",
    "draftscope T(2), T(4), T(8) ÷ T(1)", "prefill advantage",
)


def growth(runs: list[dict]) -> str:
    return ", ".join(f"{median(run['ms'][m] / run['ms'][1] for run in runs):.2f}" for m in (2, 4, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description="Race draftscope with llama.cpp on several files.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=200)
    parser.add_argument("--alternations", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=6)
    args = parser.parse_args()
    print(compare.row(*HEADINGS))
    print(compare.row("---", *["---:"] * (len(HEADINGS) - 1)))
    plain = []
    for path in args.models:
        options = argparse.Namespace(**vars(args), model=str(path))
        peers, owns = zip(*compare.alternate(options, args.threads))
        size = path.stat().st_size / 1e6
        first = [[run["ms"][1] for run in side] for side in (peers, owns)]
        plain.append((path.name, size, median(first[1])))
        print(compare.row(
            path.name, f"{size:.0f}", compare.spread(first[0]), compare.spread(first[1]),
            compare.spread([peer / own for peer, own in zip(*first)]) + " ×", growth(peers), growth(owns),
            compare.spread([own["prefill"] / peer["prefill"] for peer, own in zip(peers, owns)]) + " ×",
        ), flush=True)
    _, size, took = plain[0]
    for name, other_size, other in plain[1:]:
        share = other / took / (other_size / size)
        print(f"\n{name}: T(1) is {other / took:.3f} times that of {plain[0][0]}, {share:.3f} of the ratio of bytes.")


if __name__ == "__main__":
    main()
