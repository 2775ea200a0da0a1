// SPDX-License-Identifier: MIT OR Apache-2.0
// All operations with their weights. Each run enables some groups alone: a fault that takes many
// steps in one corner is found when little else happens between them.
#pragma once

#include "ops_profile.h"

namespace random_test {

inline constexpr Operation operations[] = {
    {"malloc", "heap", 12, op_malloc},
    {"calloc", "heap", 3, op_calloc},
    {"free", "free", 14, op_free},
    {"free_sized", "free", 2, op_free_sized},
    {"realloc", "heap", 5, op_realloc},
    {"compact", "trim", 3, op_compact},
    {"aligned", "odd", 5, op_aligned},
    {"bad_align", "odd", 1, op_bad_align},
    {"too_much", "odd", 1, op_too_much},
    {"huge", "huge", 1, op_huge},
    {"check", "check", 2, op_check},
    {"inform", "info", 1, op_inform},
    {"stats", "info", 1, op_stats},
    {"threads", "info", 1, op_threads},
    {"trim", "trim", 2, op_trim},
    {"open", "region", 5, op_open},
    {"region_alloc", "region", 20, op_region_alloc},
    {"region_calloc", "region", 3, op_region_calloc},
    {"region_aligned", "odd", 3, op_region_aligned},
    {"region_realloc", "move", 4, op_region_realloc},
    {"grow", "move", 4, op_grow},
    {"promote", "move", 2, op_promote},
    {"cleanup", "cleanup", 3, op_cleanup},
    {"release", "end", 2, op_release},
    {"reset", "end", 3, op_reset},
    {"close", "end", 2, op_close},
    {"region_of", "info", 2, op_region_of},
    {"region_stats", "info", 2, op_region_stats},
    {"enter", "scope", 5, op_enter},
    {"domain_enter", "domain", 5, op_domain_enter},
    {"heap_enter", "scope", 2, op_heap_enter},
    {"flock_enter", "flock", 4, op_flock_enter},
    {"flock_close", "flock", 2, op_flock_close},
    {"leave", "leave", 9, op_leave},
    {"detach", "scope", 2, op_detach},
    {"domain", "domain", 3, op_domain},
    {"lifetimes", "info", 1, op_lifetimes},
    {"pin", "pin", 4, op_pin},
    {"unpin", "pin", 5, op_unpin},
    {"repin", "pin", 2, op_repin},
    {"is_pinned", "pin", 1, op_is_pinned},
    {"retire", "retire", 8, op_retire},
    {"retire_with", "retire", 5, op_retire_with},
    {"synchronize", "wait", 2, op_synchronize},
    {"barrier", "wait", 2, op_barrier},
    {"reclaim", "wait", 2, op_reclaim},
    {"cookie", "wait", 2, op_cookie},
    {"reclaim_stats", "info", 1, op_reclaim_stats},
    {"limit", "wait", 1, op_limit},
    {"collector", "collector", 2, op_collector},
    {"guard", "hazard", 5, op_guard},
    {"unguard", "hazard", 6, op_unguard},
    {"link", "hazard", 5, op_link},
    {"read", "hazard", 4, op_read},
    {"protect", "hazard", 3, op_protect},
    {"send_blocks", "hand", 4, op_send_blocks},
    {"send_region", "hand", 4, op_send_region},
    {"receive", "hand", 8, op_receive},
    {"spawn", "spawn", 4, op_spawn},
    {"fork", "fork", 2, op_fork},
    {"refuse", "refuse", 6, op_refuse},
    {"filter", "filter", 2, op_filter},
    // New ones go here: cases know the others by their numbers.
    {"relay", "hand", 1, op_relay},
    {"misuse", "fork", 1, op_misuse},
    {"huge_realloc", "huge", 1, op_huge_realloc},
    {"wait", "nap", 1, op_wait},
    {"retire_hooked", "retire", 5, op_retire_hooked},
    {"helper", "spawn", 1, op_helper},
    {"ask", "info", 1, op_ask},
    {"end_late", "spawn", 1, op_end_late},
    {"crowd", "nap", 1, op_crowd},
    {"thread_c11", "nap", 1, op_thread_c11},
    {"part", "nap", 1, op_part},
    {"flood", "retire", 1, op_flood},
    {"labels", "info", 1, op_labels},
    {"profile_start", "info", 1, op_profile_start},
    {"profile_stop", "info", 1, op_profile_stop},
    {"profile_write", "info", 1, op_profile_write},
    {"profile_asked", "info", 1, op_profile_asked},
};

inline constexpr const char *groups[] = {"heap",   "odd",    "huge",    "check", "info",  "trim",
                                         "region", "move",   "cleanup", "end",   "scope", "domain",
                                         "pin",    "retire", "hazard",  "hand"};
// Enabled together with a group of the list above.
inline constexpr const char *followers[][2] = {{"flock", "scope"},
                                               {"leave", "scope"},
                                               {"leave", "domain"},
                                               {"wait", "pin"},
                                               {"collector", "retire"}};

// RANDOM_EXCLUDE: operations or groups by name, separated by commas.
inline bool is_excluded(const char *name)
{
    static const char *const list = std::getenv("RANDOM_EXCLUDE");
    const std::string wanted = std::string(",") + name + ",";
    return list != nullptr && (std::string(",") + list + ",").find(wanted) != std::string::npos;
}

inline bool is_enabled(const Config &config, const char *group)
{
    const std::string name = group;
    if (config.corner && !config.threads())
        return name == "region" || name == "free" || name == "end" ||
               (name == "fork" && config.forks());
    const bool all = config.flags % 5 == 0;
    if (name == "free" || (name == "leave" && config.flags / 8 % 4 != 0))
        return true;
    if (name == "spawn" || name == "hand" || name == "nap")
        return config.threads() &&
               (all || name == "spawn" || name == "nap" || config.swarm >> 15 & 1);
    if (name == "fork")
        return config.forks();
    if (name == "refuse" || name == "filter")
        return config.mode == (name == "refuse" ? 4 : 5);
    if (all || (name == "region" && (config.swarm & 3) != 0) ||
        (name == "heap" && (config.swarm & 3) == 0))
        return true;
    for (unsigned i = 0; i < std::size(groups); i++)
        if (name == groups[i])
            return config.swarm >> i & 1;
    for (const auto &follower : followers)
        if (name == follower[0] && is_enabled(config, follower[1]))
            return true;
    return false;
}

// What a run is for: some operations often, others never.
inline unsigned weight_of(const Config &config, std::size_t index)
{
    static constexpr unsigned factors[] = {0, 1, 1, 2, 5};
    const Operation &operation = operations[index];
    if (config.corner && !config.threads())
        return operation.call == op_reset ? 5 : operation.weight / 2;
    std::uint64_t state = config.swarm * 64 + index;
    const unsigned factor = factors[next_random(state) % std::size(factors)];
    const bool needed = operation.weight >= 12 || config.flags % 5 == 0;
    return operation.weight * (needed ? std::max(1u, factor) : factor);
}

inline void choose_operations(Run &run)
{
    std::vector<const Operation *> shares;
    for (std::size_t i = 0; i < std::size(operations); i++) {
        const Operation *const operation = &operations[i];
        const bool wanted = run.config.direct || is_enabled(run.config, operation->group);
        if (wanted && !is_excluded(operation->name) && !is_excluded(operation->group))
            shares.insert(shares.end(), weight_of(run.config, i), operation);
        if (run.config.direct)
            run.table[i] = operation;
    }
    for (std::size_t i = 0; i < run.table.size() && !run.config.direct; i++)
        run.table[i] = shares[i * shares.size() / run.table.size()];
}

// The same run, by the operations' numbers.
inline void make_direct(std::vector<std::uint8_t> &bytes)
{
    Record first;
    std::memcpy(first.at, bytes.data(), Record::bytes);
    Run run(first);
    if (run.config.direct)
        return;
    choose_operations(run);
    bytes[0] |= 0x80;
    for (std::size_t i = Record::bytes; i < bytes.size(); i += Record::bytes)
        bytes[i] = static_cast<std::uint8_t>(run.table[bytes[i]] - operations);
}

} // namespace random_test
