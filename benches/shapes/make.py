#!/usr/bin/env python3
"""Make GGUF files of real shapes with random weights, one for each quantisation.

    benches/peers/llama_cpp.sh
    target/peers/venv/bin/python -m pip install gguf
    target/peers/venv/bin/python benches/shapes/make.py --into FOLDER --shape llama-1b --types Q4_0 Q4_K_M

Speed depends on sizes and types, not on what weights say, so files of models that are large to download need not be
downloaded. Each tensor has the type that `llama-quantize` gives it: the quantiser of the llama.cpp that `llama_cpp.sh` built
is asked in a dry run over a file without data. Weights are normal(0, 0.02), encoded by ggml's quantiser; rows of a matrix
repeat after 509, so that a file takes seconds, not minutes. The vocabulary is that of the default model, padded where the
shape has more tokens. Nothing that exists is made again. Files do not belong in the repository: 0.6 GB and more.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import gguf
import numpy
from gguf import GGMLQuantizationType as Q

ROOT = Path(__file__).resolve().parents[2]
DRAFTSCOPE = os.environ.get("DRAFTSCOPE_BIN", str(ROOT / "target/release/draftscope"))
LIBRARY = Path(os.environ.get("LLAMA_LIBRARY", ROOT / "target/peers/llama-0.3.36/bin/libllama.so"))
BASE = Path(os.environ.get("GGML_BASE", LIBRARY.parent / "libggml-base.so"))
VOCABULARY = "smollm2-135m"

# enum llama_ftype of llama.h
TYPES = {"Q4_0": 2, "Q8_0": 7, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}


@dataclass(frozen=True)
class Delta:
    """The linear layers of Qwen3.5: Gated DeltaNet. Every `attends`-th layer attends, and has a gate."""

    key_heads: int
    value_heads: int
    width: int  # of a head
    kernel: int
    attends: int
    rotary: int  # rotated values of a head of the layers that attend

    @property
    def values(self) -> int:
        return self.value_heads * self.width

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.width + self.values


@dataclass(frozen=True)
class Gemma:
    """What Gemma 4 adds: every `full`-th layer sees everything and has wider heads, the others see a window; the last
    layers read the keys and values of earlier ones and have twice the feed-forward width; embeddings for each layer."""

    full: int
    full_head_dim: int
    window: int
    shared: int  # of 35 layers
    per_layer: int

    def shared_of(self, layers: int) -> int:
        return layers * self.shared // 35

    def is_full(self, index: int) -> bool:
        return (index + 1) % self.full == 0


@dataclass(frozen=True)
class Shape:
    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int | None  # None: that of the default model
    rope_base: float
    delta: Delta | None = None
    modules: int = 0  # draft modules (nextn), which are layers after the last one
    gemma: Gemma | None = None


SHAPES = {
    "llama-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, None, 500_000.0),
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 16, 8, 128, 6144, 151_936, 1_000_000.0),
    "qwen3.5-0.8b": Shape("qwen35", 24, 1024, 8, 2, 256, 3584, 248_320, 1e7, Delta(16, 16, 128, 4, 4, 64), 1),
    "qwen3.5-4b": Shape("qwen35", 32, 2560, 16, 4, 256, 9216, 248_320, 1e7, Delta(16, 32, 128, 4, 4, 64), 1),
    "gemma-4-e2b": Shape("gemma4", 35, 1536, 8, 1, 256, 6144, 262_144, 1e6, gemma=Gemma(5, 512, 512, 20, 256)),
}

TABLE = "per_layer_token_embd.weight"

# After how many rows a matrix repeats; a prime, so that repeated rows do not start at the same place of a page.
PERIOD = 509


class Repeated:
    """A matrix whose rows repeat: what GGUFWriter needs of an array."""

    def __init__(self, rows: numpy.ndarray, count: int):
        self.rows, self.count = rows, count
        self.nbytes = rows[0].nbytes * count

    def tofile(self, file) -> None:
        times, rest = divmod(self.count, len(self.rows))
        for _ in range(times):
            self.rows.tofile(file)
        self.rows[:rest].tofile(file)


class QuantizeParams(ctypes.Structure):
    """llama_model_quantize_params of the pinned llama.h."""

    _fields_ = [
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int),
        ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int),
        *((name, ctypes.c_bool) for name in ("allow_requantize", "quantize_output_tensor", "only_copy", "pure", "keep_split", "dry_run")),
        *((name, ctypes.c_void_p) for name in ("imatrix", "kv_overrides", "tt_overrides", "prune_layers")),
        ("max_buf_size", ctypes.c_size_t),
    ]


def vocabulary_file() -> str:
    info = subprocess.run([DRAFTSCOPE, "models", "info", VOCABULARY, "--json"], capture_output=True, text=True, check=True)
    return json.loads(info.stdout)["file"]


def add_vocabulary(writer: gguf.GGUFWriter, size: int | None) -> int:
    """Copies the tokenizer of the default model; returns how many tokens there are."""
    fields = gguf.GGUFReader(vocabulary_file()).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    extra = max(0, (size or 0) - len(tokens))
    writer.add_tokenizer_model(fields["tokenizer.ggml.model"].contents())
    writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"].contents())
    writer.add_token_list(tokens + [f"<unused-{i}>" for i in range(extra)])
    writer.add_token_types(kinds + [int(gguf.TokenType.UNUSED)] * extra)
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    writer.add_bos_token_id(fields["tokenizer.ggml.bos_token_id"].contents())
    writer.add_eos_token_id(fields["tokenizer.ggml.eos_token_id"].contents())
    return len(tokens) + extra


def feed_forward(shape: Shape) -> dict[str, tuple[int, ...]]:
    width, ff = shape.width, shape.feed_forward
    return {"ffn_gate.weight": (ff, width), "ffn_up.weight": (ff, width), "ffn_down.weight": (width, ff)}


def attention(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Of a layer that attends; queries of Qwen3.5 come with as many gates."""
    width, queries, keys = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    parts = {
        "attn_q.weight": ((2 if shape.delta else 1) * queries, width),
        "attn_k.weight": (keys, width),
        "attn_v.weight": (keys, width),
        "attn_output.weight": (width, queries),
    }
    if shape.arch != "llama":
        parts |= {"attn_q_norm.weight": (shape.head_dim,), "attn_k_norm.weight": (shape.head_dim,)}
    return parts


