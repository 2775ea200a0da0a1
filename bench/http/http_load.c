// SPDX-License-Identifier: MIT OR Apache-2.0
// http_load: asks http_server for orders at a constant rate, whatever the answers do (an open loop).
// A request is due at a moment that was fixed before the run, and its latency counts from then, also
// where it had to wait for a connection: a server that stalls delays all that are due meanwhile, and
// each of them is in the histogram. So nothing is left out by co-ordination with the server (Tene,
// "How NOT to measure latency", 2013). One thread; it does not spin, so its own wake-up is in each
// figure, alike for every arm, and told as `late`: from due to sent.
#include "harness/histogram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, ANSWER_BYTES = 8 << 10, EVENTS = 64, ORDERS = 1000 };

static const uint64_t second_ns = 1000000000;
static const uint64_t grace_ns = 5000000000; // for the last answers

static uint64_t port;
static uint64_t rate = 10000;
static uint64_t connection_count = 32;
static uint64_t warm_up_ms = 500;
static uint64_t run_ms = 3000;

static const struct bench_option options[] = {
    {"port", &port, 1, 65535, "of the server, on 127.0.0.1"},
    {"rate", &rate, 1, 1000000, "requests a second"},
    {"connections", &connection_count, 1, CONNECTIONS_MAX,
     "kept alive, one request at a time each"},
    {"warm-up-ms", &warm_up_ms, 0, 60000, "at the same rate, not in the figures"},
    {"run-ms", &run_ms, 10, 600000, "that are measured"},
};

static const struct bench_program program = {
    "http_load", "constant arrivals at http_server, latency from the moment that each is due",
    options, sizeof options / sizeof options[0]};

struct connection {
    int fd;
    struct connection *next_free;
    uint64_t due_ns;
    size_t received;
    char answer[ANSWER_BYTES + 1];
};

static struct {
    int epoll;
    int timer;
    struct connection *connections;
    struct connection *free;
    uint64_t start_ns;
    uint64_t measured_from_ns; // by the moment that a request is due
    uint64_t due;              // requests in all
    uint64_t sent;
    uint64_t answered;
    uint64_t measured;
    uint64_t other_status;
    uint64_t waited; // for a connection
    uint64_t answer_bytes;
    struct histogram *latency_ns;
    struct histogram *late_ns;
} load;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

static uint64_t due_at_ns(uint64_t request)
{
    return load.start_ns + (uint64_t)((double)request * 1e9 / (double)rate);
}

// --- connections -------------------------------------------------------------

static void watch(int fd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = data}};
    if (epoll_ctl(load.epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        bench_fail("cannot watch a descriptor: %s", strerror(errno));
}

static void set_free(struct connection *connection)
{
    connection->next_free = load.free;
    load.free = connection;
}

static void open_connection(struct connection *connection)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        bench_fail("cannot connect to port %u: %s", (unsigned)port, strerror(errno));
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        bench_fail("cannot set up a connection: %s", strerror(errno));
    connection->fd = fd;
    watch(fd, connection);
    set_free(connection);
}

static void open_all(void)
{
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    load.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (load.epoll < 0 || load.timer < 0)
        bench_fail("cannot wait for answers: %s", strerror(errno));
    watch(load.timer, NULL);
    load.connections = bench_map(connection_count * sizeof *load.connections);
    for (uint64_t i = 0; i < connection_count; i++)
        open_connection(&load.connections[i]);
}

// --- requests and answers ----------------------------------------------------

