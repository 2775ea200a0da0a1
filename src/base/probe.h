// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: static tracepoints (docs/tracing.md, ADR 38). EBBI_PROBE2(name, a, b) is a nop, and a note that is in
// the file alone: where the nop is, and in which registers, or as which constants, the arguments are there.
//
// Tracers and debuggers read this, owner "stapsdt", type 3:
//
//     the nop's address | that of _.stapsdt.base | that of a word that counts who traces (none: 0)
//     provider, name, places: strings; a place is SIZE@REGISTER or SIZE@CONSTANT
//
// The base is a byte of the loaded part: whoever has moved the file's addresses finds out by how far. One a file is
// enough, shared with those of other providers in a program that this library is linked into.
#ifndef EBB_BASE_PROBE_H
#define EBB_BASE_PROBE_H

#if defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))

// Of 8 bytes each: no operand is in memory, where compilers write places that not every reader understands.
#define EBBI_PROBE_PLACE(a) "nr"((unsigned long)(a))

// `inline`: the compiler counts the lines as one instruction.
#define EBBI_PROBE(name, places, ...)                                                              \
    __asm__ volatile inline("981: nop\n"                                                           \
                            ".pushsection .note.stapsdt, \"\", \"note\"\n"                         \
                            ".balign 4\n"                                                          \
                            ".4byte 8, 983f - 982f, 3\n"                                           \
                            ".asciz \"stapsdt\"\n"                                                 \
                            "982: .8byte 981b, _.stapsdt.base, 0\n"                                \
                            ".asciz \"ebbtide\", \"" name "\", \"" places "\"\n"                   \
                            "983: .balign 4\n"                                                     \
                            ".popsection\n"                                                        \
                            ".ifndef _.stapsdt.base\n"                                             \
                            ".pushsection .stapsdt.base, \"aG\", \"progbits\", "                   \
                            ".stapsdt.base, comdat\n"                                              \
                            ".weak _.stapsdt.base\n"                                               \
                            ".hidden _.stapsdt.base\n"                                             \
                            "_.stapsdt.base: .space 1\n"                                           \
                            ".size _.stapsdt.base, 1\n"                                            \
                            ".popsection\n"                                                        \
                            ".endif\n"                                                             \
                            :                                                                      \
                            : __VA_ARGS__)
#define EBBI_PROBE2(name, a, b)                                                                    \
    EBBI_PROBE(#name, "8@%0 8@%1", EBBI_PROBE_PLACE(a), EBBI_PROBE_PLACE(b))
#define EBBI_PROBE3(name, a, b, c)                                                                 \
    EBBI_PROBE(#name, "8@%0 8@%1 8@%2", EBBI_PROBE_PLACE(a), EBBI_PROBE_PLACE(b),                  \
               EBBI_PROBE_PLACE(c))

#else

#define EBBI_PROBE2(name, a, b) ((void)(a), (void)(b))
#define EBBI_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))

#endif
#endif
