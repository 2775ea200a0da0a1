// SPDX-License-Identifier: MIT OR Apache-2.0
#include "slab/slab.h"

#include "report/report.h"

static void *slab_start(const struct ebbi_slab *slab) { return ebbi_span_start(&slab->head); }

static size_t page_count(const struct ebbi_slab *slab)
{
    return ((size_t)ebbi_slab_class(slab)->granules << EBBI_GRANULE_SHIFT) / ebbi_os_page_size();
}

// Of word w of a bitmap, whether bits of blocks alone are set.
static bool has_blocks_alone(const struct ebbi_slab *slab, unsigned w, uint64_t bits)
{
    unsigned blocks = ebbi_slab_class(slab)->blocks;
    return w < slab->words && (blocks >= (w + 1) * 64 || bits >> (blocks % 64) == 0);
}

static void fill_bitmap(uint64_t *bitmap, unsigned blocks)
{
    unsigned whole = blocks / 64;
    for (unsigned w = 0; w < whole; w++) {
        bitmap[w] = ~(uint64_t)0;
    }
    if (blocks % 64 != 0) {
        bitmap[whole] = ((uint64_t)1 << (blocks % 64)) - 1;
    }
}

static size_t pages_in_granule(void) { return EBBI_GRANULE / ebbi_os_page_size(); }

static uint64_t granules_under(const struct ebbi_slab *slab, unsigned block)
{
    size_t size = ebbi_slab_class(slab)->size;
    uintptr_t first = slab->first_block + block * size - (uintptr_t)slab_start(slab);
    size_t from = first >> EBBI_GRANULE_SHIFT, to = (first + size - 1) >> EBBI_GRANULE_SHIFT;
    return ebbi_bits_mask(0, from, to + 1 - from);
}

// All blocks are free, and granules without a bit in `dirty` hold nothing.
static void begin_pages(struct ebbi_slab *slab, uint64_t dirty)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uint64_t *pages = ebbi_slab_dirty_pages(slab);
    EBBI_ASSERT(page_count(slab) <= (c->granules == 1 ? 1 : EBBI_INLINE_WORDS) * (size_t)64);
    for (size_t w = 0; w < (c->granules == 1 ? 1 : EBBI_INLINE_WORDS); w++) {
        pages[w] = 0;
    }
    for (uint64_t left = dirty; left != 0; left &= left - 1) {
        ebbi_bits_set(pages, ebbi_lowest_bit(left) * pages_in_granule(), pages_in_granule());
    }
    slab->dirty_blocks = dirty != 0 ? c->blocks : 0;
    for (unsigned block = 0; c->granules > 1 && dirty != 0 && block < c->blocks; block++) {
        slab->dirty_blocks -= (uint16_t)((granules_under(slab, block) & dirty) == 0);
    }
}

// The first with its bitmap room, which is returned with it.
static uint64_t dirty_granules(struct ebbi_slab *slab)
{
    uint64_t dirty = slab->words > EBBI_INLINE_WORDS;
    for (size_t g = 0; g < ebbi_slab_class(slab)->granules; g++) {
        size_t first = g * pages_in_granule();
        bool any = ebbi_bits_count(ebbi_slab_dirty_pages(slab), first, pages_in_granule()) != 0;
        dirty |= (uint64_t)any << g;
    }
    return dirty;
}

// Headers and bitmap rooms are recycled: every field is set here.
static void slab_prepare(struct ebbi_slab *slab, unsigned class_number, struct ebbi_owner *owner)
{
    const struct ebbi_class *c = &ebbi_classes[class_number];
    uintptr_t start = (uintptr_t)slab_start(slab);
    size_t colour = (start >> EBBI_GRANULE_SHIFT) % c->colours;
    slab->owner = owner;
    slab->first_block = start + colour * ebbi_class_colour(c);
    EBBI_ASSERT(slab->first_block % ebbi_min(c->align, EBBI_SLAB_ALIGN) == 0);
    EBBI_ASSERT(slab->first_block + (size_t)c->blocks * c->size <=
                start + ((size_t)c->granules << EBBI_GRANULE_SHIFT));
    slab->class_number = (uint8_t)class_number;
    slab->words = (uint8_t)((c->blocks + 63u) / 64u);
    slab->free_count = c->blocks;
    slab->first_word = 0;
    slab->early_blocks = 0;
    slab->pinned_bytes = 0;
    slab->bucket = EBBI_NO_BUCKET;
    slab->purge_queued = false;
    slab->has_stranded = slab->purging = false;
    slab->moves_at = 0;
    slab->summary = 0;
    slab->touched = 0;
    slab->since_ms = (uint32_t)ebbi_os_now_ms();
    slab->local = slab->local_words;
    if (slab->words > EBBI_INLINE_WORDS) {
        slab->local = ebbi_span_bitmap_room(&slab->head);
    }
    EBBI_ASSERT(slab->words <= EBBI_ROOM_WORDS);
    for (unsigned w = 0; w < slab->words; w++) {
        ebbi_slab_remote(slab)[w] = 0;
    }
    fill_bitmap(slab->local, c->blocks);
}

