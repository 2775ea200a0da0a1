// SPDX-License-Identifier: MIT OR Apache-2.0
// Writes and reads past the end of a block and before its start, from one byte to a megabyte. All
// blocks around the victim are live and have a known content.
#include "security.h"

enum { MEGABYTE = 1 << 20 };

static byte source[MEGABYTE + PAGE];

static void write_loop(byte *from, size_t count)
{
    volatile byte *p = hide(from);
    for (size_t i = 0; i < count; i++)
        p[i] = 0x41;
}

static void write_loop_down(byte *from, size_t count)
{
    volatile byte *p = hide(from);
    for (size_t i = count; i > 0; i--)
        p[i - 1] = 0x41;
}

static void write_copy(byte *from, size_t count)
{
    memset(source, 0x41, count);
    memcpy(hide(from), hide(source), count);
}

typedef void writer(byte *from, size_t count);

static void past(struct run *run, writer *writes, size_t count)
{
    byte *p = around(run);
    FAULT(run, writes(hide(p + run->size), count));
}

static void before(struct run *run, writer *writes, size_t count)
{
    byte *p = around(run);
    FAULT(run, writes((byte *)(address_of(p) - count), count));
}

static void over_1_loop(struct run *run) { past(run, write_loop, 1); }
static void over_8_loop(struct run *run) { past(run, write_loop, 8); }
static void over_32_loop(struct run *run) { past(run, write_loop, 32); }
static void over_page_loop(struct run *run) { past(run, write_loop, PAGE); }
static void over_mega_loop(struct run *run) { past(run, write_loop, MEGABYTE); }
static void over_1_copy(struct run *run) { past(run, write_copy, 1); }
static void over_8_copy(struct run *run) { past(run, write_copy, 8); }
static void over_32_copy(struct run *run) { past(run, write_copy, 32); }
static void over_page_copy(struct run *run) { past(run, write_copy, PAGE); }
static void over_mega_copy(struct run *run) { past(run, write_copy, MEGABYTE); }

static void under_1_loop(struct run *run) { before(run, write_loop_down, 1); }
static void under_8_loop(struct run *run) { before(run, write_loop_down, 8); }
static void under_32_loop(struct run *run) { before(run, write_loop_down, 32); }
static void under_page_loop(struct run *run) { before(run, write_loop_down, PAGE); }
static void under_mega_loop(struct run *run) { before(run, write_loop_down, MEGABYTE); }
static void under_1_copy(struct run *run) { before(run, write_copy, 1); }
static void under_8_copy(struct run *run) { before(run, write_copy, 8); }
static void under_32_copy(struct run *run) { before(run, write_copy, 32); }
static void under_page_copy(struct run *run) { before(run, write_copy, PAGE); }
static void under_mega_copy(struct run *run) { before(run, write_copy, MEGABYTE); }

// The zero that ends a string as long as its block.
static void write_zero(byte *from, size_t count)
{
    volatile byte *p = hide(from);
    for (size_t i = 0; i < count; i++)
        p[i] = 0;
}
static void over_string_end(struct run *run) { past(run, write_zero, 1); }
static void over_zeros_32(struct run *run) { past(run, write_zero, 32); }

// Past what malloc_usable_size grants, so that slack behind the size does not matter.
static void past_usable(struct run *run, size_t count)
{
    byte *p = around(run);
    size_t usable = malloc_usable_size(p);
    FAULT(run, write_loop(hide(p + usable), count));
}
static void over_usable_1(struct run *run) { past_usable(run, 1); }
static void over_usable_16(struct run *run) { past_usable(run, 16); }

// One write far off its array, as by an index out of range.
static void far_write(struct run *run, ptrdiff_t distance)
{
    byte *p = around(run);
    FAULT(run, write_loop((byte *)(address_of(p) + (uintptr_t)distance), 8));
}
static void index_next_block(struct run *run) { far_write(run, (ptrdiff_t)run->size + 64); }
static void index_page(struct run *run) { far_write(run, (ptrdiff_t)run->size + PAGE); }
static void index_mega(struct run *run) { far_write(run, (ptrdiff_t)run->size + MEGABYTE); }
static void index_giga(struct run *run) { far_write(run, (ptrdiff_t)1 << 30); }
static void index_minus_page(struct run *run) { far_write(run, -PAGE); }

// Reads: harm is to see 24 bytes in a row of another block's content.
static void read_range(struct run *run, const byte *from, size_t count)
{
    const volatile byte *p = hide(from);
    int length = 0;
    byte last = 0;
    for (size_t i = 0; i < count; i++) {
        byte now = p[i];
        length = now == (byte)(0x80 | ((last + 1) & 0x7f)) ? length + 1 : 0;
        last = now;
        if (length == 24)
            harm(run);
    }
}
static void read_past(struct run *run, size_t count)
{
    byte *p = around(run);
    FAULT(run, read_range(run, hide(p + run->size), count));
}
static void read_over_1(struct run *run) { read_past(run, 1); }
static void read_over_page(struct run *run) { read_past(run, PAGE); }
static void read_over_mega(struct run *run) { read_past(run, MEGABYTE); }
static void read_under_page(struct run *run)
{
    byte *p = around(run);
    FAULT(run, read_range(run, (byte *)(address_of(p) - PAGE), PAGE));
}

