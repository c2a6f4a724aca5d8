"""SGLang (0.5.23): written after its source, never run, since its CPU kernels are on no package index.

Hooked through its official interface: `eagle_sample`, through which EAGLE, EAGLE-3, MTP and n-gram workers verify. Only
chains are sent; a batch with a tree (`speculative_eagle_topk` > 1) is left out, with a sentence.
"""

import time

from . import lines, observer, say
from .pieces import Pieces

TARGET = "sglang.srt.speculative.eagle_utils.eagle_sample"


def install():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from . import tensors

    HookRegistry.register(TARGET, Observer(tensors).around, HookType.AROUND)
    say("SGLang's eagle_sample is hooked; this hook was written after version 0.5.23 and never run")


class Observer(observer.Observer):
    """Wraps the function that verifies."""

    def around(self, real, verify_input, batch, logits_output, *args, **kwargs):
        """Calls the engine's function once."""
        seen = self._guard(lambda: self._before(verify_input, batch, logits_output))
        out = real(verify_input, batch, logits_output, *args, **kwargs)
        if seen:
            self._guard(lambda: self._after(seen, out))
        return out

    def _open(self):
        if self._server is None and not self._closed:
            drafter = {"kind": "mtp", "name": "speculative"}
            head = lines.header(
                engine="sglang", engine_version="", model={}, drafter=drafter, started_unix_ms=time.time() * 1e3)
            self._listen(head, Pieces())
        return self._server

    def _before(self, verify_input, batch, logits_output):
        server = self._open()
        if server is None or not server.has_readers():
            return None
        width = int(verify_input.draft_token_num)
        if getattr(verify_input, "topk", 1) not in (None, 1, -1):
            if not self._warned:
                self._warned = True
                server.note("SGLang verifies trees here (speculative_eagle_topk > 1), which this plugin does not send")
            return None
        tokens = self._ops.to_list(verify_input.draft_token.reshape(-1))
        requests, which, pairs = [], [], []
        for index, request in enumerate(batch.reqs):
            if server.wants(request.rid):
                own = tokens[index * width + 1 : (index + 1) * width]  # the first of a row is the anchor
                pairs += [(len(which) + offset, token) for offset, token in enumerate(own)]
                which += range(index * width, (index + 1) * width)
                requests.append((index, request.rid, own, len(request.origin_input_ids) + len(request.output_ids)))
        if not requests:
            return None
        info = batch.sampling_info
        heats = [1.0] * len(batch.reqs) if info.is_all_greedy else self._ops.to_list(info.temperatures.reshape(-1))
        temperatures = [observer.heat(heats[index]) for index, *_ in requests for _ in range(width)]
        rows = self._ops.rows_of(logits_output.next_token_logits, which, temperatures, self._top, pairs)
        return requests, rows, width

    def _after(self, seen, out):
        predict, counts, accept_index = (self._ops.keep(part) for part in out[:3])
        self._server.put(lambda: self._steps(seen, predict, accept_index), len(seen[0]))

    def _steps(self, seen, predict, accept_index):
        requests, (ids, probs, p), width = seen
        ids, probs, p, predict, accept_index = self._lists(ids, probs, p, predict, accept_index)
        steps = []
        for place, (index, request, own, base) in enumerate(requests):
            row, at = place * width, place * (width - 1)
            committed = [int(predict[one]) for one in accept_index[index] if one >= 0]
            steps.append(lines.Step(
                request=request, base_len=max(0, base - 1), drafted=own, committed=committed,
                rows=observer.rows(ids, probs, row, width), p=p[at : at + width - 1],
            ))
        return [step for step in steps if step.committed]