// Nobody may touch what lies in it; where the kernel refuses that, nobody is stopped.
static void close_empty(const struct ebbi_slab *slab)
{
    size_t bytes = (size_t)slab->head.granules << EBBI_GRANULE_SHIFT;
    ebbi_dense_split(slab_start(slab), bytes);
    (void)(slab->head.zeroed ? ebbi_os_close : ebbi_os_guard)(slab_start(slab), bytes);
}

// False: the kernel refuses, and the span stays as it is, for ever.
static bool open_empty(struct ebbi_slab *slab)
{
    bool done =
        ebbi_os_commit(slab_start(slab), (size_t)slab->head.granules << EBBI_GRANULE_SHIFT) == 0;
    slab->head.state = done ? slab->head.state : EBBI_SPAN_QUARANTINE;
    return done;
}

struct ebbi_slab *ebbi_slab_create(unsigned class_number, unsigned bin, struct ebbi_owner *owner,
                                   enum ebbi_fill fill)
{
    EBBI_ASSERT(class_number > 0 && class_number < EBBI_CLASS_COUNT);
    EBBI_ASSERT(ebbi_tag_class(bin) == class_number);
    size_t granules = ebbi_classes[class_number].granules;
    uint64_t dirty;
    struct ebbi_span *span = ebbi_span_alloc_part(granules, EBBI_SPAN_SLAB, fill, &dirty);
    if (span == NULL) {
        return NULL;
    }
    EBBI_ASSERT(span->state == EBBI_SPAN_SLAB && span->granules == granules);
    struct ebbi_slab *slab = ebbi_slab_in(span);
    slab_prepare(slab, class_number, owner);
    begin_pages(slab, dirty);
    if (class_number == EBBI_CLASS_EMPTY) {
        close_empty(slab);
    }
    slab->streak = slab->missing = 0;
    for (size_t g = 1; g < granules; g++) {
        slab[g].head.state = EBBI_SPAN_INSIDE;
        slab[g].head.back = (uint8_t)g;
    }
    ebbi_tags_place(slab_start(slab), granules, slab->first_block - (uintptr_t)slab_start(slab));
    ebbi_tags_set(slab_start(slab), granules, (uint16_t)bin);
    return slab;
}

void ebbi_slab_destroy(struct ebbi_slab *slab)
{
    EBBI_SLAB_AUDIT(slab);
    EBBI_ASSERT(slab->free_count == ebbi_slab_class(slab)->blocks);
    // relaxed: what is pending, another thread has freed for the second time
    if (EBBI_UNLIKELY(ebbi_load_relaxed(&slab->summary) != 0)) {
        (void)ebbi_slab_collect(slab); // reports it
    }
    EBBI_ASSERT(slab->bucket == EBBI_NO_BUCKET && !slab->purge_queued && !slab->purging);
    EBBI_ASSERT(!slab->has_stranded);
    EBBI_ASSERT(ebbi_tag_class(ebbi_tag_of(slab_start(slab))) == slab->class_number);
    size_t granules = ebbi_slab_class(slab)->granules;
    uint64_t dirty = dirty_granules(slab);
    ebbi_tags_set(slab_start(slab), granules, EBBI_TAG_NONE);
    for (size_t g = 1; g < granules; g++) {
        EBBI_ASSERT(slab[g].head.state == EBBI_SPAN_INSIDE && slab[g].head.back == g);
        slab[g].head.state = EBBI_SPAN_NONE;
    }
    if (slab->class_number != EBBI_CLASS_EMPTY || open_empty(slab)) {
        ebbi_span_free_part(&slab->head, dirty);
    }
}

