"""vLLM's V1 model runner (seen in 0.32 and 0.33; run on a CPU with 0.32): GPUModelRunner, which the CPU runner inherits.

Wrapped: `_sample` (drafts, logits of every row, what was sampled), `execute_model` and `propose_draft_token_ids` (times),
`load_model` (the socket opens once the model is there).
"""

import time

from . import lines, observer, say
from .pieces import Pieces
from .server import Server

KINDS = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "ngram", "draft_model": "draft-model"}
WRAPPED = ("load_model", "execute_model", "_sample", "propose_draft_token_ids")


def install():
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    try:  # the CPU runner has a load_model of its own
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    except ImportError:
        CPUModelRunner = None
    from . import tensors

    classes = [GPUModelRunner] + ([CPUModelRunner] if CPUModelRunner else [])
    wrap(classes, Observer(tensors))


def wrap(classes, observed_by):
    """Wraps the methods that each class defines itself. An unknown runner is left alone, with a sentence."""
    missing = [name for name in WRAPPED if not hasattr(classes[0], name)]
    if missing:
        say(f"this vLLM has no {classes[0].__name__}.{missing[0]}; nothing is observed")
        return False
    for one in classes:
        for name in WRAPPED:
            if name in vars(one):
                setattr(one, name, getattr(observed_by, name.strip("_"))(vars(one)[name]))
    return True


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
    """Wraps a runner's methods."""

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
        def execute_model(runner, *args, **kwargs):
            begin = self._now()
            out = real(runner, *args, **kwargs)
            self._pass = (begin, self._now())
            return out

        return execute_model

    def propose_draft_token_ids(self, real):
        def propose_draft_token_ids(runner, *args, **kwargs):
            begin = self._now()
            out = real(runner, *args, **kwargs)
            self._draft = (begin, self._now())  # the drafts of the next step
            return out

        return propose_draft_token_ids

    def sample(self, real):
        def _sample(runner, logits, spec_decode_metadata, *args, **kwargs):
            seen = self._guard(lambda: self._before(runner, logits, spec_decode_metadata))
            begin = self._now() if seen else None
            out = real(runner, logits, spec_decode_metadata, *args, **kwargs)
            if seen:
                self._guard(lambda: self._after(seen, out, (begin, self._now())))
            self._draft = (None, None)
            return out

        return _sample

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
        self._listen(header(runner), Pieces(lambda: self._load(runner)))

    def _before(self, runner, logits, metadata):
        """What the sampler may overwrite, for the requests that somebody reads."""
        if self._server is None or not self._server.has_readers() or logits is None:
            return None
        batch = runner.input_batch
        counts = list(metadata.num_draft_tokens) if metadata is not None else [0] * batch.num_reqs
        drafts = self._ops.to_list(metadata.draft_token_ids) if metadata is not None else []
        requests, which, temperatures, pairs, places = [], [], [], [], []
        row = at = 0
        for index, count in enumerate(counts):
            request = batch.req_ids[index]
            is_wanted = not runner.discard_request_mask.np[index] and self._server.wants(request)
            if is_wanted:  # else nobody reads it, or it is a chunk of the prompt whose sample is thrown away
                own = [int(token) for token in drafts[at : at + count]]
                temperature = 0.0 if batch.all_greedy else float(batch.temperature_cpu[index])
                pairs += [(len(which) + offset, token) for offset, token in enumerate(own)]
                places += range(at, at + count)
                requests.append((index, request, own, int(batch.num_tokens_no_spec[index])))
                which += range(row, row + count + 1)
                temperatures += [observer.heat(temperature)] * (count + 1)
            row, at = row + count + 1, at + count
        if not requests:
            return None
        probs = runner._get_spec_decode_draft_probs(metadata) if metadata is not None else None
        q = self._ops.picked(probs, places, [token for _, token in pairs]) if probs is not None and pairs else None
        rows = self._ops.rows_of(logits, which, temperatures, self._top, pairs)
        return requests, rows, q, self._pass, self._draft

    def _after(self, seen, out, times):
        sampled = self._ops.keep(out.sampled_token_ids)
        self._server.put(lambda: self._steps(seen, sampled, times), len(seen[0]))

    def _steps(self, seen, sampled, times):
        """In the writer's thread: waits for the device, builds the steps."""
        requests, (ids, probs, p), q, passed, drafted = seen
        micros = self._clock.micros
        sample_us, verify_us, draft_us = micros(*times), micros(*passed), micros(*drafted)
        ids, probs, p, sampled = self._lists(ids, probs, p, sampled)
        q = self._ops.to_list(q) if q is not None else None
        steps, row, at = [], 0, 0
        for index, request, own, base in requests:
            count = len(own)
            steps.append(lines.Step(
                request=request,
                base_len=max(0, base - 1),  # the newest token is not in the cache yet
                drafted=own,
                committed=[int(token) for token in sampled[index] if token >= 0],
                rows=observer.rows(ids, probs, row, count + 1),
                p=p[at : at + count],
                # without a distribution the drafter is certain: the rejection sampler takes q = 1
                q=q[at : at + count] if q is not None else [1.0] * count,
                draft_us=draft_us, verify_us=verify_us, sample_us=sample_us,
            ))
            row, at = row + count + 1, at + count
        return [step for step in steps if step.committed]
