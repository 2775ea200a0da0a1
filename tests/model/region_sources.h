// SPDX-License-Identifier: MIT OR Apache-2.0
// The sources of src/region that the models run, as they are, and variants of their functions with one
// error each, for the errors that no weakened order makes.
#ifndef EBB_MODEL_REGION_SOURCES_H
#define EBB_MODEL_REGION_SOURCES_H

#include "cells.h"

#include "base/base.h"
#include "ebbtide/detail/pin.h"
#include "os/lock.h"
#include "os/os.h"

#define EBB_MODEL_THREADS 3
#define EBB_SELF_PIN 64

namespace model {

// Each thread's heap: its participant alone. Who acts while the stage is set is chosen.
struct Selves {
    alignas(64) char heaps[EBB_MODEL_THREADS][EBB_SELF_PIN + sizeof(struct ebb_participant)];
    int acting;
};

inline Selves &selves()
{
    static Selves the_selves = {};
    return the_selves;
}

inline char *self_of(unsigned thread) { return selves().heaps[thread]; }

inline char *self()
{
    int acting = selves().acting;
    return self_of(acting >= 0 ? static_cast<unsigned>(acting) : rl::thread_index());
}

inline uint32_t *busy_of(const void *self)
{
    auto *heap = static_cast<char *>(const_cast<void *>(self));
    return &reinterpret_cast<struct ebb_participant *>(heap + EBB_SELF_PIN)->busy;
}

} // namespace model

#define ebb_self (model::self())
#define _Static_assert static_assert
#define int64_t model::Cell<long>
#define uint64_t model::Cell<unsigned long>
#define uintptr_t model::Cell<unsigned long>

#include "region/sheet.c"
#include "region/sheet_owner.c"

#include "region/orphan.c"

namespace model {

bool revoke(const void **owner);
void orphan(struct ebbi_sheet *sheet);

} // namespace model

#define ebbi_sheet_owner_revoke model::revoke
#define ebbi_sheet_orphan model::orphan
#include "region/region.c"
#undef ebbi_sheet_owner_revoke
#undef ebbi_sheet_orphan

#include "region/take.c"

