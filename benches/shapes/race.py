#!/usr/bin/env python3
"""Race draftscope with llama.cpp on several files, in slices that add up, and print one table: a row a file.

    benches/shapes/race.py FOLDER/llama-1b.*.gguf                                  # all at once
    benches/shapes/race.py --results race.json --alternations 3 FOLDER/llama-1b.Q6_K.gguf   # a slice
    benches/shapes/race.py --results race.json                                     # the table of all slices

The turns, rounds and ratios are those of ../peers/compare.py: the programs alternate, ratios are formed within an
alternation, and a cell has the median with the 10th to 90th percentile. With --results each alternation is appended to
a file of JSON lines as soon as it ends, so a slice that is cut off loses one, and the table counts all of the file.

The last columns say how near both are to the machine: the rate at which memory was read in the same turns (512 MiB in
order, all threads), and the share of it that plain decoding used. Above nine tenths, no kernel can be much faster.

With --own draftscope runs alone, and the files take turns, one alternation each, in an order that changes: for T(1) of
one file over that of another. After the table stand these ratios over the first file named, with the 95 % interval of
the median, and the same over the ratio of the files' sizes.
"""

import argparse
import json
import os
import sys
from math import comb
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import compare  # noqa: E402

HEADINGS = (
    "file", "MB", "pairs", "llama.cpp, ms", "draftscope, ms", "advantage", "llama.cpp T(2), T(4), T(8) ÷ T(1)",
    "draftscope T(2), T(4), T(8) ÷ T(1)", "prefill advantage", "memory, GB/s", "share read by llama.cpp", "by draftscope",
)


def growth(runs: list[dict]) -> str:
    return ", ".join(f"{median(run['ms'][m] / run['ms'][1] for run in runs):.2f}" for m in (2, 4, 8))


def interval(values: list[float]) -> str:
    """Median and its 95 % interval by ranks (the sign test), the whole range where there are too few."""
    ranked, n = sorted(values), len(values)
    below, tail = 0, 0.0
    while below < n // 2 and tail + comb(n, below) / 2**n <= 0.025:
        tail += comb(n, below) / 2**n
        below += 1
    cut = max(below - 1, 0)
    return f"{median(ranked):.3f} ({ranked[cut]:.3f}–{ranked[n - 1 - cut]:.3f})"


def reading(peer: dict, own: dict, size: int) -> tuple[float, float, float] | None:
    """The rate at which memory was read in the same turn, in GB/s, and what share of it plain decoding of each used: the
    bytes of the file, or of weights and cache as they are in memory, ÷ T(1) ÷ that rate."""
    if "rate" not in own:
        return None
    rate = own["rate"] / 1e9
    used = [read / 1e6 / side["ms"][1] / rate for read, side in ((size, peer), (own["bytes"], own))]
    return rate, *used


def table(races: dict[str, list[dict]]) -> str:
    lines = [compare.row(*HEADINGS), compare.row("---", *["---:"] * (len(HEADINGS) - 1))]
    for name, runs in races.items():
        peers, owns = [run["peer"] for run in runs], [run["own"] for run in runs]
        first = [[run["ms"][1] for run in side] for side in (peers, owns)]
        rates = [reading(run["peer"], run["own"], run["size"]) for run in runs]
        known = [rate for rate in rates if rate]
        read = [compare.spread(list(values)) for values in zip(*known)] if known else ["–"] * 3
        lines.append(compare.row(
            name, f"{runs[0]['size'] / 1e6:.0f}", len(runs), compare.spread(first[0]), compare.spread(first[1]),
            compare.spread([peer / own for peer, own in zip(*first)]) + " ×", growth(peers), growth(owns),
            compare.spread([own["prefill"] / peer["prefill"] for peer, own in zip(peers, owns)]) + " ×",
            *read,
        ))
    return "\n".join(lines)


def against_first(turns: dict[str, list[dict]]) -> str:
    """Of draftscope alone: T(1) of each file over that of the first, within a turn, and T(m) over T(1) of each."""
    lines = []
    names = list(turns)
    for name, runs in turns.items():
        by_turn = {run["turn"]: run for run in turns[names[0]]}
        pairs = [(run, by_turn[run["turn"]]) for run in runs if run["turn"] in by_turn]
        if name != names[0] and pairs:
            ratio = [run["own"]["ms"][1] / base["own"]["ms"][1] for run, base in pairs]
            size = runs[0]["size"] / turns[names[0]][0]["size"]
            lines.append(
                f"{name}: T(1) is {interval(ratio)} times that of {names[0]} in {len(pairs)} turns; its bytes {size:.3f} times; "
                f"{interval([one / size for one in ratio])} of the ratio of bytes."
            )
        for m in (4, 8):
            grown = [run["own"]["ms"][m] / run["own"]["ms"][1] for run in runs]
            lines.append(f"{name}: T({m}) ÷ T(1) is {interval(grown)} in {len(grown)} turns.")
    return "\n".join(lines)


def whole_keys(side: dict | None) -> dict | None:
    """JSON has texts for keys; widths are numbers."""
    return side and {**side, "ms": {int(m): ms for m, ms in side["ms"].items()}}


def read(path: Path | None) -> list[dict]:
    if path is None or not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**line, "peer": whole_keys(line["peer"]), "own": whole_keys(line["own"])} for line in lines]


def by_file(lines: list[dict]) -> dict[str, list[dict]]:
    files: dict[str, list[dict]] = {}
    for line in lines:
        files.setdefault(line["file"], []).append(line)
    return files


def measure(args: argparse.Namespace, already: list[dict]):
    """One line of results after the other."""
    def line(path: Path, peer: dict | None, own: dict, turn: int) -> dict:
        return {"file": path.name, "size": path.stat().st_size, "turn": turn, "peer": peer, "own": own}

    first = 1 + max((line["turn"] for line in already), default=-1)
    for turn in range(first, first + args.alternations):
        for path in args.models if turn % 2 == 0 else reversed(args.models):
            if args.own:
                yield line(path, None, compare.draftscope(str(path), args.threads, args.ctx, args.turns), turn)
                continue
            options = argparse.Namespace(**{**vars(args), "alternations": 1, "model": str(path), "first": turn})
            [(peer, own)] = compare.alternate(options, args.threads)
            yield line(path, peer, own, turn)


def main() -> None:
    parser = argparse.ArgumentParser(description="Race draftscope with llama.cpp on several files.")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--results", type=Path, help="JSON lines that alternations are appended to, and the table counts")
    parser.add_argument("--own", action="store_true", help="draftscope alone, files in turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=200)
    parser.add_argument("--alternations", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=6)
    args = parser.parse_args()
    lines = read(args.results)
    for line in measure(args, lines.copy()):
        lines.append(line)
        if args.results:
            with args.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
        print(f"{line['file']}: T(1) {line['own']['ms'][1]:.2f} ms, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    raced, alone = ([line for line in lines if (line["peer"] is None) == own] for own in (False, True))
    if raced:
        print(table(by_file(raced)))
    print("\n" + against_first(by_file(alone or raced)))


if __name__ == "__main__":
    main()
