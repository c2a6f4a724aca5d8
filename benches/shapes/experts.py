#!/usr/bin/env python3
"""Make a GGUF file with experts: Qwen3.6-35B-A3B cut down to a few layers, random weights.

    target/peers/venv/bin/python benches/shapes/experts.py --into FOLDER --layers 4

Every width is that of the real model: 256 experts of width 512, 8 for a row, a shared one, three layers of Gated DeltaNet and one
that attends. Types are those of Q4_K_M: experts in Q4_K, half of their down matrices in Q6_K. A layer takes 0.47 GB. Rows of
quantised matrices repeat as in make.py; routers do not, so that a row chooses its experts as in a trained model, by scores that
differ. The vocabulary is that of the default model. Nothing that exists is made again.
"""

import argparse
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Q

import make

D, HEADS, KV, HEAD, ROTARY, EVERY = 2048, 16, 2, 256, 64, 4
KEYS, VALUES, WIDE, KERNEL = 16, 32, 128, 4  # heads and their width, of linear layers
EXPERTS, USED, WIDTH = 256, 8, 512


def layer(index: int, layers: int) -> dict[str, tuple[tuple[int, ...], Q]]:
    down = Q.Q6_K if index < layers // 2 else Q.Q4_K
    parts = {
        "attn_norm.weight": ((D,), Q.F32), "post_attention_norm.weight": ((D,), Q.F32),
        "ffn_gate_inp.weight": ((EXPERTS, D), Q.F32), "ffn_gate_inp_shexp.weight": ((D,), Q.F32),
        "ffn_gate_exps.weight": ((EXPERTS, WIDTH, D), Q.Q4_K), "ffn_up_exps.weight": ((EXPERTS, WIDTH, D), Q.Q4_K),
        "ffn_down_exps.weight": ((EXPERTS, D, WIDTH), down),
        "ffn_gate_shexp.weight": ((WIDTH, D), Q.Q8_0), "ffn_up_shexp.weight": ((WIDTH, D), Q.Q8_0),
        "ffn_down_shexp.weight": ((D, WIDTH), Q.Q8_0),
    }
    if (index + 1) % EVERY == 0:
        return parts | {
            "attn_q.weight": ((2 * HEADS * HEAD, D), Q.Q4_K), "attn_k.weight": ((KV * HEAD, D), Q.Q4_K),
            "attn_v.weight": ((KV * HEAD, D), Q.Q6_K), "attn_output.weight": ((D, HEADS * HEAD), Q.Q4_K),
            "attn_q_norm.weight": ((HEAD,), Q.F32), "attn_k_norm.weight": ((HEAD,), Q.F32),
        }
    channels = (2 * KEYS + VALUES) * WIDE
    return parts | {
        "attn_qkv.weight": ((channels, D), Q.Q4_K), "attn_gate.weight": ((VALUES * WIDE, D), Q.Q4_K),
        "ssm_conv1d.weight": ((channels, KERNEL), Q.F32), "ssm_dt.bias": ((VALUES,), Q.F32), "ssm_a": ((VALUES,), Q.F32),
        "ssm_beta.weight": ((VALUES, D), Q.F32), "ssm_alpha.weight": ((VALUES, D), Q.F32),
        "ssm_norm.weight": ((WIDE,), Q.F32), "ssm_out.weight": ((D, VALUES * WIDE), Q.Q4_K),
    }


def write(path: Path, layers: int) -> None:
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(str(partial), "qwen35moe")
    writer.add_name(f"35B-A3B cut to {layers} layers, random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_context_length(8192)
    writer.add_block_count(layers)
    writer.add_embedding_length(D)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(ROTARY)
    writer.add_array("qwen35moe.rope.dimension_sections", [11, 11, 10, 0])
    writer.add_rope_freq_base(10_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_feed_forward_length(WIDTH)
    writer.add_expert_shared_feed_forward_length(WIDTH)
    sizes = dict(conv_kernel=KERNEL, inner_size=VALUES * WIDE, state_size=WIDE, time_step_rank=VALUES, group_count=KEYS)
    for key, value in sizes.items() | {("full_attention_interval", EVERY)}:
        writer.add_uint32(f"qwen35moe.{'' if key.startswith('full') else 'ssm.'}{key}", value)
    vocab = make.add_vocabulary(writer, None)
    tensors = {"token_embd.weight": ((vocab, D), Q.Q6_K), "output_norm.weight": ((D,), Q.F32)}
    for index in range(layers):
        tensors |= {f"blk.{index}.{part}": what for part, what in layer(index, layers).items()}
    make.write_tensors(writer, tensors, partial, data=True)
    partial.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a GGUF file of 35B-A3B cut to a few layers, with random weights.")
    parser.add_argument("--into", type=Path, required=True, help="folder outside the repository")
    parser.add_argument("--layers", type=int, default=4, help="a multiple of 4")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    path = args.into / f"35b-a3b-{args.layers}-layers.Q4_K_M.gguf"
    if not path.is_file():
        write(path, args.layers)
    print(path)


if __name__ == "__main__":
    main()
