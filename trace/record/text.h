// SPDX-License-Identifier: MIT OR Apache-2.0
// What a recording says of its process: lines of name=value.
#ifndef EBB_TRACE_TEXT_H
#define EBB_TRACE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "trace/record/record.h"

HIDDEN uint32_t describe_process(char *text, size_t room); // its length

// The base name of the program's file, or of its first argument, is `name`.
HIDDEN bool is_program(const char *name);

#endif
