// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: granules for the allocator's own records, in clusters: spans whose first and last granule nobody may touch,
// so that no run of writes over the program's blocks ends in a heap.
//
//     cluster: | no access | granule | granule ... | no access |
//
// O1  a granule is taken iff its bit is set in the map of its cluster; one that is not reads as zero.
// O2  a cluster without one that is taken is given back.
#include <string.h>

#include "arena/internal.h"

#define CLUSTERS 4096
#define FIRST_CLUSTERS 4
#define CLUSTER_GRANULES 16u
#define SMALL_GRANULES                                                                             \
    4u // of the first one: headers behind it are on one page with those before it

struct own_cluster {
    struct ebbi_span *span; // NULL: none
    uint32_t map;
    uint32_t granules; // with access
};

// A process with few threads has no page for the further ones.
static struct own_cluster first_clusters[FIRST_CLUSTERS];
static EBBI_SPARSE struct own_cluster more_clusters[CLUSTERS - FIRST_CLUSTERS];
static size_t cluster_end; // behind the last that there was
static struct ebbi_lock clusters_lock =
    EBBI_LOCK(ARENA); // rank: arena; over the three, taken with no other below

void ebbi_own_lock(void) { ebbi_lock_take(&clusters_lock); }
void ebbi_own_unlock(void) { ebbi_lock_drop(&clusters_lock); }

static struct own_cluster *cluster_at(size_t number)
{
    return number < FIRST_CLUSTERS ? &first_clusters[number]
                                   : &more_clusters[number - FIRST_CLUSTERS];
}

static char *granule_of(const struct own_cluster *cluster, size_t index)
{
    return (char *)ebbi_span_start(cluster->span) + ((index + 1) << EBBI_GRANULE_SHIFT);
}

// NULL: it has none left.
static void *own_take_of(struct own_cluster *cluster)
{
    ebbi_assert_held(&clusters_lock);
    uint32_t all = ((uint32_t)1 << cluster->granules) - 1;
    uint32_t left = cluster->span != NULL ? all & ~cluster->map : 0;
    if (left == 0) {
        return NULL;
    }
    unsigned index = ebbi_lowest_bit(left);
    cluster->map |= (uint32_t)1 << index;
    return granule_of(cluster, index);
}

// NULL: there is none left; *granules: as many as another cluster is to have.
static void *own_take_any(size_t *granules)
{
    void *granule = NULL;
    ebbi_lock_take(&clusters_lock);
    *granules = cluster_end == 0 ? SMALL_GRANULES : CLUSTER_GRANULES;
    for (size_t i = 0; i < cluster_end && granule == NULL; i++) {
        granule = own_take_of(cluster_at(i));
    }
    ebbi_lock_drop(&clusters_lock);
    return granule;
}

// Where the kernel refuses to close its ends, they stay open.
static struct ebbi_span *cluster_span(size_t granules)
{
    struct ebbi_span *span = ebbi_span_alloc(granules + 2, 1, EBBI_SPAN_OWN);
    if (span == NULL) {
        return NULL;
    }
    char *first = (char *)ebbi_span_start(span) + EBBI_GRANULE;
    size_t bytes = granules << EBBI_GRANULE_SHIFT;
    int (*shut)(void *start, size_t bytes) = span->zeroed ? ebbi_os_close : ebbi_os_guard;
    ebbi_dense_split(first - EBBI_GRANULE, bytes + 2 * EBBI_GRANULE);
    (void)shut(first - EBBI_GRANULE, EBBI_GRANULE);
    (void)shut(first + bytes, EBBI_GRANULE);
    if (!span->zeroed && !ebbi_os_purge(first, bytes)) {
        memset(first, 0, bytes);
    }
    return span;
}

// Refused: it stays as it is, for ever.
static void cluster_give(struct ebbi_span *span)
{
    size_t bytes = (size_t)span->granules << EBBI_GRANULE_SHIFT;
    if (ebbi_os_commit(ebbi_span_start(span), bytes) == 0) {
        ebbi_span_free(span);
    }
}

// One of a new cluster. NULL: refused.
static void *cluster_make(size_t granules)
{
    void *granule = NULL;
    struct ebbi_span *span = cluster_span(granules);
    if (span == NULL) {
        granules = 1;
        span = cluster_span(granules);
    }
    ebbi_lock_take(&clusters_lock);
    for (size_t i = 0; i < CLUSTERS && span != NULL && granule == NULL; i++) {
        struct own_cluster *cluster = cluster_at(i);
        if (cluster->span == NULL) {
            *cluster = (struct own_cluster){span, 0, (uint32_t)granules};
            cluster_end = ebbi_max(cluster_end, i + 1);
            granule = own_take_of(cluster);
        }
    }
    ebbi_lock_drop(&clusters_lock);
    if (span != NULL && granule == NULL) {
        cluster_give(span);
    }
    return granule;
}

void *ebbi_own_take(void)
{
    size_t granules;
    ebbi_lock_expect_none();
    void *granule = own_take_any(&granules);
    return granule != NULL ? granule : cluster_make(granules);
}

static bool cluster_has(const struct own_cluster *cluster, const void *granule)
{
    return cluster->span != NULL && (uintptr_t)granule - (uintptr_t)granule_of(cluster, 0) <
                                        (size_t)cluster->granules << EBBI_GRANULE_SHIFT;
}

static struct own_cluster *cluster_with(const void *granule)
{
    size_t number = 0;
    ebbi_assert_held(&clusters_lock);
    while (!cluster_has(cluster_at(number), granule)) {
        number++;
        EBBI_ASSERT(number < cluster_end);
    }
    return cluster_at(number);
}

void ebbi_own_give(void *granule)
{
    struct ebbi_span *empty = NULL;
    ebbi_lock_expect_none();
    if (!ebbi_os_purge(granule, EBBI_GRANULE)) {
        memset(granule, 0, EBBI_GRANULE);
    }
    ebbi_lock_take(&clusters_lock);
    struct own_cluster *cluster = cluster_with(granule);
    size_t index = (size_t)((char *)granule - granule_of(cluster, 0)) >> EBBI_GRANULE_SHIFT;
    EBBI_ASSERT((cluster->map >> index & 1) != 0);
    cluster->map &= ~((uint32_t)1 << index);
    if (cluster->map == 0) {
        empty = cluster->span;
        cluster->span = NULL;
    }
    ebbi_lock_drop(&clusters_lock);
    if (empty != NULL) {
        cluster_give(empty);
    }
}
