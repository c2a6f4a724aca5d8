#!/usr/bin/env python3
"""Make GGUF files of real shapes with random weights, one for each quantisation.

    benches/peers/llama_cpp.sh
    target/peers/venv/bin/python -m pip install gguf
    target/peers/venv/bin/python benches/shapes/make.py --into FOLDER --shape llama-1b --types Q4_0 Q4_K_M

Speed depends on sizes and types, not on what weights say, so files of models that are large to download need not be
downloaded. gguf-py writes an F16 file, normal(0, 0.02), with the vocabulary of the default model, padded where the shape
has more tokens; the quantiser of the llama.cpp that `llama_cpp.sh` built makes the types. The F16 file is deleted
afterwards unless --keep-f16. Nothing that exists is made again. Files do not belong in the repository: 0.6 GB and more.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy

ROOT = Path(__file__).resolve().parents[2]
DRAFTSCOPE = os.environ.get("DRAFTSCOPE_BIN", str(ROOT / "target/release/draftscope"))
LIBRARY = ROOT / "target/peers/llama-0.3.36/bin/libllama.so"
VOCABULARY = "smollm2-135m"

# enum llama_ftype of llama.h
TYPES = {"Q4_0": 2, "Q8_0": 7, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}


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


SHAPES = {
    "llama-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, None, 500_000.0),
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 16, 8, 128, 6144, 151_936, 1_000_000.0),
}


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


def tensors(shape: Shape, vocab: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes, rows first."""
    width, ff = shape.width, shape.feed_forward
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = {
        "attn_norm": (width,),
        "attn_q": (queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
        "ffn_norm": (width,),
        "ffn_gate": (ff, width),
        "ffn_up": (ff, width),
        "ffn_down": (width, ff),
    }
    if shape.arch == "qwen3":
        layer |= {"attn_q_norm": (shape.head_dim,), "attn_k_norm": (shape.head_dim,)}
    every = {f"blk.{i}.{part}.weight": size for i in range(shape.layers) for part, size in layer.items()}
    return {"token_embd.weight": (vocab, width), "output_norm.weight": (width,), **every}


def write_f16(name: str, path: Path) -> None:
    shape = SHAPES[name]
    noise = numpy.random.default_rng(1)
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(str(partial), shape.arch)
    writer.add_name(f"{name}, random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(8192)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_dim)
    vocab = add_vocabulary(writer, shape.vocab)
    for tensor, size in tensors(shape, vocab).items():
        if len(size) == 1:
            writer.add_tensor(tensor, numpy.ones(size, dtype=numpy.float32))
        else:
            values = noise.standard_normal(size, dtype=numpy.float32)
            writer.add_tensor(tensor, (values * numpy.float32(0.02)).astype(numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)


def quantize(source: Path, target: Path, type_name: str) -> None:
    library = ctypes.CDLL(str(LIBRARY))
    library.llama_model_quantize_default_params.restype = QuantizeParams
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(QuantizeParams)]
    library.llama_model_quantize.restype = ctypes.c_uint32
    params = library.llama_model_quantize_default_params()
    params.ftype = TYPES[type_name]
    partial = target.with_suffix(".partial")
    if library.llama_model_quantize(str(source).encode(), str(partial).encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp could not make {target.name}")
    partial.rename(target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make GGUF files of real shapes with random weights.")
    parser.add_argument("--into", type=Path, required=True, help="folder outside the repository")
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_XS"])
    parser.add_argument("--keep-f16", action="store_true")
    args = parser.parse_args()
    if not LIBRARY.is_file():
        sys.exit(f"{LIBRARY} is missing: run benches/peers/llama_cpp.sh")
    args.into.mkdir(parents=True, exist_ok=True)
    wanted = {kind: args.into / f"{args.shape}.{kind}.gguf" for kind in args.types}
    missing = {kind: path for kind, path in wanted.items() if not path.is_file()}
    f16 = args.into / f"{args.shape}.F16.gguf"
    if missing and not f16.is_file():
        write_f16(args.shape, f16)
    for kind, path in missing.items():
        quantize(f16, path, kind)
    if not args.keep_f16:
        f16.unlink(missing_ok=True)
    print("\n".join(str(path) for path in wanted.values()))


if __name__ == "__main__":
    main()
