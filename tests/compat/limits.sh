#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs in a small address space: the library must shrink its reservation and not fail to start.
. "$(dirname "$0")/lib.bash"
find_program bash bash
find_program sort sort
find_program python python3
prove "$sort" /etc/passwd

limited() {
    local kib=$1
    shift
    (ulimit -v "$kib"; preloaded "$@")
}
seq 1 200000 >"$work/numbers"
expected=$("$sort" -R --random-source=/etc/passwd "$work/numbers" | "$sort" -n | md5sum)
eat='import sys
taken = []
try:
    while True: taken.append(bytearray(1 << 20))
except MemoryError:
    count = len(taken)
    del taken
    rest = [bytearray(1 << 20) for _ in range(count // 2)]
    small = [str(i) for i in range(50000)]
    sys.exit(0 if count > int(sys.argv[1]) else 1)'
for kib in 2097152 524288; do
    limited $kib /bin/true || fail "true under $kib KiB"
    same "$expected" "$(limited $kib "$sort" -n "$work/numbers" | md5sum)" "sort under $kib KiB"
    same 5000 "$(limited $kib "$bash" -c 's=(); for ((i = 0; i < 5000; i++)); do s+=("$i$i$i"); done; echo ${#s[@]}')" "bash"
    PYTHONMALLOC=malloc limited $kib "$python" -c "$eat" $((kib / 1024 / 3)) ||
        fail "python3 under $kib KiB could not use a third of it, or not recover from MemoryError"
done
for kib in 131072 65536 40960; do
    limited $kib /bin/ls / >/dev/null || fail "ls under $kib KiB"
done
finish
