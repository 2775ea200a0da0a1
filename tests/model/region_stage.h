// SPDX-License-Identifier: MIT OR Apache-2.0
// What the models of regions share: a region with a sheet of blocks that threads use and free, the
// words that they share, and what src/region asks of the layers around it.
#ifndef EBB_MODEL_REGION_STAGE_H
#define EBB_MODEL_REGION_STAGE_H

#include "region_sources.h"

namespace model {

// Not in a search of all schedules, which has them anyway.
inline bool threads_start_late;

// Relacy's random schedules let all threads go on at about the same pace. For one to do all of its few
// steps behind most of another's many it has to start late.
inline void start_late()
{
    for (unsigned n = threads_start_late ? rl::rand(80) : 0; n > 0; n--) {
        pause();
    }
}

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
    static inline Stage *now;

    Stage()
    {
        std::memset(ebbi_model_chunk.bytes, 0, sizeof ebbi_model_chunk.bytes);
        std::memset(selves().heaps, 0, sizeof selves().heaps);
        words().count = 0;
        oldest = youngest = claimed_orphan = nullptr;
        now = this;
    }
    void act_as(int thread) { selves().acting = thread; } // -1: as the thread that runs

    void open(int thread, unsigned count, size_t bytes = EBBI_UNIT)
    {
        act_as(thread);
        region = ebbi_region_open(nullptr, "model", 0, 0);
        for (unsigned i = 0; i < count; i++) {
            (void)take(bytes);
        }
        act_as(-1);
    }
    void enter(int thread, struct ebb_region *which)
    {
        act_as(thread);
        ebbi_region_enter(which);
        act_as(-1);
    }
    void detach(int thread)
    {
        act_as(thread);
        ebbi_region_detach(region);
        act_as(-1);
    }
    unsigned take(size_t bytes = EBBI_UNIT)
    {
        enum ebbi_region_refusal refusal;
        unsigned i = taken++;
        places[i] = ebbi_region_is_easy(region, bytes)
                        ? (void *)ebbi_cursor_take(&region->front.cursor, bytes)
                        : ebbi_region_take(region, bytes, EBBI_UNIT, &refusal);
        RL_ASSERT(places[i] != nullptr);
        blocks[i].fill();
        return i;
    }
    void use_and_free(unsigned i)
    {
        blocks[i].read();
        sheet_free(places[i]);
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
    virtual ~Stage() = default;
    virtual void on_destroy() {}
    virtual void on_end(struct ebb_region *) {}
};

// The words of the first sheet that threads share.
struct SheetWords {
    Shared<void *> owner, cursor;
    Shared<long> live, shared;
    Shared<unsigned long> start, gone, remote;

    explicit SheetWords(struct ebbi_sheet *sheet)
        : owner(Operand<const void **>::place(&sheet->owner)),
          cursor(Operand<const struct ebbi_cursor *>::place(&sheet->cursor)),
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
        : owner(Operand<const void *>::place(&region->front.owner)), users(&region->users),
          state(&region->state), next(region->front.cursor.next.place()),
          limit(region->front.cursor.limit.place()), bits(region->front.cursor.bits.place())
    {
    }
};

// `count` blocks, the region opened by `opener`.
template <int opener, unsigned count, size_t bytes = EBBI_UNIT> struct OneSheet : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct Opened {
        Opened(Stage *stage) { stage->open(opener, count, bytes); }
    } opened{this};
    Shared<uint32_t> busy{busy_of(self_of(1))};
    SheetWords words{sheet()};
    RegionWords region_words{region};
    bool kept = false;

    void on_destroy() override
    {
        destroyed++;
        words.die();
        for (unsigned i = 0; i < taken; i++) {
            if (ebbi_sheet_of(places[i]) == sheet()) {
                blocks[i].reuse();
            }
        }
    }
    void on_end(struct ebb_region *which) override
    {
        if (which->sheets != nullptr) {
            kept = true; // drained; the next region begins in it
            reuse();
        }
    }
    // `left`: the last block is in use still, the others are not.
    void is_over(unsigned left)
    {
        RL_ASSERT(ended[0] == 1);
        if (left == 1) {
            RL_ASSERT(destroyed == 0 && !kept);
            for (unsigned i = 0; i < count; i++) {
                RL_ASSERT(is_in_use(i) == (i == count - 1));
            }
            use_and_free(count - 1);
        }
        RL_ASSERT(destroyed + kept == 1);
        RL_ASSERT(oldest == nullptr && youngest == nullptr);
    }
};

} // namespace model

// ---- what src/region asks for --------------------------------------------------------------------

inline struct ebbi_labels ebbi_labels = {};
inline struct ebbi_note *ebbi_large_note(void *) { return nullptr; } // no scenario has any

inline struct ebbi_label *ebbi_label_find(const char *, bool) { return &model::Stage::now->label; }

inline struct ebb_region *ebbi_handle_take(void)
{
    RL_ASSERT(model::Stage::now->handles_taken < 2);
    return &model::Stage::now->handles[model::Stage::now->handles_taken++];
}

inline bool ebbi_handle_give(struct ebb_region *region)
{
    model::Stage::now->ended[region - model::Stage::now->handles]++;
    model::Stage::now->on_end(region);
    return false;
}

inline void ebbi_closing_put(struct ebb_region *, const void *)
{
    RL_ASSERT(!"the models have a membarrier");
}

inline void ebbi_handle_cool(struct ebb_region *) { RL_ASSERT(!"no limits in the models"); }

inline struct ebbi_span *ebbi_span_alloc(size_t granules, size_t, uint8_t state)
{
    size_t granule = EBBI_FIRST_GRANULE + model::Stage::now->spans++;
    RL_ASSERT(granules == 1 && granule < EBBI_CHUNK_GRANULES);
    struct ebbi_span *span = ebbi_model_header(granule);
    span->state = state;
    span->granules = 1;
    return span;
}

inline void ebbi_span_free(struct ebbi_span *span)
{
    RL_ASSERT(span->state == EBBI_SPAN_SHEET);
    span->state = EBBI_SPAN_NONE;
    if (ebbi_span_index(span) == EBBI_FIRST_GRANULE) {
        model::Stage::now->on_destroy();
    }
}

inline void ebbi_fatal(const char *, ...)
{
    RL_ASSERT(!"fatal");
    std::abort();
}

void ebbi_report_said(struct ebbi_report, const char *, ...)
{
    RL_ASSERT(!"reported");
    std::abort();
}

#endif
