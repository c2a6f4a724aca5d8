#!/usr/bin/env bash
# Checks exports with the programs that read them: Chromium (page), asciinema-player (cast), pyarrow
# (Parquet), XML and JSON parsers, a JSON Schema validator. Run by hand:
#   tests/export/check.sh PATH-TO-draftscope [RECORDING]     (built with --features specspecs)
# It needs Debian's chromium, npm, and Python with pyarrow and jsonschema (pip install pyarrow==26.0.1
# jsonschema). The Rust tests need none of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
recording=$(realpath "${2:-$here/../../assets/traces/chat.dscope.jsonl.zst}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/browser.mjs" "$here/files.py" "$work"
(cd "$work" && npm install --silent --no-audit --no-fund)
for format in html cast svg gif-frames perfetto csv md vllm-json specspecs jsonl; do
  "$program" export "$recording" --to "$format" --out "$work/out.$format" >/dev/null
done
python3 "$work/files.py" "$work" "$here/../../docs/trace.schema.json"
node "$work/browser.mjs" "$work"
