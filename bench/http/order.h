// SPDX-License-Identifier: MIT OR Apache-2.0
// An order as a query would give it: 225 rows in one block each, 66 of 88 bytes, 72 of 184 and 87 of
// 376, mixed as they come; 51,768 bytes. The mix is that of the `request` workload of bench/.
#ifndef EBB_BENCH_HTTP_ORDER_H
#define EBB_BENCH_HTTP_ORDER_H

#include <stddef.h>
#include <stdint.h>

enum row_kind { ROW_LINE, ROW_PRODUCT, ROW_NOTE, ROW_KINDS };

struct row {
    struct row *next; // of its kind
};

struct line {
    struct row row;
    uint32_t quantity;
    uint32_t price_cents;
    char product[72];
};

struct product {
    struct row row;
    uint32_t stock;
    uint32_t weight_grams;
    char name[168];
};

struct note {
    struct row row;
    uint64_t written_s;
    char text[360];
};

struct order {
    uint64_t id;
    uint64_t total_cents;
    uint64_t weight_grams;
    uint64_t newest_note_s;
    struct row *rows[ROW_KINDS];
    size_t counts[ROW_KINDS];
};

// Into *order, which is empty. 0, or -1 when memory is refused; what there is must be freed even then.
int order_load(struct order *order, uint64_t id);
void order_free_rows(struct order *order);

#endif
