// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions under Relacy: how the last block of a sheet gives it back, how its owner's rights are taken
// away, how the last one to leave ends a region, and how ownership is handed over.
#include "region_sources.h"

namespace {

using model::Block;
using model::Shared;

// One region with one sheet, and blocks in it that threads use and free.
struct Stage {
    static constexpr unsigned most = 6;

    struct ebb_region handles[2] = {};
    struct ebbi_label label = {};
    Block blocks[most];
    void *places[most] = {};
    unsigned taken = 0, handles_taken = 0, spans = 0;
    int ended[2] = {}; // times that each region was
    int destroyed = 0; // sheets
    struct ebb_region *region = nullptr;
    static Stage *now;

    Stage()
    {
        std::memset(ebbi_model_chunk.bytes, 0, sizeof ebbi_model_chunk.bytes);
        std::memset(model::selves().heaps, 0, sizeof model::selves().heaps);
        model::words().count = 0;
        oldest = youngest = nullptr;
        now = this;
    }
    void act_as(int thread) { model::selves().acting = thread; } // -1: as the thread that runs

    void open(int thread, unsigned count)
    {
        act_as(thread);
        region = ebbi_region_open(nullptr, "model", 0, 0);
        for (unsigned i = 0; i < count; i++) {
            (void)take();
        }
        act_as(-1);
    }
    void enter(int thread, struct ebb_region *which)
    {
        act_as(thread);
        ebbi_region_enter(which);
        act_as(-1);
    }
    unsigned take()
    {
        enum ebbi_region_refusal refusal;
        unsigned i = taken++;
        places[i] = ebbi_region_is_easy(region, 16)
                        ? reinterpret_cast<void *>(static_cast<unsigned long>(ebbi_cursor_take(&region->own, 16)))
                        : ebbi_region_take(region, 16, 16, &refusal);
        RL_ASSERT(places[i] != nullptr);
        blocks[i].fill();
        return i;
    }
    void use_and_free(unsigned i)
    {
        blocks[i].read();
        model::sheet_free(places[i]);
    }
    struct ebbi_sheet *sheet() const { return ebbi_sheet_of(places[0]); }
    bool is_in_use(unsigned i) const { return ebbi_sheet_has(places[i]); }

    // All blocks' memory is used again.
    void reuse()
    {
        for (unsigned i = 0; i < taken; i++) {
            blocks[i].reuse();
        }
    }
    virtual void on_destroy() {}
    virtual void on_end(struct ebb_region *) {}

protected:
    ~Stage() = default;
};

Stage *Stage::now;

// The words of the first sheet that threads share.
struct SheetWords {
    Shared<void *> owner, cursor;
    Shared<long> live, shared;
    Shared<unsigned long> start, gone, remote;

    explicit SheetWords(struct ebbi_sheet *sheet)
        : owner(model::Operand<const void **>::place(&sheet->owner)),
          cursor(model::Operand<const struct ebbi_cursor *>::place(&sheet->cursor)),
          live(sheet->live.place()), shared(sheet->shared.place()), start(map(sheet, START)),
          gone(map(sheet, GONE)), remote(map(sheet, REMOTE))
    {
    }
    void die()
    {
        owner.die();
        cursor.die();
        live.die();
        shared.die();
        start.die();
        gone.die();
        remote.die();
    }
    static unsigned long *map(struct ebbi_sheet *sheet, size_t map)
    {
        return (ebbi_sheet_room(ebbi_sheet_start(sheet)) + map)->place();
    }
};

// The words of a region, and of the owner's cursor in it.
struct RegionWords {
    Shared<void *> owner;
    Shared<uint32_t> users;
    Shared<uint8_t> state;
    Shared<unsigned long> next, limit, bits;

