#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# php loads its extensions with RTLD_DEEPBIND: curl then binds libc's free beside our malloc.
. "$(dirname "$0")/lib.bash"
find_program php php8.2
prove "$php" -r 'echo 1;'
same ok "$(preloaded "$php" -r '$s = []; for ($i = 0; $i < 200000; $i++) $s[$i % 5000] = str_repeat("x", $i % 700); echo "ok";')" "strings"
same ok "$(USE_ZEND_ALLOC=0 preloaded "$php" -r '$s = []; for ($i = 0; $i < 200000; $i++) $s[$i % 5000] = str_repeat("x", $i % 700); echo "ok";')" "strings by malloc"
"$php" -m | grep -qx curl || skip "the curl extension of php is not installed"
same "$("$php" -r 'echo curl_version()["version"];')" "$(preloaded "$php" -r 'echo curl_version()["version"];')" "version of curl"
mkdir "$work/www"
seq 1 50000 >"$work/www/numbers"
code='for ($i = 0; $i < 20; $i++) { $c = curl_init("file://'$work'/www/numbers"); curl_setopt($c, CURLOPT_RETURNTRANSFER, 1);
curl_setopt($c, CURLOPT_HTTPHEADER, array_fill(0, 50, "X-Name: value")); $t = curl_exec($c); curl_close($c); } echo strlen($t);'
same "$(stat -c %s "$work/www/numbers")" "$(preloaded "$php" -r "$code")" "transfer by curl"
finish
