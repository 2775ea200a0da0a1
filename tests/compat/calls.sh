#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# libebbtide_compat.so: what it says is what jemalloc says, where both must; a program with tcmalloc's weak names; the
# JSON by a parser; an archive; the page of names.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
find_program python python3
tests=$(dirname "$0")/calls
root=$(cd "$(dirname "$0")/../.." && pwd)
beside=$(dirname "$library")
calls=$beside/compat/libebbtide_compat.so
both="$library $calls"
[ -r "$calls" ] || fail "there is no $calls"

# linked SOURCE PROGRAM: with both libraries, found by their paths.
linked() {
    build "$1" "$2" -fno-builtin "$calls" "$library" "-Wl,-rpath,$beside/compat:$beside"
}

linked "$tests/agree.c" "$work/ebbtide"
timeout "$time_limit" "$work/ebbtide" >"$work/ebbtide.txt" 2>>"$work/stderr" || fail "the program of calls ends with $?"
[ "$(wc -l <"$work/ebbtide.txt")" -gt 1000 ] || fail "the program of calls says little"
jemalloc=$(ldconfig -p 2>/dev/null | sed -n 's/.*libjemalloc\.so\.2.* => //p' | head -n 1)
if [ -n "$jemalloc" ]; then
    build "$tests/agree.c" "$work/jemalloc" -fno-builtin "$jemalloc"
    "$work/jemalloc" >"$work/jemalloc.txt" || fail "jemalloc itself ends with $?"
    diff "$work/jemalloc.txt" "$work/ebbtide.txt" >"$work/diff" || { head -n 40 "$work/diff" >&2; fail "jemalloc says something else"; }
else
    echo "no libjemalloc.so.2 here: nothing to compare with"
fi

build "$tests/tcmalloc.c" "$work/asks" -fno-builtin -Wl,-z,lazy
same 'no tcmalloc' "$(preloaded "$work/asks")" "the weak names without the library"
for preload in "$both" "$calls $library"; do
    same 'allocated resident released' "$(library=$preload preloaded "$work/asks")" "the weak names with $preload"
done
! LD_PRELOAD=$calls "$work/asks" >"$work/alone" 2>&1 || fail "the library of calls loads alone"
grep -q 'libebbtide_compat.so: undefined symbol: ebb_' "$work/alone" || fail "alone it says: $(cat "$work/alone")"

cat >"$work/print.c" <<'P'
#include <jemalloc/jemalloc.h>
#include <stdio.h>
static void to_file(void *file, const char *text) { fputs(text, file); }
int main(void)
{
    dallocx(mallocx(1000, MALLOCX_ZERO), 0);
    malloc_stats_print(to_file, stdout, "J");
    return 0;
}
P
headers=(-I "$root/include" -I "$root/include/ebbtide/compat")
build "$work/print.c" "$work/print" "${headers[@]}" "$calls" "$library" "-Wl,-rpath,$beside/compat:$beside"
"$work/print" 2>>"$work/stderr" | "$python" -c '
import json, sys
said = json.load(sys.stdin)
ours, theirs = said["ebbtide"], said["jemalloc"]
assert 0 < theirs["stats"]["allocated"] <= ours["live_bytes"], said  # which has the text itself
assert theirs["stats"]["resident"] > 0 and theirs["arenas"]["narenas"] == 1 and theirs["version"].startswith("ebbtide "), said
assert theirs["opt"]["prof"] is False and theirs["thread"]["tcache"]["enabled"] is True, said' || fail "the JSON"

build "$work/print.c" "$work/static" -static "${headers[@]}" "$beside/compat/libebbtide_compat.a" "$beside/libebbtide.a"
"$work/static" 2>>"$work/stderr" | "$python" -m json.tool >/dev/null || fail "a static program"

# Every name stands in the page and in the test of names, and nothing else does.
"$python" - "$root" <<'P' || fail "docs/compat.md"
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
text = (root / "docs/compat.md").read_text()
def rows(part):
    return set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE))
def strings(path):
    return set(re.findall(r'^\s*\{"([\w.#]+)",', (root / path).read_text(), re.MULTILINE))
paged = {name.replace("<i>", "#") for name in rows(text.partition("### Names of mallctl")[2].partition("###")[0])}
assert len(paged) > 40
tested = {re.sub(r"(?<=\.)0(?=\.)", "#", name) for name in strings("tests/compat/names.h")}
for one, other in ((paged, strings("compat/names.c")), (tested, strings("compat/names.c"))):
    assert one == other, one ^ other
properties = {name for name in rows(text.partition("## tcmalloc")[2]) if name.startswith(("generic.", "tcmalloc."))}
assert properties == strings("compat/tcmalloc.c"), properties ^ strings("compat/tcmalloc.c")
P
finish
