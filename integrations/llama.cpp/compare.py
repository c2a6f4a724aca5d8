"""Compares the preload library's lines with llama-server's own counts. usage: compare.py PORT SOCKET [ANSWERS] [--record FILE]

For every answer: the committed ids and, for each round, drafted and accepted as the stream's timings give them (level 1); over
all answers the counters of /metrics. Ends with status 1 if one of them differs.
"""

import argparse
import json
import socket
import threading
import time
import urllib.request

WORDS = ["red", "stone", "river", "seven", "apple", "north", "quiet", "lamp", "seed", "cloud", "iron", "mint", "zero"]


def prompt(number):
    """A text that repeats itself, so that an n-gram drafter finds something."""
    text = " ".join(WORDS[(index * (number % 12 + 1) + number) % 13] for index in range(13))
    return f"{text}. {text}. {text}. {text}."


class Plugin(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.text, self.lines = [], []
        self.start()

    def run(self):
        for line in self.socket.makefile():
            self.text.append(line)
            self.lines.append(json.loads(line))

    def rounds(self, since):
        """(drafted, committed) ids of each round after line `since`."""
        rounds, drafted = [], []
        for line in self.lines[since:]:
            if line["type"] == "round_started":
                drafted = []
            elif line["type"] == "drafted":
                drafted.append(line["token"]["id"])
            elif line["type"] == "committed":
                rounds.append((drafted, [token["id"] for token in line["tokens"]]))
        return rounds

    def wait(self, since, tokens, steps):
        """The rounds since that line, once there are so many tokens and steps with drafts: on a busy machine they come late."""
        for _ in range(200):
            rounds = self.rounds(since)
            has_tokens = sum(len(committed) for _, committed in rounds) >= tokens
            if has_tokens and sum(1 for drafted, _ in rounds if drafted) >= steps:
                break
            time.sleep(0.05)
        time.sleep(0.05)  # what is too much should be seen as well
        return self.rounds(since)


def post(port, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return [json.loads(line[6:]) for line in urllib.request.urlopen(request, timeout=600).read().decode().splitlines()
            if line.startswith("data: {")]


def steps(chunks):
    """Level 1: ids, and (drafted, accepted) of every step that drafted."""
    ids, counted, last = [], [], (0, 0)
    for chunk in chunks:
        ids += chunk.get("tokens") or []
        timings = chunk.get("timings") or {}
        now = (timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))
        if now[0] > last[0]:
            counted.append((now[0] - last[0], now[1] - last[1]))
            last = now
    return ids, counted


def merged(own, counted):
    """How many of the plugin's rounds the stream reports together with the one before; None if they differ otherwise."""
    rounds, count = iter(own), 0
    for drafted, accepted in counted:
        sums, parts = [0, 0], 0
        while sums[0] < drafted and (one := next(rounds, None)):
            sums, parts = [sums[0] + one[0], sums[1] + one[1]], parts + 1
        if sums != [drafted, accepted]:
            return None
        count += parts - 1
    return None if next(rounds, None) else count


def counters(port):
    values = {}
    for line in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode().splitlines():
        if line.startswith("llamacpp:spec_decode") and "{" not in line:
            name, value = line.rsplit(" ", 1)
            values[name.removeprefix("llamacpp:spec_decode_num_").removesuffix("_total")] = int(float(value))
    return values


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port")
    parser.add_argument("socket")
    parser.add_argument("answers", nargs="?", type=int, default=50)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--record")
    args = parser.parse_args()
    plugin, before = Plugin(args.socket), counters(args.port)
    time.sleep(0.3)
    sums, good = [0, 0, 0], True
    for number in range(args.answers):
        since = len(plugin.lines)
        chunks = post(args.port, dict(
            prompt=prompt(number), n_predict=24, temperature=args.temperature, top_k=0, top_p=1.0, min_p=0.0, seed=number,
            stream=True, return_tokens=True, timings_per_token=True, cache_prompt=True))
        ids, counted = steps(chunks)
        rounds = plugin.wait(since, len(ids), len(counted))
        sent = sum((committed for _, committed in rounds), [])
        own = [(len(drafted), len(committed) - 1) for drafted, committed in rounds if drafted]
        # tokens that end inside a character are missing in the stream, whose next step then holds their round's counts
        missing = max([0] + [chunk.get("tokens_predicted", 0) for chunk in chunks]) - len(ids)
        is_text = sent[: len(ids)] == ids or (missing > 0 and set(ids) <= set(sent))
        together = merged(own, counted)
        is_equal = is_text and together is not None and (together == 0 or missing > 0)
        if is_equal and together:
            print(f"answer {number}: {together} round(s) counted with the next one, {missing} token(s) sent with another")
        sums = [sums[0] + len(own), sums[1] + sum(k for k, _ in own), sums[2] + sum(a for _, a in own)]
        good &= is_equal
        if not is_equal:
            print(f"answer {number}: lines {own}, stream {counted}, text {'equal' if is_text else 'DIFFERS'}")
    after = counters(args.port)
    counted = [after.get(name, 0) - before.get(name, 0) for name in ("drafts", "draft_tokens", "accepted_tokens")]
    print(f"{args.answers} answers: steps, drafted, accepted: lines {sums}, /metrics {counted}")
    good &= sums == counted
    if args.record:
        with open(args.record, "w") as file:
            file.writelines(plugin.text[:400])
    print("all equal" if good else "THEY DIFFER")
    raise SystemExit(0 if good else 1)


main()
