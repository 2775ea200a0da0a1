// SPDX-License-Identifier: MIT OR Apache-2.0
// Address space that is limited after the start, by the process itself, or before it: what fits must
// be had, what does not must be refused with ENOMEM, and threads and files must go on.
#include "hostile.h"

static void limit_space(long bytes)
{
    struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit: %s", strerror(errno));
}

struct node {
    struct node *next;
};

static struct node *taken;

// Takes blocks of that size, `total` bytes of them or what there is; bytes taken. They are written.
static long take(size_t size, long total)
{
    long have = 0;
    while (have < total) {
        errno = 0;
        struct node *p = malloc(size);
        if (p == NULL) {
            MUST(errno == ENOMEM, "malloc(%zu) failed with errno %d", size, errno);
            break;
        }
        memset(p, 1, size);
        p->next = taken;
        taken = p;
        have += (long)size;
    }
    return have;
}

static void give_back(void)
{
    while (taken != NULL) {
        struct node *next = taken->next;
        free(taken);
        taken = next;
    }
}

static void must_take(size_t size, long total)
{
    long have = take(size, total);
    MUST(have >= total, "blocks of %zu: %ld of %ld KiB, %ld KiB of address space are used", size,
         have / KIB, total / KIB, proc_number("/proc/self/status", "\nVmSize:"));
}

static void *works(void *unused)
{
    unsigned seed = 3;
    churn(&seed, 3000);
    return unused;
}

