"""A socket that draftscope reads from: Unix (mode 0600) or TCP on this machine's loopback.

Invariant: `put` returns at once. A thread of its own builds and writes the lines; the queue is bounded, and what does not
fit is counted and reported to the reader. Without a reader nothing is computed: ask `wants` first.
"""

import json
import os
import queue
import socket
import stat
import struct
import threading
import time

from . import lines

MOST_READERS = 4
PATIENCE_S = 2  # a reader that takes nothing for so long is disconnected
MOST_FOLLOW = 4096  # bytes of the one line that a reader may send


def address(text):
    """`unix:PATH`, a path, or `tcp:HOST:PORT` and `HOST:PORT` with a loopback host."""
    if text.startswith("unix:"):
        return socket.AF_UNIX, text[5:]
    host, colon, port = text.removeprefix("tcp:").rpartition(":")
    if not text.startswith("tcp:") and ("/" in text or not colon or not port.isdigit()):
        return socket.AF_UNIX, text
    if host not in ("localhost", "[::1]", "::1") and not host.startswith("127."):
        raise ValueError(f"DRAFTSCOPE_SOCKET={text}: only a loopback address is served, such as 127.0.0.1:{port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, (host.strip("[]"), int(port))


def listen(text):
    """A listening socket; the path of a dead one is reused."""
    family, where = address(text)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            _remove_dead(where)
            os.fchmod(listener.fileno(), 0o600)  # on Linux the file gets this mode from its beginning
            listener.bind(where)
            os.chmod(where, 0o600)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
        listener.listen(MOST_READERS)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead(path):
    try:
        kind = os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(f"{path} exists and is no socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(0.5)
        probe.connect(path)
    except OSError:
        os.unlink(path)
    else:
        raise OSError(f"another process listens on {path}")
    finally:
        probe.close()


class _Reader:
    """A connected draftscope. `follow` is a part of the request ids that it wants; none wants all."""

    def __init__(self, connection):
        self.connection, self.follow = connection, None


class Server:
    """Serves one engine. `head()` gives the header, `piece(id)` a token."""

    def __init__(self, where, head, piece, size=1024):
        self._listener = listen(where)
        self._head, self._piece = head, piece
        self._queue = queue.Queue(size)
        self._lock, self._readers = threading.Lock(), []
        self._dropped = 0  # rounds, counted by the engine's thread
        self._reported = 0
        self._rounds, self._seq, self._began = {}, 0, time.monotonic()
        self._notices = []
        for name, work in (("draftscope-accept", self._accept), ("draftscope-write", self._write)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def wants(self, request):
        """Whether somebody reads this request's steps."""
        return any(one.follow is None or one.follow in request for one in self._readers)

    def has_readers(self):
        return bool(self._readers)

    def put(self, build, rounds=1):
        """`build()` gives a list of steps; the writer's thread calls it."""
        try:
            self._queue.put_nowait(build)
        except queue.Full:
            self._dropped += rounds

    def note(self, message):
        """A sentence for every reader, also those who come later."""
        self._notices.append(message)
        self._send([lines.notice(message)])

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._readers) >= MOST_READERS:
                connection.close()
                continue
            threading.Thread(target=self._welcome, args=(connection,), name="draftscope-read", daemon=True).start()

    def _welcome(self, connection):
        """Sends the header, then listens for a line that narrows the requests."""
        reader = _Reader(connection)
        try:
            # only sends have a limit: this thread waits for a line that may never come
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE_S, 0))
            first = [lines.started(self._head()), *(lines.notice(one) for one in self._notices)]
            with self._lock:
                connection.sendall(self._encode(first))
                self._readers.append(reader)
            text = b""
            while chunk := connection.recv(1024):
                text = (text + chunk)[-MOST_FOLLOW:]
                *whole, text = text.split(b"\n")
                for line in whole:
                    self._obey(reader, line)
        except OSError:
            pass
        finally:
            self._leave(reader)

    @staticmethod
    def _obey(reader, line):
        try:
            wanted = json.loads(line).get("follow")
        except (ValueError, AttributeError):
            return
        if wanted is None or isinstance(wanted, str):
            reader.follow = wanted

    def _leave(self, reader):
        if reader in self._readers:
            self._readers.remove(reader)
        try:
            reader.connection.close()
        except OSError:
            pass

    def _write(self):
        while True:
            build = self._queue.get()
            try:
                steps = build()
            except Exception as error:
                self.note(f"a step could not be read: {type(error).__name__}: {error}"[:300])
                continue
            for step in steps:
                self._send(self._of(step), step.request)
            if self._dropped != self._reported:
                self._reported = self._dropped
                self._send([lines.dropped(self._reported)])

    def _of(self, step):
        number = self._rounds.pop(step.request, 0) + 1
        self._rounds[step.request] = number  # the newest last
        while len(self._rounds) > 4096:
            self._rounds.pop(next(iter(self._rounds)))
        return lines.of_step(step, number, self._piece)

    def _send(self, batch, request=None):
        with self._lock:
            data = self._encode(batch)
            for reader in list(self._readers):
                if request is not None and reader.follow is not None and reader.follow not in request:
                    continue
                try:
                    reader.connection.sendall(data)
                except OSError:
                    self._leave(reader)

    def _encode(self, batch):
        at = int((time.monotonic() - self._began) * 1e6)
        out = []
        for line in batch:
            if line.get("type") != "started":
                self._seq += 1
            out.append(json.dumps({"seq": self._seq if line["type"] != "started" else 0, "at_us": at, **line},
                                  separators=(",", ":"), ensure_ascii=False))
        return ("\n".join(out) + "\n").encode()
