// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread's operations, one after the other. Each block carries a mark of its slot at both ends; it is held against
// them when the block ends, so that an allocator that gives memory twice is found.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "trace/replay/replay.h"

enum {
    BUFFER_WORDS = 4096,
    PAGE = 4096,
    STACK_BYTES = 256 * 1024,
    ALIGN = 16,
    SMALLER = 16,
    SPINS = 100,
    AHEAD = 6, // operations before a slot is needed it is asked for
};

#define PARTLY ((uint64_t)1 << 63) // of a slot's size: the program did not touch the whole block

struct thread {
    uint64_t turn; // of the chunk, serial
    bool has_turn;
    uint64_t net;
};

static _Atomic uint32_t running;
static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

// Another one for each slot; the low byte of its number for what is too small.
static inline uint64_t stamp_of(const struct slot *slot) { return (uintptr_t)slot; }
static inline char small_stamp(uint64_t stamp) { return (char)(stamp / sizeof(struct slot)); }

static inline uint64_t size_of(const struct slot *slot) { return slot->size & ~PARTLY; }

// The mark at the end of a block stands where the program touched all of it.
static uint64_t *last_word(void *block, uint64_t size)
{
    return (uint64_t *)((char *)block + size - sizeof(uint64_t));
}

static inline void put_stamps(const struct slot *slot, char *block)
{
    uint64_t size = size_of(slot), stamp = stamp_of(slot);
    if (size < SMALLER) {
        memset(block, small_stamp(stamp), size);
        return;
    }
    memcpy(block, &stamp, sizeof stamp);
    if ((slot->size & PARTLY) == 0) {
        memcpy(last_word(block, size), &stamp, sizeof stamp);
    }
}

static inline bool has_first_stamp(const struct slot *slot, const char *block)
{
    uint64_t stamp = stamp_of(slot);
    return memcmp(block, &stamp, sizeof stamp) == 0;
}

static inline bool has_stamps(const struct slot *slot, char *block)
{
    uint64_t size = size_of(slot), stamp = stamp_of(slot);
    if (size < SMALLER) {
        return size == 0 || (block[0] == small_stamp(stamp) && block[size - 1] == block[0]);
    }
    return has_first_stamp(slot, block) &&
           ((slot->size & PARTLY) != 0 ||
            memcmp(last_word(block, size), &stamp, sizeof stamp) == 0);
}

static inline void count_damage(bool is_whole)
{
    if (!is_whole && !replay.is_floor) {
        atomic_fetch_add(&replay.damage.contents, 1);
    }
}

static void refused(uint64_t size)
{
    if (atomic_fetch_add(&replay.damage.refused, 1) == 0) {
        atomic_store(&replay.damage.refused_bytes, size);
    }
}

// A byte a page, from where the block was touched before.
static inline void touch_pages(char *block, uint64_t from, uint64_t touched)
{
    for (uint64_t at = (from + PAGE - 1) & ~(uint64_t)(PAGE - 1); at < touched; at += PAGE) {
        block[at] = 1;
    }
}

static inline void hand_out(struct slot *slot, char *block, uint64_t size, uint64_t from,
                            uint64_t touched)
{
    if (touched > PAGE) {
        touch_pages(block, from, touched);
    }
    slot->size = touched < size ? size | PARTLY : size;
    put_stamps(slot, block);
    // release[slot-full -> slot-take]: the size and the stamps
    __atomic_store_n(&slot->block, block, __ATOMIC_RELEASE);
}

// An empty block stands for one that was refused, so that its end has something to end.
static inline void receive(struct slot *slot, char *block, uint64_t size, uint64_t touched,
                           uint64_t align)
{
    if (block == NULL) {
        refused(size);
        hand_out(slot, malloc(0), 0, 0, 0);
        return;
    }
    count_damage((uintptr_t)block % align == 0 || size < align);
    hand_out(slot, block, size, 0, touched);
}