// Marks the pages under the blocks [low, high] of the slab as holding something.
static void mark_dirty(struct ebbi_slab *slab, unsigned low, unsigned high)
{
    size_t size = ebbi_slab_class(slab)->size;
    unsigned page_shift = ebbi_lowest_bit(ebbi_os_page_size());
    uintptr_t start = (uintptr_t)slab_start(slab);
    size_t from = (slab->first_block + low * size - start) >> page_shift;
    size_t to = (slab->first_block + (high + 1) * size - 1 - start) >> page_shift;
    EBBI_ASSERT(low <= high && high < ebbi_slab_class(slab)->blocks);
    EBBI_ASSERT(from <= to && to < page_count(slab));
    ebbi_bits_set(ebbi_slab_dirty_pages(slab), from, to + 1 - from);
}

// Takes blocks of the lowest bits of a word, the first of which stands for `first`. Moves *slot down.
static size_t take_word_blocks(void ***slot, uintptr_t first, size_t size, uint64_t *word,
                               size_t wanted)
{
    uint64_t bits = *word;
    void **next = *slot;
    size_t left = wanted;
    while (bits != 0 && left > 0) {
        unsigned low = ebbi_lowest_bit(bits);
        uintptr_t block = first + low * size;
        uint64_t behind = ~(bits >> low);
        size_t run = 1;
        if ((behind & 15) == 0) { // blocks side by side
            run = ebbi_min(behind != 0 ? ebbi_lowest_bit(behind) : 64, left);
        }
        for (size_t i = 0; i < run; i++, block += size) {
            *--next = (void *)block;
        }
        bits &= run < 64 - low ? ~(uint64_t)0 << (low + run) : 0;
        left -= run;
    }
    *slot = next;
    *word = bits;
    return wanted - left;
}

static void count_taken(struct ebbi_slab *slab, size_t got)
{
    size_t dirty = ebbi_min(slab->dirty_blocks, got), pinned = slab->pinned_bytes;
    size_t clean_bytes = (got - dirty) * ebbi_slab_class(slab)->size;
    slab->free_count = (uint16_t)(slab->free_count - got);
    slab->dirty_blocks = (uint16_t)(slab->dirty_blocks - dirty);
    slab->early_blocks = (uint16_t)(slab->early_blocks - ebbi_min(slab->early_blocks, got - dirty));
    slab->pinned_bytes = (uint32_t)(pinned - ebbi_min(pinned, clean_bytes));
    EBBI_ASSERT(slab->dirty_blocks <= slab->free_count);
}

size_t ebbi_slab_take(struct ebbi_slab *slab, void **slots, size_t wanted)
{
    size_t size = ebbi_slab_class(slab)->size;
    size_t left = ebbi_min(wanted, slab->free_count);
    EBBI_ASSERT(!slab->purging);
    void **slot = slots + wanted;
    size_t got = left;
    for (unsigned w = slab->first_word; left > 0; w++) {
        EBBI_ASSERT(w < slab->words); // P2
        uint64_t word = slab->local[w];
        slab->first_word = (uint16_t)w;
        if (word == 0) {
            continue;
        }
        size_t taken =
            take_word_blocks(&slot, slab->first_block + (size_t)w * 64 * size, size, &word, left);
        mark_dirty(slab, w * 64 + ebbi_lowest_bit(slab->local[w]),
                   w * 64 + ebbi_highest_bit(slab->local[w] ^ word));
        slab->local[w] = word;
        left -= taken;
    }
    count_taken(slab, got);
    EBBI_SLAB_AUDIT(slab);
    return got;
}

void ebbi_slab_take_one(struct ebbi_slab *slab, unsigned block)
{
    EBBI_ASSERT(!slab->purging && ebbi_slab_is_free(slab, block));
    mark_dirty(slab, block, block);
    slab->local[block / 64] &= ~((uint64_t)1 << (block % 64));
    count_taken(slab, 1);
    EBBI_SLAB_AUDIT(slab);
}

// How many of the blocks, of which the first lies in [start, start + bytes), lie there side by side, upward or downward.
static size_t ordered(void *const *blocks, size_t count, size_t size, uintptr_t start, size_t bytes)
{
    uintptr_t p = (uintptr_t)blocks[0];
    bool up = (uintptr_t)blocks[1] > p;
    size_t step = up ? size : 0 - size;
    size_t most = ebbi_min(count, (up ? start + bytes - p : p - start + size) / size);
    size_t i = 1;
    while (i < most && (uintptr_t)blocks[i] == (p += step)) {
        i++;
    }
    return i;
}

