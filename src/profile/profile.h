// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: a sampled heap profile: which stacks allocated what is in use, and what they have allocated.
//
// Of all the bytes that are asked for, points are chosen whose distances are exponential with a given mean
// (a Poisson process). An allocation that covers one, or several, is a sample: it gets a span of its own with a
// note (arena/note.c), so that the free of any other block pays nothing, and it stands for
// 1 / (1 - exp(-bytes / mean)) allocations of its size, one over the odds that it was chosen: sums of that are
// without bias, whatever the sizes. (The distances are a heap's own, see sampler; after a sample,
// or at any moment, the next distance is as likely as the first.)
//
// What a sample is counted under is kept by stack, for ever:
//
//     index (hash of the stack) -> entry: sums, and where its calls are -> calls
//
// What is in use is known one by one besides: by whom, for whom and when it was allocated (live.c).
//
// P1  an entry's calls do not change once its number has been given out; its sums are under the lock.
// P2  what a note says of its sample (entry, objects, bytes) was added to its entry when it was made, and is
//     added to what that entry freed by one of its frees, the one that takes the entry's number away.
// P3  entry 0 has no stack: those that there was no room for.
// P4  a note's place among those in use is its own until that free. It has none where there was no room:
//     the sample counts for its stack all the same.
// P5  a sample lies alone, so what it would keep from going back, were it an ordinary block, is seen at one that is held
//     in its stead: allocated where it would have lain, and freed with it. A place has it, or who has been lent it.
// Nothing here allocates from the heap. Every thread may call everything.
#ifndef EBB_PROFILE_PROFILE_H
#define EBB_PROFILE_PROFILE_H

#include "arena/arena.h"

#define EBBI_PROFILE_MOST_MEAN ((size_t)1 << 40)
#define EBBI_HELD_MOST                                                                             \
    ((size_t)16 << 10)        // P5: longer ones keep little beside them, and would cost too much
#define EBBI_PROFILE_DEPTH 64 // calls of a stack that are kept, from the innermost

struct ebbi_profile_state {
    uint32_t round; // 0: off; else a number for each start; atomic
    size_t mean;    // bytes between samples; atomic
    // CLOCK_MONOTONIC: when it is over that another process has asked for; 0: on, if it is, as the program says; atomic
    uint64_t until_ms;
};
extern EBBI_HIDDEN struct ebbi_profile_state ebbi_profile;

EBBI_INLINE uint32_t ebbi_profile_round(void)
{
    // acquire[profile-seen <- profile-begin]: the mean, and all that begins with it
    return ebbi_load_acquire(&ebbi_profile.round);
}

// ---- sampler.c: the thread's alone, in its heap ------------------------------------------------------
struct ebbi_sampler {
    int64_t until; // bytes to the next sample
    uint64_t random;
    size_t mean;    // of that round; what a sample stands for
    uint32_t round; // in which `until` was drawn; 0: never
    bool busy;      // a sample is being made, or a block moved: what that allocates does not count
    // Where the heap's own table leads to the slow malloc, as it was; else one that leads there, too. Never NULL once
    // `until` is above 0; atomic.
    const uint16_t *bins;
};

// Draws for a new round; counts the bytes of what is the next sample, and draws the next. True: it is one, but while
// `busy`.
bool ebbi_sampler_look(struct ebbi_sampler *sampler, uint32_t round, size_t bytes);

// Whether an allocation of so many bytes is certainly none, which it has counted then; else count it.
EBBI_INLINE bool ebbi_sampler_skips(struct ebbi_sampler *sampler, uint32_t round, size_t bytes)
{
    // Above PTRDIFF_MAX it will be refused.
    int64_t until = sampler->until - (int64_t)ebbi_min(bytes + (bytes == 0), PTRDIFF_MAX / 2);
    bool skips = sampler->round == round && until > 0;
    if (EBBI_LIKELY(skips)) {
        sampler->until = until;
    }
    return skips;
}

// The same for what is small, by `bins`: that of another round has no bin for it.
EBBI_INLINE bool ebbi_sampler_passes(struct ebbi_sampler *sampler, size_t bytes)
{
    if (EBBI_UNLIKELY(sampler->until <= (int64_t)bytes)) {
        return false;
    }
    sampler->until -= (int64_t)bytes;
    return true;
}

// Around what is not to be counted: nothing is a sample meanwhile. Gives the sampler as it was, whose round may end.
EBBI_INLINE struct ebbi_sampler ebbi_sampler_rest(struct ebbi_sampler *sampler)
{
    struct ebbi_sampler before = *sampler;
    sampler->busy = true;
    return before;
}
EBBI_INLINE void ebbi_sampler_go_on(struct ebbi_sampler *sampler, const struct ebbi_sampler *before)
{
    sampler->busy = false;
    if (sampler->round == before->round) {
        sampler->until = before->until;
    }
}

// Of another thread from now on, or of a child of a fork: it draws anew, and by numbers of its own.
EBBI_INLINE void ebbi_sampler_forget(struct ebbi_sampler *sampler)
{
    sampler->round = 0;
    sampler->until = 0;
    sampler->busy = false; // a fork may have interrupted its thread there
}

// An allocation of so many bytes. True: it is a sample.
EBBI_INLINE bool ebbi_sampler_count(struct ebbi_sampler *sampler, uint32_t round, size_t bytes)
{
    return !ebbi_sampler_skips(sampler, round, bytes) && ebbi_sampler_look(sampler, round, bytes);
}

// How many allocations of that size one sample stands for: at least 1.
double ebbi_sample_objects(size_t bytes, size_t mean);
double ebbi_profile_log(double x); // natural; of a positive normal number

