// SPDX-License-Identifier: MIT OR Apache-2.0
#include "parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct parser *of(llhttp_t *http) { return http->data; }

static int stop(llhttp_t *http, enum status why)
{
    of(http)->refusal = why;
    return HPE_USER;
}

// ---- text ---------------------------------------------------------------------------------------

static int begin_request(llhttp_t *http)
{
    struct parser *parser = of(http);
    struct request *request = &parser->request;
    request->method = METHOD_OTHER;
    request->url = (struct span){.at = 0};
    request->field_count = 0;
    request->fields[0] = (struct field){.name = {.at = 0}};
    request->body = NULL;
    request->body_bytes = 0;
    request->text_bytes = 0;
    parser->in_request = true;
    return 0;
}

// A span may come in several pieces; nothing else is added in between.
static bool append(struct request *request, struct span *span, const char *at, size_t bytes)
{
    if (bytes > TEXT_BYTES - request->text_bytes) {
        return false;
    }
    if (span->bytes == 0) {
        span->at = (uint32_t)request->text_bytes;
    }
    memcpy(request->text + request->text_bytes, at, bytes);
    span->bytes += (uint32_t)bytes;
    request->text_bytes += bytes;
    return true;
}

static int take_url(llhttp_t *http, const char *at, size_t bytes)
{
    struct request *request = &of(http)->request;
    if (bytes > URL_BYTES - request->url.bytes) {
        return stop(http, STATUS_URL_TOO_LONG);
    }
    append(request, &request->url, at, bytes);
    return 0;
}

// The field that is being read is the one behind those that are counted.
static int take_name(llhttp_t *http, const char *at, size_t bytes)
{
    struct request *request = &of(http)->request;
    if (request->field_count == FIELDS ||
        !append(request, &request->fields[request->field_count].name, at, bytes)) {
        return stop(http, STATUS_HEADERS_TOO_LARGE);
    }
    return 0;
}

static int take_value(llhttp_t *http, const char *at, size_t bytes)
{
    struct request *request = &of(http)->request;
    if (!append(request, &request->fields[request->field_count].value, at, bytes)) {
        return stop(http, STATUS_HEADERS_TOO_LARGE);
    }
    return 0;
}

static int end_field(llhttp_t *http)
{
    struct request *request = &of(http)->request;
    request->field_count++;
    if (request->field_count < FIELDS) {
        request->fields[request->field_count] = (struct field){.name = {.at = 0}};
    }
    return 0;
}

// ---- headers and body ---------------------------------------------------------------------------

static bool has_field(const struct request *request, const char *name)
{
    for (size_t i = 0; i < request->field_count; i++) {
        struct span span = request->fields[i].name;
        if (span.bytes == strlen(name) &&
            strncasecmp(request->text + span.at, name, span.bytes) == 0) {
            return true;
        }
    }
    return false;
}

static enum method method_of(const llhttp_t *http)
{
    switch (http->method) {
    case HTTP_GET:
        return METHOD_GET;
    case HTTP_HEAD:
        return METHOD_HEAD;
    case HTTP_POST:
        return METHOD_POST;
    default:
        return METHOD_OTHER;
    }
}

static int end_headers(llhttp_t *http)
{
    struct parser *parser = of(http);
    parser->request.method = method_of(http);
    bool has_hosts = http->http_minor == 0 || has_field(&parser->request, "host");
    if (http->http_major != 1 || http->http_minor > 1 || !has_hosts) {
        return stop(http, STATUS_BAD_REQUEST);
    }
    if (http->content_length > BODY_BYTES) {
        return stop(http, STATUS_TOO_LARGE);
    }
    if (http->http_minor == 1 && has_field(&parser->request, "expect")) {
        parser->calls->say_continue(parser->context);
    }
    return 0;
}

static bool reserve_body(struct parser *parser, size_t bytes)
{
    if (bytes <= parser->body_capacity) {
        return true;
    }
    size_t capacity = 2 * bytes < BODY_BYTES ? 2 * bytes : BODY_BYTES;
    char *body = realloc(parser->body, capacity);
    if (body == NULL) {
        return false;
    }
    parser->body = body;
    parser->body_capacity = capacity;
    return true;
}

static int take_body(llhttp_t *http, const char *at, size_t bytes)
{
    struct parser *parser = of(http);
    struct request *request = &parser->request;
    if (bytes > BODY_BYTES - request->body_bytes) {
        return stop(http, STATUS_TOO_LARGE);
    }
    if (!reserve_body(parser, request->body_bytes + bytes)) {
        return stop(http, STATUS_NO_MEMORY);
    }
    memcpy(parser->body + request->body_bytes, at, bytes);
    request->body_bytes += bytes;
    request->body = parser->body;
    return 0;
}

static void drop_body(struct parser *parser)
{
    free(parser->body);
    parser->body = NULL;
    parser->body_capacity = 0;
}

// A request for another protocol is answered in this one, and was the last.
static int end_request(llhttp_t *http)
{
    struct parser *parser = of(http);
    bool keep = llhttp_should_keep_alive(http) != 0 && http->upgrade == 0;
    parser->in_request = false;
    bool go_on = parser->calls->serve(parser->context, &parser->request, keep);
    drop_body(parser);
    return go_on ? 0 : HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_message_begin = begin_request,
    .on_url = take_url,
    .on_header_field = take_name,
    .on_header_value = take_value,
    .on_header_value_complete = end_field,
    .on_headers_complete = end_headers,
    .on_body = take_body,
    .on_message_complete = end_request,
};

void parser_open(struct parser *parser, const struct parser_calls *calls, void *context)
{
    llhttp_init(&parser->http, HTTP_REQUEST, &settings);
    parser->http.data = parser;
    parser->calls = calls;
    parser->context = context;
    parser->in_request = false;
    parser->refusal = STATUS_OK;
    parser->body = NULL;
    parser->body_capacity = 0;
}

void parser_close(struct parser *parser) { drop_body(parser); }

enum status parser_feed(struct parser *parser, const char *bytes, size_t count)
{
    llhttp_errno_t error = llhttp_execute(&parser->http, bytes, count);
    if (error == HPE_OK || error == HPE_PAUSED) {
        return STATUS_OK;
    }
    return parser->refusal != STATUS_OK ? parser->refusal : STATUS_BAD_REQUEST;
}
