# SPDX-License-Identifier: MIT OR Apache-2.0
# What every compat script shares. A script is called with the path of libebbtide.so and ends with
# 0 (passed), 77 (the program is not installed) or another status (failed).
set -euo pipefail

[ $# -ge 1 ] && [ -r "$1" ] || { echo "usage: $0 path/to/libebbtide.so" >&2; exit 2; }
library=$(realpath "$1")
work=$(mktemp -d)
time_limit=${TEST_TIMEOUT:-240}
scale=${EBBTEST_SCALE:-1}
unset EBBTEST_SCALE  # the library would call it an unknown option
children=()

cleanup() {
    local status=$?
    local child
    for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null || true; done
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ -s "$work/stderr" ]; then
        echo "--- last lines on stderr" >&2
        tail -n 20 "$work/stderr" >&2
    fi
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*" >&2; exit 1; }

# Sets the variable $1 to the path of the program $2: the system's own before any wrapper in PATH.
find_program() {
    local found
    found=$(PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:$PATH command -v "$2") || skip "$2 is not installed"
    printf -v "$1" '%s' "$found"
}

# Runs a command with the library preloaded; its stderr is kept for the checks at the end.
preloaded() {
    LD_PRELOAD=$library timeout -k 5 "$time_limit" "$@" 2>>"$work/stderr"
}

# The dynamic linker itself must say that this command binds malloc to the library.
prove() {
    rm -f "$work"/bindings.*
    LD_DEBUG=bindings LD_DEBUG_OUTPUT=$work/bindings LD_PRELOAD=$library \
        timeout -k 5 "$time_limit" "$@" >"$work/prove.out" 2>"$work/prove.err" </dev/null ||
        { cat "$work/prove.err" >&2; fail "cannot start: $*"; }
    grep -hqE "to $library \[0\]: normal symbol .(malloc|calloc)'" "$work"/bindings.* ||
        fail "malloc is not bound to $library in: $*"
    rm -f "$work"/bindings.*
}

# The same for a process that is already running.
prove_process() {
    grep -qF "$library" "/proc/$1/maps" || fail "$library is not mapped in process $1"
}

# Compiles one program; the words after the output are options.
build() {
    local source=$1 output=$2
    shift 2
    "${compiler:-g++}" -O1 -g "$source" -o "$output" "$@" || fail "cannot compile $source"
}

same() {
    [ "$1" = "$2" ] || fail "$3: expected '$1', got '$2'"
}

# The library is silent unless something is wrong, and the linker unless it could not load it.
finish() {
    if [ -f "$work/stderr" ] && grep -qE '^ebbtide|ld\.so: object' "$work/stderr"; then
        fail "unexpected lines on stderr"
    fi
    echo "passed"
}
