// SPDX-License-Identifier: MIT OR Apache-2.0
// A table that has shrunk gives its memory back: entries are moved out of slabs that are mostly free (ebb_compact).
//
//   example_compact [MIB]     so much is filled, 64 by default; 60 of 100 entries leave
#include <ebbtide.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next; // of its bucket
    uint64_t key;
    size_t bytes;
    char value[];
};

struct table {
    struct entry **buckets;
    size_t bucket_count; // a power of two
};

static struct entry **bucket_of(const struct table *table, uint64_t key)
{
    return &table->buckets[(key * 0x9E3779B97F4A7C15u >> 32) & (table->bucket_count - 1)];
}

static bool put(struct table *table, uint64_t key, size_t bytes)
{
    struct entry *entry = ebb_malloc(sizeof *entry + bytes);
    if (entry == NULL) {
        return false;
    }
    struct entry **bucket = bucket_of(table, key);
    *entry = (struct entry){*bucket, key, bytes};
    memset(entry->value, (int)(key & 0xFF), bytes);
    *bucket = entry;
    return true;
}

static void drop(struct table *table, uint64_t key)
{
    for (struct entry **link = bucket_of(table, key); *link != NULL; link = &(*link)->next) {
        if ((*link)->key == key) {
            struct entry *gone = *link;
            *link = gone->next;
            ebb_free(gone);
            return;
        }
    }
}

// One link leads to each entry: it is changed to where the entry is now. In a server, some buckets at a time.
static size_t compact(struct table *table)
{
    size_t moved = 0;
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (struct entry **link = &table->buckets[i]; *link != NULL; link = &(*link)->next) {
            struct entry *to = ebb_compact(*link);
            moved += to != *link;
            *link = to;
        }
    }
    return moved;
}

// Whether every entry is as it was put, and there are so many.
static bool is_whole(const struct table *table, size_t count)
{
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (const struct entry *e = table->buckets[i]; e != NULL; e = e->next) {
            for (size_t k = 0; k < e->bytes; k++) {
                if (e->value[k] != (char)(e->key & 0xFF)) {
                    return false;
                }
            }
            count--;
        }
    }
    return count == 0;
}

static size_t resident(const char *when)
{
    struct ebb_stats stats;
    (void)ebb_trim();
    ebb_stats_get(&stats);
    size_t bytes = stats.resident_live + stats.resident_pinned;
    printf("%-28s %8.1f MiB in slabs, of which %.1f free\n", when, (double)bytes / 1048576.0,
           (double)stats.resident_pinned / 1048576.0);
    return bytes;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    size_t left = mib << 20;
    uint64_t random = 1;
    uint64_t keys = 0;
    size_t kept = 0;
    struct table table = {NULL, (size_t)1 << 20};
    table.buckets = ebb_calloc(table.bucket_count, sizeof(void *));
    if (table.buckets == NULL) {
        return 1;
    }
    while (left > 1024) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = (size_t)(random >> 33) % 500 + 1;
        if (!put(&table, keys++, bytes)) {
            return 1;
        }
        left -= bytes + sizeof(struct entry);
    }
    size_t full = resident("full");
    for (uint64_t key = 0; key < keys; key++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if ((random >> 33) % 100 < 60) {
            drop(&table, key);
        } else {
            kept++;
        }
    }
    size_t sparse = resident("60 of 100 entries gone");
    size_t moved = compact(&table);
    size_t compacted = resident("compacted");
    printf("%zu of %zu entries have moved\n", moved, kept);
    // What is left is 40 of 100, and a slab that is begun in each class.
    bool done = is_whole(&table, kept) && compacted < sparse && compacted < full / 2 + (4u << 20);
    return done ? 0 : 1;
}
