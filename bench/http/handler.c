// SPDX-License-Identifier: MIT OR Apache-2.0
#include "handler.h"

#include "memory.h"
#include "order.h"

#include <jansson.h>
#include <string.h>

enum { PAGE_LINES = 4, ID_DIGITS = 15, JSON_BYTES = 4096 };

struct pair {
    struct pair *next;
    const char *value; // behind the name
    char name[];
};

struct exchange {
    struct pair *query;
    struct pair *headers;
    struct order order;
    json_t *document;
    char *body;
};

void handler_open(void) { json_set_alloc_funcs(phase_alloc, phase_free); }

struct answer handler_refusal(enum status status)
{
    const char *body = "{\"error\":\"malformed request\"}";
    if (status == STATUS_NOT_FOUND) {
        body = "{\"error\":\"no such path; there is /order?id=N\"}";
    } else if (status == STATUS_METHOD_NOT_ALLOWED) {
        body = "{\"error\":\"use GET, HEAD or POST\"}";
    } else if (status == STATUS_TOO_LARGE || status == STATUS_URL_TOO_LONG ||
               status == STATUS_HEADERS_TOO_LARGE) {
        body = "{\"error\":\"request too large\"}";
    } else if (status == STATUS_NO_MEMORY) {
        body = "{\"error\":\"out of memory\"}";
    }
    return (struct answer){.status = status, .body = body, .body_bytes = strlen(body)};
}

// ---- names and values ---------------------------------------------------------------------------

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Undoes %XX and +, in place. False: a % without two digits behind it, or one that stands for NUL.
static bool decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = *from == '+' ? ' ' : *from;
        if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0 || high + low == 0) {
                return false;
            }
            c = (char)(high << 4 | low);
            from += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static struct pair *pair_create(struct pair *next, const char *name, size_t name_bytes,
                                const char *value, size_t value_bytes)
{
    struct pair *pair = phase_alloc(sizeof *pair + name_bytes + value_bytes + 2);
    if (pair != NULL) {
        char *copy = pair->name + name_bytes + 1;
        memcpy(pair->name, name, name_bytes);
        pair->name[name_bytes] = '\0';
        memcpy(copy, value, value_bytes);
        copy[value_bytes] = '\0';
        pair->next = next;
        pair->value = copy;
    }
    return pair;
}

static void pairs_free(struct pair *pair)
{
    while (pair != NULL) {
        struct pair *next = pair->next;
        phase_free(pair);
        pair = next;
    }
}

static const char *pairs_find(const struct pair *pair, const char *name)
{
    while (pair != NULL && strcmp(pair->name, name) != 0) {
        pair = pair->next;
    }
    return pair == NULL ? NULL : pair->value;
}

static enum status copy_headers(struct exchange *exchange, const struct request *request)
{
    for (size_t i = 0; i < request->field_count; i++) {
        const struct field *field = &request->fields[i];
        struct pair *pair =
            pair_create(exchange->headers, request->text + field->name.at, field->name.bytes,
                        request->text + field->value.at, field->value.bytes);
        if (pair == NULL) {
            return STATUS_NO_MEMORY;
        }
        exchange->headers = pair;
    }
    return STATUS_OK;
}

static enum status parse_parameter(struct exchange *exchange, const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    size_t name_bytes = equals == NULL ? bytes : (size_t)(equals - text);
    size_t skipped = equals == NULL ? bytes : name_bytes + 1;
    struct pair *pair =
        pair_create(exchange->query, text, name_bytes, text + skipped, bytes - skipped);
    if (pair == NULL) {
        return STATUS_NO_MEMORY;
    }
    exchange->query = pair;
    bool decoded = decode(pair->name) && decode(pair->name + name_bytes + 1);
    return decoded ? STATUS_OK : STATUS_BAD_REQUEST;
}

static enum status parse_query(struct exchange *exchange, const char *text, size_t bytes)
{
    enum status status = STATUS_OK;
    while (bytes > 0 && status == STATUS_OK) {
        const char *ampersand = memchr(text, '&', bytes);
        size_t here = ampersand == NULL ? bytes : (size_t)(ampersand - text);
        status = parse_parameter(exchange, text, here);
        size_t skipped = ampersand == NULL ? here : here + 1;
        text += skipped;
        bytes -= skipped;
    }
    return status;
}

// ---- the order's number -------------------------------------------------------------------------

static enum status parse_id(const char *text, uint64_t *id)
{
    size_t digits = text == NULL ? 0 : strspn(text, "0123456789");
    if (digits == 0 || digits > ID_DIGITS || text[digits] != '\0') {
        return STATUS_BAD_REQUEST;
    }
    *id = 0;
    for (size_t i = 0; i < digits; i++) {
        *id = 10 * *id + (uint64_t)(text[i] - '0');
    }
    return STATUS_OK;
}

