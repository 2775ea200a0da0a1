// SPDX-License-Identifier: MIT OR Apache-2.0
#include "connection.h"

#include "handler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 8 << 10, OUTPUT_KEPT_BYTES = 64 << 10, HEAD_BYTES = 256 };

// ---- output -------------------------------------------------------------------------------------

static bool output_reserve(struct connection *connection, size_t bytes)
{
    struct output *output = &connection->output;
    if (output->capacity - output->end >= bytes) {
        return true;
    }
    size_t capacity = output->capacity == 0 ? OUTPUT_BYTES : output->capacity;
    while (capacity < output->end + bytes) {
        capacity *= 2;
    }
    char *data = realloc(output->data, capacity);
    if (data == NULL) {
        connection->worker->failed++;
        connection->over = true;
        return false;
    }
    output->data = data;
    output->capacity = capacity;
    return true;
}

static void output_add(struct connection *connection, const char *data, size_t bytes)
{
    if (output_reserve(connection, bytes)) {
        memcpy(connection->output.data + connection->output.end, data, bytes);
        connection->output.end += bytes;
    }
}

// A burst of answers must not hold its memory for as long as the connection lasts.
static void output_empty(struct output *output)
{
    output->begin = 0;
    output->end = 0;
    if (output->capacity > OUTPUT_KEPT_BYTES) {
        free(output->data);
        *output = (struct output){.data = NULL};
    }
}

static void output_send(struct connection *connection)
{
    struct output *output = &connection->output;
    while (output->begin < output->end) {
        ssize_t sent = send(connection->fd, output->data + output->begin,
                            output->end - output->begin, MSG_NOSIGNAL);
        if (sent >= 0) {
            output->begin += (size_t)sent;
            connection->worker->bytes_out += (uint64_t)sent;
            connection->since_ms = connection->worker->now_ms;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            connection->over = true; // EPIPE, ECONNRESET: nobody is there to read
            return;
        }
    }
    output_empty(output);
}

// ---- answers ------------------------------------------------------------------------------------

static const char *reason_of(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return "OK";
    case STATUS_BAD_REQUEST:
        return "Bad Request";
    case STATUS_NOT_FOUND:
        return "Not Found";
    case STATUS_METHOD_NOT_ALLOWED:
        return "Method Not Allowed";
    case STATUS_TOO_LARGE:
        return "Content Too Large";
    case STATUS_URL_TOO_LONG:
        return "URI Too Long";
    case STATUS_HEADERS_TOO_LARGE:
        return "Request Header Fields Too Large";
    case STATUS_NO_MEMORY:
        return "Service Unavailable";
    }
    return "";
}

static void write_answer(struct connection *connection, const struct answer *answer, bool with_body)
{
    char head[HEAD_BYTES];
    int bytes =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n%s%s\r\n",
                 (int)answer->status, reason_of(answer->status), connection->worker->date,
                 answer->body_bytes,
                 answer->status == STATUS_METHOD_NOT_ALLOWED ? "Allow: GET, HEAD, POST\r\n" : "",
                 connection->closing ? "Connection: close\r\n" : "");
    if (output_reserve(connection, (size_t)bytes + answer->body_bytes)) {
        output_add(connection, head, (size_t)bytes);
        output_add(connection, answer->body, with_body ? answer->body_bytes : 0);
    }
    connection->worker->requests++;
    connection->worker->refused += answer->status != STATUS_OK;
}

static void refuse(struct connection *connection, enum status status)
{
    connection->closing = true;
    struct answer answer = handler_refusal(status);
    write_answer(connection, &answer, true);
}

// The phase: all that the handler allocates comes and goes here. The output outlives it.
static void answer_in_phase(struct connection *connection, const struct request *request)
{
    struct phase *phase = &connection->worker->phase;
    struct answer answer;
    if (phase_begin(phase) != 0) {
        refuse(connection, STATUS_NO_MEMORY);
        return;
    }
    struct exchange *exchange = handler_answer(request, &answer);
    struct ebb_scope before = phase_leave_for_heap();
    write_answer(connection, &answer, request->method != METHOD_HEAD);
    phase_return(before);
    handler_finish(exchange);
    phase_end(phase);
}

// ---- input --------------------------------------------------------------------------------------

static bool serve(void *context, const struct request *request, bool keep)
{
    struct connection *connection = context;
    connection->closing = !keep || connection->worker->draining;
    answer_in_phase(connection, request);
    return !connection->closing && !connection->over;
}

static void say_continue(void *context)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    output_add(context, line, sizeof line - 1);
}

static const struct parser_calls calls = {.serve = serve, .say_continue = say_continue};

static bool has_output(const struct connection *connection)
{
    return connection->output.begin < connection->output.end;
}

static void send_and_linger(struct connection *connection)
{
    output_send(connection);
    if (connection->closing && !connection->lingering && !has_output(connection)) {
        connection->lingering = true;
        connection->since_ms = connection->worker->now_ms;
        shutdown(connection->fd, SHUT_WR);
    }
}

static void take_input(struct connection *connection, size_t bytes)
{
    connection->worker->bytes_in += bytes;
    if (connection->lingering) {
        return;
    }
    bool was_in_request = connection->parser.in_request;
    enum status refusal = parser_feed(&connection->parser, connection->worker->input, bytes);
    if (refusal != STATUS_OK) {
        refuse(connection, refusal);
        connection->parser.in_request = false;
    }
    if (connection->parser.in_request && !was_in_request) {
        connection->since_ms = connection->worker->now_ms;
    }
    send_and_linger(connection);
}

static void receive(struct connection *connection)
{
    ssize_t bytes;
    do {
        bytes = recv(connection->fd, connection->worker->input, READ_BYTES, 0);
    } while (bytes < 0 && errno == EINTR);
    if (bytes > 0) {
        take_input(connection, (size_t)bytes);
    } else if (bytes == 0 || errno != EAGAIN) {
        connection->over = true;
    }
}

void connection_advance(struct connection *connection)
{
    if (has_output(connection)) {
        send_and_linger(connection);
    } else {
        receive(connection);
    }
}

uint32_t connection_events(const struct connection *connection)
{
    return has_output(connection) ? EPOLLOUT : EPOLLIN;
}

bool connection_is_idle(const struct connection *connection)
{
    return !connection->parser.in_request && !has_output(connection) && !connection->lingering;
}

// ---- life ---------------------------------------------------------------------------------------

struct connection *connection_create(struct worker_state *worker, int fd)
{
    struct connection *connection = malloc(sizeof *connection);
    if (connection == NULL) {
        worker->failed++;
        return NULL;
    }
    connection->next = NULL;
    connection->previous = NULL;
    connection->worker = worker;
    connection->fd = fd;
    connection->events = 0;
    connection->since_ms = worker->now_ms;
    connection->closing = false;
    connection->lingering = false;
    connection->over = false;
    connection->output = (struct output){.data = NULL};
    parser_open(&connection->parser, &calls, connection);
    worker->connections++;
    return connection;
}

void connection_destroy(struct connection *connection)
{
    connection->worker->aborted += connection->parser.in_request || has_output(connection);
    close(connection->fd);
    parser_close(&connection->parser);
    free(connection->output.data);
    free(connection);
}
