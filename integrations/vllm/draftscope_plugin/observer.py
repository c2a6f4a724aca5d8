"""What the observers of all engines share: the socket, the settings, and that nothing of ours raises through the engine."""

import os

from . import say
from .server import Server

GREEDY = 1e-5  # temperatures up to this are 0, and the probabilities at temperature 1 are sent


def heat(temperature):
    """The temperature at which a row's probabilities are computed."""
    return temperature if temperature > GREEDY else 1.0


class Observer:
    """Sends the steps of a batch. `ops` computes on tensors; `serve(where, head, piece)` opens the socket."""

    def __init__(self, ops, serve=Server, where=None, top=None):
        self._ops, self._serve = ops, serve
        self._where = where or os.environ.get("DRAFTSCOPE_SOCKET")
        self._top = max(1, min(32, int(top or os.environ.get("DRAFTSCOPE_TOP") or 8)))
        self._server, self._closed, self._warned = None, False, False

    def _guard(self, work):
        """What `work` returns; a fault of ours costs a sentence and no step of the engine."""
        try:
            return work()
        except Exception as error:
            if not self._warned:
                self._warned = True
                say(f"a step could not be observed: {type(error).__name__}: {error}")
            return None

    def _listen(self, head, piece):
        """Opens the socket once; another rank may have it."""
        try:
            self._server = self._serve(self._where, lambda: head, piece)
            say(f"serving the steps of {head['engine']['name']} at {self._where}")
        except (OSError, ValueError) as error:
            self._closed = True
            say(f"this process sends nothing: {error}")

    def _lists(self, *tensors):
        """The values of tensors; waits for the device."""
        return [self._ops.to_list(tensor) for tensor in tensors]


def rows(ids, probs, begin, count):
    """The candidates, (id, probability) pairs, of `count` rows from row `begin` on."""
    return [list(zip(ids[one], probs[one])) for one in range(begin, begin + count)]