static enum status id_from_body(const struct request *request, uint64_t *id)
{
    json_t *body = json_loadb(request->body == NULL ? "" : request->body, request->body_bytes,
                              JSON_REJECT_DUPLICATES, NULL);
    json_t *number = json_object_get(body, "id");
    bool whole = json_is_integer(number) && json_integer_value(number) >= 0;
    *id = whole ? (uint64_t)json_integer_value(number) : 0;
    json_decref(body);
    return whole ? STATUS_OK : STATUS_BAD_REQUEST;
}

// ---- the answer ---------------------------------------------------------------------------------

static json_t *line_json(const struct line *line)
{
    return json_pack("{s:s, s:i, s:I}", "product", line->product, "quantity", (int)line->quantity,
                     "price_cents", (json_int_t)line->price_cents);
}

static json_t *page_json(const struct order *order)
{
    json_t *page = json_array();
    const struct row *row = order->rows[ROW_LINE];
    for (int i = 0; page != NULL && row != NULL && i < PAGE_LINES; i++) {
        if (json_array_append_new(page, line_json((const struct line *)row)) != 0) {
            json_decref(page);
            return NULL;
        }
        row = row->next;
    }
    return page;
}

static json_t *order_json(const struct order *order)
{
    json_t *page = page_json(order);
    if (page == NULL) {
        return NULL;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:o}", "id", (json_int_t)order->id,
                     "total_cents", (json_int_t)order->total_cents, "weight_grams",
                     (json_int_t)order->weight_grams, "newest_note_s",
                     (json_int_t)order->newest_note_s, "lines", (int)order->counts[ROW_LINE],
                     "products", (int)order->counts[ROW_PRODUCT], "notes",
                     (int)order->counts[ROW_NOTE], "page", page);
}

static enum status write_body(struct exchange *exchange, struct answer *answer)
{
    exchange->document = order_json(&exchange->order);
    exchange->body = phase_alloc(JSON_BYTES);
    if (exchange->document == NULL || exchange->body == NULL) {
        return STATUS_NO_MEMORY;
    }
    answer->body = exchange->body;
    answer->body_bytes = json_dumpb(exchange->document, exchange->body, JSON_BYTES, JSON_COMPACT);
    bool whole = answer->body_bytes > 0 && answer->body_bytes <= JSON_BYTES;
    return whole ? STATUS_OK : STATUS_NO_MEMORY;
}

static enum status serve_order(struct exchange *exchange, const struct request *request,
                               struct answer *answer)
{
    uint64_t id = 0;
    enum status status = request->method == METHOD_POST
                             ? id_from_body(request, &id)
                             : parse_id(pairs_find(exchange->query, "id"), &id);
    if (status != STATUS_OK) {
        return status;
    }
    return order_load(&exchange->order, id) == 0 ? write_body(exchange, answer) : STATUS_NO_MEMORY;
}

static enum status serve(struct exchange *exchange, const struct request *request,
                         struct answer *answer)
{
    if (request->method == METHOD_OTHER) {
        return STATUS_METHOD_NOT_ALLOWED;
    }
    const char *url = request->text + request->url.at;
    const char *query = memchr(url, '?', request->url.bytes);
    size_t path_bytes = query == NULL ? request->url.bytes : (size_t)(query - url);
    size_t skipped = query == NULL ? path_bytes : path_bytes + 1;
    enum status status = copy_headers(exchange, request);
    if (status == STATUS_OK) {
        status = parse_query(exchange, url + skipped, request->url.bytes - skipped);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (path_bytes != strlen("/order") || memcmp(url, "/order", path_bytes) != 0) {
        return STATUS_NOT_FOUND;
    }
    return serve_order(exchange, request, answer);
}

struct exchange *handler_answer(const struct request *request, struct answer *answer)
{
    struct exchange *exchange = phase_alloc(sizeof *exchange);
    if (exchange == NULL) {
        *answer = handler_refusal(STATUS_NO_MEMORY);
        return NULL;
    }
    *exchange = (struct exchange){.query = NULL};
    answer->status = serve(exchange, request, answer);
    if (answer->status != STATUS_OK) {
        *answer = handler_refusal(phase_has_failed() ? STATUS_NO_MEMORY : answer->status);
    }
    return exchange;
}

void handler_finish(struct exchange *exchange)
{
    if (exchange == NULL || !memory_frees_blocks()) {
        return; // the phase takes everything with it
    }
    json_decref(exchange->document);
    order_free_rows(&exchange->order);
    pairs_free(exchange->headers);
    pairs_free(exchange->query);
    phase_free(exchange->body);
    phase_free(exchange);
}
