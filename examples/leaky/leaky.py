#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server that misbehaves on purpose; docs/operations.md finds each fault from outside.

It serves itself until --requests or --seconds are over. Without a fault named: all three.
PYTHONMALLOC=malloc LD_PRELOAD=libebbtide.so.0 python3 leaky.py
"""
import argparse
import collections
import sys
import threading
import time

REQUESTS_A_REPORT, ROWS_A_REPORT, ROWS_A_NOTE, NOTES_KEPT = 4000, 40_000, 20, 2000
LINES_A_PAGE, LINE = 40, b"=" * 50
LOGS_OUT = 4  # of so many sessions all but one; that times out


class Server:
    """A session is a string, a row bytes, a note a bytearray, a page the sum of two: each is made by
    a C function of its own, which is what a profile of the interpreter shows."""

    def __init__(self, asked):
        self.asked = asked
        self.sessions = {}
        self.notes = collections.deque(maxlen=NOTES_KEPT)

    def serve(self, request):
        self.remember_session(request)
        self.render_page()
        if request % LOGS_OUT:
            self.log_out(request)
        else:
            self.time_out(request)
        if request % REQUESTS_A_REPORT == 0:
            self.run_report()

    def remember_session(self, user):
        self.sessions[user] = str(user).ljust(1992)

    def log_out(self, user):
        del self.sessions[user]

    def time_out(self, user):
        if not self.asked.leak:
            del self.sessions[user]

    def run_report(self):
        rows = []
        for at in range(ROWS_A_REPORT):
            rows.append(self.read_row())
            if self.asked.pin and at % ROWS_A_NOTE == 0:
                self.note_slow_query()

    def read_row(self):
        return bytes(170)

    def note_slow_query(self):
        self.notes.append(bytearray(200))

    def render_page(self):
        if not self.asked.churn:
            return LINE
        page = bytearray()
        for _ in range(LINES_A_PAGE):
            page = page + LINE
        return page

    def is_as_asked(self, served):
        """Whether what is left is what the faults leave, and nothing else."""
        timed_out = -(-served // LOGS_OUT) if self.asked.leak else 0
        noted = NOTES_KEPT if self.asked.pin and served else 0
        return (len(self.sessions), len(self.notes)) == (timed_out, noted)


def run(server, asked, served):
    """In a thread of its own, as servers do. `served`: how many requests, in a list."""
    began = time.monotonic()
    while served[0] < asked.requests and time.monotonic() - began < asked.seconds:
        due = (time.monotonic() - began) * asked.rate
        while served[0] <= due and served[0] < asked.requests:
            server.serve(served[0])
            served[0] += 1
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leak", action="store_true", help="a session that times out is not erased")
    parser.add_argument("--pin", action="store_true",
                        help="a report frees its rows, and keeps small notes that were allocated between them")
    parser.add_argument("--churn", action="store_true", help="a page is copied for each line that is added to it")
    parser.add_argument("--requests", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--rate", type=float, default=2000, help="requests a second (2000)")
    asked = parser.parse_args()
    if not (asked.leak or asked.pin or asked.churn):
        asked.leak = asked.pin = asked.churn = True
    print("ready", flush=True)
    server, served = Server(asked), [0]
    thread = threading.Thread(target=run, args=(server, asked, served))
    thread.start()
    thread.join()
    is_well = server.is_as_asked(served[0])
    print(f"{served[0]} requests served: {'what is left is as asked' if is_well else 'WRONG'}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
