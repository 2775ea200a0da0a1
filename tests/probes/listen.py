# SPDX-License-Identifier: MIT OR Apache-2.0
"""For gdb: runs the program, and prints a line `told PROBE ARGUMENT...` each time it passes a probe of ours."""
import gdb

LABELS = ("region_release", "region_close")  # their second argument is a string


class Listener(gdb.Breakpoint):
    def __init__(self, name):
        super().__init__(f"-probe-stap ebbtide:{name}")
        self.silent = True
        self.name = name

    def stop(self):
        count = int(gdb.parse_and_eval("$_probe_argc"))
        told = [int(gdb.parse_and_eval(f"$_probe_arg{i}")) for i in range(count)]
        if self.name == "message":
            told[0] = gdb.selected_inferior().read_memory(*told).tobytes()
        if self.name in LABELS:
            told[1] = gdb.Value(told[1]).cast(gdb.lookup_type("char").pointer()).string()
        print("told", self.name, *told)
        return False


gdb.execute("set pagination off")
gdb.execute("break ready")
gdb.execute("run")
names = {line.split()[2] for line in gdb.execute("info probes stap ebbtide", to_string=True).splitlines()
         if line.startswith("stap")}
listeners = [Listener(name) for name in names]
gdb.execute("continue")
