"""vLLM's V2 model runner: not observed, and said so.

It never calls the V1 runner's `_sample`. Its rejection sampler was read (0.32, 0.33) and not run, since it needs Triton
and a GPU; a hook that nobody ran would show wrong figures rather than none.
"""

import os

from . import lines, say
from .server import Server

SENTENCE = (
    "vLLM runs its V2 model runner, which this plugin does not observe; start vLLM with VLLM_USE_V2_MODEL_RUNNER=0"
)


def install():
    try:
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    except ImportError:  # no Triton, or an older vLLM: only V1 can run
        return
    wrap(GPUModelRunner)


def wrap(runner_class, serve=Server, where=None):
    """Whoever connects to the socket reads the sentence."""
    real = runner_class.load_model
    opened = []

    def load_model(runner, *args, **kwargs):
        out = real(runner, *args, **kwargs)
        if opened:
            return out
        say(SENTENCE)
        try:
            head = lines.header(engine="vllm", engine_version="", model={})
            server = serve(where or os.environ["DRAFTSCOPE_SOCKET"], lambda: head, lambda token: {"id": token, "text": ""})
            server.note(SENTENCE)
            opened.append(server)
        except Exception:  # another rank has the socket, or it cannot be opened: the log has the sentence
            opened.append(None)
        return out

    runner_class.load_model = load_model
