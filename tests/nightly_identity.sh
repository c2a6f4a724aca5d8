#!/usr/bin/env bash
# Checks identity at scale: prompts × k × all drafters × the rules exact, rejection and block, greedy, then trees, then the
# distributions of sampled tokens with each of these rules; on the CPU, then with fewer prompts on a GPU, which may be a
# software driver. Every step runs; the status is 1 if speculative and plain decoding differ in one of them. 200 prompts
# take two to four hours on two cores; with --draft-model FILE, that drafter runs too.
#
#   tests/nightly_identity.sh [options of verify-identity, e.g. --threads 2]
#
# IDENTITY_PROMPTS=10  prompts on the CPU; 0, the default, takes all
# IDENTITY_GPU=2       prompts on the GPU; 0 leaves it out
# IDENTITY_ADAPTER=0   which GPU: name or number, as `draftscope devices` lists them
# DRAFTSCOPE=FILE      a program to check, which nothing is built for; it needs the feature gpu
set -uo pipefail
cd "$(dirname "$0")/.."
prompts=${IDENTITY_PROMPTS:-0} gpu=${IDENTITY_GPU:-2} adapter=${IDENTITY_ADAPTER:-0}
options=("$@")

if [ -z "${DRAFTSCOPE:-}" ]; then
    cargo build --release --locked --features gpu || exit 1
    DRAFTSCOPE=target/release/draftscope
fi

status=0
# Runs one step; says how long it computed.
run() {
    echo "== $*"
    local from=$SECONDS
    "$DRAFTSCOPE" verify-identity "$@" ${options[@]+"${options[@]}"} || { status=1; echo "FAILED  $*"; }
    echo "   took $((SECONDS - from)) s"
}

run --device cpu --limit "$prompts" -k 1,2,3,4,6,8 --drafters all --max-tokens 64
for rule in rejection block; do
    run --device cpu --limit "$prompts" -k 1,2,4,8 --drafters all --verify "$rule" --max-tokens 64
done
run --device cpu --limit "$prompts" -k 2,4,6 --drafters mtp --tree 8 --max-tokens 64
sampled=$((prompts == 0 || prompts > 8 ? 8 : prompts))
for rule in exact rejection block; do
    run --device cpu --limit "$sampled" -k 1,3,6 --drafters mtp,random --temperature 1.0 --verify "$rule" --samples 1000
done

if [ "$gpu" -gt 0 ]; then
    if [ "$("$DRAFTSCOPE" devices --json | tr -d '[:space:]')" = "[]" ]; then
        echo "FAILED  no GPU: install a driver (a software one will do), or set IDENTITY_GPU=0"
        exit 1
    fi
    on_gpu=(--device gpu --adapter "$adapter" --ctx 256)
    run "${on_gpu[@]}" --limit "$gpu" -k 1,4 --drafters all --max-tokens 16
    for rule in rejection block; do
        run "${on_gpu[@]}" --limit "$gpu" -k 3 --drafters mtp,ngram --verify "$rule" --max-tokens 16
    done
    run "${on_gpu[@]}" --limit 1 -k 3 --drafters mtp --temperature 1.0 --verify rejection --samples 50
fi
exit "$status"
