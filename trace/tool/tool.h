// SPDX-License-Identifier: MIT OR Apache-2.0
// What ebb-trace does with recordings. Each fails, by a line and status 1, on one that is damaged.
#ifndef EBB_TRACE_TOOL_H
#define EBB_TRACE_TOOL_H

#include "trace/tool/walk.h"

void finish_recording(const char *path); // what the spool holds is appended, then a trailer
void info(const char *path);             // JSON on standard output
void compile(const char *from, const char *to);
void cut(const char *from, const char *to, uint64_t first,
         uint64_t last); // events first to last - 1
void anonymise(const char *from, const char *to);
void scale(const char *from, const char *to, uint32_t copies);

// A recording that is written event by event (writer.c).
struct writer;
struct writer *writer_open(const char *path, const char *text, size_t text_bytes);
struct trace_coder *writer_coder(struct writer *writer,
                                 uint32_t thread);                  // of a thread's next event
unsigned char *writer_room(struct writer *writer, uint32_t thread); // for TRACE_EVENT_MAX_BYTES
void writer_wrote(struct writer *writer, uint32_t thread, const unsigned char *end);
void writer_close(struct writer *writer);
bool try_write_block(int fd, const struct trace_block *block, const void *events);

#endif
