#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cluster of its own, and files of PostgreSQL's regression tests in it: `ok NAME` where psql prints what is expected.
#   postgres.sh FOLDER-OF-THE-TESTS SCRATCH NAME...
set -eu
tests=$1 scratch=$2
shift 2
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
export PG_ABS_SRCDIR="$tests" PG_LIBDIR="$tests" PG_DLSUFFIX=.so PGTZ=PST8PDT PGDATESTYLE='Postgres, MDY'
export PGOPTIONS='-c intervalstyle=postgres_verbose' PGHOST="$scratch" PGUSER=nobody

rm -rf "$scratch/data"
unshare --user "$bin/initdb" --no-sync --locale=C --encoding=UTF8 --username=nobody -D "$scratch/data" >/dev/null
unshare --user "$bin/postgres" -F -D "$scratch/data" -k "$scratch" -c listen_addresses= >"$scratch/log" 2>&1 &
server=$!
for _ in $(seq 300); do "$bin/pg_isready" -q && break; sleep 0.1; done
"$bin/psql" -Xqd postgres -c 'CREATE DATABASE regression TEMPLATE template0' \
    -c "ALTER DATABASE regression SET lc_messages TO 'C'"
for name; do
    "$bin/psql" -Xaqd regression -v HIDE_TABLEAM=on -v HIDE_TOAST_COMPRESSION=on \
        <"$tests/sql/$name.sql" >"$scratch/$name.out" 2>&1 || true
    said='not ok'
    for expected in "$tests/expected/$name".out "$tests/expected/$name"_?.out; do
        [ ! -e "$expected" ] || ! cmp -s "$scratch/$name.out" "$expected" || said=ok
    done
    echo "$said $name"
done
kill -INT $server
wait $server
grep -E 'ebbtide: |PANIC|terminated by signal' "$scratch/log" && exit 1
exit 0
