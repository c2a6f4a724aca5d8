#!/usr/bin/env bash
# Makes what people install without Rust: a Python wheel that holds the program, and a tarball with the
# program, README, changelog, manual pages and shell completions. Both have the licences of all that is linked, and land in
# dist/ beside their checksums.
#
#   scripts/package.sh            build, then try both
#   scripts/package.sh build      only build
#   scripts/package.sh check      only try what dist/ holds
#   scripts/package.sh crates     pack every crate as for a registry, without compiling it
#
# Needs Rust, a C compiler, `strings`, `sha256sum` and Python 3.8 or later with venv and pip. If `qemu-x86_64` is installed (package
# qemu-user), the program also runs on emulated processors without AVX-512 and without any AVX.
set -euo pipefail
cd "$(dirname "$0")/.."

MATURIN=1.16.0
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
TARGET=$(rustc -vV | sed -n 's/^host: //p')
NAME=draftscope-$VERSION-$TARGET
WORK=target/package

wheel() { echo dist/draftscope-"$VERSION"-*.whl; }

# Stops unless two texts are the same: `same WHAT EXPECTED ACTUAL`.
same() {
    [ "$2" = "$3" ] && return
    echo "$1: expected '$2', got '$3'" >&2
    exit 1
}

# Panic messages and C assertions hold paths of source files; those of this machine are replaced by general ones. Of
# several prefixes that fit, rustc takes the last one.
CARGO_DIR=${CARGO_HOME:-$HOME/.cargo}
PREFIXES=("$HOME=/home" "$CARGO_DIR=/cargo" "$CARGO_DIR/registry/src=/crates" "$PWD=/draftscope")

# Cargo's own variable for flags that may contain spaces: they are separated by the character 0x1f.
rust_flags() { printf -- '--remap-path-prefix=%s\x1f' "${PREFIXES[@]}" | sed 's/\x1f$//'; }

# pyproject.toml names the file, so that the wheel has it, too.
THIRD_PARTY=scripts/LICENSE-THIRD-PARTY.txt

build_wheel() {
    python3 scripts/licenses.py "$TARGET" "$THIRD_PARTY"
    python3 -m venv --clear "$WORK/maturin"
    "$WORK/maturin/bin/pip" install --quiet "maturin==$MATURIN"
    mkdir -p dist
    rm -f dist/draftscope-"$VERSION"-*.whl
    # maturin reads the pyproject.toml of the current folder, which names Cargo.toml; strip and locked are set there.
    # A target folder of its own, because other flags build everything anew.
    (
        CARGO_ENCODED_RUSTFLAGS=$(rust_flags)
        CFLAGS="${CFLAGS:-}$(printf -- ' -ffile-prefix-map=%s' "${PREFIXES[@]}")"
        export CARGO_ENCODED_RUSTFLAGS CFLAGS
        cd scripts
        "../$WORK/maturin/bin/maturin" build --release --out ../dist --target-dir "../$WORK/build"
    )
}

# The wheel and the tarball hold the same file, so that one check covers both.
build_tarball() {
    local stage=$WORK/$NAME
    rm -rf "$stage" "$WORK/wheel"
    mkdir -p "$stage/completions" "$stage/man"
    python3 -m zipfile -e "$(wheel)" "$WORK/wheel"
    install -m 755 "$WORK/wheel/draftscope-$VERSION.data/scripts/draftscope" "$stage/draftscope"
    cp README.md LICENSE CHANGELOG.md "$THIRD_PARTY" "$stage/"
    for shell in bash zsh fish elvish powershell; do
        "$stage/draftscope" completions "$shell" > "$stage/completions/draftscope.$shell"
    done
    "$stage/draftscope" man --out "$stage/man" > /dev/null
    tar -C "$WORK" --owner=0 --group=0 -czf "dist/$NAME.tar.gz" "$NAME"
    (cd dist && sha256sum -- draftscope-"$VERSION"-*.whl "$NAME.tar.gz" > SHA256SUMS)
}