static inline bool is_zero(const char *block, uint64_t size)
{
    return size == 0 || (block[0] == 0 && block[size - 1] == 0 && block[size / 2] == 0);
}

static inline void make_zero(struct slot *slot, uint64_t size, uint64_t touched)
{
    char *block = calloc(1, size);
    count_damage(block == NULL || is_zero(block, touched));
    receive(slot, block, size, touched, ALIGN);
}

static void make_aligned(struct slot *slot, uint64_t size, uint64_t touched, unsigned shift)
{
    void *block = NULL;
    uint64_t align = (uint64_t)1 << shift;
    if (posix_memalign(&block, align < sizeof(void *) ? sizeof(void *) : align, size) != 0) {
        block = NULL;
    }
    receive(slot, block, size, touched, align);
}

// S2: another thread's object may still be on its way.
static void await_block(struct slot *slot)
{
    // acquire[slot-take <- slot-full]: the size and the stamps are now visible
    for (int i = 0; __atomic_load_n(&slot->block, __ATOMIC_ACQUIRE) == NULL; i++) {
        if (i > SPINS) {
            (void)sched_yield();
        }
    }
}

static inline void end_block(struct slot *slot)
{
    void *block = slot->block;
    count_damage(has_stamps(slot, block));
    slot->block = NULL;
    free(block);
}

// What was not moved goes into the new slot as it is.
static void keep(struct slot *from, struct slot *to, char *block, uint64_t size)
{
    uint64_t old = size_of(from), touched = (from->size & PARTLY) != 0 ? 0 : old;
    refused(size);
    hand_out(to, block, old, old, touched);
}

// To no bytes it would be free. Pages of which it is not known that they were touched are touched again.
static void resize(struct slot *from, struct slot *to, uint64_t size, uint64_t touched)
{
    uint64_t old = (from->size & PARTLY) != 0 ? 0 : size_of(from);
    char *left = from->block;
    count_damage(has_stamps(from, left));
    from->block = NULL;
    char *block = realloc(left, size > 0 ? size : 1);
    if (block == NULL) {
        keep(from, to, left, size);
        return;
    }
    count_damage(size_of(from) < SMALLER || size < SMALLER || has_first_stamp(from, block));
    hand_out(to, block, size, old < touched ? old : touched, touched);
}

static void keep_pace(uint64_t time_us)
{
    uint64_t now = now_us() - replay.start_us;
    if (time_us > now) {
        uint64_t delay = time_us - now;
        struct timespec left = {(time_t)(delay / 1000000), (long)(delay % 1000000 * 1000)};
        (void)nanosleep(&left, NULL);
    }
}

static void take_turn(struct thread *thread, uint64_t turn, const uint64_t *words)
{
    if (replay.is_serial && thread->has_turn) {
        pass_turn(thread->turn + 1);
    }
    if (replay.is_paced) {
        keep_pace(words[0]);
    }
    wait_for_turn(turn);
    thread->turn = turn;
    thread->has_turn = true;
    if (words[1] != thread->net) {
        atomic_fetch_add(&replay.damage.sums, 1);
    }
}

static void *run_thread(void *argument);

static void spawn(uint32_t number)
{
    pthread_attr_t attributes;
    pthread_t thread;
    atomic_fetch_add(&running, 1);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, run_thread, (void *)(uintptr_t)number);
    if (error != 0) {
        fail("cannot create a thread: %s", strerror(error));
    }
    (void)pthread_attr_destroy(&attributes);
}

// To another slot than the one that it empties, where there are several threads. `words`: the two behind the first.
static void do_realloc(struct thread *thread, struct slot *from, struct slot *to,
                       const uint64_t *words)
{
    thread->net += words[0] - size_of(from);
    resize(from, to, words[0], words[1] >> 8);
}

