"""What is computed on the engine's tensors. The only module that imports torch, so that tests need none."""

import time

import torch


def rows_of(logits, which, temperatures, top, drafts):
    """Copies before the sampler may write into `logits` [rows, vocabulary].

    `which` are the rows wanted, `temperatures` one for each, `drafts` (position in `which`, id) pairs. Returns tensors
    that stay on the device: ids and probabilities of the best `top` of each row, and the probability of each draft.
    """
    index = torch.as_tensor(which, device=logits.device)
    chosen = logits.index_select(0, index).float()
    chosen /= torch.as_tensor(temperatures, device=logits.device, dtype=torch.float32)[:, None]
    norm = torch.logsumexp(chosen, dim=-1, keepdim=True)
    best, ids = chosen.topk(min(top, chosen.shape[-1]), dim=-1)
    at = torch.as_tensor([place for place, _ in drafts], device=logits.device, dtype=torch.long)
    tokens = torch.as_tensor([token for _, token in drafts], device=logits.device, dtype=torch.long)
    p = (chosen[at, tokens] - norm[at, 0]).exp() if drafts else chosen.new_empty(0)
    return ids, (best - norm).exp(), p


def picked(probs, places, tokens):
    """The drafter's probability of each draft, from `probs` [drafts, vocabulary]."""
    at = torch.as_tensor(places, device=probs.device, dtype=torch.long)
    ids = torch.as_tensor(tokens, device=probs.device, dtype=torch.long)
    return probs[at, ids]


def picked_logits(logits, drafts):
    """The drafter's probability of each draft, from `logits` [request, step, vocabulary] before temperature; `drafts` are
    (request, step, id, temperature)."""
    states, steps, ids, heats = ([draft[part] for draft in drafts] for part in range(4))
    index = [torch.as_tensor(part, device=logits.device, dtype=torch.long) for part in (states, steps, ids)]
    rows = logits[index[0], index[1]].float()
    rows /= torch.as_tensor(heats, device=logits.device, dtype=torch.float32)[:, None]
    chosen = rows.gather(1, index[2][:, None])[:, 0]
    return (chosen - torch.logsumexp(rows, dim=-1)).exp()


def take(values, index):
    """The values at these places."""
    return values[index]


def to_list(tensor):
    """The values; waits for the device."""
    return tensor.tolist()


def keep(tensor):
    """A copy, since the engine may use the tensor again."""
    return tensor.clone()


class Stopwatch:
    """Times parts of a step: the host's clock on a CPU, events on a GPU, where the host only launches work."""

    def __init__(self, device):
        self._on_gpu = getattr(device, "type", str(device)) == "cuda"

    def now(self):
        """A moment."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def micros(self, begin, end):
        """Microseconds between two moments; 0 if one of them is missing. Waits for the device."""
        if begin is None or end is None:
            return 0
        if self._on_gpu:
            end.synchronize()
            return int(begin.elapsed_time(end) * 1e3)
        return int((end - begin) * 1e6)
