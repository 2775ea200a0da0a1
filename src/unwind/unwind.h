// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer unwind: where the calls on the calling thread's stack were made.
//
// How the registers of a caller follow from those of the called is written down by compilers, call by call, in
// .eh_frame, for exceptions (DWARF 5, 6.4; Linux Standard Base Core, chapter 10; found by a binary search in
// .eh_frame_hdr). Of that language three registers are needed, and so few forms occur that what holds at one
// place in the code packs into a word, a rule, which is kept: the next time the same call is on a stack, it takes
// two loads. Code that nobody wrote anything down for (made at run time, assembler) is taken to keep frame
// pointers.
//
// U1  memory is read only where the kernel has said, in this walk, that it can be, but for the page that the stack
//     pointer is in: rules are wrong where a return address or a register was made up, as programs do for stacks of
//     their own. What is not right is a wrong or a short stack, not a fault.
// U2  a step goes up the stack, but for a signal's: a walk ends.
// U3  a kept rule says which place in the code it is of; places and rules are written together without a lock, and a
//     pair that does not belong together is not taken (see rules.c).
//
// Nothing here allocates; errno stays. The dynamic loader is asked once for each place in the code: in a process
// that has threads, by the shared library, where glibc has a way (2.35), without a lock; else under the loader's.
#ifndef EBB_UNWIND_UNWIND_H
#define EBB_UNWIND_UNWIND_H

#include "base/base.h"

// Up to `room` calls, innermost first, that of this function included. Returns how many.
size_t ebbi_unwind(uintptr_t *calls, size_t room);
// How many of these the library itself made; where it is linked into the program: at least that many.
#define EBBI_OWN_CALLS 2 // the innermost: ebbi_unwind and who called it
size_t ebbi_unwind_own(const uintptr_t *calls, size_t depth);
// Other code may come to lie where some was: what is kept is not used any more.
void ebbi_unwind_forget(void);

// ---- rules.c -----------------------------------------------------------------------------------------
// CFA, the canonical frame address, is the caller's stack pointer.
enum ebbi_rule_kind {
    EBBI_RULE_NONE,    // nothing is written down: frame pointers
    EBBI_RULE_END,     // there is no caller
    EBBI_RULE_SP,      // CFA = stack pointer + cfa
    EBBI_RULE_FP,      // CFA = frame pointer + cfa
    EBBI_RULE_FP_LOAD, // CFA = the word at frame pointer + cfa
    EBBI_RULE_SIGNAL,  // the kernel called a signal handler: all registers lie on the stack
};

enum ebbi_rule_fp {
    EBBI_FP_SAME,
    EBBI_FP_AT_CFA, // the caller's is the word at CFA + fp
    EBBI_FP_AT_FP,  // at frame pointer + fp
};

struct ebbi_rule {
    enum ebbi_rule_kind kind;
    enum ebbi_rule_fp fp_kind;
    bool
        has_ra; // the return address is the word at CFA + ra; else in its register, if there is one
    int64_t cfa;    // bytes
    int64_t fp, ra; // bytes, divisible by 8
};

struct ebbi_rule ebbi_rule_at(uintptr_t pc);

// ---- cfi.c ---------------------------------------------------------------------------------------------
// By the module's .eh_frame_hdr. A NULL one: nothing is written down.
struct ebbi_rule ebbi_cfi_rule(const unsigned char *table, uintptr_t pc);

#endif
