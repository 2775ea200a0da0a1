// SPDX-License-Identifier: MIT OR Apache-2.0
// A parsed request, and what the handler makes of it. Plain data between connection.c and handler.c.
#ifndef EBB_BENCH_HTTP_REQUEST_H
#define EBB_BENCH_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_BYTES = 16 << 10, URL_BYTES = 4 << 10, FIELDS = 64, BODY_BYTES = 64 << 10 };

enum status {
    STATUS_OK = 200,
    STATUS_BAD_REQUEST = 400,
    STATUS_NOT_FOUND = 404,
    STATUS_METHOD_NOT_ALLOWED = 405,
    STATUS_TOO_LARGE = 413,
    STATUS_URL_TOO_LONG = 414,
    STATUS_HEADERS_TOO_LARGE = 431,
    STATUS_NO_MEMORY = 503,
};

enum method { METHOD_GET, METHOD_HEAD, METHOD_POST, METHOD_OTHER };

// Bytes of request.text; no NUL behind them.
struct span {
    uint32_t at;
    uint32_t bytes;
};

struct field {
    struct span name;
    struct span value;
};

struct request {
    enum method method;
    struct span url;
    size_t field_count;
    struct field fields[FIELDS];
    const char *body;
    size_t body_bytes;
    size_t text_bytes;
    char text[TEXT_BYTES]; // URL, names and values, in the order in which they came
};

// The body lies in the phase's memory, or is a constant.
struct answer {
    enum status status;
    const char *body;
    size_t body_bytes;
};

#endif
