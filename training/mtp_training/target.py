"""The parts of the target that training needs, from its GGUF file: embedding, head, final norm, blocks and tokenizer."""

from dataclasses import dataclass

import numpy as np
import torch
from gguf import GGUFReader, dequantize


@dataclass
class Shape:
    """Sizes of the target, which the module shares."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    eps: float
    theta: float


class Target:
    """Weights dequantised to f32, with queries and keys in half-split rotary order."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        number = lambda key: self.reader.fields[key].contents()
        optional = lambda key, otherwise: number(key) if key in self.reader.fields else otherwise
        hidden, heads = number("llama.embedding_length"), number("llama.attention.head_count")
        self.layers = number("llama.block_count")
        # rows of the embedding, which may be more than the tokenizer's tokens
        self.shape = Shape(hidden=hidden, heads=heads, kv_heads=optional("llama.attention.head_count_kv", heads),
                           head_dim=optional("llama.attention.key_length", hidden // heads),
                           inner=number("llama.feed_forward_length"), vocab=int(self.tensors["token_embd.weight"].shape[1]),
                           eps=number("llama.attention.layer_norm_rms_epsilon"), theta=optional("llama.rope.freq_base", 10000.0))

    @property
    def frequency_factors(self):
        """Divisors of the rotary frequencies (Llama 3); other scalings are not supported."""
        scaling = self.reader.fields.get("llama.rope.scaling.type")
        assert scaling is None or scaling.contents() == "none", f"rotary scaling '{scaling.contents()}' is not supported"
        return self.tensor("rope_freqs.weight") if "rope_freqs.weight" in self.tensors else 1.0

    @property
    def specials(self):
        """Ids of control tokens."""
        return [i for i, kind in enumerate(self.reader.fields["tokenizer.ggml.token_type"].contents()) if kind == 3]

    def text(self, tokens):
        """Tokens as text: each letter of a byte-level BPE name is one byte (GPT-2's table)."""
        if not hasattr(self, "_names"):
            self._names = self.reader.fields["tokenizer.ggml.tokens"].contents()
            plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
            rest = [b for b in range(256) if b not in plain]
            self._bytes = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}
        return bytes(self._bytes[c] for token in tokens for c in self._names[token] if c in self._bytes).decode(errors="replace")

    def tensor(self, name):
        t = self.tensors[name]
        return torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))

    @property
    def embedding(self):
        return self.tensor("token_embd.weight")

    @property
    def head(self):
        return self.tensor("output.weight" if "output.weight" in self.tensors else "token_embd.weight")

    @property
    def norm(self):
        return self.tensor("output_norm.weight")

    def layer(self, index):
        """Weights of a block, by the module's names."""
        s = self.shape
        get = lambda name: self.tensor(f"blk.{index}.{name}.weight")
        # GGUF stores rows as interleaved rotary pairs; the module uses halves
        halves = lambda w, heads: w.view(heads, s.head_dim // 2, 2, -1).transpose(1, 2).reshape(w.shape)
        return dict(n1=get("attn_norm"), n2=get("ffn_norm"), q=halves(get("attn_q"), s.heads), k=halves(get("attn_k"), s.kv_heads),
                    v=get("attn_v"), o=get("attn_output"), gate=get("ffn_gate"), up=get("ffn_up"), down=get("ffn_down"))
