#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The library from its sources alone: one file by one command, and as a part of another CMake project.
# CMAKE names another cmake, such as the oldest that is promised (3.16).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS LD_LIBRARY_PATH LD_PRELOAD
cmake=${CMAKE-cmake}

fail() { echo "failed: $*" >&2; exit 1; }
logged() { "$@" >"$work/log" 2>&1 </dev/null || { cat "$work/log" >&2; fail "$*"; }; }

for compiler in gcc clang; do
    command -v $compiler >/dev/null || { echo "no $compiler here"; continue; }
    echo "+ $compiler -O3 -Isrc -Iinclude -c src/one.c"
    (cd "$root" && logged $compiler -O3 -Isrc -Iinclude -c src/one.c -o "$work/one.o")
    [ ! -s "$work/log" ] || { cat "$work/log" >&2; fail "$compiler warns"; }
    logged $compiler -I"$root/include" "$root/tests/install/program.c" "$work/one.o" -o "$work/program"
    "$work/program" || fail "the program with one.o ends with $?"
done
(cd "$root" && logged gcc -O1 -fPIC -shared -Isrc -Iinclude src/one.c -o "$work/libebbtide.so")
EBB_STATS=exit LD_PRELOAD=$work/libebbtide.so /bin/true 2>"$work/said" || fail "/bin/true with one.c preloaded"
grep -q '^ebbtide: true' "$work/said" || fail "one.c, preloaded, does not answer"

# What a release holds: no build folder comes along.
mkdir "$work/tree" "$work/project"
cp -r "$root"/{CMakeLists.txt,LICENSE-MIT,LICENSE-APACHE,cmake,packaging,include,src,lockfree,wait,compat,docs} "$work/tree"
cp "$root"/tests/install/{consumer/CMakeLists.txt,program.c,blocks.c} "$work/project"
while read -r way type; do # without a type, the library is optimized all the same
    echo "+ $way $type"
    logged "$cmake" -G 'Unix Makefiles' -S "$work/project" -B "$work/$way" "-DBY=$way" -DEBBTIDE_ONE=ON "-DEBBTIDE_SOURCES=$work/tree" \
        ${type:+"-DCMAKE_BUILD_TYPE=$type" "-DTYPE=$type"}
    logged "$cmake" --build "$work/$way" -- -j 2
    (cd "$work/$way" && logged "${cmake%cmake}ctest" --output-on-failure)
    grep -q '100% tests passed, 0 tests failed out of 3' "$work/log" || fail "$way: not three tests"
    logged env DESTDIR="$work/$way/root" "$cmake" --build "$work/$way" --target install
    [ "$(find "$work/$way/root" -type f | wc -l)" = 1 ] || fail "$way: the library is installed with the project"
done <<'TEXT'
FetchContent
add_subdirectory Debug
TEXT

echo '+ cmake and make, no presets'
logged "$cmake" -G 'Unix Makefiles' -S "$work/tree" -B "$work/plain" -DCMAKE_BUILD_TYPE=Debug -DEBBTIDE_TESTS=OFF -DEBBTIDE_ONE=ON "-DCMAKE_INSTALL_PREFIX=$work/prefix"
logged make -C "$work/plain" -j 2 install
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name ebbtide.pc)")
cd "$root/tests/install"
while read -r source options; do
    # shellcheck disable=SC2046,SC2086
    logged cc $source -o "$work/program" $(pkg-config --cflags --libs $options) -Wl,-rpath,"${PKG_CONFIG_PATH%/pkgconfig}"
    "$work/program" || fail "$source with $options ends with $?"
done <<'TEXT'
program.c ebbtide
program.c --static ebbtide
blocks.c ebbtide-lockfree
blocks.c ebbtide-lockfree ebbtide-core
calls.c ebbtide-compat
calls.c -static --static ebbtide-compat
TEXT
echo passed
