#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The unwinder beside libgcc's, in programs that nobody here wrote: the same stacks.
. "$(dirname "$0")/lib.bash"
find_program cc cc
root=$(realpath "$(dirname "$0")/../..")
"$cc" -std=gnu17 -O1 -g0 -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -DEBB_NO_OVERRIDE \
    -I"$root/src" -I"$root/include" "$root/src/one.c" "$root/tests/compat/unwind/check.c" -o "$work/check.so"

programs=0
# compared NAME COMMAND...
compared() {
    local name=$1
    shift
    PATH=/usr/local/bin:/usr/bin:/bin command -v "$1" >"$work/path" || return 0
    : >"$work/counts"
    UNWIND_CHECK=$work/counts LD_PRELOAD=$work/check.so timeout -k 5 "$time_limit" "$@" >"$work/out" 2>"$work/stderr" ||
        fail "$name: status $?"
    [ -s "$work/counts" ] || fail "$name: no stacks"
    ! grep -v ', 0 differ,' "$work/counts" || fail "$name: stacks differ"
    sed "s/^/$name: /" "$work/counts"
    programs=$((programs + 1))
}

PYTHONMALLOC=malloc compared python3 python3 -c 'import json, re, email; sorted((json.dumps([i, {"a": i}]) for i in range(20000)), key=lambda s: re.sub("a", "b", s))'
compared perl perl -e 'my %h; $h{$_ % 999} = [$_ x 3] for 1 .. 100000; my @s = sort { $a <=> $b } map { scalar @$_ } values %h'
compared sqlite3 sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x+1 from c where x<50000) select sum(length(hex(x))) from (select x from c order by x desc)'
printf '#include <map>\n#include <string>\nstd::map<std::string, int> m; int main() { return m["x"]; }\n' >"$work/m.cc"
compared g++ g++ -O2 -c "$work/m.cc" -o "$work/m.o"
compared node node -e 'let a = []; for (let i = 0; i < 20000; i++) a.push(Buffer.alloc(9000)); JSON.stringify(a.map(b => b.length))'
[ "$programs" -ge 2 ] || skip "too few programs are installed"