struct ebbi_word_run ebbi_slab_word_run(const struct ebbi_slab *slab, void *const *blocks,
                                        size_t count)
{
    struct ebbi_division by = ebbi_division_of(slab->class_number);
    uint64_t size = by.size;
    uint64_t magic = by.magic;
    EBBI_ASSERT(count > 1);
    unsigned word = ebbi_slab_block_by(slab, &by, blocks[0]) / 64;
    uintptr_t start = slab->first_block + (uint64_t)word * 64 * size;
    uint64_t bytes = ebbi_min(by.blocks - word * (uint64_t)64, 64) * size;
    size_t i = ordered(blocks, ebbi_min(count, 64), size, start, bytes);
    uint64_t low = ebbi_min((uintptr_t)blocks[0], (uintptr_t)blocks[i - 1]) - start;
    uint64_t mask = (~(uint64_t)0 >> (64 - i)) << (low * magic >> 40);
    for (; i < count; i++) {
        uint64_t offset = (uintptr_t)blocks[i] - start; // huge when it is below
        uint64_t bit = offset * magic >> 40;
        if (offset >= bytes || bit * size != offset || (mask >> bit & 1) != 0) {
            break;
        }
        mask |= (uint64_t)1 << bit;
    }
    return (struct ebbi_word_run){mask, word, (unsigned)i};
}

bool ebbi_slab_give_remote(struct ebbi_slab *slab, unsigned word, uint64_t mask)
{
    EBBI_ASSERT(mask != 0 && has_blocks_alone(slab, word, mask));
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t first_block = slab->first_block;
    EBBI_ATOMIC(uint64_t) *remote = &ebbi_slab_remote(slab)[word];
    ebbi_compiler_fence();                       // what was read of a slab that lives still is true
    if (EBBI_UNLIKELY(!ebbi_slab_lives(slab))) { // it went since the blocks were looked at
        ebbi_slab_report_late_free(slab);
    }
    // release[remote-set -> remote-take]: this thread is done with the blocks
    uint64_t before = ebbi_fetch_or_release(remote, mask);
    if (EBBI_UNLIKELY((before & mask) != 0)) {
        unsigned block = word * 64 + ebbi_lowest_bit(before & mask);
        ebbi_slab_report_double_free((void *)(first_block + (size_t)block * c->size));
    }
    if (before != 0) {
        return false;
    }
    // release[summary-set -> summary-take]: the word is non-zero
    // acquire[summary-set <- summary-take]: the owner has read pending_next, it may be written
    return ebbi_fetch_or_acq_rel(&slab->summary, (uint64_t)1 << word) == 0;
}

static void take_word(struct ebbi_slab *slab, unsigned w)
{
    // acquire[remote-take <- remote-set]: the other thread is done with these blocks
    uint64_t bits = ebbi_exchange_acquire(&ebbi_slab_remote(slab)[w], (uint64_t)0);
    uint64_t twice = bits & slab->local[w];
    if (EBBI_UNLIKELY(twice != 0)) {
        ebbi_slab_report_free_bits(slab, w, twice);
    }
    EBBI_ASSERT(has_blocks_alone(slab, w, bits));
    EBBI_ASSERT(slab->free_count + ebbi_count_bits(bits) <= ebbi_slab_class(slab)->blocks);
    slab->local[w] |= bits;
    slab->free_count = (uint16_t)(slab->free_count + ebbi_count_bits(bits));
    slab->dirty_blocks = (uint16_t)(slab->dirty_blocks + ebbi_count_bits(bits));
}

size_t ebbi_slab_collect(struct ebbi_slab *slab)
{
    size_t before = slab->free_count;
    // acquire[summary-take <- summary-set]: the words it names are non-zero
    // release[summary-take -> summary-set]: pending_next has been read
    uint64_t named = ebbi_exchange_acq_rel(&slab->summary, (uint64_t)0);
    if (named != 0) {
        slab->first_word = (uint16_t)ebbi_min(slab->first_word, ebbi_lowest_bit(named));
    }
    for (; named != 0; named &= named - 1) {
        take_word(slab, ebbi_lowest_bit(named));
    }
    EBBI_ASSERT(slab->dirty_blocks <= slab->free_count && slab->free_count >= before);
    EBBI_SLAB_AUDIT(slab);
    return slab->free_count - before;
}

