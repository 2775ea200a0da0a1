#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# node: garbage, buffers outside its heap, worker threads, zlib in the thread pool.
. "$(dirname "$0")/lib.bash"
find_program node node
prove "$node" -e 'console.log(1)'
cat >"$work/program.js" <<'P'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib');
const crypto = require('crypto');
function churn(seed) {
  let sum = 0;
  const kept = [];
  for (let i = 0; i < 3000; i++) {
    const buffer = Buffer.alloc((i * 37 + seed) % 20000, i & 255);
    kept[i % 200] = buffer;
    sum += buffer.length + JSON.stringify({ i, text: 'x'.repeat(i % 100) }).length;
  }
  return sum;
}
if (!isMainThread) {
  parentPort.postMessage(churn(workerData));
} else {
  const workers = [1, 2, 3, 4].map((seed) => new Promise((done, failed) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.on('message', done);
    worker.on('error', failed);
  }));
  const packed = [...Array(20).keys()].map((i) => new Promise((done, failed) =>
    zlib.gzip(Buffer.alloc(300000, i), (error, out) => (error ? failed(error)
      : zlib.gunzip(out, (bad, back) => (bad ? failed(bad) : done(back.length)))))));
  Promise.all([...workers, ...packed]).then((sums) => {
    const digest = crypto.createHash('sha256').update(Buffer.alloc(1 << 24, 7)).digest('hex');
    console.log(sums.reduce((a, b) => a + b, 0), churn(9), digest);
  });
}
P
same "$("$node" "$work/program.js")" "$(preloaded "$node" "$work/program.js")" "output"
finish
