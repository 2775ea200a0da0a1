// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer unwind: from call to call up the stack.
#include "os/os.h"
#include "unwind/unwind.h"

#define MOST_FRAME ((uintptr_t)1 << 20) // bytes: where frame pointers are guessed at

struct stack_walk {
    struct ebbi_registers at; // of the call that has been reached
    bool exact;               // its place is an instruction's, not what it returns to
    uintptr_t readable, end;  // U1
};

// It may be anything, also of a stack's frames what nobody is to touch.
static bool read_word(struct stack_walk *walk, uintptr_t address, uintptr_t *word)
{
    if (address % sizeof *word != 0) {
        return false;
    }
    if (EBBI_UNLIKELY(address - walk->readable >= walk->end - walk->readable)) {
        uintptr_t page = address - address % ebbi_os_page_size();
        if (!ebbi_os_is_readable(page)) {
            return false;
        }
        walk->readable = page == walk->end ? walk->readable : page;
        walk->end = page + ebbi_os_page_size();
    }
    *word = ebbi_os_peek(address);
    return true;
}

// The frame of a function that keeps a frame pointer: the caller's, then where it returns to.
static bool step_by_frame_pointer(struct stack_walk *walk)
{
    uintptr_t fp = walk->at.fp;
    uintptr_t next_fp;
    uintptr_t pc;
    if (fp < walk->at.sp || fp - walk->at.sp > MOST_FRAME || !read_word(walk, fp, &next_fp) ||
        !read_word(walk, fp + sizeof fp, &pc)) {
        return false;
    }
    walk->at = (struct ebbi_registers){.pc = pc, .sp = fp + 2 * sizeof fp, .fp = next_fp};
    return true;
}

static bool step_by_rule(struct stack_walk *walk, const struct ebbi_rule *rule)
{
    struct ebbi_registers *at = &walk->at;
    uintptr_t cfa = (rule->kind == EBBI_RULE_SP ? at->sp : at->fp) + (uintptr_t)rule->cfa;
    uintptr_t pc = at->lr;
    if (rule->kind == EBBI_RULE_FP_LOAD && !read_word(walk, cfa, &cfa)) {
        return false;
    }
    bool up = cfa > at->sp || (cfa == at->sp && walk->exact); // U2; a leaf may have no frame
    if (!up || (!rule->has_ra && !walk->exact) ||
        (rule->has_ra && !read_word(walk, cfa + (uintptr_t)rule->ra, &pc))) {
        return false;
    }
    uintptr_t fp = at->fp;
    if (rule->fp_kind != EBBI_FP_SAME &&
        !read_word(walk, (rule->fp_kind == EBBI_FP_AT_CFA ? cfa : at->fp) + (uintptr_t)rule->fp,
                   &fp)) {
        return false;
    }
    *at = (struct ebbi_registers){.pc = ebbi_os_code_address(pc), .sp = cfa, .fp = fp};
    return true;
}

static bool step_by_signal(struct stack_walk *walk)
{
    struct ebbi_signal_places places;
    struct ebbi_registers next = {0};
    ebbi_os_signal_places(walk->at.sp, &places);
    bool all = read_word(walk, places.pc, &next.pc) && read_word(walk, places.sp, &next.sp) &&
               read_word(walk, places.fp, &next.fp) &&
               (places.lr == 0 || read_word(walk, places.lr, &next.lr));
    walk->at = next;
    return all;
}

// False: there is no caller, or none that can be found.
static bool step_up(struct stack_walk *walk)
{
    struct ebbi_rule rule = ebbi_rule_at(walk->at.pc - (walk->exact ? 0 : 1));
    bool found = false;
    switch (rule.kind) {
    case EBBI_RULE_NONE:
        found = step_by_frame_pointer(walk);
        break;
    case EBBI_RULE_SP:
    case EBBI_RULE_FP:
    case EBBI_RULE_FP_LOAD:
        found = step_by_rule(walk, &rule);
        break;
    case EBBI_RULE_SIGNAL:
        found = step_by_signal(walk);
        break;
    default:
        break;
    }
    walk->exact = rule.kind == EBBI_RULE_SIGNAL;
    return found && walk->at.pc != 0;
}

EBBI_NOINLINE size_t ebbi_unwind(uintptr_t *calls, size_t room)
{
    struct stack_walk walk = {.exact = true};
    EBBI_OS_REGISTERS(walk.at);
    walk.readable = walk.at.sp - walk.at.sp % ebbi_os_page_size();
    walk.end = walk.readable + ebbi_os_page_size();
    size_t depth = 0;
    bool found = true;
    while (found && depth < room) {
        calls[depth++] =
            walk.at.pc - (walk.exact ? 0 : 1); // into the call before what it returns to
        found = step_up(&walk);
        calls[depth - 1] += walk.exact ? 1 : 0; // what a signal handler returns to was not called
    }
    return depth;
}

size_t ebbi_unwind_own(const uintptr_t *calls, size_t depth)
{
    uintptr_t start;
    size_t bytes;
    size_t own = ebbi_min(EBBI_OWN_CALLS, depth);
    ebbi_os_own_code(&start, &bytes);
    while (own < depth && calls[own] - start < bytes) {
        own++;
    }
    return own;
}