static uint64_t *stranded_words(struct ebbi_slab *slab)
{
    uint64_t *room = ebbi_span_bitmap_room(&slab->head);
    return room + 2 * EBBI_ROOM_WORDS;
}

void ebbi_slab_strand(struct ebbi_slab *slab, void *p)
{
    unsigned block = ebbi_slab_block(slab, p);
    uint64_t *map = stranded_words(slab);
    uint64_t bit = (uint64_t)1 << (block % 64);
    for (unsigned w = 0; w < slab->words && !slab->has_stranded; w++) {
        map[w] = 0;
    }
    slab->has_stranded = true;
    if ((map[block / 64] & bit) != 0) {
        ebbi_slab_report_double_retire(p);
    }
    map[block / 64] |= bit;
}

void ebbi_slab_take_stranded(struct ebbi_slab *slab,
                             void (*send)(struct ebbi_slab *slab, unsigned word, uint64_t mask))
{
    uint64_t taken[EBBI_ROOM_WORDS];
    unsigned count = slab->has_stranded ? slab->words : 0;
    EBBI_ASSERT(count <= EBBI_ROOM_WORDS);
    slab->has_stranded = false;
    for (unsigned w = 0; w < count; w++) {
        taken[w] = stranded_words(slab)[w];
    }
    for (unsigned w = 0; w < count; w++) { // the last word that is sent may end the slab
        if (taken[w] != 0) {
            send(slab, w, taken[w]);
        }
    }
}

static EBBI_COLD struct ebbi_report misuse_of(const char *kind, const void *p, size_t distance,
                                              size_t bytes)
{
    return (struct ebbi_report){
        .kind = {kind}, .address = (uintptr_t)p, .block = {(uintptr_t)p - distance, bytes}};
}

void ebbi_slab_report_double_retire(const void *p)
{
    ebbi_report_said(misuse_of("double retire", p, 0, ebbi_slab_class(ebbi_slab_of(p))->size),
                     "%p, a block of %u bytes, waits for its grace period already", p,
                     ebbi_slab_class(ebbi_slab_of(p))->size);
}

void ebbi_slab_report_double_free(const void *p)
{
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    if (!ebbi_slab_lives(slab)) {
        ebbi_slab_report_no_block(slab, p);
    }
    ebbi_report_said(misuse_of("double free", p, 0, ebbi_slab_class(slab)->size),
                     "%p, a block of %u bytes, is free already", p, ebbi_slab_class(slab)->size);
}

void ebbi_slab_report_free_bits(const struct ebbi_slab *slab, unsigned word, uint64_t twice)
{
    size_t block = (size_t)word * 64 + ebbi_lowest_bit(twice);
    ebbi_slab_report_double_free((void *)(slab->first_block + block * ebbi_slab_class(slab)->size));
}

void ebbi_slab_misuse_gone(const void *p)
{
    ebbi_misuse_said((struct ebbi_report){.kind = {"double free"}, .address = (uintptr_t)p},
                     "%p, and all blocks around it, were free already", p);
}

void ebbi_slab_report_late_free(const struct ebbi_slab *slab)
{
    ebbi_report_said((struct ebbi_report){.kind = {"double free"}},
                     "of a block in [%p, %p), where all blocks were free already", slab_start(slab),
                     (void *)((uintptr_t)slab_start(slab) + EBBI_GRANULE));
}

void ebbi_slab_misuse_no_block(const struct ebbi_slab *slab, const void *p, const char *what)
{
    size_t size = ebbi_slab_lives(slab) ? ebbi_slab_class(slab)->size : 0; // as others end it
    uintptr_t offset = (uintptr_t)p - slab->first_block;
    struct ebbi_report report = {.kind = {"invalid ", what}, .address = (uintptr_t)p};
    if (size == 0) {
        ebbi_slab_misuse_gone(p);
    } else if ((uintptr_t)p < slab->first_block || offset / size >= ebbi_slab_class(slab)->blocks) {
        ebbi_misuse_said(report, "%p lies between the blocks of a slab", p);
    } else {
        report.block = (struct ebbi_extent){(uintptr_t)p - offset % size, size};
        ebbi_misuse_said(report, "%p is %zu bytes inside the block of %zu bytes at %p", p,
                         (size_t)(offset % size), size, (void *)((uintptr_t)p - offset % size));
    }
}

void ebbi_slab_report_no_block(const struct ebbi_slab *slab, const void *p)
{
    ebbi_slab_misuse_no_block(slab, p, "free");
    ebbi_end();
}
