// SPDX-License-Identifier: MIT OR Apache-2.0
// Law L1: a block that the program gave back is neither written nor read. Freed pages keep the
// program's pattern in full, or went back to the system whole and read as zero (or are unmapped).
// Not built into sanitizer runs, which may mark freed memory.
#pragma once

#include <pthread.h>

namespace {

using support::KiB;
using support::MiB;

const std::size_t class_sizes[] = {16,    32,    48,       64,        96,   128,    176,  256,
                                   512,   640,   1024,     1500,      2048, 4096,   6000, 8192,
                                   16384, 32768, 48 * KiB, 100 * KiB, MiB,  4 * MiB};

std::uint64_t word_at(std::uintptr_t where) { return support::mix(where) | 1U; }

struct Field {
    explicit Field(std::size_t bytes)
        : blocks(bytes < 2 * KiB ? 6000 : 4 * MiB / bytes + 4), bytes_each(bytes)
    {
        for (void *&block : blocks) {
            block = api::allocate(bytes);
            auto *words = static_cast<std::uint64_t *>(block);
            for (std::size_t i = 0; i < bytes / 8; i++)
                words[i] = word_at(support::address(words + i));
        }
    }
    void release(std::size_t first, std::size_t stride)
    {
        for (std::size_t i = first; i < blocks.size(); i += stride)
            api::release(blocks[i]);
    }
    support::MappedArray<void *> blocks;
    std::size_t bytes_each;
};

// Copies one page through a pipe: an unmapped page is an error there and not a crash here.
class PageReader {
public:
    PageReader() : copy_(support::page_bytes()) { EXPECT_EQ(pipe(ends_), 0); }
    ~PageReader()
    {
        close(ends_[0]);
        close(ends_[1]);
    }
    const unsigned char *read_page(std::uintptr_t page)
    {
        const std::size_t bytes = support::page_bytes();
        if (write(ends_[1], reinterpret_cast<const void *>(page), bytes) !=
            static_cast<ssize_t>(bytes))
            return nullptr;
        std::size_t got = 0;
        while (got < bytes) {
            const ssize_t step = read(ends_[0], copy_.begin() + got, bytes - got);
            if (step <= 0)
                return nullptr;
            got += static_cast<std::size_t>(step);
        }
        return copy_.begin();
    }

private:
    int ends_[2] = {-1, -1};
    support::MappedArray<unsigned char> copy_;
};

struct PageView {
    std::uintptr_t page = 0;
    const unsigned char *bytes = nullptr;
    bool zero = false;
};

void look_at(PageView &view, PageReader &reader, std::uintptr_t page)
{
    view.page = page;
    view.bytes = reader.read_page(page);
    view.zero = view.bytes != nullptr && support::all_zero(view.bytes, support::page_bytes());
}

// What a check saw: plain values, because a check that allocated could itself reuse freed blocks.
struct Verdict {
    bool intact = true;
    std::size_t block = 0;
    std::size_t offset = 0;
};

// A page that went back must be zero in every byte, so one wrong word condemns the page.
Verdict check_untouched(const Field &field, PageReader &reader)
{
    const std::uintptr_t page_mask = ~(static_cast<std::uintptr_t>(support::page_bytes()) - 1);
    PageView view;
    for (std::size_t i = 0; i < field.blocks.size(); i++)
        for (std::size_t offset = 0; offset + 8 <= field.bytes_each; offset += 8) {
            const std::uintptr_t where = support::address(field.blocks[i]) + offset;
            if ((where & page_mask) != view.page)
                look_at(view, reader, where & page_mask);
            if (view.bytes == nullptr || view.zero)
                continue;
            std::uint64_t word = 0;
            std::memcpy(&word, view.bytes + (where - view.page), sizeof word);
            if (word != word_at(where))
                return {false, i, offset};
        }
    return {};
}

Verdict check_live(const Field &field, std::size_t first, std::size_t stride)
{
    for (std::size_t i = first; i < field.blocks.size(); i += stride) {
        const auto *words = static_cast<const std::uint64_t *>(field.blocks[i]);
        for (std::size_t at = 0; at < field.bytes_each / 8; at++)
            if (words[at] != word_at(support::address(words + at)))
                return {false, i, at * 8};
    }
    return {};
}

void expect_intact(const Verdict &verdict, const Field &field, const char *what)
{
    EXPECT_TRUE(verdict.intact) << what << ": block " << verdict.block << " of " << field.bytes_each
                                << " bytes was written at byte " << verdict.offset;
}

TEST(FreedMemory, IsUntouchedAfterFreeByItsThread)
{
    PageReader reader;
    for (std::size_t bytes : class_sizes) {
        Field field(bytes);
        field.release(0, 1);
        const Verdict freed = check_untouched(field, reader);
        expect_intact(freed, field, "freed");
    }
}

TEST(FreedMemory, IsUntouchedAfterFreeByAnotherThread)
{
    const auto release_all = [](void *field) -> void * {
        static_cast<Field *>(field)->release(0, 1);
        return nullptr;
    };
    PageReader reader;
    for (std::size_t bytes : class_sizes) {
        Field field(bytes);
        pthread_t thread;
        const int started = pthread_create(&thread, nullptr, release_all, &field);
        const int joined = started == 0 ? pthread_join(thread, nullptr) : started;
        const Verdict freed = check_untouched(field, reader);
        ASSERT_EQ(joined, 0);
        expect_intact(freed, field, "freed by another thread");
    }
}

TEST(FreedMemory, IsUntouchedBesideLiveBlocks)
{
    PageReader reader;
    for (std::size_t bytes : class_sizes) {
        Field field(bytes);
        field.release(1, 2);
        const Verdict freed = check_untouched(field, reader);
        const Verdict live = check_live(field, 0, 2);
        expect_intact(freed, field, "freed beside live blocks");
        expect_intact(live, field, "live");
        field.release(0, 2);
    }
}

TEST(FreedMemory, IsUntouchedOrGoneAfterAnIdleWhile)
{
    PageReader reader;
    Field small(64);
    Field odd(176);
    Field middle(2048);
    Field large(MiB);
    Field *const fields[] = {&small, &odd, &middle, &large};
    for (Field *field : fields)
        for (std::size_t first = 1; first < 16; first++)
            field->release(first, 16);
    usleep(2000 * 1000);
    Verdict freed[4];
    for (std::size_t i = 0; i < 4; i++)
        freed[i] = check_untouched(*fields[i], reader);
    for (std::size_t i = 0; i < 4; i++) {
        expect_intact(freed[i], *fields[i], "freed two seconds ago");
        expect_intact(check_live(*fields[i], 0, 16), *fields[i], "live");
        fields[i]->release(0, 16);
    }
}

} // namespace
