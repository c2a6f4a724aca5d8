"""What `draftscope run --attach` adds to a server's time per token, against curl with the same request.

Pairs in alternating order on one server; the time per token is the server's own (/metrics, tokens_predicted_seconds_total
÷ tokens_predicted_total), so that the start of either client does not count. The first pair is left out.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import urllib.request

from server import PROGRAM, PYTHON, Server

PROMPT = "red stone river seven apple north. red stone river seven apple north. red stone river"


def counters(url):
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    names = ("llamacpp:tokens_predicted_total ", "llamacpp:tokens_predicted_seconds_total ")
    return [next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name)) for name in names]


def per_token(url, run):
    before = counters(url)
    run()
    after = counters(url)
    return (after[1] - before[1]) / (after[0] - before[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--python", default=PYTHON)
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--drafter", default="draft-simple")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--port", type=int, default=18331)
    args = parser.parse_args()
    with Server(args.python, args.model, args.drafter, args.port) as server:
        url = server.url
        ids = json.load(urllib.request.urlopen(urllib.request.Request(
            url + "/tokenize", json.dumps({"content": PROMPT, "add_special": True}).encode())))["tokens"]
        body = json.dumps({
            "prompt": ids, "n_predict": args.tokens, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7,
            "stream": True, "return_tokens": True, "timings_per_token": True, "cache_prompt": True,
        })

        def curl():
            subprocess.run(["curl", "-sN", "-o", "/dev/null", "-d", body, url + "/completion"], check=True)

        def draftscope():
            subprocess.run(
                [args.program, "run", "--attach", url, "--raw", "--temperature", "1", "--seed", "7", "--max-tokens",
                 str(args.tokens), "--output", "summary", PROMPT],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

        ratios = []
        for pair in range(args.pairs + 1):
            arms = [curl, draftscope]
            times = {arm: per_token(url, arm) for arm in (arms if pair % 2 == 0 else arms[::-1])}
            if pair > 0:
                ratios.append(times[draftscope] / times[curl])
        ratios.sort()
        # the interval of a median by order statistics (binomial, 95 %)
        n = len(ratios)
        reach = round(0.98 * n ** 0.5)
        low, high = ratios[max(0, n // 2 - reach)], ratios[min(n - 1, (n - 1) // 2 + reach)]
        print(f"{args.drafter}: draftscope ÷ curl, server's time per token, {n} pairs: "
              f"median {statistics.median(ratios):.4f} ({low:.4f}–{high:.4f}), mean {statistics.fmean(ratios):.4f}, "
              f"range {ratios[0]:.3f}–{ratios[-1]:.3f}")


main()
