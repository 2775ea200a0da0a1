// SPDX-License-Identifier: MIT OR Apache-2.0
// Every name of mallctl that has an answer. docs/compat.md has the same list (tests/compat/calls.sh).
#ifndef EBBTIDE_TESTS_COMPAT_NAMES_H
#define EBBTIDE_TESTS_COMPAT_NAMES_H

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace compat {

constexpr size_t ACTION = 0; // of bytes

struct Name {
    const char *name;
    size_t bytes;
};

const Name names[] = {
    {"arena.0.decay", ACTION},
    {"arena.0.dirty_decay_ms", sizeof(ssize_t)},
    {"arena.0.initialized", sizeof(bool)},
    {"arena.0.muzzy_decay_ms", sizeof(ssize_t)},
    {"arena.0.purge", ACTION},
    {"arenas.dirty_decay_ms", sizeof(ssize_t)},
    {"arenas.muzzy_decay_ms", sizeof(ssize_t)},
    {"arenas.narenas", sizeof(unsigned)},
    {"arenas.nbins", sizeof(unsigned)},
    {"arenas.nhbins", sizeof(unsigned)},
    {"arenas.nlextents", sizeof(unsigned)},
    {"arenas.page", sizeof(size_t)},
    {"arenas.quantum", sizeof(size_t)},
    {"background_thread", sizeof(bool)},
    {"config.debug", sizeof(bool)},
    {"config.fill", sizeof(bool)},
    {"config.malloc_conf", sizeof(char *)},
    {"config.prof", sizeof(bool)},
    {"config.stats", sizeof(bool)},
    {"config.utrace", sizeof(bool)},
    {"config.xmalloc", sizeof(bool)},
    {"epoch", sizeof(uint64_t)},
    {"max_background_threads", sizeof(size_t)},
    {"opt.background_thread", sizeof(bool)},
    {"opt.dirty_decay_ms", sizeof(ssize_t)},
    {"opt.junk", sizeof(char *)},
    {"opt.muzzy_decay_ms", sizeof(ssize_t)},
    {"opt.narenas", sizeof(unsigned)},
    {"opt.prof", sizeof(bool)},
    {"opt.retain", sizeof(bool)},
    {"opt.stats_print", sizeof(bool)},
    {"opt.tcache", sizeof(bool)},
    {"opt.xmalloc", sizeof(bool)},
    {"opt.zero", sizeof(bool)},
    {"stats.active", sizeof(size_t)},
    {"stats.allocated", sizeof(size_t)},
    {"stats.arenas.0.mapped", sizeof(size_t)},
    {"stats.arenas.0.pactive", sizeof(size_t)},
    {"stats.arenas.0.pdirty", sizeof(size_t)},
    {"stats.arenas.0.pmuzzy", sizeof(size_t)},
    {"stats.arenas.0.resident", sizeof(size_t)},
    {"stats.arenas.0.retained", sizeof(size_t)},
    {"stats.mapped", sizeof(size_t)},
    {"stats.metadata", sizeof(size_t)},
    {"stats.resident", sizeof(size_t)},
    {"stats.retained", sizeof(size_t)},
    {"thread.arena", sizeof(unsigned)},
    {"thread.idle", ACTION},
    {"thread.tcache.enabled", sizeof(bool)},
    {"thread.tcache.flush", ACTION},
    {"version", sizeof(char *)},
};

} // namespace compat

#endif
