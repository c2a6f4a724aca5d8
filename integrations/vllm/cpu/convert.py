"""A GGUF of the default model as a float32 folder that vLLM loads. usage: convert.py FILE.gguf FOLDER

float32, because bf16 logits tie now and then, and then greedy text depends on the shape of the batch.
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

source, target = sys.argv[1:3]
folder, name = os.path.split(os.path.abspath(source))
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
config = loaded.config.to_dict()
for key in ("quantization_config", "_name_or_path", "dtype"):  # transformers does not save what it calls quantised
    config.pop(key, None)
model = LlamaForCausalLM(LlamaConfig(**config)).float()
print(model.load_state_dict(loaded.state_dict(), strict=False))
model.generation_config = GenerationConfig(
    bos_token_id=config["bos_token_id"], eos_token_id=config["eos_token_id"], pad_token_id=config["pad_token_id"])
model.eval().save_pretrained(target)
tokenizer.save_pretrained(target)
