"""export: writes the module as safetensors, bf16 and FP8 (E4M3 with one f32 scale per row), with its config and a card.

    python -m mtp_training.export RUN OUT [train.draft_vocab=N]

N is the number of the most frequent tokens of the data. A module's file in its place gives its draft vocabulary.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .card import card
from .config import load
from .data import draft_vocab
from .target import Target

LAYER = "mtp.layers.0."
NAMES = {"fuse": "fuse", "enorm": "enorm", "hnorm": "hnorm", "proj": "eh_proj", "n1": "input_layernorm", "n2": "post_attention_layernorm", "norm": "shared_head.norm",
         "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def names():
    """Name of a weight in the module -> its name in files."""
    return {ours: f"{LAYER}{theirs}.weight" for ours, theirs in NAMES.items()}


def files(module, vocab):
    """(bf16, fp8) tensors by name."""
    bf16, fp8 = {}, {}
    for ours, theirs in names().items():
        if ours not in module:   # no `fuse`
            continue
        weight = module[ours].detach().float().cpu()
        bf16[theirs] = weight.bfloat16().contiguous()
        if weight.dim() == 1:
            fp8[theirs] = bf16[theirs]
            continue
        scale = (weight.abs().amax(1, keepdim=True) / 448.0).clamp_min(1e-12)
        fp8[theirs] = (weight / scale).to(torch.float8_e4m3fn).contiguous()
        fp8[f"{theirs}_scale"] = scale.squeeze(1).float().contiguous()
    for tensors in (bf16, fp8):
        tensors["mtp.draft_vocab"] = vocab.to(torch.int64).contiguous()
    return bf16, fp8


CONTEXT_VOCAB = 1024   # most tokens of the text that may join the draft vocabulary (context_vocab_size); only long texts have more


def configuration(shape, vocab, layers):
    """`layers` are the blocks after which the target's stream is read besides its final state."""
    extra = dict(hidden_layers=layers, fused="hidden_state + fuse · [each of hidden_layers' states / its root mean square]") if layers else {}
    return dict(architectures=["LlamaMtp"], hidden_size=shape.hidden, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
                intermediate_size=shape.inner, vocab_size=shape.vocab, draft_vocab_size=len(vocab), context_vocab_size=CONTEXT_VOCAB, num_nextn_predict_layers=1, mtp_recurrent=True,
                recurrent_hidden="module output after shared_head.norm", rms_norm_eps=shape.eps, rope_theta=shape.theta, concat_order=["embedding", "hidden"],
                hidden_state="last layer output after the final norm (what the output head reads)", torch_dtype="bfloat16", **extra)


def export(config, run, out):
    state = torch.load(config.runs / run / "state.pt", weights_only=False, map_location="cpu")
    target = Target(config["train"]["gguf"])
    vocab, wanted = state["vocab"], config["train"]["draft_vocab"]   # the module does not depend on it: another vocabulary is another choice of head rows
    if isinstance(wanted, str):
        vocab = load_file(Path(__file__).resolve().parents[2] / wanted)["mtp.draft_vocab"]
    elif len(vocab) != wanted:
        vocab, _ = draft_vocab(config, wanted, target.shape.vocab, target.specials)
    bf16, fp8 = files(state["module"], vocab)
    for name, tensors in (("bf16", bf16), ("fp8", fp8)):
        folder = Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / ("mtp.safetensors" if name == "bf16" else "mtp.fp8.safetensors"), metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(configuration(target.shape, vocab, state.get("hidden_layers", [])), indent=1) + "\n")
    (Path(out) / "README.md").write_text(card(config, run, target, state | dict(vocab=vocab)))
    print(json.dumps(dict(run=run, **state["state"], draft_vocab=len(vocab), out=str(out))))


if __name__ == "__main__":
    export(load(sys.argv[3:]), sys.argv[1], sys.argv[2])
