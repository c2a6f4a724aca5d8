#!/usr/bin/env bash
# Builds llama.cpp, and the programs vcurve and logits against it.
#
# The source is the PyPI source package of llama-cpp-python, which contains a whole
# llama.cpp tree: one pinned file from one registry, without git or root.
# Everything is written to target/peers/ (ignored by git). Finished steps are
# skipped, so a second call only checks. To start over, remove that folder.
#
# Usage: benches/peers/llama_cpp.sh
# Needs: python3 with venv and pip, a C++17 compiler, the network at first use.
# Environment: JOBS   compile jobs (default: all processors)
#              CXX    compiler of vcurve and logits (default: c++)
#              FLAGS  compiler flags of llama.cpp besides -march=native
set -euo pipefail

version=0.3.36
# Checksum of the source package, so that everybody builds the same llama.cpp.
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/peers
sdist=$work/llama_cpp_python-$version.tar.gz
source=$work/llama_cpp_python-$version/vendor/llama.cpp
build=$work/llama-$version
venv=$work/venv
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}

say() {
    printf 'peers: %s\n' "$*" >&2
}

# The next call must not take an unfinished result for a finished one, so each
# step writes its result under another name first, or leaves a mark at its end.
mkdir -p "$work"

if [[ ! -f $venv/.done ]]; then
    say "build tools into a virtual environment"
    python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        scikit-build-core cmake ninja
    touch "$venv/.done"
fi
# Both for this script and for cmake, which looks for ninja there.
PATH=$venv/bin:$PATH

if [[ ! -f $sdist ]]; then
    say "source package llama-cpp-python $version"
    rm -rf "$work/download"
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check \
        --no-deps --no-binary :all: --no-build-isolation \
        --dest "$work/download" "llama-cpp-python==$version"
    mv "$work/download/llama_cpp_python-$version.tar.gz" "$sdist"
    rmdir "$work/download"
fi
"$venv/bin/python" - "$sdist" "$sha256" <<'PY'
import hashlib, sys
path, wanted = sys.argv[1:]
with open(path, "rb") as file:
    found = hashlib.sha256(file.read()).hexdigest()
if found != wanted:
    sys.exit(f"{path}: SHA-256 is {found}, not {wanted}")
PY

if [[ ! -f $work/llama_cpp_python-$version/.done ]]; then
    say "unpacking"
    rm -rf "$work/llama_cpp_python-$version"
    tar -xzf "$sdist" -C "$work"
    touch "$work/llama_cpp_python-$version/.done"
fi

if [[ ! -f $build/.done ]]; then
    say "building the libraries, $jobs jobs (minutes)"
    cmake -G Ninja -S "$source" -B "$build" \
        -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON \
        -DCMAKE_C_FLAGS="${FLAGS:-}" -DCMAKE_CXX_FLAGS="${FLAGS:-}" \
        -DLLAMA_CURL=OFF \
        -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_COMMON=OFF \
        -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_BUILD_UI=OFF >"$work/cmake.log"
    ninja -C "$build" -j "$jobs" llama >"$work/ninja.log" || {
        tail -n 40 "$work/ninja.log" >&2
        exit 1
    }
    touch "$build/.done"
fi

for program in vcurve logits; do
    if [[ $here/$program.cpp -nt $work/$program || $build/.done -nt $work/$program ]]; then
        say "compiling $program"
        "${CXX:-c++}" -std=c++17 -O2 -Wall -Wextra -o "$work/$program.new" "$here/$program.cpp" \
            -I"$source/include" -I"$source/ggml/include" \
            -L"$build/bin" -lllama -lggml -lggml-base -lggml-cpu -Wl,-rpath,"$build/bin"
        mv "$work/$program.new" "$work/$program"
    fi
done

# For the report: the version, and the instruction sets it was compiled for.
say "llama.cpp of llama-cpp-python $version"
"$work/vcurve" --system-info
say "built: $work/vcurve, $work/logits"
