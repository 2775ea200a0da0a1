// SPDX-License-Identifier: MIT OR Apache-2.0
// MallocExtension_* and tc_*: every function, every property.
#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace {

const char *const properties[] = {
    "generic.current_allocated_bytes",
    "generic.heap_size",
    "generic.total_physical_bytes",
    "tcmalloc.central_cache_free_bytes",
    "tcmalloc.current_total_thread_cache_bytes",
    "tcmalloc.pageheap_free_bytes",
    "tcmalloc.pageheap_unmapped_bytes",
    "tcmalloc.slack_bytes",
    "tcmalloc.thread_cache_free_bytes",
};

size_t get(const char *property)
{
    size_t value = 0;
    EXPECT_EQ(1, MallocExtension_GetNumericProperty(property, &value)) << property;
    return value;
}

TEST(Tcmalloc, EveryPropertyIsAsOfNow)
{
    for (const char *property : properties) {
        (void)get(property);
    }
    size_t before = get("generic.current_allocated_bytes");
    void *p = tc_malloc(10 << 20);
    memset(p, 1, 10 << 20);
    ebb_stats stats;
    ebb_stats_get(&stats);
    EXPECT_GE(get("generic.current_allocated_bytes"), before + (10 << 20));
    EXPECT_EQ(stats.live_bytes, get("generic.current_allocated_bytes"));
    EXPECT_EQ(stats.committed_bytes + stats.huge_bytes, get("generic.heap_size"));
    EXPECT_GE(get("generic.total_physical_bytes"), size_t{10} << 20);
    EXPECT_EQ(stats.cached_bytes, get("tcmalloc.current_total_thread_cache_bytes"));
    EXPECT_EQ(stats.cached_bytes, get("tcmalloc.thread_cache_free_bytes"));
    EXPECT_EQ(stats.resident_pinned, get("tcmalloc.central_cache_free_bytes"));
    tc_free(p);
    EXPECT_LT(get("generic.current_allocated_bytes"), before + (10 << 20));
}

TEST(Tcmalloc, FreeMemoryIsReleased)
{
    for (auto *release : {+[] { MallocExtension_ReleaseFreeMemory(); },
                          +[] { MallocExtension_ReleaseToSystem(1); }}) {
        void *p = tc_malloc(8 << 20);
        memset(p, 1, 8 << 20);
        tc_free(p);
        size_t held = get("tcmalloc.pageheap_free_bytes"),
               unmapped = get("tcmalloc.pageheap_unmapped_bytes");
        ASSERT_GT(held, 0U);
        release();
        EXPECT_LT(get("tcmalloc.pageheap_free_bytes"), held);
        EXPECT_GT(get("tcmalloc.pageheap_unmapped_bytes"), unmapped);
    }
}

TEST(Tcmalloc, WhatIsNoPropertyChangesNothing)
{
    for (const char *property :
         {"", "generic", "generic.heap_size.", "tcmalloc.max_total_thread_cache_bytes",
          "tcmalloc.aggressive_memory_decommit", "tcmalloc.transfer_cache_free_bytes"}) {
        size_t value = 77;
        EXPECT_EQ(0, MallocExtension_GetNumericProperty(property, &value)) << property;
        EXPECT_EQ(77U, value);
        EXPECT_EQ(0, MallocExtension_SetNumericProperty(property, 1)) << property;
    }
    size_t value = 77;
    EXPECT_EQ(0, MallocExtension_GetNumericProperty(nullptr, &value));
    EXPECT_EQ(0, MallocExtension_GetNumericProperty("generic.heap_size", nullptr));
    EXPECT_EQ(0, MallocExtension_SetNumericProperty("generic.heap_size", 1));
}

TEST(Tcmalloc, StatisticsAreCutToTheBuffer)
{
    char text[4096];
    MallocExtension_GetStats(text, sizeof text);
    EXPECT_NE(nullptr, strstr(text, "where the resident memory is"));
    memset(text, 'x', sizeof text);
    MallocExtension_GetStats(text, 10);
    EXPECT_EQ(9U, strlen(text));
    EXPECT_EQ('x', text[10]);
    for (int length : {0, -1}) {
        memset(text, 'x', sizeof text);
        MallocExtension_GetStats(text, length);
        EXPECT_EQ('x', text[0]);
    }
}

TEST(Tcmalloc, Sizes)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{100000}, size_t{1000000}}) {
        void *p = tc_malloc(size);
        EXPECT_EQ(MallocExtension_GetAllocatedSize(p),
                  MallocExtension_GetEstimatedAllocatedSize(size));
        EXPECT_EQ(MallocExtension_GetAllocatedSize(p), tc_malloc_size(p));
        EXPECT_GE(tc_malloc_size(p), size);
        tc_free_sized(p, size);
    }
    EXPECT_EQ(0U, MallocExtension_GetEstimatedAllocatedSize(SIZE_MAX));
    EXPECT_EQ(0U, MallocExtension_GetAllocatedSize(nullptr));
}

TEST(Tcmalloc, WhatIsNotKnownIsSaid)
{
    int blocks = 7, histogram[kMallocExtensionHistogramSize];
    size_t total = 7;
    void *p = tc_malloc(1);
    EXPECT_EQ(0, MallocExtension_MallocMemoryStats(&blocks, &total, histogram));
    EXPECT_EQ(0, blocks);
    EXPECT_EQ(0U, total);
    EXPECT_EQ(kMallocExtensionHistogramSize,
              std::count(std::begin(histogram), std::end(histogram), 0));
    EXPECT_EQ(MallocExtension_kUnknownOwnership, MallocExtension_GetOwnership(p));
    EXPECT_EQ(MallocExtension_kUnknownOwnership, MallocExtension_GetOwnership(nullptr));
    EXPECT_EQ(0U, MallocExtension_GetThreadCacheSize());
    EXPECT_EQ(1, MallocExtension_VerifyAllMemory());
    EXPECT_EQ(1, MallocExtension_VerifyNewMemory(p));
    EXPECT_EQ(1, MallocExtension_VerifyArrayNewMemory(p));
    EXPECT_EQ(1, MallocExtension_VerifyMallocMemory(p));
    tc_free(p);
}

TEST(Tcmalloc, IdleThreadsGoOn)
{
    for (int i = 0; i < 3; i++) {
        tc_free(tc_malloc(100));
        MallocExtension_MarkThreadIdle();
        MallocExtension_MarkThreadBusy();
        MallocExtension_MarkThreadTemporarilyIdle();
    }
}

TEST(Tcmalloc, TheFamily)
{
    int major = -1, minor = -1;
    const char *patch = nullptr;
    EXPECT_STREQ(ebb_version(), tc_version(&major, &minor, &patch));
    EXPECT_EQ(EBB_VERSION_MAJOR, major);
    EXPECT_EQ(EBB_VERSION_MINOR, minor);
    EXPECT_STREQ("", patch);
    EXPECT_STREQ(ebb_version(), tc_version(nullptr, nullptr, nullptr));
    auto *cleared = static_cast<char *>(tc_calloc(10, 10));
    EXPECT_EQ(100, std::count(cleared, cleared + 100, 0));
    tc_free(tc_realloc(cleared, 1000));
    EXPECT_EQ(nullptr, tc_calloc(SIZE_MAX, 2));
    void *aligned = tc_memalign(256, 10);
    EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(aligned) % 256);
    tc_free(aligned);
    EXPECT_EQ(0, tc_posix_memalign(&aligned, 512, 10));
    EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(aligned) % 512);
    tc_free(aligned);
    EXPECT_EQ(EINVAL, tc_posix_memalign(&aligned, 3, 10));
}

} // namespace
