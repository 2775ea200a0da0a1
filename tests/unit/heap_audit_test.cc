// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: the audit finds each property of heap/heap.h that is broken, by its number, and none broken
// after what a program may do.
#include "support/engine.h"

namespace {

using namespace unit;

struct HeapAudit : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false);
        for (void *&block : blocks)
            block = ebb_malloc(size);
        heap = ebbi_heap_get();
        number = ebbi_class_for(size);
        for (std::size_t i = 0; i < blocks.size(); i += 2) // two of three stay: no slab is empty
            ebb_free(blocks[i]);
        slab = in_a_bucket();
        ASSERT_NE(nullptr, slab);
    }
    void TearDown() override
    {
        for (std::size_t i = 1; i < blocks.size(); i += 2)
            ebb_free(blocks[i]);
    }
    ebbi_slab *in_a_bucket() const
    {
        for (ebbi_slab *first : heap->own.shelves[number].bucket)
            if (first != nullptr)
                return first;
        return nullptr;
    }
    void audit() const
    {
        ebbi_lock_take(&heap->own.lock);
        ebbi_owner_audit(&heap->own);
        ebbi_lock_drop(&heap->own.lock);
        ebbi_magazines_audit(heap);
    }
    // Changes a value, expects the audit to name what is wrong, and puts it back.
    template <typename T, typename U> void broken(T &value, U wrong, const char *message) const
    {
        const T before = value;
        value = static_cast<T>(wrong);
        EXPECT_DEATH(audit(), std::string("ebbtide: .*: ") + message);
        value = before;
        audit();
    }
    unsigned bin() const { return ebbi_class_bin(number, heap->lane); }

    static constexpr std::size_t size = 48; // shares lines: the slabs are the thread's own
    std::vector<void *> blocks = std::vector<void *>(20000);
    ebbi_heap *heap = nullptr;
    ebbi_slab *slab = nullptr;
    unsigned number = 0;
};

TEST_F(HeapAudit, HeapsP2AMagazineHoldsBlocksOfItsBin)
{
    void *const other = ebb_malloc(4000);
    void **const top = heap->fast.top[bin()];
    ASSERT_NE(nullptr, top[-1]);
    broken(top[-1], other, "heap P2: a magazine's block");
    ebb_free(other);
}

TEST_F(HeapAudit, HeapsP2ABinHasItsPlace)
{
    std::vector<void *> theirs(4);
    std::thread([&] {
        for (void *&p : theirs)
            p = ebb_malloc(size);
    }).join();
    for (void *p : theirs)
        ebb_free(p);
    const unsigned tray = ebbi_tray_number(ebbi_tag_of(theirs[0]));
    ASSERT_NE(0U, heap->magazines[tray].slots);
    broken(heap->magazines[tray].bin, bin(), "heap P2: the bin of a tray");
    broken(heap->magazines[number].bin, bin() + 1, "heap P2: the bin of a class's magazine");
    broken(heap->magazines[tray].base[1], blocks[1], "heap P2: a magazine's block");
    ebbi_flush_foreign(heap);
    audit();
}

TEST_F(HeapAudit, OwnersP1TheLists)
{
    broken(slab->bucket, slab->bucket == 0 ? 1 : 0, "owner P1: the slab's bucket");
    broken(slab->previous, slab, "owner P1: links of a bucket");
    broken(slab->moves_at, slab->free_count, "owner P1: free blocks before the slab moves");
    broken(slab->owner, nullptr, "owner P1: the slab's owner");
    ebbi_slab *const current = heap->own.shelves[number].current;
    ASSERT_NE(nullptr, current);
    broken(current->bucket, 0, "owner P1: the current slab is in no list");
    broken(current->free_count, 60000, "owner P1: free blocks of a slab");
}

TEST_F(HeapAudit, HeapsP3TheMagazinesEnds)
{
    ebbi_magazine *const m = &heap->magazines[number];
    broken(m->base[0], m, "heap P3: a magazine's ends");
    broken(heap->fast.limit[bin()], m->base, "heap P3: a magazine's ends");
    broken(heap->arrays[number / 64], 0, "heap P3: the bit of a magazine's array");
    const unsigned unused = ebbi_class_bin(ebbi_class_for(30000), heap->lane);
    broken(heap->fast.limit[unused], m->base, "heap P3: a magazine without an array");
}

TEST_F(HeapAudit, OwnersP2TheSums)
{
    broken(heap->own.slab_count, 1, "owner P2: slabs in lists");
    broken(heap->own.held_bytes, 1, "owner P2: slabs in lists");
    broken(heap->own.dirty_bytes, heap->own.dirty_bytes + 1, "owner P2: dirty bytes");
}

TEST_F(HeapAudit, OwnersP3ThePurgeQueue)
{
    ASSERT_NE(nullptr, heap->own.purge_first);
    broken(heap->own.purge_first->purge_queued, false, "owner P3: a slab in the purge queue");
    broken(heap->own.purge_last, nullptr, "owner P3: the purge queue's end");
}

TEST_F(HeapAudit, HoldsAfterEveryStep)
{
    Random random(7);
    std::vector<void *> live(500);
    for (int i = 0; i < 20000; i++) {
        void *&p = live[random.below(live.size())];
        ebb_free(p);
        p = ebb_malloc(random.below(random.chance(8) ? 30000 : 500));
        if (random.chance(2000))
            ebb_trim();
        audit();
    }
    for (void *p : live)
        ebb_free(p);
    audit();
}

} // namespace
