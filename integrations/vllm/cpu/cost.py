"""What the plugin costs: the same request with a reader and without, in turns. usage: cost.py PORT SOCKET [PAIRS]

The plugin computes nothing without a reader, so "without" is the engine's own speed. Prints the ratio of the times per token,
its median and the 95 % interval of the median by the sign test.
"""

import socket
import statistics
import sys
import threading
import time

from compare import LIST, Server


class Reader:
    """A reader that takes every line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        threading.Thread(target=self.take, daemon=True).start()
        time.sleep(0.2)

    def take(self):
        while True:
            try:
                if not self.socket.recv(1 << 16):
                    return
            except OSError:
                return

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        time.sleep(0.2)


def seconds(server):
    began = time.monotonic()
    server.stream(dict(prompt=LIST, max_tokens=64, temperature=0, ignore_eos=True))
    return time.monotonic() - began


def interval(values):
    """The 95 % interval of the median: the order statistics that a sign test does not reject."""
    from math import comb

    n, values = len(values), sorted(values)
    tail, rank = 0.0, 0
    while rank < n // 2 and tail + comb(n, rank) / 2**n <= 0.025:
        tail += comb(n, rank) / 2**n
        rank += 1
    return values[max(0, rank - 1)], values[min(n - 1, n - rank)]


def main():
    server, path = Server(sys.argv[1]), sys.argv[2]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 21
    ratios = []
    for pair in range(pairs + 1):
        times = {}
        for is_read in (True, False) if pair % 2 else (False, True):
            reader = Reader(path) if is_read else None
            times[is_read] = seconds(server)
            if reader:
                reader.close()
        if pair:  # the first warms up
            ratios.append(times[True] / times[False])
    low, high = interval(ratios)
    print(f"time with a reader ÷ without, {pairs} pairs: median {statistics.median(ratios):.3f} ({low:.3f}–{high:.3f}); "
          f"all: {' '.join(f'{ratio:.3f}' for ratio in sorted(ratios))}")


main()
