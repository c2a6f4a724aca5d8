"""The text of a token, from the tokenizer that the engine uses. Works without one: tokens then have no text."""


def _byte_alphabet():
    """The characters that byte-level BPE writes for bytes (GPT-2's bytes_to_unicode)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    letters.update({chr(256 + at): byte for at, byte in enumerate(others)})
    return letters


_BYTES = _byte_alphabet()


def to_bytes(token, byte_level):
    """The bytes that a vocabulary entry stands for: byte-level BPE, or SentencePiece with `▁` and `<0x0A>`."""
    if byte_level:
        try:
            return bytes(_BYTES[letter] for letter in token)
        except KeyError:
            return token.encode()
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            return token.encode()
    return token.replace("▁", " ").encode()


class Pieces:
    """Tokens as the trace format writes them; `load` gives a tokenizer of transformers, or fails."""

    MOST = 1 << 20

    def __init__(self, load=None):
        self._load, self._known = load, {}
        self._tokenizer = self._special = None
        self._byte_level = False

    def _open(self):
        load, self._load = self._load, None
        if load is None:
            return
        try:
            tokenizer = load()
            self._special = set(getattr(tokenizer, "all_special_ids", ()))
            vocabulary = tokenizer.get_vocab()
            self._byte_level = "Ġ" in vocabulary or any(token.startswith("Ġ") for token in vocabulary)
            self._tokenizer = tokenizer
        except Exception:  # without a tokenizer tokens have ids only
            self._tokenizer = None

    def __call__(self, token):
        """The token with this id."""
        if token is None or token < 0:
            return {"id": None, "text": ""}
        known = self._known.get(token)
        if known is None:
            self._open()
            known = self._piece(token)
            if len(self._known) < self.MOST:
                self._known[token] = known
        return known

    def _piece(self, token):
        name = None
        if self._tokenizer is not None:
            try:
                name = self._tokenizer.convert_ids_to_tokens(token)
            except Exception:
                name = None
        if name is None:
            return {"id": token, "text": ""}
        if isinstance(name, bytes):
            data = name
        elif token in self._special:
            return {"id": token, "text": name, "special": True}
        else:
            data = to_bytes(name, self._byte_level)
        try:
            return {"id": token, "text": data.decode()}
        except UnicodeDecodeError:
            return {"id": token, "bytes": list(data)}
