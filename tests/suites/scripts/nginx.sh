#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# nginx serves a file plain and compressed, to wrk for two seconds; is reloaded, and ends well.
#   nginx.sh FILE SCRATCH
set -eu
file=$1 scratch=$2 port=18571
cp "$file" "$scratch/file.txt"
cat >"$scratch/nginx.conf" <<TEXT
daemon off; pid $scratch/nginx.pid; error_log $scratch/nginx.log alert; worker_processes 2;
events { worker_connections 256; }
http { access_log off; gzip on; gzip_types text/plain; default_type text/plain; client_body_temp_path $scratch;
  server { listen 127.0.0.1:$port; root $scratch; location /status { return 200 "\$request_id"; } } }
TEXT
nginx -p "$scratch" -c nginx.conf &
server=$!
for _ in $(seq 100); do curl -sf "127.0.0.1:$port/file.txt" -o "$scratch/got" && break; sleep 0.1; done
sha256sum <"$scratch/got"
curl -sf --compressed "127.0.0.1:$port/file.txt" | sha256sum
curl -s -o "$scratch/got" -w '%{http_code}\n' "127.0.0.1:$port/none"
wrk -t 1 -c 8 -d 1s "http://127.0.0.1:$port/status" >"$scratch/wrk"
wrk -t 1 -c 8 -d 1s -H 'Accept-Encoding: gzip' "http://127.0.0.1:$port/file.txt" >>"$scratch/wrk"
grep -c 'requests in' "$scratch/wrk"
! grep -E 'Non-2xx|Socket errors' "$scratch/wrk"
kill -HUP $server
sleep 0.5
curl -sf "127.0.0.1:$port/file.txt" | sha256sum
kill -QUIT $server
wait $server
cat "$scratch/nginx.log"
