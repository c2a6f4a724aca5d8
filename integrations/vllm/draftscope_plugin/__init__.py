"""Sends each verification step of vLLM or SGLang to draftscope, as lines of its trace format.

Off unless DRAFTSCOPE_SOCKET is set. Invariant: nothing here raises into the engine, and nothing waits for a reader.
"""

import os
import sys

_registered = set()


def _register(engine, install):
    if not os.environ.get("DRAFTSCOPE_SOCKET") or engine in _registered:
        return
    _registered.add(engine)  # an engine may call its plugins several times in a process
    try:
        install()
    except Exception as error:  # the engine must start, whatever happens here
        say(f"nothing is observed: {type(error).__name__}: {error}")


def say(sentence):
    """Prints one sentence to the engine's log."""
    print(f"draftscope: {sentence}", file=sys.stderr, flush=True)


def register_vllm():
    """Entry point of vllm.general_plugins."""

    def install():
        from . import vllm_v1, vllm_v2

        vllm_v1.install()
        vllm_v2.install()

    _register("vllm", install)


def register_sglang():
    """Entry point of sglang.srt.plugins."""

    def install():
        from . import sglang

        sglang.install()

    _register("sglang", install)
