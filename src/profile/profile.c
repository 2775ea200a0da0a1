// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: the sums by stack.
#include "profile/profile.h"

#include <errno.h>

#include "os/lock.h"
#include "os/os.h"
#include "unwind/unwind.h"

#define ENTRIES ((size_t)1 << 17)
#define PLACES (2 * ENTRIES) // of the index, a power of two
#define CALLS (32 * ENTRIES)
#define MS ((uint64_t)1000000) // in ns
#define OWN_MOST 8             // calls of a stack

static struct {
    struct ebbi_lock lock; // rank: arena, as it is taken with no other below
    // The rest: under it; the memory once and for all at the first start.
    uint32_t *index; // [PLACES]; 0: free
    uint32_t rounds;
} book = {.lock = EBBI_LOCK(ARENA)};

struct ebbi_profile_book ebbi_profile_book; // of ENTRIES, and CALLS
struct ebbi_profile_state ebbi_profile;

void ebbi_profile_lock(void) { ebbi_lock_take(&book.lock); }
void ebbi_profile_unlock(void) { ebbi_lock_drop(&book.lock); }

// All of it or nothing.
static bool reserve(void)
{
    const size_t sizes[] = {ENTRIES * sizeof *ebbi_profile_book.entries,
                            ENTRIES * sizeof *ebbi_profile_book.freed, PLACES * sizeof *book.index,
                            CALLS * sizeof *ebbi_profile_book.calls};
    size_t bytes = sizes[0] + sizes[1] + sizes[2] + sizes[3];
    char *memory = ebbi_os_map(NULL, bytes + EBBI_LIVE_BYTES);
    if (memory != NULL) {
        ebbi_live_begin(memory + bytes);
        ebbi_profile_book.entries = (struct ebbi_profile_entry *)(void *)memory;
        memory += sizes[0];
        ebbi_profile_book.freed = (struct ebbi_profile_freed *)(void *)memory;
        memory += sizes[1];
        book.index = (uint32_t *)(void *)memory;
        ebbi_profile_book.calls = (uintptr_t *)(void *)(memory + sizes[2]);
        ebbi_profile_book.entry_count = 1; // P3
    }
    return memory != NULL;
}

int ebbi_profile_begin(size_t mean)
{
    EBBI_ASSERT(mean > 0 && mean <= EBBI_PROFILE_MOST_MEAN);
    ebbi_lock_take(&book.lock);
    bool ready = ebbi_profile_book.entries != NULL || reserve();
    if (ready) {
        book.rounds = book.rounds == UINT32_MAX ? 1 : book.rounds + 1;
        ebbi_store_relaxed(&ebbi_profile.mean, mean); // relaxed: behind the round
        // release[profile-begin -> profile-seen]: the mean, the memory
        ebbi_store_release(&ebbi_profile.round, book.rounds);
    }
    ebbi_lock_drop(&book.lock);
    return ready ? 0 : -ENOMEM;
}

void ebbi_profile_end(void)
{
    ebbi_store_relaxed(&ebbi_profile.round, 0u); // relaxed: nothing ends with it
}

// FNV-1a, a word at a time.
static uint64_t key_of(const uintptr_t *calls, size_t depth)
{
    uint64_t key = 0xCBF29CE484222325u;
    for (size_t i = 0; i < depth; i++) {
        key = (key ^ calls[i]) * 0x100000001B3u;
        key ^= key >> 29;
    }
    return key;
}

static bool is_of(const struct ebbi_profile_entry *entry, uint64_t key, const uintptr_t *calls,
                  size_t depth)
{
    bool same = entry->key == key && entry->depth == depth;
    for (size_t i = 0; same && i < depth; i++) {
        same = ebbi_profile_book.calls[entry->first + i] == calls[i];
    }
    return same;
}

// The number of a new entry; 0: there is no room.
static size_t add_entry(uint64_t key, const uintptr_t *calls, size_t depth)
{
    if (ebbi_profile_book.entry_count == ENTRIES || ebbi_profile_book.call_count + depth > CALLS) {
        return 0;
    }
    struct ebbi_profile_entry *entry = &ebbi_profile_book.entries[ebbi_profile_book.entry_count];
    entry->key = key;
    entry->first = (uint32_t)ebbi_profile_book.call_count;
    entry->depth = (uint32_t)depth;
    for (size_t i = 0; i < depth; i++) {
        ebbi_profile_book.calls[entry->first + i] = calls[i];
    }
    // release[profile-entry -> profile-entries]: its calls; both are written under the lock alone
    ebbi_store_release(&ebbi_profile_book.call_count, ebbi_profile_book.call_count + depth);
    ebbi_store_release(&ebbi_profile_book.entry_count, ebbi_profile_book.entry_count + 1);
    return ebbi_profile_book.entry_count - 1;
}

