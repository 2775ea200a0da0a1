// SPDX-License-Identifier: MIT OR Apache-2.0
// Attacks on the allocator's own records: links written into freed blocks, headers in front of
// blocks, chunks made by hand. Harm is when malloc returns the attacker's memory or blocks overlap.
#include "security.h"

enum { TARGET_SIZE = 1 << 20, ROW = 16 };

// What the attacker wants malloc to return; filled with words that look like sizes.
static byte target[TARGET_SIZE] __attribute__((aligned(4096)));

static uintptr_t *words(const void *p) { return hide(p); }

static uintptr_t make_target(struct run *run, uintptr_t word)
{
    for (size_t i = 0; i < TARGET_SIZE / sizeof word; i++)
        ((uintptr_t *)target)[i] = word;
    zone(run, target, TARGET_SIZE);
    return address_of(target + PAGE);
}

// Frees the later half of a row; the last freed is the head of any list.
static byte *freed_row(struct run *run)
{
    static byte *row[ROW];
    for (int i = 0; i < ROW; i++)
        row[i] = block(run);
    for (int i = 0; i < ROW / 2; i++)
        hold(run, row[i], run->size);
    for (int i = ROW / 2; i < ROW; i++)
        free(row[i]);
    return hide(row[ROW - 1]);
}

static void put(byte *at, size_t first, size_t count, uintptr_t value)
{
    volatile uintptr_t *word = hide(at);
    for (size_t i = first; i < first + count; i++)
        word[i] = value;
}

static void link_plain(struct run *run)
{
    uintptr_t goal = make_target(run, 0);
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 2, goal));
}
static void link_first_word(struct run *run)
{
    uintptr_t goal = make_target(run, 0);
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 1, goal));
}
static void link_mangled(struct run *run) // as lists that are masked with their own address
{
    uintptr_t goal = make_target(run, 0);
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 1, goal ^ (uintptr_t)p >> 12));
}
static void link_everywhere(struct run *run)
{
    uintptr_t goal = make_target(run, address_of(target + PAGE));
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, run->size / 8, goal));
}
static void link_at_end(struct run *run)
{
    uintptr_t goal = make_target(run, 0);
    byte *p = freed_row(run);
    FAULT(run, put(p, run->size / 8 - 1, 1, goal));
}
static void link_null(struct run *run)
{
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 2, 0));
}
static void link_itself(struct run *run)
{
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 1, (uintptr_t)p));
}
static void link_to_live(struct run *run)
{
    uintptr_t goal = address_of(hold_block(run));
    byte *p = freed_row(run);
    FAULT(run, put(p, 0, 2, goal));
}
static void link_low_bytes(struct run *run) // two bytes: no address need be known
{
    byte *p = freed_row(run);
    FAULT(run, ((volatile uint16_t *)hide(p))[0] ^= 0x0140);
}
static void link_bit(struct run *run)
{
    byte *p = freed_row(run);
    FAULT(run, *(volatile byte *)hide(p + 1) ^= 0x10);
}

// The double free that first wipes whatever marks the block as free.
static void wipe_and_free(byte *p, size_t size)
{
    put(p, 0, size / 8, 0);
    free(hide(p));
}
static void wiped_double_free(struct run *run)
{
    byte *p = freed_row(run);
    FAULT(run, wipe_and_free(p, run->size));
}
static void bump_and_free(byte *p)
{
    ((volatile uintptr_t *)hide(p))[1] += 1;
    free(hide(p));
}
static void key_double_free(struct run *run)
{
    byte *p = freed_row(run);
    FAULT(run, bump_and_free(p));
}

// Unlinking: both links of a freed block lead to the target.
static void unlink_pair(struct run *run)
{
    uintptr_t goal = make_target(run, 0);
    byte *p = freed_row(run);
    FAULT(run, (put(p, 0, 1, goal - 24), put(p, 1, 1, goal - 16)));
}

static void *free_it(void *p)
{
    free(hide(p));
    return NULL;
}
static void link_in_thread_free(struct run *run) // the list of another thread's frees
{
    uintptr_t goal = make_target(run, 0);
    byte *p = block(run), *q = block(run);
    in_thread(free_it, q);
    in_thread(free_it, p);
    FAULT(run, put(hide(p), 0, 2, goal));
}

// Overflow of a live block into the freed one behind it.
static void overflow_links(struct run *run, size_t bytes)
{
    static byte *row[ROW];
    uintptr_t goal = make_target(run, address_of(target + PAGE));
    for (int i = 0; i < ROW; i++)
        row[i] = block(run);
    for (int i = 1; i < ROW; i += 2)
        free(row[i]);
    for (int i = 0; i < ROW; i += 2)
        hold(run, row[i], run->size);
    byte *end = (byte *)((address_of(row[8]) + run->size + 7) & ~(uintptr_t)7);
    FAULT(run, put(end, 0, bytes / 8, goal));
}
static void overflow_link_32(struct run *run) { overflow_links(run, 32); }
static void overflow_link_page(struct run *run) { overflow_links(run, PAGE); }
static void overflow_link_64k(struct run *run) { overflow_links(run, 1 << 16); }

