// SPDX-License-Identifier: MIT OR Apache-2.0
// The traffic of a server, for the laws of regions: requests of 225 objects (48 KB), a share of which
// survives the next requests. What it leaves is measured in a child process that begins untouched.
#pragma once

#include <sys/wait.h>

#include "region_support.h"

namespace laws {

using support::KiB;
using support::MiB;

constexpr std::size_t objects_each = 225;
constexpr std::size_t object_bytes[] = {88, 184, 376};

// Where the objects of one request come from.
struct Source {
    virtual ~Source() = default;
    virtual void begin() {}
    virtual void *take(std::size_t bytes) = 0;
    virtual void drop(void *block) { ebb_free(block); }
    virtual void end() {}
};

struct HeapSource : Source {
    void *take(std::size_t bytes) override { return ebb_malloc(bytes); }
};

struct DomainSource : Source {
    explicit DomainSource(const char *label, ebb_domain_policy policy, std::size_t n)
        : domain(ebb_domain_open(label))
    {
        if (domain == nullptr || ebb_domain_set_policy(domain, policy, n) != 0)
            std::abort();
    }
    void begin() override { before = ebb_domain_enter(domain); }
    void *take(std::size_t bytes) override { return ebb_malloc(bytes); }
    void end() override { ebb_leave(before); }
    ebb_domain *domain;
    ebb_scope before = {};
};

struct RegionSource : Source {
    void begin() override { region = ebb_region_open(nullptr); }
    void *take(std::size_t bytes) override { return ebb_region_alloc(region, bytes); }
    void end() override { ebb_region_close(region); }
    ebb_region *region = nullptr;
};

// What a design does that keeps each request's chunk to itself until its last block is free.
struct ChunkSource : Source {
    struct Chunk {
        std::size_t used, live;
    };
    static constexpr std::size_t chunk_bytes = 64 * KiB;
    static Chunk *chunk_of(void *block)
    {
        return reinterpret_cast<Chunk *>(support::address(block) & ~(chunk_bytes - 1));
    }
    static void let_go(Chunk *chunk)
    {
        if (--chunk->live == 0)
            ebb_free(chunk);
    }
    void begin() override
    {
        chunk = static_cast<Chunk *>(ebb_aligned_alloc(chunk_bytes, chunk_bytes));
        *chunk = {64, 1};
    }
    void *take(std::size_t bytes) override
    {
        void *block = reinterpret_cast<char *>(chunk) + chunk->used;
        chunk->used += (bytes + 15) / 16 * 16;
        chunk->live++;
        return block;
    }
    void drop(void *block) override { let_go(chunk_of(block)); }
    void end() override { let_go(chunk); }
    Chunk *chunk = nullptr;
};

struct Traffic {
    std::size_t requests;
    std::size_t survivors_each; // of a request
    std::size_t survive;        // so many further requests
};

// Serves them; false when an allocation failed. The ring holds what survives.
template <typename Look>
bool serve(Source &source, const Traffic &traffic, support::MappedArray<void *> &ring, Look look)
{
    void *objects[objects_each];
    support::Random random(7);
    for (std::size_t request = 0; request < traffic.requests; request++) {
        source.begin();
        for (std::size_t i = 0; i < objects_each; i++) {
            const std::size_t bytes = object_bytes[i % 3];
            objects[i] = source.take(bytes);
            if (objects[i] == nullptr)
                return false;
            std::memset(objects[i], 1, bytes);
        }
        look(request);
        const std::size_t first = request % (traffic.survive + 1) * traffic.survivors_each;
        for (std::size_t s = 0; s < traffic.survivors_each; s++) {
            void *&chosen = objects[random.below(objects_each)];
            if (ring[first + s] != nullptr)
                source.drop(ring[first + s]);
            ring[first + s] = chosen; // perhaps chosen twice: then the second is none
            chosen = nullptr;
        }
        for (void *object : objects)
            if (object != nullptr)
                source.drop(object);
        source.end();
    }
    return true;
}

inline std::size_t ring_slots(const Traffic &traffic)
{
    return (traffic.survive + 1) * std::max<std::size_t>(traffic.survivors_each, 1);
}

// Runs it in a child and returns its answer. SIZE_MAX when the child failed.
template <typename Run> std::size_t ask_child(Run run)
{
    int ends[2];
    if (pipe(ends) != 0)
        return SIZE_MAX;
    const pid_t child = fork();
    if (child == 0) {
        alarm(100);
        const std::size_t answer = run();
        _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    close(ends[1]);
    std::size_t answer = SIZE_MAX;
    if (read(ends[0], &answer, sizeof answer) != sizeof answer)
        answer = SIZE_MAX;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? answer : SIZE_MAX;
}

// Resident bytes that the traffic adds to a process, survivors included, when all that is free has
// been given back.
template <typename MakeSource> std::size_t retained_by(const Traffic &traffic, MakeSource make)
{
    return ask_child([&] {
        support::MappedArray<void *> ring(ring_slots(traffic));
        const std::size_t before = support::resident_bytes();
        auto source = make();
        if (!serve(source, traffic, ring, [](std::size_t) {}))
            return SIZE_MAX;
        ebb_trim();
        const std::size_t after = support::resident_bytes();
        return after > before ? after - before : 0;
    });
}

} // namespace laws
