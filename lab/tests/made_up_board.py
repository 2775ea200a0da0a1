# SPDX-License-Identifier: MIT OR Apache-2.0
"""A board in C that a test makes up, and the note that leads to it (src/process/board.h)."""

VERSION = 4


def board(version: int = VERSION, **places: str) -> str:
    """C text. `places`: what its fields are set to; the others are 0."""
    fields = "".join(f", .{name} = {value}" for name, value in places.items())
    return f"""
#include <stddef.h>
#include <stdint.h>
struct made_up_board {{
    uint64_t magic;
    uint32_t version, bytes;
    char release[16];
    const void *control, *snapshot, *labels;
    uint64_t labels_a_part;
    const void *options, *now, *first, *changed_ms, *waiting;
    uint64_t parts, entry_bytes;
    const void *state, *book, *live;
}};
extern __attribute__((visibility("hidden"))) const struct made_up_board made_up_board;
__attribute__((used)) const struct made_up_board made_up_board = {{
    0x454242424f524431, {version}, sizeof(struct made_up_board), "0.9.7"{fields}}};
__asm__(".pushsection .note.ebbtide, \\"a\\", \\"note\\"\\n"
        ".balign 4\\n.4byte 8, 8, 1\\n.asciz \\"Ebbtide\\"\\n"
        ".8byte made_up_board - .\\n.popsection\\n");
"""
