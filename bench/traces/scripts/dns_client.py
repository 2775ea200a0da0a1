# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks a name server on 127.0.0.1 for addresses, one name at a time, by UDP.

dns_client.py PORT NAMES QUERIES      names host0.test, host1.test, ...
"""

import socket
import struct
import sys

port, names, queries = map(int, sys.argv[1:])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(5)
    client.connect(("127.0.0.1", port))
    for number in range(queries):
        labels = (b"host%d" % (number * 7919 % names), b"test", b"")
        name = b"".join(bytes((len(label),)) + label for label in labels)
        client.send(struct.pack(">6H", number & 0xFFFF, 0x100, 1, 0, 0, 0) + name + b"\0\1\0\1")
        answer = client.recv(512)
        if struct.unpack(">4H", answer[:8])[3] != 1:
            sys.exit(f"no answer for query {number}")
