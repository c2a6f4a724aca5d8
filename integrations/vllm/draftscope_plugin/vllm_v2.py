"""vLLM's V2 model runner (seen in 0.32 and 0.33; the default wherever Triton is installed; run with 0.32 on a CPU in Triton's
interpreter).

Wrapped: `GPUModelRunner.sample` (which runner samples, and for a real batch only), the `__call__` of `RejectionSampler` and
of `Sampler` (drafts, logits of every row, what was sampled), `execute_model` and the speculator's `propose` (times),
`load_model` (the socket opens once the model is there).
"""

from . import observer, say, vllm_runner

WRAPPED = ("load_model", "execute_model", "sample")
RULES = {"block": "block"}  # of rejection_sample_method; the others are rejection sampling


def install():
    try:
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner
        from vllm.v1.worker.gpu.sample.sampler import Sampler
        from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
    except ImportError:  # no Triton, or an older vLLM: only V1 can run
        return
    from . import tensors

    wrap(GPUModelRunner, (Sampler, RejectionSampler), Observer(tensors))


def wrap(runner_class, samplers, observed_by):
    """Wraps the methods; an unknown runner is left alone, with a sentence."""
    missing = [name for name in WRAPPED if not hasattr(runner_class, name)]
    missing += [one.__name__ for one in samplers if "__call__" not in vars(one)]
    if missing:
        say(f"this vLLM's V2 model runner has no {missing[0]}; nothing is observed there")
        return False
    for name in WRAPPED:
        setattr(runner_class, name, getattr(observed_by, name)(getattr(runner_class, name)))
    for one in samplers:
        one.__call__ = observed_by.call(vars(one)["__call__"])
    return True


class Observer(vllm_runner.Observer):
    """Wraps a runner's methods."""

    _runner = None  # the one that samples now

    def sample(self, real):
        def sample(runner, *args, **kwargs):
            self._runner = runner  # samplers are also called for dummy batches, outside of this method
            try:
                return real(runner, *args, **kwargs)
            finally:
                self._runner = None

        return sample

    def call(self, real):
        def __call__(sampler, logits, input_batch, *args, **kwargs):
            runner, self._runner = self._runner, None  # one sampler may call the other
            draft_logits = args[0] if args else kwargs.get("draft_logits")
            seen = self._guard(lambda: self._before(runner, logits, input_batch, draft_logits)) if runner else None
            begin = self._now() if seen else None
            out = real(sampler, logits, input_batch, *args, **kwargs)
            if seen:
                self._guard(lambda: self._after(seen, out, (begin, self._now())))
            return out

        return __call__

    def _header(self, runner):
        head = super()._header(runner)
        head["settings"]["rule"] = RULES.get(self._method(runner), head["settings"]["rule"])
        return head

    def _method(self, runner):
        return getattr(runner.speculative_config, "rejection_sample_method", None)

    def _open(self, runner):
        if self._server or self._closed:
            return
        super()._open(runner)
        if self._server is None:
            return
        if self._method(runner) == "synthetic":
            self._server.note("vLLM accepts drafts by a set rate here (synthetic), not by what the target says")
        if getattr(runner, "batch_sharder", None) is not None:
            self._server.note("vLLM divides requests among its ranks here; only those of rank 0 are observed")
        speculator = getattr(runner, "speculator", None)
        if hasattr(speculator, "propose"):
            speculator.propose = self.propose(speculator.propose)

    def _before(self, runner, logits, batch, draft_logits):
        """What the sampler may overwrite, for the requests that somebody reads."""
        if self._server is None or not self._server.has_readers() or logits is None:
            return None
        wanted = [index for index in range(batch.num_reqs) if self._server.wants(batch.req_ids[index])]
        if not wanted:
            return None
        # each row's input: of a request first its newest token, then its drafts
        inputs = self._ops.take(batch.input_ids, batch.logits_indices)
        places = self._ops.take(batch.positions, batch.logits_indices)
        # on the device the limits are true even where adaptive verification has cut drafts
        inputs, places, limits = self._lists(inputs, places, batch.cu_num_logits)
        heats = runner.sampler.sampling_states.temperature.np
        requests, which, temperatures, pairs, drafts = [], [], [], [], []
        for index in wanted:
            begin, end = int(limits[index]), int(limits[index + 1])
            if end <= begin:
                continue
            # while the prompt is read, places of drafts hold nothing
            end = begin + 1 if batch.is_prefilling_np[index] else end
            own = [int(token) for token in inputs[begin + 1 : end]]
            state = int(batch.idx_mapping_np[index])
            heat = observer.heat(float(heats[state]))
            pairs += [(len(which) + offset, token) for offset, token in enumerate(own)]
            drafts += [(state, step, token, heat) for step, token in enumerate(own)]
            requests.append((index, batch.req_ids[index], own, int(places[begin])))
            which += range(begin, end)
            temperatures += [heat] * (end - begin)
        if not requests:
            return None
        q = self._ops.picked_logits(draft_logits, drafts) if draft_logits is not None and drafts else None
        return requests, self._ops.rows_of(logits, which, temperatures, self._top, pairs), q, self._pass, self._draft

    def _results(self, out):
        return [out.sampled_token_ids, out.num_sampled]

    def _committed(self, index, sampled, counts):
        return [int(token) for token in sampled[index][: int(counts[index])]]
