#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The README's own lines install a clean copy of the tree and build programs against it; the copy is
# gone by then, so what was installed is all that they have.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `make test` and the caller have their own.
unset MAKEFLAGS MAKELEVEL MFLAGS DESTDIR PREFIX LD_LIBRARY_PATH LD_PRELOAD

fail() { echo "failed: $*" >&2; exit 1; }

# What a fresh clone would hold: the files that git knows. Without git, all but what was built.
tracked() {
    git ls-files -z | while IFS= read -r -d '' name; do
        if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\0' "$name"; fi
    done
}
copy_tree() {
    cd "$root"
    mkdir "$work/tree"
    if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ]; then
        tracked | tar --null -T - -c
    else
        tar --exclude=./build --exclude=__pycache__ -c .
    fi | tar -C "$work/tree" -x
}

# The lines of the README's blocks of commands that have $1 in them.
readme_lines() {
    sed -n '/^```sh$/,/^```$/p' "$root/README.md" | sed 's/ *#.*//' | grep -F -e "$1" ||
        fail "the README has no line with: $1"
}

# The library itself says what it is; silence otherwise.
run() {
    local said
    said=$(LD_LIBRARY_PATH=$libraries "$@" 2>&1) || fail "$* exits with $?: $said"
    [ -z "$said" ] || fail "$* says: $said"
}

copy_tree
prefix=$work/prefix
while IFS= read -r line; do
    echo "+ $line"
    (cd "$work/tree" && eval "${line/PREFIX=\/usr\/local/PREFIX=$prefix}") >"$work/log" 2>&1 </dev/null ||
        { cat "$work/log" >&2; fail "$line"; }
done < <(readme_lines 'make install')
rm -rf "$work/tree"

described=$(find "$prefix" -name ebbtide.pc -printf '%h\n')
[ -n "$described" ] || fail "no ebbtide.pc below the prefix"
libraries=${described%/pkgconfig}
export PKG_CONFIG_PATH=$described

programs=$work/programs
cp -r "$root/tests/install" "$programs"
cd "$programs"
forms=
while IFS= read -r line; do
    echo "+ $line"
    rm -f a.out
    eval "$line" || fail "$line"
    run ./a.out
    forms+=" $line"
done < <(readme_lines 'pkg-config')
for form in 'cc program.c' -static 'c++ program.cc' blocks.c; do
    [[ $forms == *"$form"* ]] || fail "the README does not say how to build: $form"
done

echo '+ find_package(Ebbtide)'
{ cmake -G Ninja -S project -B built "-DCMAKE_PREFIX_PATH=$prefix" && cmake --build built &&
    ctest --test-dir built --output-on-failure --no-tests=error; } >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail 'the project that finds the package'; }

echo '+ the address alone is asked for'
cat >"$work/asked.c" <<'P'
#include <ebbtide/region.h>
#include <stdlib.h>
int main(void)
{
    void *p = malloc(8);
    int wrong = ebb_region_of(p) != NULL || ebb_malloc_usable_size(p) < 8 || ebb_is_sparse(p) > 1;
    free(p);
    return wrong;
}
P
cc -Wall -Wextra -Werror -O2 -I"$prefix/include" -c "$work/asked.c" -o "$work/asked.o" ||
    fail 'of a block that nobody has written to'

echo '+ LD_PRELOAD'
for library in "$libraries"/libebbtide.so*; do
    run env LD_PRELOAD="$library" /bin/true
    LD_DEBUG=bindings LD_PRELOAD=$library /bin/true 2>"$work/bindings"
    grep -q "to $library .*\`malloc'" "$work/bindings" ||
        fail "/bin/true does not take malloc from $library"
done

for file in include/ebbtide.h include/ebbtide/queue.h share/man/man3/ebbtide.3 \
    share/man/man3/ebbtide-reclaim.3 share/man/man3/ebb_retire.3 \
    share/doc/ebbtide/LICENSE-MIT share/doc/ebbtide/LICENSE-APACHE; do
    [ -r "$prefix/$file" ] || fail "$file is not installed"
done
echo passed
