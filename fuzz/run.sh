#!/usr/bin/env bash
# Fuzzes with stable Rust and instruments only this program. Dependencies are built without instrumentation, or
# taken from TARGET-FOLDER if it has them.
#   fuzz/run.sh SECONDS [TARGET-FOLDER [TARGET…]]
# Without targets all are built once and fuzzed one after the other, each for so many seconds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-300}
export CARGO_TARGET_DIR=${2:-$here/target} CARGO_INCREMENTAL=0
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- $(cd "$here/fuzz_targets" && ls | sed 's/\.rs$//')
# Most address space of a target, in kilobytes: a larger allocation is a crash.
memory=$((3 << 20))

wrapper=$(mktemp)
trap 'rm -f "$wrapper"' EXIT
cat > "$wrapper" <<'WRAPPER'
#!/usr/bin/env bash
case " $* " in
  *" --crate-name draftscope "* | *"fuzz_targets/"*)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on ;;
  *) exec "$@" ;;
esac
WRAPPER
chmod +x "$wrapper"
cd "$here"
[ -e Cargo.lock ] || cp ../Cargo.lock Cargo.lock
RUSTC_WRAPPER=$wrapper cargo build --release $(printf -- '--bin %s ' "$@")

failed=
for target in "$@"; do
    mkdir -p "corpus/$target" artifacts
    options=(-max_len=65536 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="artifacts/$target-")
    [ -e "$target.dict" ] && options+=(-dict="$target.dict")
    echo "== $target"
    (ulimit -v "$memory"; "$CARGO_TARGET_DIR/release/$target" "corpus/$target" "seeds/$target" "${options[@]}" \
        -max_total_time="$seconds") > "artifacts/$target.log" 2>&1 || failed+=" $target"
    grep -E 'number_of_executed_units|peak_rss_mb|panicked|ERROR|SUMMARY|Test unit' "artifacts/$target.log" || true
done
rm -rf /dev/shm/draftscope-fuzz-*
[ -z "$failed" ] || { echo "crashes:$failed; see fuzz/artifacts" >&2; exit 1; }
