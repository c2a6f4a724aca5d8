#!/usr/bin/env python3
"""Race draftscope's native backend with llama.cpp on the same file, and print a markdown table.

    benches/peers/llama_cpp.sh
    cargo build --release
    benches/peers/compare.py [MODEL.gguf]

It times T(m), one pass over m tokens with the logits of all of them: T(1) is plain decoding, T(m)
checks m - 1 drafted tokens. On a shared machine the speed drifts within minutes, so the two programs
alternate, a few rounds each, and ratios are formed only within an alternation. The tables have the
median over the alternations and, in parentheses, the 10th to 90th percentile. The programs change
their order from one alternation to the next.

DRAFTSCOPE_BIN and VCURVE_BIN replace the binaries in target/.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
DRAFTSCOPE = os.environ.get("DRAFTSCOPE_BIN", str(ROOT / "target/release/draftscope"))
VCURVE = os.environ.get("VCURVE_BIN", str(ROOT / "target/peers/vcurve"))
MODEL = "smollm2-135m"
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def output(*command: object) -> str:
    """Standard output of a command; standard error is shown only if it fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing: run benches/peers/llama_cpp.sh and cargo build --release")
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}):\n{done.stderr}")
    return done.stdout


def llama_cpp(model: str, threads: int, ctx: int, rounds: int) -> dict:
    """One run of llama.cpp: median T(m) in ms, and prompt tokens per second."""
    lines = output(VCURVE, model, threads, ctx, rounds + 1).splitlines()
    kept = [json.loads(line) for line in lines][1:]  # the first round is the warm-up
    return {
        "ms": {m: median(r["decode_us"][str(m)] for r in kept) / 1e3 for m in WIDTHS},
        "prefill": ctx / median(r["prefill_us"] for r in kept) * 1e6,
    }


def draftscope(model: str, threads: int, ctx: int, rounds: int) -> dict:
    """One run of draftscope, which drops its warm-up itself."""
    options = ["--model", model, "--at", ctx, "--turns", rounds, "--threads", threads]
    cost = json.loads(output(DRAFTSCOPE, "explain", "--costs-only", "--output", "summary", *options))
    if cost["threads"] != threads:
        sys.exit(f"draftscope ran with {cost['threads']} threads, not {threads}")
    return {
        "ms": {m: cost["verify"][m - 1]["median_us"] / 1e3 for m in WIDTHS},
        "prefill": cost["prefill_tokens_per_second"],
        "bandwidth": cost["bandwidth_share"],
        "read": cost["read_share"],
        "bytes": cost["pass_bytes"] + cost["cache_bytes"],
        "rate": cost["memory_bandwidth"],
        "backend": cost["backend"],
    }


def alternate(args: argparse.Namespace, threads: int) -> list[tuple[dict, dict]]:
    """Pairs of (llama.cpp, draftscope), each pair measured back to back; `first` numbers the first alternation."""
    pairs = []
    first = getattr(args, "first", 0)
    for turn in range(first, first + args.alternations):
        runs = {}
        for program in (llama_cpp, draftscope) if turn % 2 == 0 else (draftscope, llama_cpp):
            rounds = args.rounds if program is llama_cpp else args.turns
            runs[program] = program(args.model, threads, args.ctx, rounds)
        peer, own = runs[llama_cpp], runs[draftscope]
        pairs.append((peer, own))
        print(
            f"{threads} thread(s), {turn + 1} of {first + args.alternations}: T(1) {peer['ms'][1]:.2f} ms and "
            f"{own['ms'][1]:.2f} ms, load {os.getloadavg()[0]:.1f}",
            file=sys.stderr,
        )
    return pairs


def spread(values: list[float], form: str = ".2f") -> str:
    """Median with the 10th and 90th percentile, nearest rank."""
    ranked = sorted(values)
    low, high = (ranked[round(share * (len(ranked) - 1))] for share in (0.1, 0.9))
    return f"{median(ranked):{form}} ({low:{form}}–{high:{form}})"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(pairs: list[tuple[dict, dict]]) -> str:
    lines = [
        row("m", "llama.cpp, ms", "draftscope, ms", "llama.cpp T(m)/T(1)", "draftscope T(m)/T(1)", "advantage"),
        row("--:", *["---:"] * 5),
    ]
    for m in WIDTHS:
        peers, owns = ([run["ms"] for run in side] for side in zip(*pairs))
        lines.append(
            row(
                m,
                spread([ms[m] for ms in peers]),
                spread([ms[m] for ms in owns]),
                *(spread([ms[m] / ms[1] for ms in side]) if m > 1 else "1" for side in (peers, owns)),
                spread([peer[m] / own[m] for peer, own in zip(peers, owns)]) + " ×",
            )
        )
    return "\n".join(lines)


def rates(pairs: list[tuple[dict, dict]]) -> str:
    """Plain decoding and reading the prompt, in tokens per second."""
    peers, owns = zip(*pairs)
    plain = [[1e3 / run["ms"][1] for run in side] for side in (peers, owns)]
    prefill = [[run["prefill"] for run in side] for side in (peers, owns)]
    lines = [row("tokens/s", "llama.cpp", "draftscope", "advantage"), row("---", *["---:"] * 3)]
    for name, (peer, own) in (("plain decoding", plain), ("prompt", prefill)):
        ratio = [b / a for a, b in zip(peer, own)]
        lines.append(row(name, spread(peer, ".0f"), spread(own, ".0f"), spread(ratio) + " ×"))
    share, read = (spread([run[key] * 100 for run in owns], ".0f") for key in ("bandwidth", "read"))
    lines.append(
        f"\nPlain decoding of draftscope reads weights and cache at {share} % of the memory bandwidth measured in the same turn "
        f"(512 MiB read in order); a loop that only reads as many bytes repeatedly needs {read} % of T(1)."
    )
    return "\n".join(lines)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    name = fields.get("model name", platform.machine())
    family = f", family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
    return f"{name}{family}, {os.cpu_count()} processors"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Race draftscope with llama.cpp on the same file.")
    parser.add_argument("model", nargs="?", help=f"GGUF file (default: {MODEL}, which must be downloaded)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ctx", type=int, default=200, help="tokens in the cache (default: 200)")
    parser.add_argument("--alternations", type=int, default=8, help="turns of each program (default: 8)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of llama.cpp per turn (default: 4)")
    parser.add_argument("--turns", type=int, default=10, help="rounds of draftscope per turn (default: 10)")
    args = parser.parse_args()
    if min(args.alternations, args.rounds, args.turns, args.ctx, *args.threads) < 1:
        parser.error("all numbers must be at least 1")
    return args


def main() -> None:
    args = arguments()
    if args.model is None:
        args.model = json.loads(output(DRAFTSCOPE, "models", "info", MODEL, "--json"))["file"]
    if not args.model or not Path(args.model).is_file():
        sys.exit(f"no model file at {args.model}: download one with draftscope models pull {MODEL}")
    tables = []
    for threads in args.threads:
        pairs = alternate(args, threads)
        heading = f"{threads} thread{'s' if threads > 1 else ''}"
        tables.append(f"### {heading}\n\n{table(pairs)}\n\n{rates(pairs)}")
        backend = pairs[0][1]["backend"]
    print(f"{Path(args.model).name}, {args.ctx} tokens in the cache, {args.alternations} alternations.")
    print(f"CPU: {processor()}.")
    peer = output(VCURVE, "--system-info").strip(" |\n")
    print(f"draftscope: {backend}. llama.cpp: {peer}.")
    print("\n" + "\n\n".join(tables))


if __name__ == "__main__":
    main()
