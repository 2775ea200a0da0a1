// SPDX-License-Identifier: MIT OR Apache-2.0
// One thread: random calls, the edges of realloc, alignments.
#include "truth.h"

enum { ITEMS = 3000, ROUNDS = 60000 };

static struct item items[ITEMS];
static volatile size_t too_much = (size_t)-100; // volatile: the compiler knows that it is

static void random_calls(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct item *item = &items[dice(ITEMS)];
        if (item->p == NULL) {
            *item = make_any();
        } else if (dice(3) == 0) {
            *item = resize(*item, 1 + dice(2000));
        } else {
            end(*item);
            item->p = NULL;
        }
    }
}

// Across the size from which it is recorded what was touched, up and down.
static void large_and_small(void)
{
    static const size_t SIZES[] = {1,      131071, 131072, 131073, 100,    500000, 131072,
                                   131071, 131072, 4096,   262144, 131072, 1000000};
    struct item item = make(10);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
            item = resize(item, SIZES[i]);
        }
    }
    end(item);
}

// realloc of NULL is malloc, realloc to zero bytes is free: glibc's.
static void edges(void)
{
    truth.mallocs++;
    struct item item = count_made(realloc(NULL, 77), 77);
    truth.frees++;
    count_end(&item);
    MUST(realloc(item.p, 0) == NULL);
    end(make(0));
    end(make_zero(0, 8));
    free(NULL);
    MUST(malloc(too_much) == NULL && calloc(too_much, too_much) == NULL);
    item = make(5);
    MUST(realloc(item.p, too_much) == NULL && realloc(item.p, too_much / 16) == NULL);
    end(resize(item, 300000));
}

static void aligned(void)
{
    for (size_t align = 8; align <= 65536; align *= 2) {
        struct item item = make_aligned(align, align * 3 + 7);
        struct item other = make_aligned(align, 10);
        end(resize(item, align * 5));
        end(other);
    }
}

static void large(void)
{
    for (int i = 0; i < 50; i++) {
        struct item item = make_zero(1000, 200 + (size_t)i * 100);
        for (size_t at = 64; at < item.size; at += 997) {
            MUST(item.p[at] == 0);
        }
        end(item);
    }
}

int main(void)
{
    edges();
    random_calls();
    large_and_small();
    aligned();
    large();
    for (int i = 0; i < ITEMS; i += 2) { // the others are alive at the end
        if (items[i].p != NULL) {
            end(items[i]);
        }
    }
    return tell_truth(1);
}
