#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs that are linked statically with libebbtide.a: malloc is ours, EBB_STATS is obeyed, the C++
# operators throw, and C programs need no C++.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
find_program c_compiler gcc
archive=$(dirname "$library")/libebbtide.a
[ -r "$archive" ] || skip "there is no $archive"
echo 'int main(){return 0;}' >"$work/empty.cc"
"$compiler" -static "$work/empty.cc" -o "$work/empty" 2>/dev/null || skip "no static libraries"

# Each kind of catch clause brings another part of the runtime in.
for caught in 'const std::bad_alloc &' 'const std::exception &' '...'; do
    cat >"$work/throws.cc" <<P
#include <new>
#include <exception>
int main(int count, char **)
{
    try {
        return *new char[(1ULL << 62) + count];
    } catch ($caught) {
        return 42;
    }
}
P
    build "$work/throws.cc" "$work/throws" -static "$archive"
    status=0
    timeout 60 "$work/throws" 2>>"$work/stderr" || status=$?
    same 42 "$status" "status of a program that catches ($caught)"
done

cat >"$work/operators.cc" <<'P'
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <sys/resource.h>
#include <vector>
static void *reserve;
static int calls;
static void give_back()
{
    calls++;
    if (reserve == nullptr)
        throw std::bad_alloc();
    std::free(reserve);
    reserve = nullptr;
}
static bool throws(std::size_t bytes)
{
    try {
        ::operator delete(::operator new(bytes));
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}
int main(int count, char **)
{
    const std::size_t impossible = (std::size_t{1} << 62) + static_cast<std::size_t>(count);
    const std::align_val_t wide{256};
    std::vector<std::string> words(1000, std::string(100, 'x'));
    if (!throws(impossible) || new (std::nothrow) char[impossible] != nullptr ||
        ::operator new(impossible, wide, std::nothrow) != nullptr)
        return 1;
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::size_t half = std::size_t{900} << 20, most = pages * 4096 + 2 * half;
    const rlimit limit = {most, most};
    reserve = std::malloc(half);
    setrlimit(RLIMIT_AS, &limit);
    while (std::malloc(half) != nullptr) {} // until the reserve alone helps
    std::set_new_handler(give_back);
    void *p = ::operator new(half); // the handler gives the reserve back
    if (p == nullptr || calls != 1 || reserve != nullptr)
        return 2;
    if (!throws(half) || calls != 2)
        return 3;
    if (::operator new(half, std::nothrow) != nullptr || calls != 3) // which throws
        return 4;
    std::puts("ok");
    return 0;
}
P
build "$work/operators.cc" "$work/operators" -std=c++17 -fno-builtin-malloc -static "$archive"
same ok "$(timeout 60 "$work/operators" 2>>"$work/stderr")" "operators of a static program"
build "$work/operators.cc" "$work/operators" -std=c++17 -fno-builtin-malloc "$archive"
same ok "$(timeout 60 "$work/operators" 2>>"$work/stderr")" "operators of a program with the archive"

cat >"$work/plain.c" <<'P'
#include <stdlib.h>
int main(void)
{
    void *p = malloc(100);
    free(p);
    return p == NULL;
}
P
compiler=$c_compiler
for static in -static ''; do
    build "$work/plain.c" "$work/plain" $static -fno-builtin "$archive" # no C++ runtime
    "$work/plain" 2>>"$work/stderr" || fail "a C program with the archive"
    EBB_STATS=exit "$work/plain" 2>"$work/report" || fail "a C program with EBB_STATS"
    grep -q '^ebbtide: plain\[[0-9]*\]: where the resident memory is$' "$work/report" ||
        fail "EBB_STATS=exit is ignored ($static)"
done

# gcc tells the linker of -flto too late that it wants malloc; pkg-config and CMake tell it before.
if "$c_compiler" --version | grep -q 'Free Software Foundation'; then
    for static in -static ''; do
        build "$work/plain.c" "$work/lto" -O2 -flto $static -Wl,-u,malloc "$archive"
        EBB_STATS=exit "$work/lto" 2>"$work/report" || fail "a C program with -flto"
        grep -q '^ebbtide: lto\[[0-9]*\]: where the resident memory is$' "$work/report" ||
            fail "-flto links without the archive ($static)"
    done
fi

# Stacks of a static program need a table that only this option makes.
cat >"$work/profiled.c" <<'P'
#include <stdlib.h>
#include <ebbtide/profile.h>
int main(int count, char **arguments)
{
    void *volatile p;
    if (count != 2 || ebb_profile_start(1) != 0)
        return 1;
    p = malloc(1000);
    return ebb_profile_write(arguments[1]) != 0 || p == NULL;
}
P
for table in '' -Wl,--eh-frame-hdr; do
    build "$work/profiled.c" "$work/profiled" -static $table -fno-builtin -I"$(dirname "$0")/../../include" "$archive"
    "$work/profiled" "$work/heap$table.pb" 2>>"$work/stderr" || fail "a static program's profile ($table)"
done
[ "$(stat -c %s "$work/heap-Wl,--eh-frame-hdr.pb")" -gt $(($(stat -c %s "$work/heap.pb") + 20)) ] ||
    fail "stacks of a static program are empty"

# What libc allocates for the library's thread is in no region that is current.
cat >"$work/helper.c" <<'P'
#include <ebbtide/region.h>
int main(void)
{
    struct ebb_region *region = ebb_region_open(NULL);
    struct ebb_scope before = ebb_region_enter(region);
    struct ebb_region_stats stats;
    if (ebb_helper_start() != 0)
        return 2;
    ebb_leave(before);
    ebb_region_stats_get(region, &stats);
    return stats.live_blocks != 0;
}
P
for static in -static ''; do
    build "$work/helper.c" "$work/helper" $static -Wl,-u,malloc -I"$(dirname "$0")/../../include" "$archive"
    status=0
    "$work/helper" 2>>"$work/stderr" || status=$?
    same 0 "$status" "status of a program whose helper starts while a region is current ($static)"
done

# A program that takes one function out of the archive gets the library's start with it.
header() { case $1 in ebb_malloc*) echo ebbtide.h ;; ebb_region* | ebb_life*) echo ebbtide/region.h ;; *) echo ebbtide/reclaim.h ;; esac; }
for call in 'ebb_malloc(1)' 'ebb_pin()' 'ebb_retire(NULL)' 'ebb_region_open(NULL)' 'ebb_lifetimes_get(NULL, 0)'; do
    printf '#include <stddef.h>\n#include <%s>\nint main(void) { (void)%s; return 0; }\n' "$(header "$call")" "$call" >"$work/one.c"
    build "$work/one.c" "$work/one" -static -I"$(dirname "$0")/../../include" "$archive"
    EBB_STATS=exit "$work/one" 2>"$work/report" || fail "a static program of $call"
    grep -q 'where the resident memory is$' "$work/report" || fail "EBB_STATS=exit is ignored by $call"
done
finish
