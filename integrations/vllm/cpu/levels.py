"""draftscope itself at level 1 and 2 against /metrics. usage: levels.py PORT SOCKET DRAFTSCOPE

Each level answers the same prompts with `draftscope run --attach`; drafted, accepted and steps must equal what the server
counted meanwhile, and both levels must show the same text.
"""

import json
import os
import subprocess
import sys

from compare import CAT, CODE, LIST, Server


def answers(program, port, socket, temperature):
    environment = {key: value for key, value in os.environ.items() if key != "DRAFTSCOPE_SOCKET"}
    texts, sums, known = [], [0, 0, 0], 0
    for prompt in (LIST, CAT, CODE):
        command = [program, "run", "--attach", f"http://127.0.0.1:{port}", "--raw", "--prompt", prompt, "--max-tokens", "48",
                   "--temperature", str(temperature), "--output", "jsonl"]
        if socket:
            command += ["--socket", socket]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        ended = next(event for event in events if event["type"] == "ended")["summary"]
        for at, key in enumerate(("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")):
            sums[at] += ended.get(key) or 0
        tokens = [one for event in events if event["type"] == "committed" for one in event["tokens"]]
        texts.append([token["id"] for token in tokens])
        known += sum(event["token"]["id"] is not None for event in events if event["type"] == "drafted")
    return texts, sums, known


def main():
    port, socket, program = sys.argv[1:4]
    server, good, seen = Server(port), True, []
    for level, where in ((1, None), (2, socket)):
        before = server.counters()
        texts, sums, known = answers(program, port, where, 0)
        after = server.counters()
        counted = [after.get(key, 0) - before.get(key, 0) for key in ("drafts", "draft_tokens", "accepted_tokens")]
        is_equal = sums == counted and (level == 1 or known == sums[1])
        print(f"level {level}: steps, drafted, accepted {sums}, /metrics {counted}, ids of drafts known {known}: "
              f"{'equal' if is_equal else 'DIFFERS'}")
        good &= is_equal
        seen.append(texts)
    print("texts of both levels:", "equal" if seen[0] == seen[1] else "DIFFER")
    raise SystemExit(0 if good and seen[0] == seen[1] else 1)


main()