static void send_request(struct connection *connection, uint64_t request)
{
    char text[128];
    int length = snprintf(text, sizeof text, "GET /order?id=%u HTTP/1.1\r\nHost: localhost\r\n\r\n",
                          (unsigned)(request % ORDERS));
    ssize_t sent;
    do {
        sent = send(connection->fd, text, (size_t)length, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent != length)
        bench_fail("cannot send a request: %s", sent < 0 ? strerror(errno) : "no room");
    connection->due_ns = due_at_ns(request);
    connection->received = 0;
}

static void send_due(void)
{
    bool first = true;
    while (load.sent < load.due && due_at_ns(load.sent) <= now_ns()) {
        struct connection *connection = load.free;
        if (connection == NULL) {
            load.waited += first;
            return;
        }
        first = false;
        load.free = connection->next_free;
        send_request(connection, load.sent++);
        if (connection->due_ns >= load.measured_from_ns)
            histogram_record(load.late_ns, now_ns() - connection->due_ns);
    }
}

// Bytes of the whole answer; 0 while its head is not there.
static size_t whole_bytes(const char *answer)
{
    static const char length_name[] = "Content-Length: ";
    const char *end = strstr(answer, "\r\n\r\n");
    const char *length = strstr(answer, length_name);
    if (end == NULL)
        return 0;
    if (length == NULL || length > end)
        bench_fail("an answer without Content-Length");
    size_t head = (size_t)(end - answer) + 4;
    return head + strtoul(length + sizeof length_name - 1, NULL, 10);
}

static void take_answer(struct connection *connection)
{
    load.answered++;
    load.answer_bytes += connection->received;
    load.other_status += strncmp(connection->answer, "HTTP/1.1 200 ", 13) != 0;
    if (connection->due_ns >= load.measured_from_ns) {
        load.measured++;
        histogram_record(load.latency_ns, now_ns() - connection->due_ns);
    }
    set_free(connection);
}

static void receive(struct connection *connection)
{
    ssize_t bytes = recv(connection->fd, connection->answer + connection->received,
                         ANSWER_BYTES - connection->received, 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes <= 0)
        bench_fail("the server closed a connection: %s", bytes < 0 ? strerror(errno) : "end");
    connection->received += (size_t)bytes;
    connection->answer[connection->received] = '\0';
    size_t whole = whole_bytes(connection->answer);
    if (connection->received == ANSWER_BYTES || (whole != 0 && connection->received > whole))
        bench_fail("an answer is longer than it should be");
    if (whole != 0 && connection->received == whole)
        take_answer(connection);
}

// --- the loop ----------------------------------------------------------------

static void arm_timer(uint64_t until_ns)
{
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(until_ns / second_ns),
                                           .tv_nsec = (long)(until_ns % second_ns)}};
    if (timerfd_settime(load.timer, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        bench_fail("cannot set a timer: %s", strerror(errno));
}

// Until an answer comes, or the next request is due and there is a connection for it.
static void wait_for_events(uint64_t end_ns)
{
    struct epoll_event events[EVENTS];
    bool may_send = load.sent < load.due && load.free != NULL;
    arm_timer(may_send ? due_at_ns(load.sent) : end_ns);
    int count = epoll_wait(load.epoll, events, EVENTS, -1);
    if (count < 0 && errno != EINTR)
        bench_fail("cannot wait for answers: %s", strerror(errno));
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr != NULL)
            receive(events[i].data.ptr);
}

static void run_load(void)
{
    load.start_ns = now_ns() + 1000000;
    load.measured_from_ns = load.start_ns + warm_up_ms * 1000000;
    load.due = (warm_up_ms + run_ms) * rate / 1000;
    uint64_t end_ns = due_at_ns(load.due) + grace_ns;
    while (load.answered < load.due && now_ns() < end_ns) {
        send_due();
        wait_for_events(end_ns);
    }
}

static int report(const struct bench_clock *clock)
{
    static struct bench_result result;
    bench_figures_of(&result, clock, load.measured);
    bench_figure(&result, "rate", (double)rate);
    bench_figure(&result, "requests_per_s", (double)load.answered / clock->wall_s);
    bench_figure(&result, "answer_bytes", (double)load.answer_bytes);
    bench_figure(&result, "waited", (double)load.waited);
    bench_verify(&result, "all_answered", load.answered == load.due && load.measured > 0);
    bench_verify(&result, "all_200", load.other_status == 0);
    histogram_report(&result, "request", load.latency_ns);
    bench_figure(&result, "late_p99_ns", (double)histogram_percentile(load.late_ns, 99));
    return bench_report(&program, &result);
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    if (port == 0)
        bench_fail("--port is missing; try --help");
    prctl(PR_SET_TIMERSLACK, 1);
    load.latency_ns = histogram_create();
    load.late_ns = histogram_create();
    open_all();
    struct bench_clock clock;
    bench_clock_start(&clock);
    run_load();
    bench_clock_stop(&clock);
    return report(&clock);
}
