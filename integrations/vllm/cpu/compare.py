"""Compares the plugin's lines with what vLLM itself reports. usage: compare.py PORT SOCKET [--record FOLDER] [--hot]

For every answer: the ids of the chunks, the steps of the final metrics (per_step_drafted, per_step_accepted), and over all
answers the counters of /metrics. Ends with status 1 if one of them differs. --hot: answers at temperature 0.8 only.
"""

import argparse
import json
import os
import re
import socket
import threading
import time
import urllib.request

LIST = "Count: " + "one two three four five six seven eight nine ten. " * 3 + "one two three"
CAT = "Repeat: " + "the cat sat on the mat. " * 3 + "the cat sat on"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n    return a * b\n\ndef div(a, b):\n"
JOBS = [
    ("list", dict(prompt=LIST, max_tokens=60, temperature=0)),
    ("list-cut", dict(prompt=LIST, max_tokens=4, temperature=0)),
    ("cat", dict(prompt=CAT, max_tokens=60, temperature=0)),
    ("code", dict(prompt=CODE, max_tokens=80, temperature=0)),
    ("code-logprobs", dict(prompt=CODE, max_tokens=60, temperature=0, logprobs=3)),
    ("code-penalty", dict(prompt=CODE, max_tokens=60, temperature=0, frequency_penalty=0.5)),
]
HOT = [
    ("list-hot", dict(prompt=LIST, max_tokens=80, temperature=0.8)),
    ("cat-hot", dict(prompt=CAT, max_tokens=80, temperature=0.8)),
    ("code-hot", dict(prompt=CODE, max_tokens=80, temperature=0.8)),
]


class Plugin(threading.Thread):
    """Collects the plugin's lines by request."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lines, self.text = [], []
        self.start()

    def run(self):
        for line in self.socket.makefile():
            self.text.append(line)
            self.lines.append(json.loads(line))

    def rounds(self, request):
        """(drafted, committed, verified line) of each round."""
        rounds, drafted, verified = [], [], None
        for line in self.lines:
            if not line.get("request", "").startswith(request):
                continue
            kind = line["type"]
            if kind == "round_started":
                drafted = []
            elif kind == "drafted":
                drafted.append(line["token"]["id"])
            elif kind == "verified":
                verified = line
            elif kind == "committed":
                rounds.append((drafted, [token["id"] for token in line["tokens"]], verified))
        return rounds


class Server:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def stream(self, body):
        body = dict(body, model="smollm2", stream=True, return_token_ids=True, stream_options={"include_usage": True})
        request = urllib.request.Request(
            self.base + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return body, [line.decode() for line in urllib.request.urlopen(request, timeout=600)]

    def counters(self):
        counters = {}
        for line in urllib.request.urlopen(self.base + "/metrics").read().decode().splitlines():
            if line.startswith("vllm:spec_decode") and "_total" in line:
                name, value = line.rsplit(" ", 1)
                place = re.search(r'position="(\d+)"', name)
                name = name.split("{")[0].removeprefix("vllm:spec_decode_num_").removesuffix("_total")
                counters[name + (f"@{place[1]}" if place else "")] = int(float(value))
        return counters


def answer(server, job, results):
    name, body = job
    began = time.time()
    body, raw = server.stream(body)
    chunks, final, request = [], {}, None
    for line in raw:
        if not line.startswith("data: {"):
            continue
        data = json.loads(line[6:])
        if "id" not in data:
            raise SystemExit(f"{name}: vLLM answers {line.strip()[:300]}")
        request, final = data["id"], (data.get("metrics") or final)
        if data["choices"]:
            chunks.append(data["choices"][0].get("token_ids") or [])
    results.append((name, request, chunks, final.get("speculative_decoding", {}), time.time() - began, body, raw))


def check(plugin, results):
    """Whether all agree, and the sums over all answers."""
    good, steps, drafted_sum, accepted_sum, at = True, 0, 0, 0, [0] * 32
    for name, request, chunks, final, seconds, _, _ in results:
        rounds = plugin.rounds(request)
        sent = sum(chunks, [])
        seen = sum((committed for _, committed, _ in rounds), [])
        with_drafts = [(len(drafted), len(committed) - 1) for drafted, committed, _ in rounds if drafted]
        drafted, accepted = [k for k, _ in with_drafts], [a for _, a in with_drafts]
        checks = {
            "ids": seen[: len(sent)] == sent,
            "drafted": drafted == final.get("per_step_drafted", []),
            "accepted": accepted == final.get("per_step_accepted", []),
        }
        whole = [one for one in chunks if one]
        merged = len(rounds) - len(whole)
        good &= all(checks.values())
        steps, drafted_sum, accepted_sum = steps + len(drafted), drafted_sum + sum(drafted), accepted_sum + sum(accepted)
        for count in accepted:
            for place in range(count):
                at[place] += 1
        wrong = [key for key, value in checks.items() if not value]
        print(f"{name:14} {len(sent)} tokens, {len(rounds)} rounds, {merged} merged chunks, accepted {accepted}, "
              f"{len(sent) / seconds:.1f} tokens/s: {'equal' if not wrong else 'DIFFERS: ' + ', '.join(wrong)}")
    return good, {"drafts": steps, "draft_tokens": drafted_sum, "accepted_tokens": accepted_sum,
                  **{f"accepted_tokens_per_pos@{place}": count for place, count in enumerate(at) if count}}


def contradictions(plugin):
    """Tested drafts with p of at least 0.9, and how many of them were rejected."""
    tested = rejected = 0
    for line in plugin.lines:
        for one in line.get("judgements", ()):
            if one["outcome"] != "not_reached" and one.get("p", 0) >= 0.9:
                tested, rejected = tested + 1, rejected + (one["outcome"] == "rejected")
    return tested, rejected


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port")
    parser.add_argument("socket")
    parser.add_argument("--record")
    parser.add_argument("--hot", action="store_true")
    args = parser.parse_args()
    server, plugin = Server(args.port), Plugin(args.socket)
    time.sleep(0.3)
    before, results = server.counters(), []
    jobs = HOT if args.hot else JOBS + HOT
    for job in jobs:
        answer(server, job, results)
    if not args.hot:  # three at once: lines of one batch
        threads = [threading.Thread(target=answer, args=(server, ("at once " + job[0], job[1]), results))
                   for job in (JOBS[0], JOBS[3], JOBS[2])]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    time.sleep(1.0)
    good, sums = check(plugin, results)
    after = server.counters()
    counted = {name: after[name] - before.get(name, 0) for name in after if after[name] - before.get(name, 0)}
    print("plugin  ", sums)
    print("/metrics", counted)
    good &= sums["drafts"] == counted.get("drafts", 0) and all(counted.get(k, 0) == v for k, v in sums.items())
    tested, rejected = contradictions(plugin)
    print(f"drafts with p of at least 0.9: {tested} tested, {rejected} rejected")
    if args.record:
        os.makedirs(args.record, exist_ok=True)
        for name, request, _, _, _, body, raw in results:
            if " " in name:
                continue
            own = [line for line, parsed in zip(plugin.text, plugin.lines)
                   if parsed["type"] == "started" or parsed.get("request", "").startswith(request)]
            for end, text in (("request.json", json.dumps(body)), ("sse.txt", "".join(raw)), ("plugin.jsonl", "".join(own))):
                with open(os.path.join(args.record, f"{name}.{end}"), "w") as file:
                    file.write(text)
    print("all equal" if good else "THEY DIFFER")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
