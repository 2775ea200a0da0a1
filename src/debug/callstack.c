// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: stacks of the debug mode.
#include "debug/callstack.h"

#include "arena/tags.h"
#include "os/os.h"
#include "region/sheet.h"
#include "unwind/unwind.h"

#define STACKS ((size_t)1 << 16) // a power of two, as is the next
#define MODULES ((size_t)256)
#define PROBES 32
#define STACK_DEPTH 16
#define NO_MODULE UINT16_MAX
#define NOTES (EBBI_CHUNK / EBBI_UNIT) // for each GiB of address space
#define NOTE_TABLES ((size_t)1 << (EBBI_ADDRESS_BITS - EBBI_CHUNK_SHIFT))

struct claim {
    uint64_t key;   // 0: nobody's; atomic
    uint32_t ready; // atomic
};

struct loaded {
    struct claim claim;
    struct ebbi_os_module module;
};

struct stack {
    struct claim claim;
    uint32_t depth;
    uint16_t modules[STACK_DEPTH];
    uintptr_t calls[STACK_DEPTH];
};

static struct stack *stacks;   // [STACKS]
static struct loaded *loadeds; // [MODULES]
static uint32_t **note_tables; // [NOTE_TABLES], each [NOTES] or NULL; atomic

bool ebbi_stacks_begin(void)
{
    stacks = ebbi_os_map(NULL, STACKS * sizeof *stacks);
    loadeds = ebbi_os_map(NULL, ebbi_align_up(MODULES * sizeof *loadeds, ebbi_os_page_size()));
    note_tables = ebbi_os_map(NULL, NOTE_TABLES * sizeof *note_tables);
    return stacks != NULL && loadeds != NULL && note_tables != NULL;
}

// FNV-1a, a word at a time, with the high half mixed in: not 0. Two stacks of one key are taken to be
// the same: the odds for 2^16 of them are 2^-32.
static uint64_t add_to_key(uint64_t key, uint64_t word)
{
    key = (key ^ word) * 0x100000001B3u;
    return (key ^ key >> 32) | 1;
}

enum claimed { CLAIM_REFUSED, CLAIM_FOUND, CLAIM_NEW };

static enum claimed claim(struct claim *place, uint64_t key)
{
    uint64_t seen = 0;
    // relaxed: what belongs to the key is read behind `ready`
    if (ebbi_cas_relaxed(&place->key, &seen, key)) {
        return CLAIM_NEW;
    }
    return seen == key ? CLAIM_FOUND : CLAIM_REFUSED;
}

static void claim_filled(struct claim *place)
{
    // release[claim-filled -> claim-read]: what was claimed
    ebbi_store_release(&place->ready, 1u);
}

static bool claim_ready(const struct claim *place)
{
    // acquire[claim-read <- claim-filled]: what was claimed
    return ebbi_load_acquire(&place->ready) != 0;
}

static uint16_t module_number(uintptr_t call)
{
    struct ebbi_os_module module;
    if (!ebbi_os_module_find(call, &module)) {
        return NO_MODULE;
    }
    uint64_t key = add_to_key(0, module.base);
    for (const char *c = module.name; *c != '\0'; c++) {
        key = add_to_key(key, (unsigned char)*c);
    }
    for (size_t i = 0; i < PROBES; i++) {
        size_t number = (key + i) % MODULES;
        enum claimed claimed = claim(&loadeds[number].claim, key);
        if (claimed == CLAIM_NEW) {
            loadeds[number].module = module;
            claim_filled(&loadeds[number].claim);
        }
        if (claimed != CLAIM_REFUSED) {
            return (uint16_t)number;
        }
    }
    return NO_MODULE;
}

static void fill(struct stack *stack, const uintptr_t *calls, size_t depth)
{
    stack->depth = (uint32_t)depth;
    for (size_t i = 0; i < depth; i++) {
        stack->calls[i] = calls[i];
        stack->modules[i] = module_number(calls[i]);
    }
    claim_filled(&stack->claim);
}