// A limit of the program is not there for the allocator alone.
static void others_must_work(void)
{
    void *p = mmap(NULL, (size_t)MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED, "mmap of 1 MiB: %s, %ld KiB of address space are used", strerror(errno),
         proc_number("/proc/self/status", "\nVmSize:"));
    munmap(p, (size_t)MIB);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        threads[i] = start(works, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void refusals(long most)
{
    long have = take((size_t)MIB, most);
    MUST(have < most, "%ld MiB under the limit", have / MIB);
    take(100, most);
    errno = 0;
    void *p = malloc((size_t)(512 * MIB));
    MUST(p == NULL && errno == ENOMEM, "malloc of 512 MiB: %p, errno %d", p, errno);
    MUST(calloc(1 << 20, 1 << 20) == NULL && errno == ENOMEM, "calloc");
    give_back();
    must_take(1000, 30 * MIB); // after the refusals all is as before
    must_take((size_t)MIB, 30 * MIB);
    give_back();
}

// `mib` more than what is used now.
static void more(long mib)
{
    unsigned seed = 1;
    churn(&seed, 1000);
    limit_space(proc_number("/proc/self/status", "\nVmSize:") * KIB + mib * MIB);
    must_take(200, 25 * MIB);
    must_take((size_t)MIB, 25 * MIB);
    others_must_work();
    give_back();
    refusals(4 * GIB);
}

// The process's whole address space in MiB, set by itself when it has begun.
static void whole(long mib)
{
    unsigned seed = 1;
    churn(&seed, 1000);
    limit_space(mib * MIB);
    others_must_work();
    must_take(200, 25 * MIB);
    must_take((size_t)MIB, 25 * MIB);
    others_must_work();
    give_back();
    others_must_work();
}

// As behind `ulimit -v`: the limit is there when the program starts.
static void begin_limited(const char *topic, long mib)
{
    if (getenv("HOSTILE_LIMITED") == NULL) {
        char number[32];
        snprintf(number, sizeof number, "%ld", mib);
        setenv("HOSTILE_LIMITED", "1", 1);
        limit_space(mib * MIB);
        execl("/proc/self/exe", "limits_space", topic, number, NULL);
        fail("exec: %s", strerror(errno));
    }
}

// A third of the space must be of use, or a fifth where two thread stacks take a quarter of it.
static void from_start(long mib)
{
    begin_limited("from_start", mib);
    others_must_work();
    long part = mib >= 100 ? mib * MIB / 3 : mib * MIB / 5;
    if (part > 150 * MIB)
        part = 150 * MIB;
    must_take(200, part / 2);
    must_take((size_t)MIB, part / 2);
    if (mib > 100)
        others_must_work();
    give_back();
    others_must_work();
}

// Data segments, which private writable mappings are counted as.
static void data(long mib)
{
    unsigned seed = 1;
    churn(&seed, 1000);
    struct rlimit limit = {(rlim_t)(mib * MIB), (rlim_t)(mib * MIB)};
    MUST(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit: %s", strerror(errno));
    must_take(200, mib * MIB / 4);
    must_take((size_t)MIB, mib * MIB / 4);
    give_back();
    refusals(4 * GIB);
}

// What the kernel never could give is refused, as it is to others, unless it has been told to give all.
static void too_much(long unused)
{
    (void)unused;
    char word = 0;
    int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
    if (file < 0 || read(file, &word, 1) != 1 || word != '0')
        skip("the kernel does not compare");
    for (int shift = 43; shift < 47; shift++) {
        errno = 0;
        MUST(malloc((size_t)1 << shift) == NULL && errno == ENOMEM, "malloc of 2^%d bytes", shift);
        errno = 0;
        MUST(calloc(1, (size_t)1 << shift) == NULL && errno == ENOMEM, "calloc of 2^%d", shift);
    }
    char *p = malloc(40 << 20);
    MUST(p != NULL, "malloc");
    p[0] = 1;
    MUST(realloc(p, (size_t)1 << 45) == NULL && p[0] == 1, "realloc to 2^45 bytes");
    free(p);
}

// One block that grows has most of the space: its old place and the new one need not be there at once. step 0: by a sixteenth.
static void grow(long mib, long step)
{
    long bytes = step > 0 ? step : 100;
    unsigned char *p = malloc((size_t)bytes), *to;
    memset(p, 1, (size_t)bytes);
    for (long more = bytes; (to = realloc(p, (size_t)(bytes + more))) != NULL;) {
        p = to;
        MUST(p[0] == 1 && p[bytes - 1] == 1, "what %ld bytes held", bytes);
        memset(p + bytes, 1, (size_t)more);
        bytes += more;
        more = step > 0 ? step : bytes / 16 + 1;
    }
    for (long i = 0; i < bytes; i += KIB)
        MUST(p[i] == 1, "byte %ld of %ld", i, bytes);
    MUST(bytes > mib * MIB * 3 / 4, "by %ld to %ld of %ld MiB", step, bytes / MIB, mib);
    free(p);
}

static void grow_all_ways(long mib)
{
    grow(mib, 0);
    for (long step = 52 * KIB; step <= 2 * MIB; step *= 6)
        grow(mib, step);
}

static void grows(long mib)
{
    begin_limited("grows", mib);
    grow_all_ways(mib);
}

static void *sleeps(void *unused)
{
    pause();
    return unused;
}

// Each thread has what it keeps: that goes first.
static void grows_beside(long mib)
{
    begin_limited("grows_beside", mib);
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    MUST(pthread_create(&thread, &small, sleeps, NULL) == 0, "pthread_create");
    grow_all_ways(mib);
}

// A block that is made smaller stays where it is when there is no memory for another.
static void shrinks(long mib)
{
    static const size_t sizes[] = {24, 220, 4000, 16382, 100000, 1000000};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    unsigned char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(sizes[i]);
        memset(blocks[i], i + 1, sizes[i]);
    }
    limit_space(proc_number("/proc/self/status", "\nVmSize:") * KIB + mib * MIB);
    for (size_t size = (size_t)MIB; size >= 8; size /= 2)
        take(size, 4 * GIB);
    for (int i = 0; i < COUNT; i++) {
        errno = 0;
        size_t less = sizes[i] - sizes[i] / 3;
        unsigned char *p = realloc(blocks[i], less);
        MUST(p != NULL && errno == 0, "realloc of %zu bytes to %zu: errno %d", sizes[i], less,
             errno);
        MUST(p[0] == i + 1 && p[less - 1] == i + 1, "what the block of %zu bytes held", sizes[i]);
        MUST(realloc(p, (size_t)(64 * MIB)) == NULL && errno == ENOMEM, "realloc to 64 MiB");
        free(p);
    }
    give_back();
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {
        {"more", more}, {"too_much", too_much}, {"whole", whole}, {"from_start", from_start},
        {"data", data}, {"shrinks", shrinks},   {"grows", grows}, {"grows_beside", grows_beside},
        {NULL, NULL}};
    run_topic(topics, argc, argv);
    return pass("%ld KiB of address space", proc_number("/proc/self/status", "\nVmSize:"));
}
