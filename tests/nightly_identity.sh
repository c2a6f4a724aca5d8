#!/usr/bin/env bash
# Checks identity at scale on the CPU: 200 prompts × k × all drafters × the rules exact, rejection and block, greedy, then
# trees, then the distributions of sampled tokens with each of these rules. Fails at the first step in which speculative
# and plain decoding differ. Takes two to four hours on two cores; with --draft-model FILE, that drafter runs too.
#
#   tests/nightly_identity.sh [options of verify-identity, e.g. --threads 2]
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked
run() { target/release/draftscope verify-identity "$@"; }

run --limit 0 -k 1,2,3,4,6,8 --drafters all --max-tokens 64 "$@"
for rule in rejection block; do
    run --limit 0 -k 1,2,4,8 --drafters all --verify "$rule" --max-tokens 64 "$@"
done
run --limit 0 -k 2,4,6 --drafters mtp --tree 8 --max-tokens 64 "$@"
for rule in exact rejection block; do
    run --limit 8 -k 1,3,6 --drafters mtp,random --temperature 1.0 --verify "$rule" --samples 1000 "$@"
done
