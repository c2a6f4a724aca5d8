#!/usr/bin/env bash
# Fuzzes with stable Rust and instruments only this program. Dependencies are built without instrumentation, or
# taken from TARGET-FOLDER if it has them.
#   fuzz/run.sh SECONDS [TARGET-FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-300}
export CARGO_TARGET_DIR=${2:-$here/target} CARGO_INCREMENTAL=0
wrapper=$(mktemp)
trap 'rm -f "$wrapper"' EXIT
cat > "$wrapper" <<'END'
#!/usr/bin/env bash
case " $* " in
  *" --crate-name draftscope "* | *" --crate-name trace "*)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on ;;
  *) exec "$@" ;;
esac
END
chmod +x "$wrapper"
cd "$here"
[ -e Cargo.lock ] || cp ../Cargo.lock Cargo.lock
RUSTC_WRAPPER=$wrapper cargo build --release --bin trace
mkdir -p corpus/trace
"$CARGO_TARGET_DIR/release/trace" corpus/trace seeds/trace -dict=trace.dict -max_len=65536 -timeout=20 \
  -rss_limit_mb=4096 -max_total_time="$seconds"
