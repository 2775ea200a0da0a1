// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on plain blocks, wherever they come from.
#pragma once

#include <cerrno>

#include "run.h"

namespace random_test {

inline void op_malloc(Worker &w, const Record &r)
{
    const std::size_t size = r.size(w.run.config.profile);
    errno = 0;
    admit_plain(w, ebb_malloc(size), size);
}

inline void op_calloc(Worker &w, const Record &r)
{
    const std::size_t size = r.size(w.run.config.profile), count = 1 + r.x() % 3;
    errno = 0;
    void *const p = ebb_calloc(count, size);
    check_zero(p, count * size);
    admit_plain(w, p, count * size);
}

inline void op_free(Worker &w, const Record &r)
{
    if (Block *block = w.model.pick(r.pick()))
        drop(w, block);
}

inline void op_free_sized(Worker &w, const Record &r)
{
    Block *block = w.model.pick(r.pick());
    if (block == nullptr)
        return;
    Model::check(*block);
    const Model::Owned owned = w.model.remove(block);
    errno = 77;
    if (r.x() % 2 == 0)
        ebb_free_sized(owned->at, owned->size);
    else
        ebb_free_aligned_sized(owned->at, 16, owned->size);
    ebb_free(nullptr);
    RANDOM_CHECK(errno == 77, "free changed errno to %d", errno);
}

// What a realloc gave. p may be the old address: then the block is where it was.
inline void settle(Worker &w, Model::Owned old, void *p, std::size_t size, Region *source)
{
    if (p == nullptr) {
        expect_refused(w, source, size);
        Model::check(*old);
        w.model.insert(std::move(old));
        return;
    }
    check_pattern(p, old->usable, std::min(size, old->size), old->serial, "the contents moved");
    if (p != old->at) {
        admit(w, p, size, 16, source);
        return;
    }
    ebb_region *const of = ebb_region_of(p);
    const Region *const region = old->region;
    RANDOM_CHECK(region == nullptr || of == region->handle || (of == nullptr && region->closes),
                 "region_of(%p) is %p after realloc in place, not region %u", p,
                 static_cast<void *>(of), id_of(region));
    w.model.admit(p, size, 16, old->region);
}

// As a realloc to the same size.
inline void op_compact(Worker &w, const Record &r)
{
    Block *block = w.model.pick(r.pick());
    if (block == nullptr)
        return;
    Model::check(*block);
    Model::Owned old = w.model.remove(block);
    (void)ebb_is_sparse(old->at);
    void *const p = ebb_compact(old->at);
    const std::size_t size = old->size;
    RANDOM_CHECK(p != nullptr && ebb_malloc_usable_size(p) == old->usable,
                 "compact gave %p, of another size", p);
    settle(w, std::move(old), p, size, nullptr);
}

inline void op_realloc(Worker &w, const Record &r)
{
    Block *block = w.model.pick(r.pick());
    const std::size_t size =
        r.x() % 8 == 0 && block ? block->size + 16 : r.size(w.run.config.profile);
    if (block == nullptr) {
        errno = 0;
        admit_plain(w, ebb_realloc(nullptr, size), size);
        return;
    }
    Model::check(*block);
    Model::Owned old = w.model.remove(block);
    errno = 0;
    void *const p = ebb_realloc(old->at, size);
    if (size == 0) {
        RANDOM_CHECK(p == nullptr, "realloc to 0 gave %p", p);
        return;
    }
    settle(w, std::move(old), p, size, source_of(w));
}

inline void op_huge(Worker &w, const Record &r)
{
    if (w.model.bytes() > (std::size_t{64} << 20))
        return;
    const std::size_t size = (std::size_t{r.y() % 40u} << 20) + r.number();
    errno = 0;
    void *const p = r.x() % 2 == 0 ? ebb_malloc(size) : ebb_calloc(1, size);
    if (r.x() % 2 != 0)
        check_zero(p, size);
    admit_plain(w, p, size);
}

inline void op_huge_realloc(Worker &w, const Record &r)
{
    if (w.model.bytes() > (std::size_t{64} << 20))
        return;
    const std::size_t first = (std::size_t{30 + r.x() % 9u} << 20) + r.number();
    errno = 0;
    Block *const block = admit_plain(w, ebb_malloc(first), first);
    if (block == nullptr)
        return;
    const std::size_t size = (std::size_t{1 + r.y() % 48u} << 20) + r.number() / 2;
    Model::Owned old = w.model.remove(block);
    errno = 0;
    void *const p = ebb_realloc(old->at, size);
    settle(w, std::move(old), p, size, source_of(w));
}

inline void op_aligned(Worker &w, const Record &r)
{
    const std::size_t size = r.size(w.run.config.profile);
    const std::size_t align = std::size_t{1} << r.x() % 18;
    void *p = nullptr;
    errno = 0;
    if (r.y() % 3 == 0)
        p = ebb_aligned_alloc(align, size);
    else if (r.y() % 3 == 1)
        p = ebb_memalign(align, size);
    else if (align >= sizeof(void *)) {
        const int result = ebb_posix_memalign(&p, align, size);
        errno = result;
        RANDOM_CHECK((result == 0) == (p != nullptr), "posix_memalign gave %d and %p", result, p);
    } else
        return;
    admit_plain(w, p, size, align);
}

inline void op_bad_align(Worker &w, const Record &r)
{
    const std::size_t align = (r.number() & ~std::size_t{1}) * 2 + 6; // 6, 10, 14: two bits or more
    if ((align & (align - 1)) == 0)
        return;
    void *p = &w;
    errno = 0;
    RANDOM_CHECK(ebb_aligned_alloc(align, 64) == nullptr && errno == EINVAL, "align %zu", align);
    errno = 0;
    RANDOM_CHECK(ebb_memalign(align, 64) == nullptr && errno == EINVAL, "align %zu", align);
    errno = 77;
    RANDOM_CHECK(ebb_posix_memalign(&p, align, 64) == EINVAL && p == &w && errno == 77, "align %zu",
                 align);
    RANDOM_CHECK(ebb_posix_memalign(&p, 4, 64) == EINVAL && p == &w && errno == 77, "align 4");
}

// Sizes that are refused always, and change nothing.
inline void op_too_much(Worker &w, const Record &r)
{
    const std::size_t much = SIZE_MAX - r.number();
    errno = 0;
    RANDOM_CHECK(ebb_malloc(much) == nullptr && errno == ENOMEM, "malloc of %zu", much);
    errno = 0;
    RANDOM_CHECK(ebb_calloc(SIZE_MAX / 2, 3) == nullptr && errno == ENOMEM, "calloc");
    errno = 0;
    RANDOM_CHECK(ebb_aligned_alloc(4096, much) == nullptr && errno == ENOMEM, "aligned %zu", much);
    if (Block *block = w.model.pick(r.pick())) {
        errno = 0;
        RANDOM_CHECK(ebb_realloc(block->at, much) == nullptr && errno == ENOMEM, "realloc to %zu",
                     much);
        Model::check(*block);
    }
}

inline void check_sums()
{
    ebb_stats now;
    ebb_stats_get(&now);
    const std::size_t sum = now.resident_live + now.resident_rounding + now.resident_cached +
                            now.resident_pinned + now.resident_free + now.resident_metadata +
                            now.resident_other;
    RANDOM_CHECK(sum == now.resident, "the items sum up to %zu, not %zu", sum, now.resident);
}

inline std::size_t option_value(const std::string &name)
{
    std::size_t value = 0;
    int is_set = 0;
    for (unsigned i = 0; const char *const found = ebb_option_value(i, &value, &is_set); i++)
        if (name == found)
            return value;
    fail("expected an option %s", name.c_str());
}

inline void op_inform(Worker &, const Record &r)
{
    static thread_local char text[8192];
    const bool json = r.x() % 2 == 0;
    const std::size_t size = r.number() % sizeof text;
    std::memset(text, 'x', sizeof text);
    const std::size_t whole = json ? ebb_stats_json(text, size) : ebb_stats_text(text, size);
    RANDOM_CHECK(size == 0 || std::strlen(text) == std::min(whole, size - 1), "cut to %zu of %zu",
                 size, whole);
    RANDOM_CHECK(text[size] == 'x', "written beyond %zu bytes", size);
    unsigned index = 0;
    std::size_t value;
    int is_set;
    while (ebb_option_value(index, &value, &is_set) != nullptr)
        index++;
    RANDOM_CHECK(index > 4 && index < 100, "%u options", index);
    RANDOM_CHECK(std::strcmp(ebb_version(), "0.1.0") == 0, "version %s", ebb_version());
}

inline void op_stats(Worker &, const Record &) { check_sums(); }

inline void op_threads(Worker &, const Record &r)
{
    ebb_thread_stats lines[8];
    const std::size_t given = r.x() % 9, count = ebb_threads_get(lines, given);
    RANDOM_CHECK(count >= 1, "this thread has allocated");
    for (std::size_t i = 0; i < std::min(count, given); i++)
        RANDOM_CHECK(lines[i].thread != 0 && lines[i].cached_bytes < std::size_t{1} << 40,
                     "thread %llu: %zu cached", static_cast<unsigned long long>(lines[i].thread),
                     lines[i].cached_bytes);
}
inline void op_trim(Worker &, const Record &) { ebb_trim(); }
inline void op_check(Worker &w, const Record &)
{
    w.model.check_all();
    for (const Held &held : w.held)
        held.node->check(held.serial, "a node under a pin");
    for (const Guard &guard : w.guards)
        if (guard.node.node != nullptr)
            guard.node.node->check(guard.node.serial, "a node under a hazard pointer");
}

} // namespace random_test
