// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer report: a report as a line of JSON (RFC 8259). Addresses are texts, as numbers of 64 bits are not exact everywhere.
#include <string.h>

#include "report/report.h"

#define TAIL_ROOM 512u // for what follows the last call

// Each byte from 0x80 on is written as the character of that number: the line is ASCII, and whatever bytes a file's name
// has come out again.
static void json_char(struct ebbi_text *out, unsigned char c)
{
    if (c >= ' ' && c < 0x7F) {
        ebbi_text_put(out, c == '"' || c == '\\' ? "\\" : "");
        ebbi_text_char(out, (char)c);
        return;
    }
    ebbi_text_put(out, "\\u00");
    ebbi_text_char(out, "0123456789abcdef"[c >> 4]);
    ebbi_text_char(out, "0123456789abcdef"[c & 15]);
}

static void json_key(struct ebbi_text *out, const char *key)
{
    ebbi_text_put(out, out->at[-1] == '{' ? "\"" : ",\"");
    ebbi_text_put(out, key);
    ebbi_text_put(out, "\":");
}

static void json_bytes(struct ebbi_text *out, const char *from, const char *to)
{
    while (from < to) {
        json_char(out, (unsigned char)*from++);
    }
}

static void json_text(struct ebbi_text *out, const char *key, const char *first, const char *more)
{
    json_key(out, key);
    ebbi_text_char(out, '"');
    json_bytes(out, first, first + strlen(first));
    json_bytes(out, more, more + strlen(more));
    ebbi_text_char(out, '"');
}

static void json_number(struct ebbi_text *out, const char *key, uint64_t number)
{
    json_key(out, key);
    ebbi_text_number(out, number, 10);
}

static void json_address(struct ebbi_text *out, const char *key, uintptr_t address)
{
    json_key(out, key);
    ebbi_text_char(out, '"');
    ebbi_text_number(out, address, 16);
    ebbi_text_char(out, '"');
}

// Seconds, to the millisecond.
static void json_date(struct ebbi_text *out)
{
    uint64_t ms = ebbi_os_date_ms();
    json_number(out, "time", ms / 1000);
    ebbi_text_put(out, ms % 1000 < 10 ? ".00" : ms % 1000 < 100 ? ".0" : ".");
    ebbi_text_number(out, ms % 1000, 10);
}

static void json_extent(struct ebbi_text *out, const char *key, const struct ebbi_extent *extent)
{
    if (extent->start != 0) {
        json_key(out, key);
        ebbi_text_char(out, '{');
        json_address(out, "address", extent->start);
        json_number(out, "bytes", extent->bytes);
        ebbi_text_char(out, '}');
    }
}

static void json_call(struct ebbi_text *out, const struct ebbi_trace *trace, uint32_t call)
{
    struct ebbi_os_module module;
    ebbi_text_put(out, call > 0 ? ",{" : "{");
    json_address(out, "address", trace->calls[call]);
    if (ebbi_trace_module(trace, call, &module)) {
        json_text(out, "module", module.name, "");
        json_address(out, "offset", trace->calls[call] - module.base);
    }
    ebbi_text_char(out, '}');
}

static void json_trace(struct ebbi_text *out, const struct ebbi_trace *trace)
{
    json_key(out, trace->did);
    ebbi_text_char(out, '{');
    if (trace->thread != 0) {
        json_number(out, "thread", trace->thread);
    }
    json_key(out, "stack");
    ebbi_text_char(out, '[');
    for (uint32_t i = 0; i < trace->depth; i++) {
        char *before = out->at;
        json_call(out, trace, i);
        if ((size_t)(out->end - out->at) < TAIL_ROOM) {
            out->at = before;
            break;
        }
    }
    ebbi_text_put(out, "]}");
}

static void json_region(struct ebbi_text *out, const struct ebbi_report *r)
{
    json_key(out, "region");
    ebbi_text_char(out, '{');
    json_text(out, "label", r->label, "");
    if (r->region != 0) {
        json_number(out, "number", r->region);
    }
    ebbi_text_char(out, '}');
}

void ebbi_report_json(struct ebbi_text *out, const struct ebbi_report *r,
                      const struct ebbi_text *message)
{
    char name[EBBI_NAME_ROOM];
    ebbi_message_name(name);
    ebbi_text_put(out, "{\"version\":1"); // another where a field changes or goes
    json_date(out);
    json_number(out, "pid", ebbi_os_process_number());
    json_text(out, "program", name, "");
    json_text(out, "kind", r->kind[0], r->kind[1] != NULL ? r->kind[1] : "");
    json_key(out, "message");
    ebbi_text_char(out, '"');
    json_bytes(out, message->at, message->end);
    ebbi_text_char(out, '"');
    if (r->address != 0) {
        json_address(out, "address", r->address);
    }
    json_extent(out, "block", &r->block);
    json_extent(out, "before", &r->before);
    if (r->label != NULL) {
        json_region(out, r);
    }
    for (uint32_t i = 0; i < EBBI_REPORT_TRACES && r->traces[i].did != NULL; i++) {
        json_trace(out, &r->traces[i]);
    }
    ebbi_text_put(out, "}\n");
}