static uint32_t keep(const uintptr_t *calls, size_t depth)
{
    uint64_t key = 0;
    for (size_t i = 0; i < depth; i++) {
        key = add_to_key(key, calls[i]);
    }
    for (size_t i = 0; i < PROBES && depth > 0; i++) {
        size_t number = (key + i) % STACKS;
        enum claimed claimed = claim(&stacks[number].claim, key);
        if (claimed == CLAIM_NEW) {
            fill(&stacks[number], calls, depth);
        }
        if (claimed != CLAIM_REFUSED) {
            return (uint32_t)number + 1;
        }
    }
    return 0;
}

EBBI_NOINLINE uint32_t ebbi_stack_take(const void *caller)
{
    uintptr_t calls[EBBI_OWN_CALLS + STACK_DEPTH] = {0};
    size_t depth = ebbi_unwind(calls, EBBI_OWN_CALLS + STACK_DEPTH);
    if (depth > EBBI_OWN_CALLS) {
        return keep(calls + EBBI_OWN_CALLS, depth - EBBI_OWN_CALLS);
    }
    calls[0] = (uintptr_t)caller - 1; // in the call
    return caller != NULL ? keep(calls, 1) : 0;
}

static uint32_t *note_table(uintptr_t p)
{
    uintptr_t number = p >> EBBI_CHUNK_SHIFT;
    // relaxed: a table has nothing in it at first
    return number < NOTE_TABLES ? ebbi_load_relaxed(&note_tables[number]) : NULL;
}

static uint32_t *note_table_make(uintptr_t p)
{
    uint32_t *table = note_table(p);
    if (table == NULL) {
        uint32_t *made = ebbi_os_map(NULL, NOTES * sizeof *made);
        // relaxed: as above
        if (made != NULL && ebbi_cas_relaxed(&note_tables[p >> EBBI_CHUNK_SHIFT], &table, made)) {
            return made;
        }
        if (made != NULL) {
            ebbi_os_release(made, NOTES * sizeof *made);
        }
    }
    return table;
}

static size_t note_index(uintptr_t p) { return (p & (EBBI_CHUNK - 1)) / EBBI_UNIT; }

void ebbi_stack_note(const void *p, uint32_t stack)
{
    uint32_t *table = note_table_make((uintptr_t)p);
    if (table != NULL) {
        // relaxed: whoever reads it was handed the block, or reports on what is in error
        ebbi_store_relaxed(&table[note_index((uintptr_t)p)], stack);
    }
}

uint32_t ebbi_stack_noted(uintptr_t p)
{
    const uint32_t *table = note_table(p);
    return table != NULL ? ebbi_load_relaxed(&table[note_index(p)]) : 0; // relaxed: as above
}

void ebbi_stack_forget(uintptr_t start, size_t bytes)
{
    uint32_t *table = note_table(start);
    if (table != NULL) {
        size_t page = ebbi_os_page_size();
        size_t first = note_index(start);
        size_t end = ebbi_min(first + bytes / EBBI_UNIT, NOTES);
        uintptr_t from = ebbi_align_up((uintptr_t)&table[first], page);
        uintptr_t to = ebbi_align_down((uintptr_t)&table[end], page);
        if (from < to) {
            (void)ebbi_os_purge((void *)from, to - from);
        }
    }
}

static const struct ebbi_os_module *module_of(const struct ebbi_trace *trace, uint32_t call)
{
    uint16_t number = stacks[trace->stack - 1].modules[call];
    return number != NO_MODULE && claim_ready(&loadeds[number].claim) ? &loadeds[number].module
                                                                      : NULL;
}

struct ebbi_trace ebbi_stack_trace(const char *did, uint32_t number)
{
    const struct stack *stack = number != 0 ? &stacks[number - 1] : NULL;
    if (stack == NULL || !claim_ready(&stack->claim)) {
        return (struct ebbi_trace){.did = did};
    }
    return (struct ebbi_trace){.did = did,
                               .depth = stack->depth,
                               .calls = stack->calls,
                               .module = module_of,
                               .stack = number};
}
