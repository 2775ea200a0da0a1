// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer unwind: rules by place in the code, kept.
#include "ebbtide/detail/atomic.h"
#include "os/os.h"
#include "unwind/unwind.h"

#define RULES_KEPT ((size_t)1 << 12)
#define PC_BITS 48

// A rule in one word: kind 3 bits, fp_kind 2, has_ra 1, cfa 26, fp / 8 and ra / 8 16 each.
#define CFA_LIMIT ((int64_t)1 << 25)
#define WORDS_LIMIT ((int64_t)1 << 15)

// `of` is the place and, above it, the generation, exclusive-or'd with `rule` (the lockless hash of Hyatt and
// Mann): of two writers that meet here, neither's half fits the other's, or both have the same rule.
static EBBI_SPARSE struct {
    uint64_t of, rule; // atomic
} kept_rules[RULES_KEPT];
static uint64_t code_generation; // atomic; an empty place is of none, as no code lies at 0

static bool fits(int64_t value, int64_t limit) { return value >= -limit && value < limit; }

static uint64_t pack(const struct ebbi_rule *rule)
{
    return (uint64_t)rule->kind | (uint64_t)rule->fp_kind << 3 | (uint64_t)rule->has_ra << 5 |
           (uint64_t)(rule->cfa + CFA_LIMIT) << 6 | (uint64_t)(rule->fp / 8 + WORDS_LIMIT) << 32 |
           (uint64_t)(rule->ra / 8 + WORDS_LIMIT) << 48;
}

static struct ebbi_rule unpack(uint64_t packed)
{
    return (struct ebbi_rule){
        .kind = (enum ebbi_rule_kind)(packed & 7),
        .fp_kind = (enum ebbi_rule_fp)(packed >> 3 & 3),
        .has_ra = (packed >> 5 & 1) != 0,
        .cfa = (int64_t)(packed >> 6 & (2 * CFA_LIMIT - 1)) - CFA_LIMIT,
        .fp = ((int64_t)(packed >> 32 & (2 * WORDS_LIMIT - 1)) - WORDS_LIMIT) * 8,
        .ra = ((int64_t)(packed >> 48) - WORDS_LIMIT) * 8,
    };
}

static struct ebbi_rule find_rule(uintptr_t pc)
{
    struct ebbi_rule rule = ebbi_cfi_rule(ebbi_os_unwind_table(pc), pc);
    bool packs = fits(rule.cfa, CFA_LIMIT) && rule.fp % 8 == 0 && fits(rule.fp / 8, WORDS_LIMIT) &&
                 rule.ra % 8 == 0 && fits(rule.ra / 8, WORDS_LIMIT);
    return packs ? rule : (struct ebbi_rule){.kind = EBBI_RULE_NONE};
}

struct ebbi_rule ebbi_rule_at(uintptr_t pc)
{
    uint64_t of = ebbi_load_relaxed(&code_generation) << PC_BITS ^ pc; // relaxed: see forget
    size_t place = pc * 0x9E3779B97F4A7C15u >> 52;
    uint64_t packed = ebbi_load_relaxed(&kept_rules[place].rule); // relaxed: U3
    uint64_t sum = ebbi_load_relaxed(&kept_rules[place].of);      // relaxed: U3
    if (EBBI_UNLIKELY((sum ^ packed) != of)) {
        struct ebbi_rule rule = find_rule(pc);
        packed = pack(&rule);
        ebbi_store_relaxed(&kept_rules[place].of, of ^ packed); // relaxed: U3
        ebbi_store_relaxed(&kept_rules[place].rule, packed);    // relaxed: U3
    }
    return unpack(packed);
}

void ebbi_unwind_forget(void)
{
    // relaxed: what it is about is loaded later, by the caller, and its addresses come to others with an order
    (void)ebbi_fetch_add_relaxed(&code_generation, (uint64_t)1);
}
