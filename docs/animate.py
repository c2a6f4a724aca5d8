"""Make docs/start.svg, ten seconds of the program at work: `python3 docs/animate.py RECORDING`.

Needs a built `target/release/draftscope`, which draws every screen of the recording (`export --to gif-frames`). A piece
of the screen that stays the same from one picture to the next is written once, with the time at which it is visible. A
recording for it: `draftscope --trace FILE` in a terminal of any size, with one prompt and its slow start.
"""

import base64
import os
import re
import subprocess
import sys
import tempfile

SECONDS = 10.0
SIZE = "100x30"
LIMIT = 1 << 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        frames = os.path.join(folder, "screens")
        program = ["target/release/draftscope", "export", sys.argv[1], "--to", "gif-frames"]
        subprocess.run([*program, "--size", SIZE, "--out", frames], check=True, stdout=subprocess.DEVNULL)
        screens = read(frames)
    head, pieces, times = lifetimes(screens)
    svg = picture(head, pieces, times)
    assert len(svg.encode()) <= LIMIT, f"{len(svg.encode())} bytes are too many for a README"
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.svg")
    with open(target, "w", encoding="utf-8") as file:
        file.write(svg)
    print("docs/start.svg", os.path.getsize(target), "bytes,", len(screens), "screens,", len(pieces), "pieces")


def read(folder: str) -> list:
    """The screens with their times in seconds, the last at SECONDS at most."""
    screens, at = [], 0.0
    with open(os.path.join(folder, "frames.txt"), encoding="utf-8") as file:
        for name, duration in re.findall(r"file '(.*)'\nduration (.*)", file.read()):
            if at < SECONDS:
                with open(os.path.join(folder, name), encoding="utf-8") as screen:
                    screens.append((at, screen.read().splitlines()))
            at += float(duration)
    return screens


def lifetimes(screens: list) -> tuple:
    """The lines before the first piece; pieces as (from, to, text), in seconds; the sorted times of all."""
    head, pieces, alive = screens[0][1][:2], [], {}
    for at, lines in [*screens, (SECONDS, [])]:
        shown = dict.fromkeys(lines[2:-1])
        for piece in [piece for piece in alive if piece not in shown]:
            pieces.append((alive.pop(piece), at, piece))
        for piece in shown:
            alive.setdefault(piece, at)
    return head, pieces, sorted({(start, end) for start, end, _ in pieces})


def picture(head: list, pieces: list, times: list) -> str:
    names = {time: f"t{index}" for index, time in enumerate(times)}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../assets/font/marks.woff2"), "rb") as file:
        font = base64.b64encode(file.read()).decode()
    face = f'@font-face{{font-family:Marks;src:url(data:font/woff2;base64,{font}) format("woff2")}}'
    rules = [face, f"g{{visibility:hidden;animation:{SECONDS}s step-end infinite}}"]
    for (start, end), name in names.items():
        first, last = (100 * value / SECONDS for value in (start, end))
        hidden = f"{last:.3f}%{{visibility:hidden}}" if last < 100 else ""
        begin = "" if first == 0 else "0%{visibility:hidden}"
        shown = f"{begin}{first:.3f}%{{visibility:visible}}{hidden}"
        rules.append(f"@keyframes {name}{{{shown}}}.{name}{{animation-name:{name}}}")
    body = []
    # backgrounds first: a later one must not cover a text that is there already
    for kind in ("<rect", "<text"):
        for time, name in names.items():
            own = [piece for start, end, piece in pieces if (start, end) == time and piece.startswith(kind)]
            body += [f'<g class="{name}">', *own, "</g>"] if own else []
    return "\n".join([head[0], f"<style>{''.join(rules)}</style>", *head[1:], *body, "</svg>", ""])


main()