namespace model {

// The owner's free believes its first look.
inline bool free_with_one_look(void *block)
{
    uintptr_t p = reinterpret_cast<unsigned long>(block);
    struct ebbi_sheet *sheet = ebbi_sheet_of(block);
    if (!is_mine(sheet)) {
        return free_shared(sheet, p);
    }
    ebbi_store_relaxed(busy_of(ebb_self), 1u);
    uint64_t *word = check(sheet, p);
    ebbi_store_relaxed(&word[GONE], word[GONE] | bit_of(p));
    live_add(sheet, -1);
    ebbi_store_release(busy_of(ebb_self), 0u);
    return false;
}

inline void sheet_free(void *block)
{
    static const bool one_look = is_mutant("free_with_one_look");
    (void)(one_look ? free_with_one_look : ebbi_sheet_free)(block);
}

// Nobody waits for a free that is under way.
inline bool revoke_without_wait(const void **owner)
{
    ebbi_store_relaxed(owner, static_cast<const void *>(nullptr));
    return ebbi_os_membarrier();
}

// The wait comes first, the membarrier behind it.
inline bool revoke_waits_early(const void **owner)
{
    const void *who = ebbi_load_relaxed(owner);
    ebbi_store_relaxed(owner, static_cast<const void *>(nullptr));
    while (who != nullptr && who != ebb_self && ebbi_load_acquire(busy_of(who)) != 0) {
        ebbi_os_yield();
    }
    return ebbi_os_membarrier();
}

inline bool revoke(const void **owner)
{
    static const auto chosen = is_mutant("revoke_without_wait")  ? revoke_without_wait
                               : is_mutant("revoke_waits_early") ? revoke_waits_early
                                                                 : ebbi_sheet_owner_revoke;
    return chosen(owner);
}

inline void list_orphan(struct ebbi_sheet *sheet)
{
    ebbi_lock_take(&orphans_lock);
    sheet->next = NULL;
    sheet->previous = youngest;
    *(youngest != NULL ? &youngest->next : &oldest) = sheet;
    youngest = sheet;
    ebbi_lock_drop(&orphans_lock);
}

inline int64_t disown_sheet(struct ebbi_sheet *sheet)
{
    int64_t live = sheet->live;
    ebbi_store_relaxed(&sheet->live, 0L);
    ebbi_store_relaxed(&sheet->owner, &ebbi_sheet_owner_nobody);
    return live;
}

// Counted as an orphan before it is in the list.
inline void orphan_listed_late(struct ebbi_sheet *sheet)
{
    int64_t live = disown_sheet(sheet);
    bool last = ebbi_fetch_add_acq_rel(&sheet->shared, live) == -live;
    list_orphan(sheet);
    if (last) {
        ebbi_orphan_end(sheet);
    }
}

// Who makes the orphan looks at the count again, behind the addition.
inline void orphan_looks_again(struct ebbi_sheet *sheet)
{
    int64_t live = disown_sheet(sheet);
    list_orphan(sheet);
    (void)ebbi_fetch_add_acq_rel(&sheet->shared, live);
    if (ebbi_load_acquire(&sheet->shared) == 0) {
        ebbi_orphan_end(sheet);
    }
}

// It leaves the end to those who free, who may all be done.
inline void orphan_never_ends(struct ebbi_sheet *sheet)
{
    int64_t live = disown_sheet(sheet);
    list_orphan(sheet);
    (void)ebbi_fetch_add_acq_rel(&sheet->shared, live);
}

inline void orphan(struct ebbi_sheet *sheet)
{
    static const auto chosen = is_mutant("orphan_listed_late")   ? orphan_listed_late
                               : is_mutant("orphan_looks_again") ? orphan_looks_again
                               : is_mutant("orphan_never_ends")  ? orphan_never_ends
                                                                 : ebbi_sheet_orphan;
    chosen(sheet);
}

// As in src/region/pool.c, which is about handles: the end of a thread, and the purge of open regions.
inline void disown(struct ebb_region *region)
{
    const void *me = ebb_self;
    (void)ebbi_cas_release(&region->front.owner, &me, static_cast<const void *>(nullptr));
}

inline void purge(struct ebb_region *region)
{
    ebbi_lock_take(&region->lock);
    ebbi_region_shed(region);
    ebbi_lock_drop(&region->lock);
}

// The pass over orphans works on a sheet that it has not claimed_orphan.
inline void pass_without_claim()
{
    ebbi_lock_take(&orphans_lock);
    struct ebbi_sheet *sheet = oldest;
    ebbi_lock_drop(&orphans_lock);
    if (sheet != NULL) {
        (void)purge_sheet(sheet);
    }
}

// It claims one whose end may have begun.
inline void pass_claims_any()
{
    ebbi_lock_take(&orphans_lock);
    struct ebbi_sheet *sheet = oldest;
    if (sheet != NULL) {
        (void)ebbi_fetch_add_relaxed(&sheet->shared, 1L);
    }
    claimed_orphan = sheet;
    ebbi_lock_drop(&orphans_lock);
    ebbi_lock_take(&orphans_lock);
    sheet = drop_claim();
    ebbi_lock_drop(&orphans_lock);
    if (sheet != NULL) {
        ebbi_sheet_destroy(sheet);
    }
}

inline void pass_over_orphans()
{
    bool waiting = false;
    if (is_mutant("pass_without_claim")) {
        pass_without_claim();
    } else if (is_mutant("pass_claims_any")) {
        pass_claims_any();
    } else {
        ebbi_orphans_purge(1, 0, &waiting);
    }
}

// A leave that looks before it counts down.
inline void leave_looks_first(struct ebb_region *region, bool)
{
    const void *me = ebb_self;
    (void)ebbi_cas_release(&region->front.owner, &me, static_cast<const void *>(nullptr));
    bool last = ebbi_load_acquire(&region->users) == (USERS_CLOSED | 1);
    (void)ebbi_fetch_add_acq_rel(&region->users, static_cast<uint32_t>(-1));
    if (last) {
        ebbi_lock_take(&region->lock);
        drop_user(finish_close(region));
    }
}

// A leave that looks behind its counting down: two may find the same.
inline void leave_looks_again(struct ebb_region *region, bool)
{
    const void *me = ebb_self;
    (void)ebbi_cas_release(&region->front.owner, &me, static_cast<const void *>(nullptr));
    (void)ebbi_fetch_add_acq_rel(&region->users, static_cast<uint32_t>(-1));
    if (ebbi_load_acquire(&region->users) == USERS_CLOSED) {
        ebbi_lock_take(&region->lock);
        drop_user(finish_close(region));
    }
}

inline void leave(struct ebb_region *region)
{
    static const auto chosen = is_mutant("leave_looks_first")   ? leave_looks_first
                               : is_mutant("leave_looks_again") ? leave_looks_again
                                                                : ebbi_region_leave;
    chosen(region, false);
}

} // namespace model

#undef _Static_assert
#undef int64_t
#undef uint64_t
#undef uintptr_t

#endif
