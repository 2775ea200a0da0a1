# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs as they are installed: recorded they print the same, and each of their processes can be replayed."""
import pathlib
import shutil
import subprocess
import time
import unittest

from support import RECORDER, TraceTest, main, run

CXX = """#include <map>
#include <string>
#include <iostream>
int main() { std::map<std::string, int> m; for (int i = 0; i < 1000; i++) m[std::to_string(i)] = i;
             std::cout << m.size() << std::endl; }
"""
PYTHON = """
import threading, json
def work(n):
    for i in range(300): json.loads(json.dumps({str(j): [j] * (i % 30) for j in range(50)}))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(len(str(i)) for i in range(30000)))
"""
PERL = """my %h; for my $i (1 .. 20000) { $h{$i % 700} .= "value $i "; } my $n = 0;
$n += length $h{$_} for sort keys %h; print "$n\n"; for (1 .. 3) { my $p = fork; if (!$p) { my @a = map { "c$_" }
1 .. 2000; exit(@a == 2000 ? 0 : 1); } waitpid $p, 0; die "child" if $?; }"""
NODE = """let a = []; for (let i = 0; i < 50000; i++) a.push({i, s: 'x'.repeat(i % 50)});
console.log(JSON.stringify(a).length); console.log(require('zlib').gzipSync(Buffer.alloc(1e6)).length);"""


def need(name):
    path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin")
    if path is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return path


class Programs(TraceTest):
    def same(self, *command, env=None, processes=None):
        alone = run(*command, env=env)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        recorded = self.record(*command, env=env)
        self.assertEqual((recorded.returncode, recorded.stdout, recorded.stderr),
                         (alone.returncode, alone.stdout, alone.stderr))
        infos = self.check_all(times=1)
        self.assertEqual(sum(info["lost"] for info in infos), 0)
        if processes is not None:
            self.assertEqual(len(infos), processes)
        return infos

    def test_python(self):
        infos = self.same(need("python3"), "-c", PYTHON, env={"PYTHONMALLOC": "malloc"}, processes=1)
        self.assertGreater(infos[0]["events"], 100000)

    def test_perl(self):
        self.same(need("perl"), "-e", PERL, env={"PERL_HASH_SEED": "0"}, processes=4)

    def test_node(self):
        infos = self.same(need("node"), "-e", NODE, processes=1)
        self.assertGreater(infos[0]["threads"], 2)

    def test_compiler(self):
        source = self.root / "program.cc"
        source.write_text(CXX)
        output = self.root / "program"
        infos = self.same(need("g++"), "-O1", source, "-o", output)
        self.assertGreater(len(infos), 3)
        self.assertEqual(self.same(output)[0]["threads"], 1)

    def test_redis(self):
        server, bench = need("redis-server"), need("redis-benchmark")
        socket = self.root / "socket"
        process = subprocess.Popen(
            [server, "--port", "0", "--unixsocket", socket, "--dir", self.root, "--save", "",
             "--io-threads", "2"], stdout=subprocess.DEVNULL,
            env={"EBB_RECORD": f"{self.root}/base", "LD_PRELOAD": str(RECORDER)})
        self.addCleanup(process.kill)
        until = time.monotonic() + 30
        while not socket.exists() and time.monotonic() < until:
            time.sleep(0.05)
        result = run(bench, "-s", socket, "-q", "-n", 3000, "-c", 10, "-r", 1000, "-d", 200, "-t",
                     "set,get,lpush,sadd,hset")
        self.assertEqual(result.returncode, 0, result.stderr)
        client = need("redis-cli")
        self.assertEqual(run(client, "-s", socket, "bgsave").returncode, 0)
        until = time.monotonic() + 30
        while b"rdb_bgsave_in_progress:0" not in run(client, "-s", socket, "info").stdout:
            self.assertLess(time.monotonic(), until, "its child writes a recording, too")
            time.sleep(0.05)
        self.assertEqual(run(client, "-s", socket, "shutdown", "nosave").returncode, 0)
        self.assertEqual(process.wait(30), 0)
        infos = self.check_all()
        self.assertTrue(all(pathlib.Path(info["program"]).name.startswith("redis") for info in infos))
        self.assertGreater(infos[-1]["events"], 10000)


if __name__ == "__main__":
    main()
