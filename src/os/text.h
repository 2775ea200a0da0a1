// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: text put together without libc, for a signal handler. What has no room is cut off.
#ifndef EBB_OS_TEXT_H
#define EBB_OS_TEXT_H

#include "base/base.h"

struct ebbi_text {
    char *at, *end;
};

EBBI_INLINE void ebbi_text_char(struct ebbi_text *text, char c)
{
    if (text->at < text->end) {
        *text->at++ = c;
    }
}

EBBI_INLINE void ebbi_text_put(struct ebbi_text *text, const char *string)
{
    while (*string != '\0' && text->at < text->end) {
        *text->at++ = *string++;
    }
}

// base: 10, or 16 with 0x before it.
EBBI_INLINE void ebbi_text_number(struct ebbi_text *text, uint64_t number, unsigned base)
{
    char digits[24];
    char *digit = &digits[sizeof digits - 1];
    *digit = '\0';
    do {
        *--digit = "0123456789abcdef"[number % base];
        number = number / base;
    } while (number != 0);
    ebbi_text_put(text, base == 16 ? "0x" : "");
    ebbi_text_put(text, digit);
}

#endif