// A header in front of a live block made to say that the block is bigger, then free and malloc.
static void enlarge(struct run *run, byte *p, size_t size)
{
    put(hide(p - 8), 0, 1, size | 1);
    free(hide(p));
    for (int i = 0; i < 4; i++) {
        byte *q = block_of(size - 24);
        for (int k = 0; k < run->held_count; k++)
            if (q < run->held[k].start + run->held[k].size && run->held[k].start < q + size - 24)
                harm(run);
        keep(run, q);
    }
}
static void header_enlarged(struct run *run)
{
    for (int i = 0; i < 8; i++)
        hold_block(run);
    byte *p = block(run);
    for (int i = 0; i < 8; i++)
        hold_block(run);
    FAULT_ELSE(run, enlarge(run, p, (run->size * 3 + 31) & ~(size_t)15), free(p));
}
static void header_with(struct run *run, uintptr_t value)
{
    byte *p = around(run);
    FAULT(run, put(hide(p - 16), 0, 2, value));
}
static void header_zero(struct run *run) { header_with(run, 0); }
static void header_ones(struct run *run) { header_with(run, UINTPTR_MAX); }
static void header_bit(struct run *run)
{
    byte *p = around(run);
    FAULT(run, *(volatile byte *)hide(p - 8) ^= 2);
}
static void header_of_page(struct run *run) // the start of the page the block lies in
{
    byte *p = around(run);
    byte *start = (byte *)((address_of(p) - 16) & ~(uintptr_t)(PAGE - 1));
    FAULT(run, put(start, 0, 2, 0x4141414141414141));
}
static void header_of_region(struct run *run) // rounded down to 64 KiB
{
    byte *p = around(run);
    byte *start = (byte *)((address_of(p) - 16) & ~(uintptr_t)((1 << 16) - 1));
    FAULT(run, put(start, 0, 8, address_of(target)));
}

// A chunk made by hand: the attacker has it freed, and malloc returns it.
static void fake_chunk(struct run *run, byte *chunk)
{
    uintptr_t size = ((run->size + 8 + 15) & ~(size_t)15) | 1;
    size = size < 0x21 ? 0x21 : size;
    words(chunk)[1] = size;
    words(chunk + (size & ~(uintptr_t)15))[1] = size;
    FAULT(run, free(hide(chunk + 16)));
}
static void fake_in_data(struct run *run)
{
    make_target(run, 0);
    fake_chunk(run, target + PAGE);
}
static void fake_in_block(struct run *run)
{
    size_t size = run->size * 4 + 256;
    byte *p = hold(run, block_of(size), size);
    hold(run, block_of(size), size);
    if (!run->fault)
        return;
    byte *chunk = (byte *)((address_of(p) + 64) & ~(uintptr_t)15);
    fake_chunk(run, chunk);
}
static void fake_in_map(struct run *run)
{
    byte *p = mmap(NULL, TARGET_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        broken("mmap failed");
    zone(run, p, TARGET_SIZE);
    fake_chunk(run, p + PAGE);
}

#define METADATA(name, text) CASE("metadata", name, text)
const struct test_case metadata_cases[] = {
    METADATA(link_plain, "both first words of a freed block: the target"),
    METADATA(link_first_word, "the first word of a freed block: the target"),
    METADATA(link_mangled, "the first word, masked with the block's address"),
    METADATA(link_everywhere, "every word of a freed block: the target"),
    METADATA(link_at_end, "the last word of a freed block: the target"),
    METADATA(link_null, "both first words of a freed block: zero"),
    METADATA(link_itself, "the first word of a freed block: the block itself"),
    METADATA(link_to_live, "both first words of a freed block: a live block"),
    METADATA(link_low_bytes, "two bytes of a freed block changed"),
    METADATA(link_bit, "one bit of a freed block changed"),
    METADATA(link_in_thread_free, "the links of a block that another thread freed"),
    METADATA(unlink_pair, "two links of a freed block, as for an unlink"),
    METADATA(wiped_double_free, "a freed block wiped, then freed again"),
    METADATA(key_double_free, "the second word of a freed block changed, then freed again"),
    METADATA(overflow_link_32, "32 bytes of target behind a block, where a freed one may lie"),
    METADATA(overflow_link_page, "a page of target behind a block"),
    METADATA(overflow_link_64k, "64 KiB of target behind a block"),
    METADATA(header_enlarged, "a header that says three times the size, then free"),
    METADATA(header_zero, "the 16 bytes before a block: zero"),
    METADATA(header_ones, "the 16 bytes before a block: ones"),
    METADATA(header_bit, "one bit of the word before a block"),
    METADATA(header_of_page, "the first words of the block's page"),
    METADATA(header_of_region, "the first words of the block's 64 KiB"),
    METADATA(fake_in_data, "a chunk made by hand in a variable, freed"),
    METADATA(fake_in_block, "a chunk made by hand in a block, freed"),
    METADATA(fake_in_map, "a chunk made by hand in a mapping, freed"),
    CASES_END,
};
