"""vLLM's V1 model runner (seen in 0.32 and 0.33; run on a CPU with 0.32): GPUModelRunner, which the CPU runner inherits.

Wrapped: `_sample` (drafts, logits of every row, what was sampled), `execute_model` and `propose_draft_token_ids` (times),
`load_model` (the socket opens once the model is there).
"""

from . import observer, say, vllm_runner

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


class Observer(vllm_runner.Observer):
    """Wraps a runner's methods."""

    def propose_draft_token_ids(self, real):
        return self.propose(real)

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
                base = max(0, int(batch.num_tokens_no_spec[index]) - 1)  # the newest token is not in the cache yet
                requests.append((index, request, own, base))
                which += range(row, row + count + 1)
                temperatures += [observer.heat(temperature)] * (count + 1)
            row, at = row + count + 1, at + count
        if not requests:
            return None
        probs = runner._get_spec_decode_draft_probs(metadata) if metadata is not None else None
        q = self._ops.picked(probs, places, [token for _, token in pairs]) if probs is not None and pairs else None
        rows = self._ops.rows_of(logits, which, temperatures, self._top, pairs)
        return requests, rows, q, self._pass, self._draft

    def _results(self, out):
        return [out.sampled_token_ids]

    def _committed(self, index, sampled):
        return [int(token) for token in sampled[index] if token >= 0]
