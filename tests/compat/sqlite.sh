#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# sqlite3 builds, indexes, queries and repairs a database.
. "$(dirname "$0")/lib.bash"
find_program sqlite sqlite3
prove "$sqlite" :memory: 'select 1;'

script="create table t(id integer primary key, name text, weight real, body blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t select i, 'name' || (i * 7919 % 60000), i * 0.5, zeroblob(i % 300) from n;
create index by_name on t(name);
update t set body = name || body where id % 3 = 0;
delete from t where id % 5 = 0;
vacuum;
select count(*), sum(weight), sum(length(body)) from t;
select name from t order by name desc limit 5;
select count(*) from t a join t b on a.name = b.name;
select length(group_concat(name)) from t;
pragma integrity_check;"
expected=$("$sqlite" "$work/plain.db" <<<"$script")
same "$expected" "$(preloaded "$sqlite" "$work/ebb.db" <<<"$script")" "query results"
same "$("$sqlite" "$work/plain.db" .dump | md5sum)" "$(preloaded "$sqlite" "$work/ebb.db" .dump | md5sum)" "dump"
same 1 "$(preloaded "$sqlite" :memory: 'pragma cache_size=100; select length(zeroblob(90000000)) = 90000000;')" "90 MB value"
finish
