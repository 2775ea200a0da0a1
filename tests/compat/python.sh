#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# python3 with every object through malloc: its own test modules for threads and memory.
. "$(dirname "$0")/lib.bash"
find_program python python3
export PYTHONMALLOC=malloc
prove "$python" -c 'print(len([str(i) for i in range(1000)]))'

preloaded "$python" - <<'P' || fail "threads, fork and garbage in one program"
import gc, os, threading
def work(n):
    rows = [{str(i): [i] * (i % 50)} for i in range(n)]
    assert sum(len(row) for row in rows) == n
threads = [threading.Thread(target=work, args=(20000,)) for _ in range(6)]
[t.start() for t in threads]
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        work(2000)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
[t.join() for t in threads]
gc.collect()
big = bytearray(64 << 20)
big.extend(b"x" * (8 << 20))
assert big[-1] == ord("x") and big[0] == 0
P

"$python" -c 'import test.libregrtest, test.test_gc' 2>/dev/null || skip "python3's own tests are not installed"
modules="test_thread test_threading test_threading_local test_threadsignals test_gc test_mmap test_memoryview
         test_zlib test_queue test_fork1 test_array test_bytes test_list test_dict test_weakref test_buffer
         test_ctypes test_sqlite3 test_mailbox"
if [ "${scale%%.*}" -ge 2 ] 2>/dev/null; then
    modules="$modules test_multiprocessing_fork test_concurrent_futures test_subprocess"
fi
failed=""
for module in $modules; do
    "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('test.$module') is None)" || continue
    preloaded "$python" -m test -q --tempdir "$work" "$module" >"$work/$module.log" && continue
    if timeout -k 5 "$time_limit" "$python" -m test -q --tempdir "$work" "$module" >/dev/null 2>&1; then
        tail -n 30 "$work/$module.log" >&2
        failed="$failed $module"
    else
        echo "not counted: $module fails without the library, too"
    fi
done
[ -z "$failed" ] || fail "python3 test modules:$failed"
finish
