// SPDX-License-Identifier: MIT OR Apache-2.0
// http: a small HTTP/1.1 server whose requests are phases of memory. It answers GET /order?id=N and
// POST /order on the loopback interface; each request builds 225 rows, 52 KB, and a JSON document,
// and gives everything back at its end, in the way that --policy says (memory.h).
//
//   LD_PRELOAD=libebbtide.so http_server --policy region --port 8080
//
// Prints `http: listening on port N` and then, after SIGTERM or SIGINT, one line of counts as JSON.
//
//   main.c        options, accepting, signals, the report
//   server.c      workers, connections dealt out, deadlines, the drain
//   connection.c  one client: reads, answers, closes
//   parser.c      llhttp, within limits
//   handler.c     what is served: query, order.c's rows, JSON by Jansson
//   memory.c      where the memory of a request comes from
#define _GNU_SOURCE // accept4
#include "handler.h"
#include "memory.h"
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, BACKLOG = 1024, PAUSE_MS = 50 };

struct options {
    const char *policy;
    uint64_t port;
    uint64_t workers;
    uint64_t idle_s;
    uint64_t drain_s;
};

struct number {
    const char *name;
    uint64_t *value;
    uint64_t least;
    uint64_t most;
};

// ---- options ------------------------------------------------------------------------------------

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "http: %s%s\n", what, detail);
    exit(EXIT_USAGE);
}

static void usage(void)
{
    puts("usage: http_server [--policy NAME] [--port N] [--workers N] [--idle-s N] [--drain-s N]\n"
         "  --policy   malloc, domain, domain-N, domain-never, region or region-reset (malloc)\n"
         "  --port     on 127.0.0.1; 0: any that is free (0)\n"
         "  --workers  threads, 1 to 64 (2)\n"
         "  --idle-s   seconds that a client may take to send a request, 1 to 3600 (30)\n"
         "  --drain-s  seconds that requests have to end after SIGTERM, 0 to 3600 (5)");
}

static void parse_number(const struct number *number, const char *text)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < number->least ||
        value > number->most) {
        fprintf(stderr, "http: %s wants a whole number from %" PRIu64 " to %" PRIu64 "\n",
                number->name, number->least, number->most);
        exit(EXIT_USAGE);
    }
    *number->value = value;
}

static void parse_option(struct options *options, const char *name, const char *value)
{
    const struct number numbers[] = {
        {"--port", &options->port, 0, 65535},
        {"--workers", &options->workers, 1, WORKERS_MAX},
        {"--idle-s", &options->idle_s, 1, 3600},
        {"--drain-s", &options->drain_s, 0, 3600},
    };
    if (strcmp(name, "--policy") == 0) {
        options->policy = value;
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            parse_number(&numbers[i], value);
            return;
        }
    }
    fail("no such option: ", name);
}

static struct options parse(int argc, char **argv)
{
    struct options options = {
        .policy = "malloc", .port = 0, .workers = 2, .idle_s = 30, .drain_s = 5};
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0) {
            usage();
            exit(0);
        }
        if (i + 1 == argc) {
            fail("a value is missing behind ", argv[i]);
        }
        parse_option(&options, argv[i], argv[i + 1]);
    }
    return options;
}

// ---- accepting ----------------------------------------------------------------------------------

static int listen_on(uint16_t port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0) {
        fail("cannot listen: ", strerror(errno));
    }
    return fd;
}

static unsigned port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        fail("cannot tell the port: ", strerror(errno));
    }
    return ntohs(address.sin_port);
}

// Before any thread, so that all of them leave these signals to the descriptor.
static int open_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (fd < 0) {
        fail("cannot wait for signals: ", strerror(errno));
    }
    return fd;
}

// False: nobody is waiting.
static bool accept_one(struct server *server, int listener)
{
    int on = 1;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        server_give(server, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        poll(NULL, 0, PAUSE_MS); // clients wait in the backlog until others have gone
    } else {
        return errno != EAGAIN;
    }
    return true;
}

// Those who are connected when the signal comes have been promised an answer.
static void accept_until_signal(struct server *server, int listener, int signals)
{
    struct pollfd ready[] = {{.fd = listener, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    while (ready[1].revents == 0) {
        if (poll(ready, 2, -1) > 0 && ready[0].revents != 0) {
            accept_one(server, listener);
        }
    }
    for (int i = 0; i < BACKLOG && accept_one(server, listener); i++) {
    }
}

// ---- the report ---------------------------------------------------------------------------------

// A line of /proc/self/status, in KiB; 0 where there is none.
static uint64_t memory_kb(const char *name)
{
    char line[256];
    uint64_t kb = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kb = strtoul(line + strlen(name), NULL, 10);
        }
    }
    if (status != NULL) {
        fclose(status);
    }
    return kb;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static void report_counts(const struct server_counts *counts)
{
    printf("\"requests\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"bytes_in\": %" PRIu64
           ", \"bytes_out\": %" PRIu64 ", \"connections\": %" PRIu64 ", \"aborted\": %" PRIu64
           ", \"allocations\": %" PRIu64 ", \"allocated_bytes\": %" PRIu64
           ", \"failed_allocations\": %" PRIu64,
           counts->requests, counts->refused, counts->bytes_in, counts->bytes_out,
           counts->connections, counts->aborted, counts->allocations, counts->allocated_bytes,
           counts->failed);
}

static int report(const char *policy, const struct server_counts *counts, uint64_t rss_kb)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t peak_kb = memory_kb("VmHWM:"); // the kernel brings it up to date now and then
    printf("{\"policy\": \"%s\", ", policy);
    report_counts(counts);
    printf(", \"user_s\": %.6f, \"system_s\": %.6f, \"rss_kb\": %" PRIu64
           ", \"peak_rss_kb\": %" PRIu64 "}\n",
           seconds(usage.ru_utime), seconds(usage.ru_stime), rss_kb,
           peak_kb > rss_kb ? peak_kb : rss_kb);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    if (memory_choose(options.policy) != 0) {
        return EXIT_USAGE;
    }
    handler_open();
    int signals = open_signals();
    int listener = listen_on((uint16_t)options.port);
    struct server_options server_options = {.workers = (unsigned)options.workers,
                                            .idle_ms = options.idle_s * 1000,
                                            .drain_ms = options.drain_s * 1000};
    struct server *server = server_start(&server_options);
    if (server == NULL) {
        return EXIT_FAILURE;
    }
    printf("http: listening on port %u\n", port_of(listener));
    fflush(stdout);
    accept_until_signal(server, listener, signals);
    uint64_t rss_kb = memory_kb("VmRSS:"); // as it served, before anything is given back
    close(listener);
    struct server_counts counts = server_drain(server);
    return report(options.policy, &counts, rss_kb);
}
