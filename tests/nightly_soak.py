#!/usr/bin/env python3
"""Runs the program for long and checks that memory, descriptors, threads and CPU per turn stay flat.

    tests/nightly_soak.py PROGRAM turns 2000      # so many turns in one terminal session
    tests/nightly_soak.py PROGRAM prompts 3600    # prompts without a screen, for so many seconds

Both run a tiny model from tests/fixtures, whose passes take microseconds: what grows is the program's own. Linux only.
"""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import fcntl
from pathlib import Path

MODEL = Path(__file__).parent / "fixtures/checkpoints/qwen3"
COMMON = ["--model", str(MODEL), "--max-tokens", "24", "--ctx", "256", "--drafter", "ngram", "--threads", "1"]
TICKS = os.sysconf("SC_CLK_TCK")


def measure(pid):
    """Resident memory in kB, open descriptors, threads, and CPU seconds of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {
        "kB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]),
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
        "cpu": (int(stat[11]) + int(stat[12])) / TICKS,
    }


def judge(samples, per_turn_kb):
    """`samples` are (turns, measured), evenly apart. The first fifth settles what is made once."""
    settled = samples[max(1, len(samples) // 5):]
    (first_turns, first), (last_turns, last) = settled[0], settled[-1]
    half = len(settled) // 2
    def cpu(part):
        (a, x), (b, y) = part[0], part[-1]
        return (y["cpu"] - x["cpu"]) / max(1, b - a) * 1000
    early, late = cpu(settled[: half + 1]), cpu(settled[half:])
    grown = (last["kB"] - first["kB"]) / max(1, last_turns - first_turns)
    print(f"turns {first_turns}–{last_turns}: memory {first['kB'] / 1024:.1f} → {last['kB'] / 1024:.1f} MB "
          f"({grown:.2f} kB a turn), descriptors {first['fds']} → {last['fds']}, threads {first['threads']} → "
          f"{last['threads']}, CPU {early:.2f} → {late:.2f} ms a turn")
    faults = []
    if grown > per_turn_kb:
        faults.append(f"memory grows by {grown:.2f} kB a turn; at most {per_turn_kb} are allowed")
    if last["fds"] > first["fds"] + 1:
        faults.append("descriptors grow")
    if last["threads"] > first["threads"] + 1:
        faults.append("threads grow")
    if late > early * 1.25 + 0.5:
        faults.append("CPU per turn grows")
    return faults


class Terminal:
    """The program in a pseudo-terminal of 120 × 40."""

    def __init__(self, program):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(program, [program, "chat", "--raw", "--pace", "full", *COMMON])
        self.pid = pid
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen = b""

    def read(self, seconds):
        """Reads what comes within some time; answers queries of terminals."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        data = os.read(self.fd, 1 << 16)
        if b"\x1b[6n" in data:
            os.write(self.fd, b"\x1b[1;1R")
        if b"\x1b[c" in data:
            os.write(self.fd, b"\x1b[?62;22c")
        self.seen = (self.seen + data)[-(1 << 16):]
        return True

    def quiet(self, seconds, longest):
        """Reads until nothing has come for some time."""
        end = time.monotonic() + longest
        while self.read(seconds):
            if time.monotonic() > end:
                raise SystemExit("the screen does not come to rest")


def turns(program, count):
    terminal = Terminal(program)
    terminal.quiet(1.0, 60)
    samples = [(0, measure(terminal.pid))]
    for turn in range(1, count + 1):
        os.write(terminal.fd, b"once more %d\r" % turn)
        terminal.quiet(0.08, 20)
        if turn % max(1, count // 40) == 0:
            samples.append((turn, measure(terminal.pid)))
            print(turn, samples[-1][1], flush=True)
    os.write(terminal.fd, b"\x03\x03")
    time.sleep(0.5)
    faults = judge(samples, per_turn_kb=24)
    os.kill(terminal.pid, signal.SIGTERM)
    _, status = os.waitpid(terminal.pid, 0)
    return faults


def prompts(program, seconds):
    command = [program, "chat", "--per-line", "--raw", *COMMON]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    samples, done, begun = [], 0, time.monotonic()
    next_sample = begun
    while time.monotonic() < begun + seconds:
        done += 1
        child.stdin.write(b"line %d of many\n" % done)
        child.stdin.flush()
        # the number of a prompt is printed before its answer
        while line := child.stdout.readline():
            if line.startswith(b"[%d] " % done):
                break
        if child.poll() is not None:
            return [f"it ended after {done} prompts"]
        if time.monotonic() >= next_sample:
            next_sample += seconds / 60
            samples.append((done, measure(child.pid)))
            print(f"{time.monotonic() - begun:.0f} s", done, samples[-1][1], flush=True)
    child.stdin.close()
    child.stdout.close()
    child.terminate()
    child.wait()
    return judge(samples, per_turn_kb=1)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in ("turns", "prompts"):
        raise SystemExit(__doc__)
    found = {"turns": turns, "prompts": prompts}[sys.argv[2]](os.path.abspath(sys.argv[1]), int(sys.argv[3]))
    print("\n".join(found) if found else "flat")
    raise SystemExit(1 if found else 0)
