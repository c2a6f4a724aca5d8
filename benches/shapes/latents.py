#!/usr/bin/env python3
"""Make a GGUF file with latent attention: GLM-4.7-Flash cut down to a few layers, random weights.

    target/peers/venv/bin/python benches/shapes/latents.py --into FOLDER --layers 4

Every width is that of the real model: 20 heads over latents of 512 numbers, 64 experts of width 1536, 4 for a row, a shared one;
the first layer is dense. Types are those that llama.cpp's quantiser gives in Q4_K_M. A layer takes 0.36 GB. Rows of quantised
matrices repeat as in make.py; routers do not. The vocabulary is that of the default model. Nothing that exists is made again.
"""

import argparse
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Q

import make

D, HEADS, Q_RANK, RANK, PLAIN, ROTARY, VALUE = 2048, 20, 768, 512, 192, 64, 256
DENSE, EXPERTS, USED, WIDTH = 10_240, 64, 4, 1536


def gated(suffix: str, width: int, count: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    wide = {f"ffn_{part}{suffix}.weight": (*count, width, D) for part in ("gate", "up")}
    return wide | {f"ffn_down{suffix}.weight": (*count, D, width)}


def layer(index: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes, rows first."""
    parts = {
        "attn_norm.weight": (D,), "ffn_norm.weight": (D,),
        "attn_q_a.weight": (Q_RANK, D), "attn_q_a_norm.weight": (Q_RANK,),
        "attn_q_b.weight": (HEADS * (PLAIN + ROTARY), Q_RANK),
        "attn_kv_a_mqa.weight": (RANK + ROTARY, D), "attn_kv_a_norm.weight": (RANK,),
        "attn_k_b.weight": (HEADS, RANK, PLAIN), "attn_v_b.weight": (HEADS, VALUE, RANK),
        "attn_output.weight": (D, HEADS * VALUE),
    }
    if index == 0:
        return parts | gated("", DENSE)
    router = {"ffn_gate_inp.weight": (EXPERTS, D), "exp_probs_b.bias": (EXPERTS,)}
    return parts | router | gated("_exps", WIDTH, (EXPERTS,)) | gated("_shexp", WIDTH)


def add_sizes(writer: gguf.GGUFWriter, layers: int) -> None:
    writer.add_context_length(8192)
    writer.add_block_count(layers)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(DENSE)
    writer.add_leading_dense_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_q_lora_rank(Q_RANK)
    writer.add_kv_lora_rank(RANK)
    writer.add_key_length(RANK + ROTARY)
    writer.add_value_length(RANK)
    writer.add_key_length_mla(PLAIN + ROTARY)
    writer.add_value_length_mla(VALUE)
    writer.add_rope_dimension_count(ROTARY)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(WIDTH)
    writer.add_expert_weights_scale(1.8)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def write(path: Path, layers: int, kinds: dict[str, Q] | None) -> None:
    """A file with tensors of these types; without them, F16 and no data."""
    writer = gguf.GGUFWriter(str(path), "deepseek2", use_temp_file=False)
    writer.add_name(f"GLM-4.7-Flash cut to {layers} layers, random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    add_sizes(writer, layers)
    vocab = make.add_vocabulary(writer, None)
    writer.add_vocab_size(vocab)
    sizes = {"token_embd.weight": (vocab, D), "output.weight": (vocab, D), "output_norm.weight": (D,)}
    for index in range(layers):
        sizes |= {f"blk.{index}.{part}": size for part, size in layer(index).items()}
    is_whole = lambda name, size: len(size) == 1 or name.endswith("ffn_gate_inp.weight")
    usual = lambda name, size: Q.F32 if kinds is not None or is_whole(name, size) else Q.F16
    every = {name: (size, (kinds or {}).get(name, usual(name, size))) for name, size in sizes.items()}
    make.write_tensors(writer, every, path, data=kinds is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a GGUF file of GLM-4.7-Flash cut to a few layers, with random weights.")
    parser.add_argument("--into", type=Path, required=True, help="folder outside the repository")
    parser.add_argument("--layers", type=int, default=4, help="of 47")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    path = args.into / f"glm-4.7-flash-{args.layers}-layers.Q4_K_M.gguf"
    partial = path.with_suffix(".partial")
    if not path.is_file():
        write(partial, args.layers, None)
        write(partial, args.layers, make.kinds_of(partial, "Q4_K_M"))
        partial.rename(path)
    print(path)


if __name__ == "__main__":
    main()