# Every crate as cargo would upload it. No crate may be missing, links must have become files, and each must hold the licence
# and the files that it includes. Crates of this repository are taken from each other's packages, since no registry has them.
pack_crates() {
    rm -rf "$WORK/crates" "$WORK/unpacked-crates"
    mkdir -p "$WORK/unpacked-crates"
    cargo package --locked --offline --workspace --no-verify --quiet --target-dir "$WORK/crates"
    local crate
    for crate in "$WORK"/crates/package/*.crate; do
        tar -C "$WORK/unpacked-crates" -xzf "$crate"
    done
    python3 - "$WORK/unpacked-crates" "$VERSION" << 'END'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1]).resolve()
members = ["draftscope", *("draftscope-" + manifest.parent.name for manifest in pathlib.Path("crates").glob("*/Cargo.toml"))]
missing = [name for name in members if not (root / f"{name}-{sys.argv[2]}" / "LICENSE").is_file()]
links = [path for path in root.rglob("*") if path.is_symlink()]
absent, count = [], 0
for crate in root.iterdir():
    for source in crate.rglob("*.rs"):
        shipped, _, _ = source.read_text().partition("#[cfg(test)]")
        if source.name == "tests.rs" or "tests" in source.relative_to(crate).parts:
            continue
        for name in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', shipped):
            count += 1
            included = (source.parent / name).resolve()
            if not included.is_file() or crate not in included.parents:
                absent.append(f"{source.relative_to(root)}: {name}")
if links or absent or missing or not count:
    missing = [f"{name}: no crate, or none with LICENSE" for name in missing]
    sys.exit("\n".join(["not as they should be:", *map(str, links), *absent, *missing]))
print(f"{len(list(root.iterdir()))} crates, {count} included files")
END
}

# Ids of the tokens that a tiny model writes, and the instruction set: `run_tiny [emulator …] PROGRAM`.
run_tiny() {
    "$@" run --model tests/fixtures/checkpoints/llama.gguf --backend native --drafter early-exit -k 3 --raw \
        --max-tokens 24 --output summary "One two one two" 2> /dev/null \
        | python3 -c 'import json, sys
answer = json.load(sys.stdin)
print(answer["header"]["device"], file=sys.stderr)
print(*answer["output_token_ids"])'
}

# Stops if a program holds a path of this machine.
check_paths() {
    local texts found
    texts=$(strings -n 8 "$1") || exit 1
    found=$(grep -m 3 -F -e "$HOME/" -e "$CARGO_DIR/" -e "$PWD/" <<< "$texts") || return 0
    printf '%s holds paths of the machine that built it, such as:\n%s\n' "$1" "$found" >&2
    exit 1
}

# Neither a model nor a network is needed: the recording and the model of 1 MB are in the repository.
check_program() {
    local program=$1 expected emulated
    same "$program --version" "draftscope $VERSION" "$("$program" --version)"
    "$program" demo --list | grep -q chat
    "$program" export assets/traces/chat.dscope.jsonl.zst --to md --out - | grep -q '^# A recording'
    expected=$(run_tiny "$program")
    if ! command -v qemu-x86_64 > /dev/null || [ "${TARGET%%-*}" != x86_64 ]; then
        echo "not tried without AVX-512: qemu-x86_64 is not installed, or this is no x86-64 processor"
        return
    fi
    # QEMU emulates no AVX-512: `max` has AVX2, Nehalem has no AVX at all. Every set of instructions gives the same bits.
    for processor in max Nehalem; do
        emulated=$(run_tiny qemu-x86_64 -cpu "$processor" "$program")
        same "tokens on an emulated $processor" "$expected" "$emulated"
    done
}

check() {
    (cd dist && sha256sum --quiet --check SHA256SUMS)
    python3 -m venv --clear "$WORK/clean"
    "$WORK/clean/bin/pip" install --quiet --no-index "$(wheel)"
    check_program "$PWD/$WORK/clean/bin/draftscope"
    rm -rf "$WORK/unpacked"
    mkdir -p "$WORK/unpacked"
    tar -C "$WORK/unpacked" -xzf "dist/$NAME.tar.gz"
    same "the tarball's program" "draftscope $VERSION" "$("$WORK/unpacked/$NAME/draftscope" --version)"
    grep -q '^serde [0-9]' "$WORK/unpacked/$NAME/$(basename "$THIRD_PARTY")"
    python3 -m zipfile -l "$(wheel)" | grep -q "$(basename "$THIRD_PARTY")"
    check_paths "$WORK/unpacked/$NAME/draftscope"
    ls -R "$WORK/unpacked/$NAME"
    ls -l dist
}

case ${1:-all} in
    all) build_wheel; build_tarball; check ;;
    build) build_wheel; build_tarball ;;
    check) check ;;
    crates) pack_crates ;;
    *) echo "usage: scripts/package.sh [build|check|crates]" >&2; exit 2 ;;
esac
