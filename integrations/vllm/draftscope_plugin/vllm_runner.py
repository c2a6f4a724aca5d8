"""What the observers of vLLM's two model runners share: who speaks for the engine, the header, times, the steps."""

import time

from . import lines, observer
from .pieces import Pieces
from .server import Server

KINDS = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "ngram", "draft_model": "draft-model"}


def is_rank_zero(runner):
    """Whether this process is the one that samples and speaks for the engine."""
    parallel = runner.vllm_config.parallel_config
    if getattr(parallel, "data_parallel_rank", 0):
        return False
    if getattr(parallel, "tensor_parallel_size", 1) == 1 and getattr(parallel, "pipeline_parallel_size", 1) == 1:
        return True
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_pp_group().is_last_rank and get_tp_group().rank_in_group == 0


def header(runner):
    """The header of the stream, from the runner's configuration."""
    try:
        import vllm

        version = vllm.__version__
    except ImportError:
        version = ""
    config = runner.model_config
    spec = runner.speculative_config
    method = getattr(spec, "method", None)
    model = {
        "name": str(config.model).rstrip("/").rsplit("/", 1)[-1],
        "vocab": int(config.get_vocab_size()),
        "context": int(config.max_model_len),
        "dtype": str(config.dtype).removeprefix("torch."),
        "device": getattr(runner.device, "type", str(runner.device)),
    }
    drafter = {"kind": KINDS.get(method, "mtp"), "name": method} if method else None
    return lines.header(
        engine="vllm", engine_version=version, model=model, drafter=drafter,
        draft_len=getattr(spec, "num_speculative_tokens", 0) or 0, rule="rejection", started_unix_ms=time.time() * 1e3,
    )


def tokenizer(runner):
    """The tokenizer of the engine's model."""
    from transformers import AutoTokenizer

    name = runner.model_config.tokenizer or runner.model_config.model
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=True)


class Observer(observer.Observer):
    """Wraps methods of a runner. What a request is, and how its result is cut, is the runner's."""

    def __init__(self, ops, serve=Server, where=None, top=None, load=tokenizer):
        super().__init__(ops, serve, where, top)
        self._load, self._clock = load, None
        self._pass = self._draft = (None, None)

    # --- wrappers: each calls the engine's method exactly once, and nothing of ours can raise through it

    def load_model(self, real):
        def load_model(runner, *args, **kwargs):
            out = real(runner, *args, **kwargs)
            self._guard(lambda: self._open(runner))
            return out

        return load_model

    def execute_model(self, real):
        return self._timed(real, "_pass")

    def propose(self, real):
        return self._timed(real, "_draft")  # the drafts of the next step

    def _timed(self, real, place):
        def timed(*args, **kwargs):
            begin = self._now()
            out = real(*args, **kwargs)
            setattr(self, place, (begin, self._now()))
            return out

        return timed

    def _now(self):
        if self._server is None or not self._server.has_readers():
            return None
        return self._guard(self._clock.now)

    # --- what they do

    def _open(self, runner):
        if self._server or self._closed:
            return
        if not is_rank_zero(runner):
            self._closed = True  # rank 0 speaks for all
            return
        self._clock = self._ops.Stopwatch(runner.device)
        self._listen(self._header(runner), Pieces(lambda: self._load(runner)))

    def _header(self, runner):
        return header(runner)

    def _after(self, seen, out, times):
        """Passes a batch on. `_results` are tensors of it, from which `_committed` takes a request's tokens."""
        results = [self._ops.keep(result) for result in self._results(out)]
        self._draft = (None, None)
        self._server.put(lambda: self._steps(seen, results, times), len(seen[0]))

    def _steps(self, seen, results, times):
        """In the writer's thread: waits for the device, builds the steps. A request: (index, id, drafts, cached tokens)."""
        requests, (ids, probs, p), q, passed, drafted = seen
        micros = self._clock.micros
        sample_us, verify_us, draft_us = micros(*times), micros(*passed), micros(*drafted)
        ids, probs, p, *results = self._lists(ids, probs, p, *results)
        q = self._ops.to_list(q) if q is not None else None
        steps, row, at = [], 0, 0
        for index, request, own, base in requests:
            count = len(own)
            steps.append(lines.Step(
                request=request, base_len=base, drafted=own,
                committed=self._committed(index, *results),
                rows=observer.rows(ids, probs, row, count + 1),
                p=p[at : at + count],
                # without a distribution the drafter is certain: the rejection sampler takes q = 1
                q=q[at : at + count] if q is not None else [1.0] * count,
                draft_us=draft_us, verify_us=verify_us, sample_us=sample_us,
            ))
            row, at = row + count + 1, at + count
        return [step for step in steps if step.committed]  # none after a part of a prompt
