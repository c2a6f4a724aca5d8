#!/usr/bin/env bash
# Fuzzes with stable Rust and instruments only this program's crates, without the kernels, which read no input. Dependencies
# are built without instrumentation, or taken from TARGET-FOLDER if it has them. There is no address sanitizer: what reads the inputs is safe Rust, and
# without one most targets run thousands of inputs per second. Overflows and debug assertions are checked.
#   fuzz/run.sh SECONDS [TARGET-FOLDER [TARGET…]]
# Without targets all are built once and fuzzed one after the other, each for so many seconds; 0 seconds only build.
# FUZZ_EXECUTIONS=N goes round the targets until N inputs have run in all runs together; fuzz/executions counts them.
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
  *" --crate-name draftscope_kernels "*) exec "$@" ;;
  *" --crate-name draftscope"* | *"fuzz_targets/"*)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on ;;
  *) exec "$@" ;;
esac
WRAPPER
chmod +x "$wrapper"
cd "$here"
[ -e Cargo.lock ] || cp ../Cargo.lock Cargo.lock
# Optimised whatever the user's Cargo configuration says of these crates: without, a target is several times slower.
optimised=()
for crate in draftscope $(cd ../crates && printf 'draftscope-%s ' *); do
    optimised+=(--config "profile.release.package.$crate.opt-level=3")
done
RUSTC_WRAPPER=$wrapper cargo "${optimised[@]}" build --release $(printf -- '--bin %s ' "$@")
[ "$seconds" -gt 0 ] || exit 0

# Largest input of a target in bytes: the format's smallest useful size, since short inputs run faster.
longest() {
    case $1 in
        trace | gguf | safetensors) echo 65536 ;;
        *) echo 8192 ;;
    esac
}

# Fuzzes one target for $seconds and adds what it ran to the count.
fuzz() {
    local target=$1 log=artifacts/$1.log count
    mkdir -p "corpus/$target" artifacts
    local options=(-max_len="$(longest "$target")" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
        -artifact_prefix="artifacts/$target-" -max_total_time="$seconds")
    [ -e "$target.dict" ] && options+=(-dict="$target.dict")
    (ulimit -v "$memory"; "$CARGO_TARGET_DIR/release/$target" "corpus/$target" "seeds/$target" "${options[@]}") \
        > "$log" 2>&1 || failed+=" $target"
    count=$(grep -aoE 'number_of_executed_units: *[0-9]+' "$log" | grep -oE '[0-9]+$' || true)
    echo "$target ${count:-0}" >> executions
    echo "== $target: ${count:-no count of} executions in $seconds s"
    grep -aE 'panicked|ERROR|SUMMARY|Test unit' "$log" || true
}

total() { awk '{ sum += $2 } END { print sum + 0 }' executions; }

touch executions
failed=
while :; do
    for target in "$@"; do fuzz "$target"; done
    [ -z "$failed" ] && [ "$(total)" -lt "${FUZZ_EXECUTIONS:-0}" ] || break
done
rm -rf /dev/shm/draftscope-fuzz-*
awk '{ sum[$1] += $2 } END { for (target in sum) print target, sum[target] }' executions | sort
echo "all $(total)"
[ -z "$failed" ] || { echo "crashes:$failed; see fuzz/artifacts" >&2; exit 1; }
