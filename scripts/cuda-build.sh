#!/usr/bin/env bash
# Builds the program with candle's CUDA kernels (`--features cuda`, experimental) where there is no CUDA toolkit, no driver
# and no GPU: compilers come as wheels from PyPI. Linux on x86-64.
#
#   scripts/cuda-build.sh [CAPABILITY]            toolkit, then build; 90 by default: H100, H200
#   scripts/cuda-build.sh toolkit [CAPABILITY]    only fetch the toolkit, and compile and link a small program with it
#
# CUDA_KIT: folder of the toolkit (target/cuda-kit by default). CUDA_VERSION: 13.0 (default) or 13.4.
# Needs gcc, g++, cargo, and Python 3 with venv and pip. Fetches 100 MB (13.0) or 126 MB (13.4), 0.3 or 0.5 GB unpacked.
#
# A capability is a GPU's generation: 75 Turing, 80 and 86 Ampere, 89 Ada, 90 Hopper, 100 and 120 Blackwell. Some of candle's
# kernels hold code for that one generation only, so another GPU needs another build. 13.0 makes PTX 9.0, which drivers from
# 580 on read; 13.4 makes PTX 9.4, which asks for a newer driver.
#
# The program is linked with stand-ins for the CUDA libraries, which open the real ones at the first call
# (scripts/cuda_stand_ins.py), so it also starts without CUDA. To run on a GPU it needs the driver, and libcublas.so.13,
# libcublasLt.so.13, libcurand.so.10 and libnvrtc.so.13 on LD_LIBRARY_PATH: wheels nvidia-cublas, nvidia-curand and
# nvidia-cuda-nvrtc, some 0.6 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

only_toolkit=false
if [ "${1:-}" = toolkit ]; then
    only_toolkit=true
    shift
fi
capability=${1:-90}
kit=$(realpath -m "${CUDA_KIT:-target/cuda-kit}")
root=$kit/nvidia/cu13

case ${CUDA_VERSION:-13.0} in
13.0) wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85) ;;
13.4) wheels=(nvidia-cuda-nvcc==13.4.92 nvidia-nvvm==13.4.92 nvidia-cuda-crt==13.4.92 nvidia-cuda-runtime==13.4.92 nvidia-cuda-cccl==13.3.3.3.1) ;;
*)
    echo "CUDA_VERSION is ${CUDA_VERSION:-}; it can be 13.0 or 13.4" >&2
    exit 2
    ;;
esac
if ! [[ $capability =~ ^[0-9]{2,3}$ ]]; then
    echo "'$capability' is no compute capability; 90 stands for 9.0" >&2
    exit 2
fi

# Compilers, headers and the static runtime, in one folder as a toolkit has them.
fetch_toolkit() {
    [ -e "$kit/complete" ] && return
    python3 -m venv "$kit/venv"
    "$kit/venv/bin/pip" download --quiet --no-deps --dest "$kit/wheels" "${wheels[@]}"
    for wheel in "$kit"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$kit"
    done
    chmod +x "$root"/bin/* "$root"/nvvm/bin/*
    # no libX.so in wheels, and of libraries that are linked statically cargo looks for libX.a
    ln -sf libcudart_static.a "$root/lib/libcudart.a"
    rm -rf "$kit/wheels"
    touch "$kit/complete"
}

# Stand-ins for libcuda, libcublas and others, with the functions that cudarc declares.
make_stand_ins() {
    local version source
    version=$(sed -n '/^name = "cudarc"/{n;s/^version = "\(.*\)"/\1/p}' Cargo.lock)
    find_source() { find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name "cudarc-$version" 2> /dev/null | head -1; }
    source=$(find_source || true)
    if [ -z "$source" ]; then
        cargo fetch --locked # waits while other builds hold cargo's cache
        source=$(find_source || true)
    fi
    if [ -z "$source" ]; then
        echo "the source of cudarc $version is not there; run cargo fetch" >&2
        exit 1
    fi
    python3 scripts/cuda_stand_ins.py "$source/src" "$root/lib"
}

# Compiles a kernel for the GPU generation, links a program with runtime and stand-ins, and runs it: without a driver it
# prints the error code for "no driver" or "no device", and that it started is what counts.
try_toolkit() {
    local trial=$kit/trial
    mkdir -p "$trial"
    cat > "$trial/trial.cu" << 'SOURCE'
#include <cstdio>
extern "C" int cuInit(unsigned);
__global__ void dot(const int *a, const int *b, int *c) { c[threadIdx.x] = __dp4a(a[threadIdx.x], b[threadIdx.x], 0); }
int main() {
    int count = 0;
    printf("cuInit %d, devices %d\n", cuInit(0), cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    return 0;
}
SOURCE
    nvcc -arch="sm_$capability" -cudart static -o "$trial/trial" "$trial/trial.cu" -L"$root/lib" -lcuda -ldl
    "$trial/trial"
}

fetch_toolkit
export CUDA_HOME=$root CUDA_PATH=$root CUDA_COMPUTE_CAP=$capability PATH=$root/bin:$PATH
export CUDAFORGE_THREADS=${CUDAFORGE_THREADS:-$(nproc)}
make_stand_ins
try_toolkit
$only_toolkit && exit

# a target folder of its own, because candle is another one
cargo build --release --locked --features cuda --target-dir target/cuda
program=target/cuda/release/draftscope
if ldd "$program" | grep -E 'libcu|libnv'; then
    echo "the program is linked with CUDA libraries, so it does not start without them" >&2
    exit 1
fi
"$program" --version
ls -l "$program"