def linear(width: int, delta: Delta) -> dict[str, tuple[int, ...]]:
    return {
        "attn_qkv.weight": (delta.channels, width),
        "attn_gate.weight": (delta.values, width),
        "ssm_alpha.weight": (delta.value_heads, width),
        "ssm_beta.weight": (delta.value_heads, width),
        "ssm_conv1d.weight": (delta.channels, delta.kernel),
        "ssm_a": (delta.value_heads,),
        "ssm_dt.bias": (delta.value_heads,),
        "ssm_norm.weight": (delta.width,),
        "ssm_out.weight": (width, delta.values),
    }


def gemma_layer(shape: Shape, gemma: Gemma, index: int) -> dict[str, tuple[int, ...]]:
    width, is_shared = shape.width, index >= shape.layers - gemma.shared_of(shape.layers)
    head = gemma.full_head_dim if gemma.is_full(index) else shape.head_dim
    parts = attention(replace(shape, head_dim=head))
    if is_shared:
        parts = {name: size for name, size in parts.items() if name not in ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")}
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
    return parts | {
        **feed_forward(replace(shape, feed_forward=shape.feed_forward * (2 if is_shared else 1))),
        **{f"{norm}.weight": (width,) for norm in norms},
        "inp_gate.weight": (gemma.per_layer, width),
        "proj.weight": (width, gemma.per_layer),
        "layer_output_scale.weight": (1,),
    }


def layer(shape: Shape, index: int) -> dict[str, tuple[int, ...]]:
    """Tensors of a layer, or of a draft module, which attends."""
    if shape.gemma:
        return gemma_layer(shape, shape.gemma, index)
    width, delta = shape.width, shape.delta
    second = "post_attention_norm.weight" if delta else "ffn_norm.weight"
    parts = {"attn_norm.weight": (width,), second: (width,), **feed_forward(shape)}
    is_module = index >= shape.layers
    if delta and not is_module and (index + 1) % delta.attends != 0:
        parts |= linear(width, delta)
    else:
        parts |= attention(shape)
    if is_module:
        parts |= {"nextn.eh_proj.weight": (width, 2 * width)}
        parts |= {f"nextn.{norm}.weight": (width,) for norm in ("enorm", "hnorm", "shared_head_norm")}
    return parts


def tensors(shape: Shape, vocab: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes, rows first."""
    layers = range(shape.layers + shape.modules)
    every = {f"blk.{i}.{part}": size for i in layers for part, size in layer(shape, i).items()}
    whole = {"token_embd.weight": (vocab, shape.width), "output_norm.weight": (shape.width,)}
    if shape.gemma:
        wide = shape.gemma.per_layer * shape.layers
        whole |= {
            TABLE: (vocab, wide),
            "per_layer_model_proj.weight": (wide, shape.width),
            "per_layer_proj_norm.weight": (shape.gemma.per_layer,),
            "rope_freqs.weight": (shape.gemma.full_head_dim // 2,),
        }
    return whole | every


def add_gemma(writer: gguf.GGUFWriter, shape: Shape, gemma: Gemma) -> None:
    shared = gemma.shared_of(shape.layers)
    writer.add_feed_forward_length([shape.feed_forward * (1 if i < shape.layers - shared else 2) for i in range(shape.layers)])
    writer.add_key_length(gemma.full_head_dim)
    writer.add_value_length(gemma.full_head_dim)
    writer.add_key_length_swa(shape.head_dim)
    writer.add_value_length_swa(shape.head_dim)
    writer.add_rope_dimension_count(gemma.full_head_dim)
    writer.add_rope_dimension_count_swa(shape.head_dim)
    writer.add_rope_freq_base_swa(10_000.0)
    writer.add_sliding_window(gemma.window)
    writer.add_sliding_window_pattern([not gemma.is_full(i) for i in range(shape.layers)])
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(gemma.per_layer)
    writer.add_final_logit_softcapping(30.0)


def add_delta(writer: gguf.GGUFWriter, shape: Shape, delta: Delta) -> None:
    arch = shape.arch
    writer.add_rope_dimension_count(delta.rotary)
    writer.add_array(f"{arch}.rope.dimension_sections", [11, 11, 10, 0])
    writer.add_uint32(f"{arch}.full_attention_interval", delta.attends)
    writer.add_uint32(f"{arch}.nextn_predict_layers", shape.modules)
    sizes = {"conv_kernel": delta.kernel, "inner_size": delta.values, "state_size": delta.width}
    for key, size in {**sizes, "time_step_rank": delta.value_heads, "group_count": delta.key_heads}.items():
        writer.add_uint32(f"{arch}.ssm.{key}", size)


def add_sizes(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Sizes that layers of this family have together, or lists of them."""
    if shape.gemma:
        return add_gemma(writer, shape, shape.gemma)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    if shape.delta:
        return add_delta(writer, shape, shape.delta)
    writer.add_rope_dimension_count(shape.head_dim)


def encode(kind: Q, values: numpy.ndarray) -> numpy.ndarray:
    """Rows as ggml's quantiser encodes them."""
    if kind == Q.F16:
        return values.astype(numpy.float16)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    data = numpy.zeros((rows, columns // block * size), dtype=numpy.uint8)
    ctypes.CDLL(str(BASE)).ggml_quantize_chunk(
        ctypes.c_int(int(kind)), values.ctypes.data_as(ctypes.c_void_p), data.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(0), ctypes.c_int64(rows), ctypes.c_int64(columns), None,
    )
    return data


@cache
def period(kind: Q, columns: int) -> numpy.ndarray:
    """The rows that repeat, of every matrix with this type and width."""
    noise = numpy.random.default_rng(columns)
    return encode(kind, noise.standard_normal((PERIOD, columns), dtype=numpy.float32) * numpy.float32(0.02))


def matrix(kind: Q, size: tuple[int, ...]) -> Repeated:
    """Rows of all experts, where the matrix has three dimensions."""
    *outer, columns = size
    return Repeated(period(kind, columns), int(numpy.prod(outer)))


def is_matrix(name: str, size: tuple[int, ...]) -> bool:
    return len(size) > 1 and not name.endswith("ssm_conv1d.weight")


def values_of(name: str, size: tuple[int, ...], noise: numpy.random.Generator) -> numpy.ndarray:
    """Of a tensor in f32."""
    if name == "rope_freqs.weight":  # a quarter of the pairs turns
        return numpy.where(numpy.arange(size[0]) < size[0] // 4, 1.0, 1e30).astype(numpy.float32)
    if name.endswith("ssm_a"):
        return numpy.full(size, -0.5, dtype=numpy.float32)  # a decay is negative
    if name.endswith("ssm_conv1d.weight"):
        return noise.standard_normal(size, dtype=numpy.float32) * numpy.float32(0.3)
    if len(size) == 1:
        return numpy.ones(size, dtype=numpy.float32)
    return noise.standard_normal(size, dtype=numpy.float32) * numpy.float32(0.02)


def bytes_of(kind: Q, size: tuple[int, ...]) -> int:
    block, bytes_of_block = gguf.GGML_QUANT_SIZES[kind]
    return int(numpy.prod(size)) // block * bytes_of_block


def write_tensors(writer: gguf.GGUFWriter, every: dict[str, tuple[tuple[int, ...], Q]], path: Path, data: bool) -> None:
    """Sizes first, then one tensor after the other, so that only one is in memory; without data a hole in the file."""
    for name, (size, kind) in every.items():
        # the raw type decides; gguf-py wants the shape in bytes for types of bytes only
        writer.add_tensor_info(name, size, numpy.dtype(numpy.float16), bytes_of(kind, size), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    noise = numpy.random.default_rng(1)
    for name, (size, kind) in every.items() if data else ():
        writer.write_tensor_data(values_of(name, size, noise) if kind == Q.F32 else matrix(kind, size))
    writer.close()
    if not data:
        align = gguf.GGUF_DEFAULT_ALIGNMENT
        total = sum(-(-bytes_of(kind, size) // align) * align for size, kind in every.values())
        os.truncate(path, path.stat().st_size + total + align)


def write(name: str, shape: Shape, path: Path, kinds: dict[str, Q] | None, ftype: int) -> None:
    """A file with tensors of these types; without them, F16 and no data."""
    writer = gguf.GGUFWriter(str(path), shape.arch, use_temp_file=False)
    writer.add_name(f"{name}, random weights")
    writer.add_file_type(ftype)
    writer.add_context_length(8192)
    writer.add_block_count(shape.layers + shape.modules)
    writer.add_embedding_length(shape.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.rope_base)
    add_sizes(writer, shape)
    vocab = add_vocabulary(writer, shape.vocab)
    every = {
        tensor: (size, (kinds or {}).get(tensor, Q.F16 if kinds is None and is_matrix(tensor, size) else Q.F32))
        for tensor, size in tensors(shape, vocab).items()
    }
    write_tensors(writer, every, path, data=kinds is not None)


def kinds_of(source: Path, type_name: str) -> dict[str, Q]:
    """The types that llama.cpp's quantiser gives the matrices of this file, read from the log of a dry run."""
    lines: list[str] = []
    listener = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
        lambda _level, text, _data: lines.append(text.decode(errors="replace"))
    )
    library = ctypes.CDLL(str(LIBRARY))
    library.llama_log_set(listener, None)
    library.llama_model_quantize_default_params.restype = QuantizeParams
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(QuantizeParams)]
    library.llama_model_quantize.restype = ctypes.c_uint32
    params = library.llama_model_quantize_default_params()
    params.ftype, params.dry_run = TYPES[type_name], True
    failed = library.llama_model_quantize(str(source).encode(), b"", ctypes.byref(params))
    library.llama_log_set(None, None)
    log = "".join(lines)
    if failed:
        sys.exit(f"llama.cpp would not make {type_name}: {log[-300:]}")
    found = re.findall(r"\] +(\S+) +- \[[^]]*\], type = +(\w+), size = [^\n(]*(?:\((\w+)\))?\n", log)
    return {name: Q[(to or was).upper()] for name, was, to in found if (to or was) != "f32"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make GGUF files of real shapes with random weights.")
    parser.add_argument("--into", type=Path, required=True, help="folder outside the repository")
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_XS"])
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has, to check that a file loads (Gemma 4: 10, 15 …)")
    args = parser.parse_args()
    if not LIBRARY.is_file():
        sys.exit(f"{LIBRARY} is missing: run benches/peers/llama_cpp.sh")
    args.into.mkdir(parents=True, exist_ok=True)
    shape, name = SHAPES[args.shape], args.shape
    if args.layers:
        shape, name = replace(shape, layers=args.layers), f"{name}-{args.layers}-layers"
    wanted = {kind: args.into / f"{name}.{kind}.gguf" for kind in args.types}
    missing = {kind: path for kind, path in wanted.items() if not path.is_file()}
    partial = args.into / f"{name}.partial"
    for kind, path in missing.items():
        write(name, shape, partial, None, gguf.LlamaFileType.MOSTLY_F16)
        kinds = kinds_of(partial, kind)
        write(name, shape, partial, kinds, TYPES[kind])
        partial.rename(path)
    print("\n".join(str(path) for path in wanted.values()))


if __name__ == "__main__":
    main()
