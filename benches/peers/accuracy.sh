#!/usr/bin/env bash
# Compares the native backend and llama.cpp with f32 arithmetic on the same file and texts.
#
# Both decode the texts of the golden traces (every fourth of 20); the reference is the target in f32: the default model,
# or another file with its tokenizer. It prints the mean KL divergence of the next token's distribution and how often the
# best token is the same.
#
# Usage: benches/peers/accuracy.sh MODEL.gguf      (after benches/peers/llama_cpp.sh)
set -euo pipefail

model=$(realpath "${1:?usage: accuracy.sh MODEL.gguf}")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
logits=$(mktemp)
trap 'rm -f "$logits"' EXIT

python3 - "$root/tests/fixtures/built-in-mtp/golden.json" <<'PY' | "$root/target/peers/logits" "$model" 2 >"$logits"
import json, sys
for golden in json.load(open(sys.argv[1]))[::4]:
    print(*golden["prompt_ids"], *golden["output_ids"])
PY
cd "$root"
DRAFTSCOPE_NEAR_MODEL=$model DRAFTSCOPE_PEER_LOGITS=$logits cargo test --release --locked --test real_model -- --nocapture near_f32 | grep -E "KL|panicked"
