#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# redis-server on a socket of its own: traffic, a background save by fork, a clean end.
. "$(dirname "$0")/lib.bash"
find_program server redis-server
find_program client redis-cli
find_program bench redis-benchmark
socket=$work/redis.sock

cli() { timeout -k 5 "$time_limit" "$client" -s "$socket" "$@"; }
wait_until() {
    local tries
    for tries in $(seq 1 $((time_limit * 10))); do "$@" && return 0; sleep 0.1; done
    return 1
}
is_up() { [ "$(cli ping 2>/dev/null)" = PONG ]; }
save_is_over() { cli info persistence | grep -q 'rdb_bgsave_in_progress:0'; }

LD_PRELOAD=$library "$server" --port 0 --unixsocket "$socket" --dir "$work" --save '' --io-threads 2 \
    --logfile "$work/redis.log" 2>>"$work/stderr" &
pid=$!
children+=("$pid")
wait_until is_up || { cat "$work/redis.log" >&2; fail "redis-server does not answer"; }
prove_process "$pid"

LD_PRELOAD=$library timeout -k 5 "$time_limit" "$bench" -s "$socket" -q -n 20000 -c 20 -r 5000 -d 200 \
    -t set,get,lpush,lrange_100,sadd,hset,zadd,mset >"$work/bench.out" 2>>"$work/stderr" || fail "redis-benchmark failed"
cli eval 'for i = 1, 20000 do redis.call("set", "big:" .. i, string.rep("v", i % 3000)) end return 1' 0 >/dev/null
before=$(cli dbsize)
for _ in 1 2 3; do
    cli bgsave >/dev/null
    cli eval 'for i = 1, 5000 do redis.call("set", "big:" .. i, string.rep("w", i % 4000)) end return 1' 0 >/dev/null
    wait_until save_is_over || fail "the background save does not end"
    cli info persistence | grep -q 'rdb_last_bgsave_status:ok' || fail "the background save failed"
done
same 2999 "$(cli strlen big:2999)" "length of a value"
same "$before" "$(cli dbsize)" "number of keys"
cli debug reload >/dev/null 2>&1 || true
cli flushall >/dev/null
same 0 "$(cli dbsize)" "keys after flushall"
cli shutdown nosave >/dev/null 2>&1 || true
wait "$pid" || fail "redis-server ended with status $?"
grep -qiE 'crash|bug report|assert' "$work/redis.log" && { tail -n 40 "$work/redis.log" >&2; fail "the log tells of a crash"; }
finish
