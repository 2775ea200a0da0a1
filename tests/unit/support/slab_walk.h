// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks P1-P5 of slab/slab.h. Nobody may be freeing into the slab meanwhile.
#pragma once

#include "support/engine.h"

namespace unit {

inline bool page_is_free(const ebbi_slab *slab, std::uintptr_t page)
{
    const ebbi_class *c = ebbi_slab_class(slab);
    std::size_t bytes = ebbi_os_page_size();
    for (unsigned b = 0; b < c->blocks; b++) {
        std::uintptr_t from = slab->first_block + std::size_t{b} * c->size;
        bool touches = from < page + bytes && from + c->size > page;
        if (touches && !ebbi_bits_test(slab->local, b))
            return false;
    }
    return true;
}

inline ebbi_word_run run_at(ebbi_slab *slab, void *const *blocks, std::size_t count)
{
    ebbi_division by = ebbi_division_of(slab->class_number);
    bool several = count > 1 && ebbi_slab_is_near(&by, blocks[0], blocks[1]);
    return several ? ebbi_slab_word_run(slab, blocks, count)
                   : ebbi_slab_single_run(slab, &by, blocks[0]);
}

inline void give_run(ebbi_slab *slab, ebbi_word_run run)
{
    ebbi_slab_give_bits(slab, run);
    ebbi_slab_count_given(slab, run.count, run.word);
}

inline void give_block(ebbi_slab *slab, void *p) { give_run(slab, run_at(slab, &p, 1)); }

inline std::string walk_slab(const ebbi_slab *slab)
{
    const ebbi_class *c = ebbi_slab_class(slab);
    const std::uint64_t *remote = ebbi_slab_remote(slab);
    if (slab->words != (c->blocks + 63) / 64)
        return "the number of words is wrong";
    for (unsigned w = 0; w < slab->words; w++) {
        if ((slab->local[w] & remote[w]) != 0)
            return "P1: a block is free twice, word " + std::to_string(w);
        if (((slab->summary >> w & 1) != 0) != (remote[w] != 0))
            return "P3: the summary is wrong about word " + std::to_string(w);
        if (w < slab->first_word && slab->local[w] != 0)
            return "P5: a bit below first_word, word " + std::to_string(w);
    }
    std::size_t bits = slab->words * std::size_t{64};
    if (ebbi_bits_count(slab->local, 0, c->blocks) != ebbi_bits_count(slab->local, 0, bits))
        return "a bit of no block";
    if (ebbi_bits_count(slab->local, 0, bits) != slab->free_count)
        return "P2: free_count is wrong";
    if (slab->class_number == EBBI_CLASS_EMPTY)
        return ""; // nobody may look at its pages
    auto start = address(ebbi_span_start(&slab->head));
    std::size_t page = ebbi_os_page_size();
    for (std::size_t i = 0; i < c->granules * EBBI_GRANULE / page; i++) {
        if (ebbi_bits_test(ebbi_slab_dirty_pages(const_cast<ebbi_slab *>(slab)), i) ||
            !page_is_free(slab, start + i * page))
            continue;
        auto *words = reinterpret_cast<const std::uint64_t *>(start + i * page);
        for (std::size_t k = 0; k < page / 8; k += 8)
            if (words[k] != 0)
                return "P4: a clean page holds something, page " + std::to_string(i);
    }
    return "";
}

} // namespace unit
