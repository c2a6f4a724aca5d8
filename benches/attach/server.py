"""Starts the server of the wheel xllamacpp for the other scripts."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "target/tmp/xllamacpp-2026.10.11549/bin/python"
PROGRAM = ROOT / "target/release/draftscope"


class Server:
    """A running server; ends with the block."""

    def __init__(self, python, model, drafter, port):
        script = ROOT / "tests/fixtures/attach/llama_server.py"
        self.child = subprocess.Popen(
            [python, script, model, drafter, str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for line in self.child.stdout:
            if line.startswith("LISTENING "):
                self.url = line.split()[1]
                return
        raise SystemExit("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
