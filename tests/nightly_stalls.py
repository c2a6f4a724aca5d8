#!/usr/bin/env python3
"""Runs the test suites on a machine that holds processes and threads up, and lists the tests that fail.

    tests/nightly_stalls.py ROUNDS [SUITE...]

Processes of a suite are stopped for up to 2 s at random moments; in every other round one thread at a time gets next to
no processor time beside busy loops. Rounds differ in RUST_BACKTRACE, TERM and in whether HOME can be written. SEED=N
repeats the moments as far as they depend on this program. Suites are named as cargo names their files (`rival`,
`draftscope_tui`); without names those run in which somebody waits for something.
"""

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

# Suites whose tests start processes, threads or servers, or wait.
WAITING = """attach attach_cli attach_endless attach_openai attach_tls branch cli doctor draftscope_attach
draftscope_engine draftscope_host draftscope_http draftscope_session draftscope_store draftscope_tui fatal_signals lab
limits long_session plugin pty reports rival store_pull train""".split()

# Longest time of a suite, in seconds.
LONGEST = 1800


def built():
    """Name, file and folder of each suite."""
    command = "cargo test --release --locked --workspace --features reference --no-run --message-format=json"
    text = subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in text.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            folder = os.path.dirname(message["manifest_path"])
            yield message["target"]["name"].replace("-", "_"), message["executable"], folder


def tree(root):
    """The process and all that come from it."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def send(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


def stop(rng, pids):
    """Stops all these processes, or one, for a while."""
    pids = pids if rng.random() < 0.4 else [rng.choice(pids)]
    send(pids, signal.SIGSTOP)
    time.sleep(min(rng.expovariate(4), 2))
    send(pids, signal.SIGCONT)


def starve(rng, pids):
    """Takes the processor from one thread of these processes for a while."""
    try:
        thread = int(rng.choice(os.listdir(f"/proc/{rng.choice(pids)}/task")))
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        time.sleep(min(rng.expovariate(2.5), 3))
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    except (FileNotFoundError, ProcessLookupError):
        pass


def disturb(rng, child, starves):
    """Holds a process and its children up until it ends; kills it after the longest time."""
    end = time.monotonic() + LONGEST
    while child.poll() is None:
        time.sleep(rng.expovariate(7))
        if time.monotonic() > end:
            send(tree(child.pid), signal.SIGKILL)
        elif child.poll() is None:
            act = starve if starves and rng.random() < 0.6 else stop
            act(rng, tree(child.pid))


def run(rng, number, path, folder, home):
    """Runs a suite in the surroundings of a round; its output and whether it passed."""
    environment = dict(os.environ, RUST_BACKTRACE=str(number % 2), RAYON_NUM_THREADS=str(os.cpu_count()))
    environment["CARGO_MANIFEST_DIR"] = folder
    if number % 3 == 1:
        environment.pop("TERM", None)
    if number % 3 == 2:
        environment["HOME"] = home
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([path], cwd=folder, env=environment, **pipes) as child:
        disturber = threading.Thread(target=disturb, args=(rng, child, number % 2 == 1))
        disturber.start()
        output = child.stdout.read().decode(errors="replace")
        child.wait()
        disturber.join()
    return output, child.returncode == 0


def main():
    if len(sys.argv) < 2 or not sys.argv[1].isdigit():
        sys.exit(__doc__.strip())
    rounds, names = int(sys.argv[1]), sys.argv[2:] or WAITING
    suites = [suite for suite in built() if suite[0] in names]
    if missing := set(names) - {name for name, _, _ in suites}:
        sys.exit("no suite " + ", ".join(sorted(missing)))
    rng = random.Random(int(os.environ.get("SEED", "1")))
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
    failures = 0
    try:
        with tempfile.TemporaryDirectory() as home:
            os.chmod(home, stat.S_IRUSR | stat.S_IXUSR)
            for number in range(rounds):
                for name, path, folder in suites:
                    began = time.monotonic()
                    output, passed = run(rng, number, path, folder, home)
                    failed = re.findall(r"^test (\S+) .*FAILED$", output, re.MULTILINE)
                    what = "passed" if passed else "FAILED " + (" ".join(failed) or "as a whole")
                    print(f"round {number + 1}, {name}: {what}, {time.monotonic() - began:.0f} s", flush=True)
                    if not passed:
                        failures += 1
                        print(output, flush=True)
    finally:
        for loop in busy:
            loop.kill()
    sys.exit(f"{failures} suites failed" if failures else 0)


main()