// Under the lock.
static size_t find_entry(const uintptr_t *calls, size_t depth)
{
    uint64_t key = key_of(calls, depth);
    ebbi_assert_held(&book.lock);
    size_t place = key % PLACES;
    while (book.index[place] != 0) { // ends: half of the places are free
        if (is_of(&ebbi_profile_book.entries[book.index[place]], key, calls, depth)) {
            return book.index[place];
        }
        place = (place + 1) % PLACES;
    }
    size_t number = depth > 0 ? add_entry(key, calls, depth) : 0;
    book.index[place] = (uint32_t)number;
    return number;
}

unsigned ebbi_profile_term(uint64_t ns)
{
    static const uint64_t ends[EBBI_TERMS - 1] = {MS,         10 * MS,    100 * MS,    1000 * MS,
                                                  10000 * MS, 60000 * MS, 3600000 * MS};
    unsigned term = 0;
    while (term < EBBI_TERMS - 1 && ns >= ends[term]) {
        term++;
    }
    return term;
}

static void count_sample(struct ebbi_profile_sum *sum, double objects, size_t bytes)
{
    sum->objects += objects;
    sum->bytes += objects * (double)bytes;
}

// How many calls are the library's own: all before the one that `caller` is, also where it is linked into the program.
static size_t own_calls(const uintptr_t *calls, size_t depth, uintptr_t caller)
{
    size_t own = ebbi_unwind_own(calls, depth);
    for (size_t i = own; i < ebbi_min(depth, OWN_MOST); i++) {
        if (calls[i] + 1 == caller) {
            return i;
        }
    }
    return own;
}

EBBI_NOINLINE bool ebbi_profile_add(struct ebbi_note *note, size_t bytes, size_t mean,
                                    uint32_t thread, void *held, uintptr_t caller)
{
    uintptr_t calls[EBBI_PROFILE_DEPTH + OWN_MOST];
    size_t depth = ebbi_unwind(calls, sizeof calls / sizeof calls[0]);
    struct ebbi_live live = {.made_ns = ebbi_os_now_ns(),
                             .bytes = bytes,
                             .objects = ebbi_sample_objects(bytes, mean),
                             .label = note->label,
                             .thread = thread,
                             .held = held};
    size_t own = own_calls(calls, depth, ebbi_os_code_address(caller));
    ebbi_lock_take(&book.lock);
    size_t number = find_entry(calls + own, ebbi_min(depth - own, EBBI_PROFILE_DEPTH));
    count_sample(&ebbi_profile_book.entries[number].made, live.objects, bytes);
    live.entry = (uint32_t)number + 1;
    uint32_t place = ebbi_live_add(&live);
    note->sample_live = place;
    ebbi_lock_drop(&book.lock);
    note->sampled_objects = live.objects;
    note->sampled_bytes = bytes;
    note->sampled_ns = live.made_ns;
    ebbi_store_relaxed(&note->sample, live.entry); // relaxed: with the block's hand-over
    return place != 0;
}

void *ebbi_profile_freed_slow(struct ebbi_note *note)
{
    double objects = note->sampled_objects;
    size_t bytes = note->sampled_bytes;
    uint64_t made_ns = note->sampled_ns;
    uint32_t place = note->sample_live;
    uint32_t sample = ebbi_load_relaxed(&note->sample);                 // relaxed: P2, a number
    if (sample == 0 || !ebbi_cas_relaxed(&note->sample, &sample, 0u)) { // relaxed: as above
        return NULL; // another thread frees it as well
    }
    unsigned term = ebbi_profile_term(ebbi_os_now_ns() - made_ns);
    ebbi_lock_take(&book.lock);
    count_sample(&ebbi_profile_book.freed[sample - 1].in[term], objects, bytes);
    void *held = ebbi_live_drop(place);
    ebbi_lock_drop(&book.lock);
    return held;
}

size_t ebbi_profile_entries(void)
{
    // acquire[profile-entries <- profile-entry]: their calls
    return ebbi_load_acquire(&ebbi_profile_book.entry_count);
}

bool ebbi_profile_entry(size_t number, struct ebbi_profile_sums *sums, const uintptr_t **calls,
                        size_t *depth)
{
    if (number >= ebbi_profile_entries()) {
        return false;
    }
    ebbi_lock_take(&book.lock);
    sums->made = ebbi_profile_book.entries[number].made;
    sums->freed = ebbi_profile_book.freed[number];
    ebbi_lock_drop(&book.lock);
    *calls = ebbi_profile_book.calls + ebbi_profile_book.entries[number].first;
    *depth = ebbi_profile_book.entries[number].depth;
    return true;
}

const uintptr_t *ebbi_profile_calls(size_t *count)
{
    // acquire[profile-entries <- profile-entry]: the calls
    *count = ebbi_load_acquire(&ebbi_profile_book.call_count);
    return ebbi_profile_book.calls;
}
