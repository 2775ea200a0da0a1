// SPDX-License-Identifier: MIT OR Apache-2.0
// One client: bytes in, requests parsed by llhttp, answers out. Never blocks; belongs to one worker.
//
// A client that is slow to send costs its connection alone; one that is slow to read is not read from
// until its answers have gone. After an error the answer is sent, and what the client still sends is
// read and dropped until it has closed, because a close with unread bytes would take the answer along.
#ifndef EBB_BENCH_HTTP_CONNECTION_H
#define EBB_BENCH_HTTP_CONNECTION_H

#include "memory.h"
#include "parser.h"

enum { READ_BYTES = 16 << 10, DATE_BYTES = 96 };

// What a worker's connections share; also its counts.
struct worker_state {
    struct phase phase;
    uint64_t requests; // answered, whatever the status
    uint64_t refused;  // of them with another status than 200
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connections;
    uint64_t aborted; // closed in the middle of a request or of an answer
    uint64_t failed;  // allocations outside of phases
    uint64_t now_ms;
    char date[DATE_BYTES]; // of now, as HTTP writes it
    bool draining;
    char input[READ_BYTES];
};

struct output {
    char *data;
    size_t begin; // sent
    size_t end;
    size_t capacity;
};

struct connection {
    struct connection *next; // of the worker's
    struct connection *previous;
    struct worker_state *worker;
    int fd;
    uint32_t events;   // that epoll watches for
    uint64_t since_ms; // when it began to wait for what it waits for
    bool closing;      // no further request is read
    bool lingering;    // all is sent; waiting for the client's close
    bool over;         // to be destroyed
    struct output output;
    struct parser parser;
};

// NULL when memory is refused; the descriptor stays the caller's then.
struct connection *connection_create(struct worker_state *worker, int fd);
void connection_destroy(struct connection *connection);

// The descriptor is ready to be read from or written to, or broken. Sets `over` at the end.
void connection_advance(struct connection *connection);
// What to watch for: EPOLLIN or EPOLLOUT.
uint32_t connection_events(const struct connection *connection);
bool connection_is_idle(const struct connection *connection);

#endif
