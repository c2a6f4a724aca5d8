"""Take the README's pictures from the real program: `python3 docs/screen.py PROMPT [OPTION …]`.

Needs tmux and the Python package `rich`, and a built `target/release/draftscope`. The program runs in
a terminal of 120 × 36. The empty screen becomes docs/welcome.svg, the slow start docs/slow-start.svg, the answer when it
has ended docs/screen.svg, and what each other view shows docs/VIEW.svg.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.text import Text

COLS, ROWS = 120, 36

# Each view, and the keys that lead to it from the one before.
VIEWS = [
    ("rounds", ["2"]),
    ("inspect", ["N", "Enter"]),
    ("speed", ["4"]),
    ("compare", ["5"]),
    ("presenter", ["1", "N", "F5"]),
    ("learn", ["F5", "6", "Enter", "Right", "Down"]),
    ("past", ["Escape", "1", "End", "<", "<", "<", ";"]),
]


def tmux(*args: str) -> str:
    return subprocess.run(["tmux", "-L", "draftscope-screen", *args], check=True, capture_output=True, text=True).stdout


def main() -> None:
    prompt, options = sys.argv[1], sys.argv[2:]
    state = tempfile.mkdtemp()
    os.makedirs(os.path.join(state, "draftscope"))
    open(os.path.join(state, "draftscope", "tour-shown"), "w").close()
    environment = ["env", "COLORTERM=truecolor", f"XDG_STATE_HOME={state}"]
    command = shlex.join([*environment, "target/release/draftscope", *options])
    tmux("new-session", "-d", "-x", str(COLS), "-y", str(ROWS), command)
    try:
        wait_for("ready")
        save("welcome")
        tmux("send-keys", "-l", prompt)
        tmux("send-keys", "Enter")
        wait_for("Slow start")
        time.sleep(2.2)
        save("slow-start")
        tmux("send-keys", "]")
        for _ in range(600):
            time.sleep(0.2)
            if "ready" in tmux("capture-pane", "-p").splitlines()[0] and "└ " in tmux("capture-pane", "-p"):
                break
        save("screen")
        tmux("send-keys", "Tab")
        for name, keys in VIEWS:
            tmux("send-keys", *keys)
            if name == "compare":
                wait_for("identical: all")  # plain decoding has finished the answer
            time.sleep(1)
            save(name)
    finally:
        tmux("kill-server")


def wait_for(text: str) -> None:
    for _ in range(600):
        if text in tmux("capture-pane", "-p"):
            return
        time.sleep(0.1)
    sys.exit(f"the screen never shows {text!r}")


def save(name: str) -> None:
    screen = tmux("capture-pane", "-p", "-e")
    console = Console(record=True, width=COLS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=True)
    target = os.path.join(os.path.dirname(__file__), f"{name}.svg")
    console.save_svg(target, title="draftscope")
    with open(target, encoding="utf-8") as file:
        svg = re.sub(r"@font-face \{.*?\}\s*", "", file.read(), flags=re.S)  # nothing from the network
    with open(target, "w", encoding="utf-8") as file:
        file.write(svg)
    print(target, os.path.getsize(target), "bytes")


main()