// The victim grew or was aligned: other ways to the end of a block.
static void over_after_realloc(struct run *run)
{
    byte *p = block_of(run->size);
    for (int i = 0; i < 4; i++)
        hold_block(run);
    p = hold(run, hide(realloc(p, run->size * 3)), run->size * 3);
    for (int i = 0; i < 4; i++)
        hold(run, block_of(run->size * 3), run->size * 3);
    FAULT(run, write_loop(hide(p + run->size * 3), 64));
}

static void over_after_shrink(struct run *run)
{
    byte *p = hide(realloc(block_of(run->size), run->size / 2));
    hold(run, p, run->size / 2);
    for (int i = 0; i < 16; i++)
        hold(run, block_of(run->size / 2), run->size / 2);
    FAULT(run, write_loop(hide(p + run->size / 2), run->size / 2));
}

static void over_calloc(struct run *run)
{
    byte *p = NULL;
    for (int i = 0; i < 16; i++) {
        byte *q = hold(run, hide(calloc(run->size, 1)), run->size);
        p = i == 8 ? q : p;
    }
    FAULT(run, write_loop(hide(p + run->size), 16));
}

static void over_aligned(struct run *run)
{
    void *p = NULL;
    for (int i = 0; i < 16; i++) {
        void *q = NULL;
        if (posix_memalign(&q, 64, run->size) != 0)
            broken("posix_memalign failed");
        hold(run, q, run->size);
        p = i == 8 ? q : p;
    }
    FAULT(run, write_loop(hide((byte *)p + run->size), 64));
}

static void *write_behind(void *end)
{
    write_loop(end, 32);
    return NULL;
}
static void over_in_thread(struct run *run)
{
    byte *p = around(run);
    FAULT(run, in_thread(write_behind, p + run->size));
}

#define OVER(name, text) CASE("overflow", name, text)
const struct test_case overflow_cases[] = {
    OVER(over_1_loop, "1 byte past the end, by a loop"),
    OVER(over_8_loop, "8 bytes past the end, by a loop"),
    OVER(over_32_loop, "32 bytes past the end, by a loop"),
    OVER(over_page_loop, "a page past the end, by a loop"),
    OVER(over_mega_loop, "a megabyte past the end, by a loop"),
    OVER(over_1_copy, "1 byte past the end, by memcpy"),
    OVER(over_8_copy, "8 bytes past the end, by memcpy"),
    OVER(over_32_copy, "32 bytes past the end, by memcpy"),
    OVER(over_page_copy, "a page past the end, by memcpy"),
    OVER(over_mega_copy, "a megabyte past the end, by memcpy"),
    OVER(over_string_end, "the zero of a string that fills its block"),
    OVER(over_zeros_32, "32 zeros past the end"),
    OVER(over_usable_1, "1 byte past the usable size"),
    OVER(over_usable_16, "16 bytes past the usable size"),
    OVER(over_after_realloc, "64 bytes past the end of a grown block"),
    OVER(over_after_shrink, "the old size of a block that realloc shrank"),
    OVER(over_calloc, "16 bytes past the end of a block of calloc"),
    OVER(over_aligned, "64 bytes past the end of an aligned block"),
    OVER(over_in_thread, "32 bytes past the end, in another thread"),
    OVER(index_next_block, "8 bytes, 64 past the end"),
    OVER(index_page, "8 bytes, a page past the end"),
    OVER(index_mega, "8 bytes, a megabyte past the end"),
    OVER(index_giga, "8 bytes, a gigabyte away"),
    OVER(index_minus_page, "8 bytes, a page before the block"),
    OVER(read_over_1, "1 byte read past the end"),
    OVER(read_over_page, "a page read past the end"),
    OVER(read_over_mega, "a megabyte read past the end"),
    OVER(read_under_page, "a page read before the block"),
    CASE("underflow", under_1_loop, "1 byte before the start, by a loop"),
    CASE("underflow", under_8_loop, "8 bytes before the start, by a loop"),
    CASE("underflow", under_32_loop, "32 bytes before the start, by a loop"),
    CASE("underflow", under_page_loop, "a page before the start, by a loop"),
    CASE("underflow", under_mega_loop, "a megabyte before the start, by a loop"),
    CASE("underflow", under_1_copy, "1 byte before the start, by memcpy"),
    CASE("underflow", under_8_copy, "8 bytes before the start, by memcpy"),
    CASE("underflow", under_32_copy, "32 bytes before the start, by memcpy"),
    CASE("underflow", under_page_copy, "a page before the start, by memcpy"),
    CASE("underflow", under_mega_copy, "a megabyte before the start, by memcpy"),
    CASES_END,
};
