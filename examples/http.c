// SPDX-License-Identifier: MIT OR Apache-2.0
// A region for each request: a small HTTP/1.1 server on 127.0.0.1 that answers GET with the path. A worker
// serves one connection at a time and has one region. What a request needs (text, headers, answer) is
// allocated there by name, and the reset behind the answer ends all of it at once.
//   example_http [--self-test]    serves port 8080 until SIGTERM, or asks itself
#include <ebbtide/region.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 8080, WORKERS = 4, HEAD_MAX = 8 << 10, IDLE_S = 10, DRAIN_MAX = 1 << 20 };

struct header {
    struct header *next;
    const char *name, *value;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static int listener;
static atomic_bool ending;
static atomic_int clients[WORKERS] = {-1, -1, -1, -1}; // the latest connection of each worker

// Ends *rest at the mark and returns it; then *rest is what follows. NULL: there is no mark.
static char *cut(char **rest, const char *mark)
{
    char *part = *rest, *end = strstr(part, mark);
    if (end != NULL) {
        *end = '\0';
        *rest = end + strlen(mark);
    }
    return end != NULL ? part : NULL;
}

static const char *find(const struct header *header, const char *name)
{
    while (header != NULL && strcasecmp(header->name, name) != 0) {
        header = header->next;
    }
    return header != NULL ? header->value : NULL;
}

// The status. The text ends with an empty line; path and headers point into it.
static const char *parse(struct ebb_region *region, char *text, char **path,
                         struct header **headers)
{
    char *line = cut(&text, "\r\n");
    const char *method = cut(&line, " ");
    *path = cut(&line, " ");
    if (*path == NULL || strcmp(line, "HTTP/1.1") != 0) {
        return "400 Bad Request";
    }
    while ((line = cut(&text, "\r\n"))[0] != '\0') {
        const char *name = cut(&line, ":");
        struct header *header = ebb_region_alloc(region, sizeof *header);
        if (name == NULL || header == NULL || strpbrk(name, " \t\r\n") || strpbrk(line, "\r\n")) {
            return header == NULL ? "503 Service Unavailable" : "400 Bad Request";
        }
        *header = (struct header){*headers, name, line + strspn(line, " \t")};
        *headers = header;
    }
    bool has_body = find(*headers, "Content-Length") || find(*headers, "Transfer-Encoding");
    bool is_get = strcmp(method, "GET") == 0;
    const char *refusal = is_get ? "400 Bad Request" : "405 Method Not Allowed";
    return is_get && !has_body && find(*headers, "Host") ? "200 OK" : refusal;
}

// Up to the empty line or HEAD_MAX; 0: the client has gone, or has sent a NUL, which is no text.
static int read_head(FILE *in, char *text)
{
    int bytes = 0, c = 1;
    while (c > 0 && bytes < HEAD_MAX && (bytes < 4 || strcmp(text + bytes - 4, "\r\n\r\n") != 0)) {
        c = getc(in);
        text[bytes++] = (char)c;
    }
    return c > 0 ? bytes : 0;
}

// Whether the connection goes on. stdio reads and writes on where a socket has done a part.
static bool answer(struct ebb_region *region, FILE *in)
{
    struct header *headers = NULL;
    char *path = NULL;
    char *text = ebb_region_calloc(region, HEAD_MAX + 1, 1);
    char *reply = ebb_region_alloc(region, HEAD_MAX + 256);
    int bytes = text != NULL && reply != NULL ? read_head(in, text) : 0;
    if (bytes == 0) {
        return false;
    }
    const char *status = bytes == HEAD_MAX ? "431 Request Header Fields Too Large"
                                           : parse(region, text, &path, &headers);
    const char *wish = find(headers, "Connection"), *body = status[0] == '2' ? path : status;
    bool keep = body == path && (wish == NULL || strcasecmp(wish, "close") != 0);
    snprintf(reply, HEAD_MAX + 256, "HTTP/1.1 %s\r\nAllow: GET\r\n%sContent-Length: %zu\r\n\r\n%s",
             status, keep ? "" : "Connection: close\r\n", strlen(body), body);
    return dprintf(fileno(in), "%s", reply) > 0 && keep;
}

static void serve(struct ebb_region *region, int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){IDLE_S, 0}, sizeof(struct timeval));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){IDLE_S, 0}, sizeof(struct timeval));
    FILE *in = fdopen(fd, "r"); // its buffer outlives requests: the next one may begin in it
    for (bool keep = in != NULL; keep && !ending;) {
        keep = answer(region, in);
        ebb_region_reset(region); // the request is over, and so is its memory
    }
    shutdown(fd, SHUT_WR); // to close upon unread input would take the last answer away
    for (int i = 0; in != NULL && i < DRAIN_MAX && getc(in) != EOF; i++) {
    }
    in != NULL ? fclose(in) : close(fd);
}