static void do_wide(struct thread *thread, enum operation kind, struct slot *slot,
                    const uint64_t *words)
{
    uint64_t size = words[0], touched = words[1] >> 8;
    thread->net += size;
    switch (kind) {
    case DO_WIDE_MALLOC:
        receive(slot, malloc(size), size, touched, ALIGN);
        break;
    case DO_WIDE_CALLOC:
        make_zero(slot, size, touched);
        break;
    default:
        make_aligned(slot, size, touched, words[1] & 63);
        break;
    }
}

static void do_other(struct thread *thread, enum operation kind, const uint64_t *at)
{
    switch (kind) {
    case DO_MARK:
        take_turn(thread, *at & TURN_MASK, at + 1);
        break;
    case DO_SAMPLE:
        take_sample(at[1], at[2]);
        break;
    case DO_SPAWN:
        spawn((uint32_t)*at);
        break;
    case DO_START:
        thread->net = 0;
        break;
    default:
        do_wide(thread, kind, &replay.slots[(*at >> 32) & SLOT_MASK], at + 1);
        break;
    }
}

static size_t words_of(enum operation kind)
{
    return (kind >= DO_WIDE_MALLOC && kind <= DO_SAMPLE) ? OPERATION_WORDS : 1;
}

// No operation goes over the end of a chunk. The words behind it may be read: a slot of any number is a place.
static void run_chunk(struct thread *thread, const uint64_t *at, const uint64_t *end)
{
    struct slot *slots = replay.slots;
    while (at < end) {
        uint64_t word = *at, size = (uint32_t)word;
        enum operation kind = (enum operation)(word >> 60);
        struct slot *slot = &slots[(word >> 32) & SLOT_MASK];
        __builtin_prefetch(&slots[(at[AHEAD] >> 32) & SLOT_MASK], 1);
        switch (kind) {
        case DO_MALLOC:
            receive(slot, malloc(size), size, size, ALIGN);
            thread->net += size;
            break;
        case DO_FREE_OTHERS:
            await_block(slot); // fall through
        case DO_FREE:
            thread->net -= size_of(slot);
            end_block(slot);
            break;
        case DO_CALLOC:
            make_zero(slot, size, size);
            thread->net += size;
            break;
        case DO_REALLOC_OTHERS:
            await_block(&slots[word & SLOT_MASK]); // fall through
        case DO_REALLOC:
            do_realloc(thread, &slots[word & SLOT_MASK], slot, at + 1);
            at += OPERATION_WORDS - 1;
            break;
        default:
            do_other(thread, kind, at);
            at += words_of(kind) - 1;
            break;
        }
        at++;
    }
}

static void run(uint32_t number, uint64_t *words)
{
    struct thread thread = {0};
    for (uint64_t i = replay.first_chunk[number]; i < replay.first_chunk[number + 1]; i++) {
        const struct program_chunk *chunk = &replay.chunks[i];
        read_program(words, chunk->words * sizeof(uint64_t), chunk->at);
        run_chunk(&thread, words, words + chunk->words);
    }
    if (replay.is_serial && thread.has_turn) {
        pass_turn(thread.turn + 1);
    }
}

static void run_with_buffer(uint32_t number)
{
    size_t bytes = (CHUNK_WORDS + AHEAD) * sizeof(uint64_t);
    uint64_t *words = map_shared(bytes);
    run(number, words);
    (void)munmap(words, bytes);
}

static void *run_thread(void *argument)
{
    run_with_buffer((uint32_t)(uintptr_t)argument);
    (void)pthread_mutex_lock(&end_lock);
    if (atomic_fetch_sub(&running, 1) == 1) {
        (void)pthread_cond_signal(&ended);
    }
    (void)pthread_mutex_unlock(&end_lock);
    return NULL;
}

void run_first_thread(void) { run_with_buffer(replay.head.first); }

void await_threads(void)
{
    (void)pthread_mutex_lock(&end_lock);
    while (atomic_load(&running) > 0) {
        (void)pthread_cond_wait(&ended, &end_lock);
    }
    (void)pthread_mutex_unlock(&end_lock);
}
