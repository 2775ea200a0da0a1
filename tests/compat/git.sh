#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# git: many objects, packing with threads, clone and a full check.
. "$(dirname "$0")/lib.bash"
find_program git git
export HOME=$work GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
prove "$git" version

preloaded "$git" init -q -b main "$work/repo"
cd "$work/repo"
for round in 1 2 3 4 5; do
    for i in $(seq 1 300); do seq "$round" $((i + round)) >"file$i"; done
    preloaded "$git" add -A
    preloaded "$git" commit -q -m "round $round"
done
preloaded "$git" -c pack.threads=4 gc -q --aggressive
preloaded "$git" fsck --full --strict
preloaded "$git" clone -q "$work/repo" "$work/copy"
preloaded "$git" -C "$work/copy" fsck --full
same "$("$git" rev-parse HEAD)" "$(preloaded "$git" -C "$work/copy" rev-parse HEAD)" "head of the clone"
same 5 "$(preloaded "$git" log --oneline | wc -l)" "commits"
same "$("$git" log -p | md5sum)" "$(preloaded "$git" log -p | md5sum)" "history"
same "$("$git" grep -c 17 | md5sum)" "$(preloaded "$git" grep -c 17 | md5sum)" "git grep with threads"
preloaded "$git" checkout -q -b side HEAD~2
preloaded "$git" merge -q main
finish