    explicit RegionWords(struct ebb_region *region)
        : owner(model::Operand<const void *>::place(&region->owner)), users(&region->users), state(&region->state),
          next(region->own.next.place()), limit(region->own.limit.place()),
          bits(region->own.bits.place())
    {
    }
};

// `count` blocks, the region opened by `opener`.
template <int opener, unsigned count> struct OneSheet : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct Opened {
        Opened(Stage *stage) { stage->open(opener, count); }
    } opened{this};
    Shared<uint32_t> busy{model::busy_of(model::self_of(1))};
    SheetWords words{sheet()};
    RegionWords region_words{region};
    bool kept = false;

    void on_destroy() override
    {
        destroyed++;
        words.die();
        reuse();
    }
    void on_end(struct ebb_region *which) override
    {
        if (which->sheets != nullptr) {
            kept = true; // drained; the next region begins in it
            reuse();
        }
    }
    void is_over() const
    {
        RL_ASSERT(ended[0] == 1);
        RL_ASSERT(destroyed + kept == 1);
    }
    // Of `count` blocks the last one is in use still.
    void one_is_left()
    {
        RL_ASSERT(ended[0] == 1 && destroyed == 0 && !kept);
        for (unsigned i = 0; i < count; i++) {
            RL_ASSERT(is_in_use(i) == (i == count - 1));
        }
        use_and_free(count - 1);
        is_over();
    }
};

// The owner closes while two others free the last blocks.
struct SheetEnds : OneSheet<0, 3> {
    ~SheetEnds() { is_over(); }
    void thread(unsigned index)
    {
        use_and_free(index);
        if (index == 0) {
            ebbi_region_close(region);
        }
    }
};

// The same with a block that survives: the sheet ends with it.
struct SheetStays : OneSheet<0, 4> {
    ~SheetStays() { one_is_left(); }
    void thread(unsigned index)
    {
        use_and_free(index);
        if (index == 0) {
            ebbi_region_close(region);
        }
    }
};

// One that does not own the region closes it, while the owner and a third one free.
struct TakenAway : OneSheet<1, 3> {
    ~TakenAway() { is_over(); }
    void thread(unsigned index)
    {
        if (index == 0) {
            ebbi_region_close(region);
        } else if (index == 1) {
            use_and_free(0);
            use_and_free(1);
        } else {
            use_and_free(2);
        }
    }
};

struct TakenStays : OneSheet<1, 4> {
    ~TakenStays() { one_is_left(); }
    void thread(unsigned index)
    {
        if (index == 0) {
            ebbi_region_close(region);
        } else if (index == 1) {
            use_and_free(0);
            use_and_free(1);
        } else {
            use_and_free(2);
        }
    }
};

// Two leave while the opener closes; what they did in the region is plain memory.
struct LastLeaves : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct Opened {
        Opened(LastLeaves *stage)
        {
            stage->open(0, 0);
            stage->enter(1, stage->region);
            stage->enter(2, stage->region);
        }
    } opened{this};
    Shared<uint32_t> busy{model::busy_of(model::self_of(0))};
    RegionWords region_words{region};

    ~LastLeaves() { RL_ASSERT(ended[0] == 1); }
    void thread(unsigned index)
    {
        blocks[index].fill();
        if (index == 0) {
            ebbi_region_close(region);
        } else {
            model::leave(region);
        }
    }
    void on_end(struct ebb_region *) override
    {
        for (unsigned i = 0; i < threads; i++) {
            blocks[i].read();
            blocks[i].reuse();
        }
    }
};