// ---- profile.c -----------------------------------------------------------------------------------
// The mean is from 1 to EBBI_PROFILE_MOST_MEAN. 0 or -ENOMEM. The caller then sees to it that allocations are counted.
int ebbi_profile_begin(size_t mean);
void ebbi_profile_end(void); // what was sampled stays known, and counts as freed when it is

// A sample of `bytes`, whose note this is, by the calling thread, which the kernel numbers so. Takes the stack, from the
// program's call on, which returns to `caller` (0: not known). False: `held` (P5, or NULL) stays the caller's, as there is no
// place.
bool ebbi_profile_add(struct ebbi_note *note, size_t bytes, size_t mean, uint32_t thread,
                      void *held, uintptr_t caller);
void *ebbi_profile_freed_slow(struct ebbi_note *note);
// Of whatever the note is. What was held for it, which the caller frees, or NULL.
EBBI_INLINE void *ebbi_profile_freed(struct ebbi_note *note)
{
    bool is_sample = EBBI_UNLIKELY(ebbi_load_relaxed(&note->sample) != 0); // relaxed: P2
    return is_sample ? ebbi_profile_freed_slow(note) : NULL;
}

// Lengths of time, shorter than 1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, 1 h, and longer ones.
#define EBBI_TERMS 8u
unsigned ebbi_profile_term(uint64_t ns);

struct ebbi_profile_sum {
    double objects, bytes;
};
// Of these, by how long they were in use.
struct ebbi_profile_freed {
    struct ebbi_profile_sum in[EBBI_TERMS];
};
struct ebbi_profile_sums {
    struct ebbi_profile_sum made;
    struct ebbi_profile_freed freed;
};

// By number from 0; false: there is none of that. `calls`: *depth of them, innermost first, for ever.
bool ebbi_profile_entry(size_t number, struct ebbi_profile_sums *sums, const uintptr_t **calls,
                        size_t *depth);
const uintptr_t *ebbi_profile_calls(size_t *count); // of all entries
size_t ebbi_profile_entries(void);                  // how many there are

struct ebbi_profile_entry {
    uint64_t key;
    uint32_t first, depth; // of its calls
    struct ebbi_profile_sum made;
};
// The memory once and for all at the first start. Under the profile's lock; another process reads it without
// (process/board.h), and may find sums that are half written. What was freed lies apart: a stack all of whose samples are
// in use touches none of it.
struct ebbi_profile_book {
    struct ebbi_profile_entry *entries;
    struct ebbi_profile_freed *freed; // of each entry
    uintptr_t *calls;
    size_t entry_count; // atomic
    size_t call_count;  // atomic
};
extern EBBI_HIDDEN struct ebbi_profile_book ebbi_profile_book;

void ebbi_profile_lock(void); // fork(), live.c
void ebbi_profile_unlock(void);

// ---- live.c: the samples in use, one by one ------------------------------------------------------
// Read from outside, too. Which of them there are is under the profile's lock.
struct ebbi_live {
    uint64_t made_ns;
    size_t bytes;
    double objects;
    const struct ebbi_label *label; // of the domain that was current; NULL: none
    uint32_t entry;                 // + 1; 0: the place is free
    uint32_t thread;                // as the kernel numbers it; of a free place: the next of these
    void *held;                     // P5; NULL: none, or it is lent
    uint32_t keeps; // bytes that it keeps from going back, when that was looked at last
    uint32_t unused;
};
struct ebbi_live_table {
    struct ebbi_live *at; // 0: none
    uint32_t count;       // places that have been used, + 1
    uint32_t free;        // the first of the free ones; 0: none
};
extern EBBI_HIDDEN struct ebbi_live_table ebbi_live_table;
#define EBBI_LIVE_BYTES (sizeof(struct ebbi_live) << 19)

void ebbi_live_begin(void *memory);                   // EBBI_LIVE_BYTES of it, zeroed
uint32_t ebbi_live_add(const struct ebbi_live *live); // its place; 0: there is no room
void *ebbi_live_drop(uint32_t place);                 // or 0; what the place had held

// P5: what is held is looked at without the profile's lock, by who has it.
struct ebbi_loan {
    void *held;
    uint64_t made_ns; // of the sample, which may end meanwhile
    uint32_t place;
    uint32_t keeps;
};
#define EBBI_LOANS 64u
// Lends what some places from *place on hold, and moves that on; 0: there are no more. Returns how many.
size_t ebbi_live_lend(struct ebbi_loan loans[EBBI_LOANS], uint32_t *place);
// What they hold, which stays there: a hint. Places, and returns, as above.
size_t ebbi_live_held(void *held[EBBI_LOANS], uint32_t *place);
size_t ebbi_live_places(void); // that have been used
// What stays with the borrower, as its sample has ended: NULL, or to be freed.
void *ebbi_live_return(const struct ebbi_loan *loan);

// Those in use that differ in nothing but their size, as they were met in one walk.
struct ebbi_live_group {
    struct ebbi_profile_sum sum;
    double keeps; // bytes, as they were seen last
    const struct ebbi_label *label;
    uint32_t entry; // + 1; 0: no group
    uint32_t thread;
    uint32_t age;  // a term
    uint32_t next; // of the same entry: its place + 1; 0: none
};
struct ebbi_live_groups {
    struct ebbi_live_group *at; // [places], a hash table
    uint32_t *first;            // [entries]: as `next`
    size_t places, entries, bytes;
};
bool ebbi_live_groups_take(struct ebbi_live_groups *groups); // false: memory refused
void ebbi_live_groups_end(struct ebbi_live_groups *groups);

// ---- proto.c -------------------------------------------------------------------------------------
// The profile in pprof's format (github.com/google/pprof/proto/profile.proto), not compressed. 0, -ENOMEM,
// or as write(2) says.
int ebbi_profile_write(int fd);

#endif
