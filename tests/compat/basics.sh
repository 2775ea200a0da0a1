#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Small programs: the same output as without the library, silence, and no thread of ours.
. "$(dirname "$0")/lib.bash"
find_program ls ls
find_program bash bash
find_program grep grep
find_program tar tar
find_program sort sort

prove "$ls" /
prove "$bash" -c 'x=abc; echo "${x/b/d}"'
prove "$sort" /etc/passwd

preloaded /bin/true || fail "true does not exit with 0"
preloaded /bin/false && fail "false exits with 0"
same "$("$ls" -la /usr/bin)" "$(preloaded "$ls" -la /usr/bin)" "ls"
same "$("$grep" -c root /etc/passwd)" "$(preloaded "$grep" -c root /etc/passwd)" "grep"
same 1 "$(preloaded "$ls" /proc/self/task | wc -l)" "threads in a single-threaded program"

seq 1 300000 | sed 's/\(.*\)\(.\)/\2\1/' >"$work/numbers"
same "$("$sort" -n "$work/numbers" | md5sum)" "$(preloaded "$sort" -n "$work/numbers" | md5sum)" "sort"
same "$("$sort" --parallel=4 -S 20M "$work/numbers" | md5sum)" \
    "$(preloaded "$sort" --parallel=4 -S 20M "$work/numbers" | md5sum)" "sort with threads"

mkdir "$work/tree"
for i in $(seq 1 200); do seq 1 "$i" >"$work/tree/file$i"; done
preloaded "$tar" -C "$work" -cf "$work/tree.tar" tree
mkdir "$work/out"
preloaded "$tar" -C "$work/out" -xf "$work/tree.tar"
diff -r "$work/tree" "$work/out/tree" || fail "tar lost something"

loop='s=; for ((i = 0; i < 20000; i++)); do s+=$i; a[i % 100]=$s; [ ${#s} -gt 5000 ] && s=; done; echo ${#a[@]} ${#s}'
same "$("$bash" -c "$loop")" "$(preloaded "$bash" -c "$loop")" "a loop in bash"
same 100 "$(preloaded "$bash" -c 'for i in {1..100}; do (echo $i); done | wc -l')" "subshells"
[ -s "$work/stderr" ] && fail "something was written on stderr"
finish
