// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that is told by a line on its standard input what to do next, and answers with a line.
#ifndef EBB_BENCH_TOLD_H
#define EBB_BENCH_TOLD_H

#include "harness/common.h"

// The next line, without its end; false: whoever told has ended. Of no more than `size` - 1 letters. Waits for no
// longer than that and gives an empty line then; below 0: for ever.
bool told_next(char *line, size_t size, int wait_ms);
void told_answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