static void *work(void *client)
{
    struct ebb_region *region = ebb_region_open(&(struct ebb_region_options){.label = "request"});
    while (region != NULL && !ending) {
        int fd = accept(listener, NULL, NULL);
        atomic_store((atomic_int *)client, fd);
        serve(region, fd); // nothing, where accept has failed
    }
    ebb_region_release(region);
    return NULL;
}

static bool listen_on(int port)
{
    socklen_t bytes = sizeof address;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    return bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 64) == 0 &&
           getsockname(listener, (struct sockaddr *)&address, &bytes) == 0;
}

#define ASK "GET /tide HTTP/1.1\r\nHost: sea\r\n\r\n"
#define REFUSE(why, n)                                                                             \
    "HTTP/1.1 " why "\r\nAllow: GET\r\nConnection: close\r\nContent-Length: " n "\r\n\r\n" why
#define TELL "HTTP/1.1 200 OK\r\nAllow: GET\r\nContent-Length: 5\r\n\r\n/tide"

static bool check(const char *request, int piece, const char *want)
{
    char got[1024] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(fd, (const struct sockaddr *)&address, sizeof address);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    for (; *request != '\0'; request += strnlen(request, (size_t)piece)) {
        dprintf(fd, "%.*s", piece, request);
    }
    shutdown(fd, SHUT_WR);
    recv(fd, got, sizeof got - 1, MSG_WAITALL);
    close(fd);
    return strcmp(got, want) == 0;
}

static bool self_test(void)
{
    char too_long[2 * HEAD_MAX] = "";
    memset(too_long, 'a', sizeof too_long - 1);
    bool right = check(ASK ASK, 1000, TELL TELL) && check(ASK ASK, 1, TELL TELL) &&
                 check("DELETE /\r\n\r\n", 1000, REFUSE("400 Bad Request", "15")) &&
                 check("DELETE / HTTP/1.1\r\n\r\n", 1000, REFUSE("405 Method Not Allowed", "22")) &&
                 check(too_long, 1000, REFUSE("431 Request Header Fields Too Large", "35"));
    kill(getpid(), SIGTERM);
    return right;
}

int main(int argc, char **argv)
{
    bool testing = argc > 1 && strcmp(argv[1], "--self-test") == 0;
    pthread_t threads[WORKERS];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL); // in the workers, too: sigwait has them
    signal(SIGPIPE, SIG_IGN);
    bool right = listen_on(testing ? 0 : PORT);
    for (int i = 0; right && i < WORKERS; i++) {
        right = pthread_create(&threads[i], NULL, work, &clients[i]) == 0;
    }
    if (!right) {
        perror("http");
        return 1;
    }
    right = !testing || self_test();
    sigwait(&set, &(int){0});
    ending = true;
    shutdown(listener, SHUT_RDWR);
    for (int i = 0; i < WORKERS; i++) {
        shutdown(clients[i], SHUT_RD);
        pthread_join(threads[i], NULL);
    }
    return right ? 0 : 1;
}
