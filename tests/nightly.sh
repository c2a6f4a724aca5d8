#!/usr/bin/env bash
# What takes too long for every change. Each step runs even if one before it failed; the summary says which passed.
#
#   tests/nightly.sh                     all steps
#   tests/nightly.sh typos book          only these
#   FUZZ_SECONDS=600 SOAK_SECONDS=60 tests/nightly.sh fuzz soak
#
# Tools are installed, with their versions pinned, into target/nightly.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/nightly

# Checks that speculation changes no text and no distribution, over 200 prompts on the CPU, and a few on a GPU: hours.
identity() { tests/nightly_identity.sh; }

# Builds all fuzz targets once and fuzzes each of them; FUZZ_EXECUTIONS goes on until so many inputs have run.
fuzz() { fuzz/run.sh "${FUZZ_SECONDS:-60}"; }

# 2,000 turns in one terminal session, then an hour of prompts, on a tiny model: memory, descriptors, threads and CPU per
# turn stay flat.
soak() {
    cargo build --release --locked &&
        python3 tests/nightly_soak.py target/release/draftscope turns 2000 &&
        python3 tests/nightly_soak.py target/release/draftscope prompts "${SOAK_SECONDS:-3600}"
}

# Tests in which somebody waits, while processes and threads stall at random: none may fail.
stalls() { python3 tests/nightly_stalls.py "${STALL_ROUNDS:-6}"; }

# Recordings of 200 MB become pages within 300 MB of memory.
pages() { cargo test --release --locked --test long_trace -- --ignored --nocapture pages_of_200_megabytes; }

# Builds the book; mdBook reports what it cannot read.
book() {
    cargo install --quiet --locked --root "$tools" mdbook --version 0.5.4 && "$tools/bin/mdbook" build docs
}

# Spelling, also of comments; _typos.toml lists what is right here.
typos() {
    python3 -m venv "$tools/python" && "$tools/python/bin/pip" install --quiet typos==1.52.0 && "$tools/python/bin/typos"
}

# Licences, sources and known faults of the dependencies.
deny() {
    cargo install --quiet --locked --root "$tools" cargo-deny --version 0.20.2 && "$tools/bin/cargo-deny" check
}

# Chat templates that packages ship, and small expressions, rendered here and by transformers.
templates() {
    cargo build --release --locked && python3 -m venv "$tools/templates" &&
        "$tools/templates/bin/pip" install --quiet transformers==5.24.0 jinja2==3.1.6 &&
        "$tools/templates/bin/python" tests/templates.py target/release/draftscope "$tools/templates/files"
}

# The wheel and the tarball, installed and tried.
package() { scripts/package.sh; }

steps=(typos book deny templates package pages stalls fuzz soak identity)
[ $# -eq 0 ] && set -- "${steps[@]}"
for step in "$@"; do
    case " ${steps[*]} " in
        *" $step "*) ;;
        *) echo "no step '$step'; steps: ${steps[*]}" >&2; exit 2 ;;
    esac
done

summary=
status=0
for step in "$@"; do
    echo "== $step"
    if "$step"; then summary+="passed  $step"$'\n'; else summary+="FAILED  $step"$'\n' status=1; fi
done
printf '== summary\n%s' "$summary"
exit "$status"
