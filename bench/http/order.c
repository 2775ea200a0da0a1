// SPDX-License-Identifier: MIT OR Apache-2.0
#include "order.h"

#include "memory.h"

#include <string.h>

_Static_assert(sizeof(struct line) == 88, "the mix of sizes is part of what is measured");
_Static_assert(sizeof(struct product) == 184, "the mix of sizes is part of what is measured");
_Static_assert(sizeof(struct note) == 376, "the mix of sizes is part of what is measured");

static const size_t row_bytes[ROW_KINDS] = {sizeof(struct line), sizeof(struct product),
                                            sizeof(struct note)};
static const size_t row_counts[ROW_KINDS] = {66, 72, 87};

static const char *const goods[] = {"anchor chain", "bilge pump", "compass card", "deck lamp",
                                    "fender",       "halyard",    "jib sheet",    "log line"};

// Marsaglia, "Xorshift RNGs", 2003: the generator with shifts 13, 7, 17.
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static const char *pick_good(uint64_t random)
{
    return goods[random % (sizeof goods / sizeof *goods)];
}

static void fill_line(struct order *order, struct line *line, uint64_t random)
{
    line->quantity = (uint32_t)(random >> 8 & 7) + 1;
    line->price_cents = (uint32_t)(random >> 16 & 0xffff);
    strcpy(line->product, pick_good(random >> 32));
    order->total_cents += (uint64_t)line->quantity * line->price_cents;
}

static void fill_product(struct order *order, struct product *product, uint64_t random)
{
    product->stock = (uint32_t)(random & 0xff);
    product->weight_grams = (uint32_t)(random >> 8 & 0xfff);
    strcpy(product->name, pick_good(random >> 32));
    order->weight_grams += product->weight_grams;
}

static void fill_note(struct order *order, struct note *note, uint64_t random)
{
    note->written_s = random >> 34;
    memset(note->text, 'a' + (int)(random % 26), sizeof note->text - 1);
    note->text[sizeof note->text - 1] = '\0';
    if (note->written_s > order->newest_note_s) {
        order->newest_note_s = note->written_s;
    }
}

static void fill(struct order *order, enum row_kind kind, struct row *row, uint64_t random)
{
    if (kind == ROW_LINE) {
        fill_line(order, (struct line *)row, random);
    } else if (kind == ROW_PRODUCT) {
        fill_product(order, (struct product *)row, random);
    } else {
        fill_note(order, (struct note *)row, random);
    }
}

// Each of the rows that are left to come is equally likely: a shuffle without a list.
static enum row_kind next_kind(const struct order *order, uint64_t random)
{
    size_t left = 0;
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        left += row_counts[kind] - order->counts[kind];
    }
    size_t chosen = random % left;
    enum row_kind kind = ROW_LINE;
    while (chosen >= row_counts[kind] - order->counts[kind]) {
        chosen -= row_counts[kind] - order->counts[kind];
        kind++;
    }
    return kind;
}

static int load_row(struct order *order, uint64_t random)
{
    enum row_kind kind = next_kind(order, random >> 20);
    struct row *row = phase_alloc(row_bytes[kind]);
    if (row == NULL) {
        return -1;
    }
    fill(order, kind, row, random);
    row->next = order->rows[kind];
    order->rows[kind] = row;
    order->counts[kind]++;
    return 0;
}

int order_load(struct order *order, uint64_t id)
{
    *order = (struct order){.id = id};
    uint64_t random = (id + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1; // odd: never 0
    for (size_t row = row_counts[0] + row_counts[1] + row_counts[2]; row > 0; row--) {
        if (load_row(order, next_random(&random)) != 0) {
            return -1;
        }
    }
    return 0;
}

void order_free_rows(struct order *order)
{
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        while (order->rows[kind] != NULL) {
            struct row *row = order->rows[kind];
            order->rows[kind] = row->next;
            phase_free(row);
        }
    }
}
