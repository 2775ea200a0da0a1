// SPDX-License-Identifier: MIT OR Apache-2.0
// Workers: each a thread with an epoll of its own, which serves the connections that it is given until
// the server drains. Connections are dealt out in turn, so that few of them still load all workers
// alike; the kernel's own ways (SO_REUSEPORT, a shared epoll) are random with few.
#ifndef EBB_BENCH_HTTP_SERVER_H
#define EBB_BENCH_HTTP_SERVER_H

#include <stdint.h>

enum { WORKERS_MAX = 64 };

struct server_options {
    unsigned workers;  // 1 to WORKERS_MAX
    uint64_t idle_ms;  // a connection without a request, or in the middle of one, lasts so long
    uint64_t drain_ms; // requests that have begun have so long to end
};

struct server_counts {
    uint64_t requests; // answered, whatever the status
    uint64_t refused;  // of them with another status than 200
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connections;
    uint64_t aborted;         // connections that ended in the middle of a request or of an answer
    uint64_t allocations;     // of the handler
    uint64_t allocated_bytes; // in them
    uint64_t failed;          // allocations that were refused
};

struct server;

// One caller for all of these, no thread of the server. NULL after a line on stderr.
struct server *server_start(const struct server_options *options);
// Takes the descriptor, which is closed where no worker can have it.
void server_give(struct server *server, int fd);
// Lets what has begun end, for drain_ms; then everything is closed and the server gone.
struct server_counts server_drain(struct server *server);

#endif
