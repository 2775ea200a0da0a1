// SPDX-License-Identifier: MIT OR Apache-2.0
// Bytes to requests, by llhttp, within fixed limits: the text of URL and headers, their number, the
// body. Copies what it keeps, so the caller's bytes may go after each call.
#ifndef EBB_BENCH_HTTP_PARSER_H
#define EBB_BENCH_HTTP_PARSER_H

#include "request.h"

#include <llhttp.h>

struct parser_calls {
    // A whole request is there; `keep`: the client wants to go on. False ends the parsing.
    bool (*serve)(void *context, const struct request *request, bool keep);
    // The client waits for a word before it sends the body.
    void (*say_continue)(void *context);
};

struct parser {
    llhttp_t http;
    const struct parser_calls *calls;
    void *context;
    bool in_request;     // its first byte has come, its last has not
    enum status refusal; // why a callback stopped the parser; STATUS_OK: none did
    char *body;
    size_t body_capacity;
    struct request request;
};

void parser_open(struct parser *parser, const struct parser_calls *calls, void *context);
void parser_close(struct parser *parser);

// Serves the requests that these bytes complete. STATUS_OK, or why the next request is refused; after
// that, and after `serve` gave false, it must not be called again.
enum status parser_feed(struct parser *parser, const char *bytes, size_t count);

#endif
