// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE // pipe2
#include "server.h"

#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 64, TICK_MS = 100, LINGER_MS = 2000, DESCRIPTORS = 64 };

// The inbox carries descriptors; its end is the word to drain.
struct worker {
    pthread_t thread;
    const struct server_options *options;
    int epoll;
    int inbox;
    int inbox_in; // the server's end
    bool inbox_ended;
    uint64_t drain_until_ms;
    uint64_t swept_ms;
    struct connection *connections;
    struct worker_state state;
};

struct server {
    struct server_options options;
    unsigned next;
    struct worker *workers[WORKERS_MAX];
};

// ---- time ---------------------------------------------------------------------------------------

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void update_date(char *date)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = time(NULL);
    struct tm now;
    gmtime_r(&seconds, &now);
    snprintf(date, DATE_BYTES, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[now.tm_wday],
             now.tm_mday, months[now.tm_mon], now.tm_year + 1900, now.tm_hour, now.tm_min,
             now.tm_sec);
}

// ---- a worker's connections ---------------------------------------------------------------------

static void link_connection(struct worker *worker, struct connection *connection)
{
    connection->next = worker->connections;
    if (worker->connections != NULL) {
        worker->connections->previous = connection;
    }
    worker->connections = connection;
}

static void end_connection(struct worker *worker, struct connection *connection)
{
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        worker->connections = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    connection_destroy(connection);
}

static bool watch(struct worker *worker, int fd, int operation, uint32_t events, void *data)
{
    struct epoll_event event = {.events = events, .data = {.ptr = data}};
    return epoll_ctl(worker->epoll, operation, fd, &event) == 0;
}

static void begin_connection(struct worker *worker, int fd)
{
    struct connection *connection = connection_create(&worker->state, fd);
    if (connection == NULL) {
        close(fd);
        return;
    }
    connection->events = EPOLLIN;
    link_connection(worker, connection);
    if (!watch(worker, fd, EPOLL_CTL_ADD, connection->events, connection)) {
        end_connection(worker, connection);
    }
}

static void advance(struct worker *worker, struct connection *connection)
{
    connection_advance(connection);
    uint32_t events = connection_events(connection);
    if (!connection->over && events != connection->events) {
        connection->events = events;
        connection->over = !watch(worker, connection->fd, EPOLL_CTL_MOD, events, connection);
    }
    if (connection->over) {
        end_connection(worker, connection);
    }
}

static bool is_due(const struct worker *worker, const struct connection *connection)
{
    if (worker->state.draining &&
        (connection_is_idle(connection) || worker->state.now_ms >= worker->drain_until_ms)) {
        return true;
    }
    uint64_t limit_ms = connection->lingering ? LINGER_MS : worker->options->idle_ms;
    return worker->state.now_ms - connection->since_ms >= limit_ms;
}

static void sweep(struct worker *worker)
{
    for (struct connection *each = worker->connections; each != NULL;) {
        struct connection *next = each->next;
        if (is_due(worker, each)) {
            end_connection(worker, each);
        }
        each = next;
    }
    worker->swept_ms = worker->state.now_ms;
    update_date(worker->state.date);
}

// ---- a worker's thread --------------------------------------------------------------------------

static void read_inbox(struct worker *worker)
{
    int descriptors[DESCRIPTORS];
    ssize_t bytes = read(worker->inbox, descriptors, sizeof descriptors);
    for (ssize_t i = 0; i < bytes / (ssize_t)sizeof *descriptors; i++) {
        begin_connection(worker, descriptors[i]);
    }
    if (bytes == 0) {
        watch(worker, worker->inbox, EPOLL_CTL_DEL, 0, NULL);
        worker->state.draining = true;
        worker->drain_until_ms = worker->state.now_ms + worker->options->drain_ms;
        worker->swept_ms = 0; // the connections that are idle now end after these events
    }
}

static void turn(struct worker *worker)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(worker->epoll, events, EVENTS, TICK_MS);
    worker->state.now_ms = now_ms();
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == NULL) {
            read_inbox(worker);
        } else {
            advance(worker, events[i].data.ptr);
        }
    }
    if (worker->state.now_ms - worker->swept_ms >= TICK_MS) {
        sweep(worker);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    phase_open(&worker->state.phase);
    while (!worker->state.draining || worker->connections != NULL) {
        turn(worker);
    }
    phase_close(&worker->state.phase);
    return NULL;
}

// ---- the server ---------------------------------------------------------------------------------

static void close_worker(struct worker *worker)
{
    close(worker->epoll);
    close(worker->inbox);
    free(worker);
}

static int open_descriptors(struct worker *worker)
{
    int ends[2];
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll < 0) {
        return -1;
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        close(worker->epoll);
        return -1;
    }
    worker->inbox = ends[0];
    worker->inbox_in = ends[1];
    return watch(worker, worker->inbox, EPOLL_CTL_ADD, EPOLLIN, NULL) ? 0 : -1;
}

static struct worker *start_worker(const struct server_options *options)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return NULL;
    }
    worker->options = options;
    worker->state.now_ms = now_ms();
    update_date(worker->state.date);
    if (open_descriptors(worker) != 0) {
        free(worker);
        return NULL;
    }
    errno = pthread_create(&worker->thread, NULL, work, worker);
    if (errno != 0) {
        close(worker->inbox_in);
        close_worker(worker);
        return NULL;
    }
    return worker;
}

struct server *server_start(const struct server_options *options)
{
    struct server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        fprintf(stderr, "http: cannot start: %s\n", strerror(errno));
        return NULL;
    }
    server->options = *options;
    for (unsigned i = 0; i < options->workers; i++) {
        server->workers[i] = start_worker(&server->options);
        if (server->workers[i] == NULL) {
            fprintf(stderr, "http: cannot start a worker: %s\n", strerror(errno));
            server->options.workers = i;
            server_drain(server);
            return NULL;
        }
    }
    return server;
}

void server_give(struct server *server, int fd)
{
    struct worker *worker = server->workers[server->next];
    server->next = (server->next + 1) % server->options.workers;
    if (write(worker->inbox_in, &fd, sizeof fd) != (ssize_t)sizeof fd) {
        close(fd); // the worker is thousands of connections behind
    }
}

static void add_counts(struct server_counts *counts, const struct worker_state *state)
{
    counts->requests += state->requests;
    counts->refused += state->refused;
    counts->bytes_in += state->bytes_in;
    counts->bytes_out += state->bytes_out;
    counts->connections += state->connections;
    counts->aborted += state->aborted;
    counts->allocations += state->phase.allocations;
    counts->allocated_bytes += state->phase.bytes;
    counts->failed += state->failed + state->phase.failed;
}

struct server_counts server_drain(struct server *server)
{
    struct server_counts counts = {.requests = 0};
    for (unsigned i = 0; i < server->options.workers; i++) {
        close(server->workers[i]->inbox_in);
    }
    for (unsigned i = 0; i < server->options.workers; i++) {
        pthread_join(server->workers[i]->thread, NULL);
        add_counts(&counts, &server->workers[i]->state);
        close_worker(server->workers[i]);
    }
    free(server);
    return counts;
}