// A child and its parent are closed, each current in another thread: the last one to leave the child
// may end both.
struct ChildLeaves : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct ebb_region *child = nullptr;
    struct Opened {
        Opened(ChildLeaves *stage)
        {
            stage->open(0, 0);
            stage->act_as(0);
            stage->child = ebbi_region_open(stage->region, "model", 0, 0);
            stage->enter(1, stage->child);
            stage->enter(2, stage->region);
        }
    } opened{this};
    Shared<uint32_t> busy{model::busy_of(model::self_of(0))};
    RegionWords region_words{region}, child_words{child};

    ~ChildLeaves() { RL_ASSERT(ended[0] == 1 && ended[1] == 1); }
    void thread(unsigned index)
    {
        blocks[index].fill();
        if (index == 0) {
            ebbi_region_close(child);
            ebbi_region_close(region);
        } else {
            model::leave(index == 1 ? child : region);
        }
    }
    void on_end(struct ebb_region *which) override
    {
        blocks[0].read();
        blocks[1].read();
        if (which == region) {
            RL_ASSERT(ended[1] == 1);
            blocks[2].read();
            blocks[2].reuse();
        }
    }
};

// Nobody's region: who enters becomes the owner, if nobody is; it allocates, frees and leaves.
struct HandedOver : OneSheet<0, 1> {
    static constexpr rl::thread_id_t threads = 2;

    struct Left {
        Left(HandedOver *stage)
        {
            stage->act_as(0);
            ebbi_region_detach(stage->region);
            stage->act_as(-1);
        }
    } left{this};
    Shared<uint32_t> other_busy{model::busy_of(model::self_of(0))};

    ~HandedOver()
    {
        for (unsigned i = 1; i < taken; i++) {
            for (unsigned j = 0; j < i; j++) {
                RL_ASSERT(places[i] != places[j]);
            }
        }
        ebbi_region_close(region);
        RL_ASSERT(destroyed == 0);
        use_and_free(0);
        is_over();
    }
    void thread(unsigned)
    {
        for (int i = 0; i < 2; i++) {
            ebbi_region_enter(region);
            use_and_free(take());
            model::leave(region);
        }
    }
};

const model::Scenario scenarios[] = {
    {"sheet_ends", rl::simulate<model::Suite<SheetEnds>>},
    {"sheet_stays", rl::simulate<model::Suite<SheetStays>>},
    {"taken_away", rl::simulate<model::Suite<TakenAway>>},
    {"taken_stays", rl::simulate<model::Suite<TakenStays>>},
    {"last_leaves", rl::simulate<model::Suite<LastLeaves>>},
    {"child_leaves", rl::simulate<model::Suite<ChildLeaves>>},
    {"handed_over", rl::simulate<model::Suite<HandedOver>>},
};

} // namespace

// ---- what src/region asks for --------------------------------------------------------------------

uint8_t ebbi_quarantine_mode = EBBI_QUARANTINE_OFF;
void ebbi_quarantine_begin(void) {}

struct ebbi_label *ebbi_label_find(const char *, bool) { return &Stage::now->label; }

struct ebb_region *ebbi_handle_take(void)
{
    RL_ASSERT(Stage::now->handles_taken < 2);
    return &Stage::now->handles[Stage::now->handles_taken++];
}

void ebbi_handle_give(struct ebb_region *region)
{
    Stage::now->ended[region - Stage::now->handles]++;
    Stage::now->on_end(region);
}

void ebbi_handle_cool(struct ebb_region *) { RL_ASSERT(!"no limits in the models"); }

struct ebbi_span *ebbi_span_alloc(size_t granules, size_t, uint8_t state)
{
    size_t granule = EBBI_FIRST_GRANULE + Stage::now->spans++;
    RL_ASSERT(granules == 1 && granule < EBBI_CHUNK_GRANULES);
    struct ebbi_span *span = ebbi_model_header(granule);
    span->state = state;
    span->granules = 1;
    return span;
}

void ebbi_span_free(struct ebbi_span *span)
{
    RL_ASSERT(span->state == EBBI_SPAN_SHEET);
    span->state = EBBI_SPAN_NONE;
    if (ebbi_span_index(span) == EBBI_FIRST_GRANULE) {
        Stage::now->on_destroy();
    }
}

void ebbi_fatal(const char *, ...)
{
    RL_ASSERT(!"fatal");
    std::abort();
}

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
