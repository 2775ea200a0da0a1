#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# redis-server, linked to jemalloc, asks its allocator: with libebbtide_compat.so beside the library it is answered by the
# allocator that it has. Without it jemalloc tells of a heap that nobody uses.
. "$(dirname "$0")/lib.bash"
find_program server redis-server
find_program client redis-cli
grep -q ' U mallctl$' <<<"$(nm -D "$server" 2>/dev/null)" || skip "redis-server is not linked to jemalloc"
calls=$(dirname "$library")/compat/libebbtide_compat.so
socket=$work/redis.sock

cli() { timeout -k 5 "$time_limit" "$client" -s "$socket" "$@"; }
wait_until() {
    local tries
    for tries in $(seq 1 $((time_limit * 10))); do "$@" && return 0; sleep 0.1; done
    return 1
}
is_up() { [ "$(cli ping 2>/dev/null)" = PONG ]; }
# One line of INFO memory, which is as of the last tick of ten a second.
info() { cli info memory | tr -d '\r' | sed -n "s/^$1://p"; }
start() { # PRELOAD
    LD_PRELOAD=$1 "$server" --port 0 --unixsocket "$socket" --dir "$work" --save '' --enable-debug-command local \
        --hz 100 --logfile "$work/redis.log" 2>>"$work/stderr" &
    pid=$!
    children+=("$pid")
    wait_until is_up || { cat "$work/redis.log" >&2; fail "redis-server does not answer"; }
    prove_process "$pid"
}
stop() {
    cli shutdown nosave >/dev/null 2>&1 || true
    wait "$pid" || fail "redis-server ended with status $?"
    ! grep -qiE 'crash|bug report|assert' "$work/redis.log" || { tail -n 40 "$work/redis.log" >&2; fail "the log tells of a crash"; }
}
fill() { cli eval 'for i = 1, 40000 do redis.call("set", "k" .. i, string.rep("v", 1000)) end return 1' 0 >/dev/null; }
sees_burst() { [ "$(info allocator_allocated)" -ge 40000000 ]; }

start "$library"
fill
sleep 0.5
! sees_burst || fail "jemalloc counts blocks that are not its own"
stop

start "$library $calls"
fill
wait_until sees_burst || fail "INFO memory has $(info allocator_allocated) bytes allocated"
allocated=$(info allocator_allocated)
resident=$(info allocator_resident)
[ "$(info allocator_active)" -ge "$allocated" ] || fail "active is less than allocated"
[ "$resident" -ge 40000000 ] && [ "$resident" -le "$(info used_memory_rss)" ] || fail "resident is $resident"
cli memory stats >"$work/stats"
grep -q 'allocator.resident' "$work/stats" || fail "MEMORY STATS: $(cat "$work/stats")"
same 4096 "$(cli debug mallctl arenas.page)" "DEBUG MALLCTL arenas.page"
grep -q '^ebbtide ' <<<"$(cli debug mallctl-str version)" || fail "DEBUG MALLCTL-STR version: $(cli debug mallctl-str version)"
grep -qi 'no such file' <<<"$(cli debug mallctl prof.active)" || fail "a name without an answer: $(cli debug mallctl prof.active)"
grep -q 'where the resident memory is' <<<"$(cli memory malloc-stats)" || fail "MEMORY MALLOC-STATS"
cli memory doctor >"$work/doctor" || fail "MEMORY DOCTOR"
for switch in yes no yes; do
    same OK "$(cli config set jemalloc-bg-thread $switch)" "CONFIG SET jemalloc-bg-thread $switch"
done

cli flushall >/dev/null
same OK "$(cli memory purge)" "MEMORY PURGE"
is_released() { [ "$(info allocator_allocated)" -lt 20000000 ] && [ "$(info allocator_resident)" -lt 30000000 ]; }
wait_until is_released || fail "after MEMORY PURGE $(info allocator_allocated) bytes are allocated, $(info allocator_resident) resident"
stop
finish
