// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: reports of what escaped from a released region. For signal handlers: no lock, no libc but
// write, and little stack.
#include "debug/quarantine.h"

#define ESCAPE_ROOM 8192

static uint32_t escape_busy; // atomic
static EBBI_SPARSE char escape_text[ESCAPE_ROOM];

static void put_place(struct ebbi_text *text, uintptr_t address, const struct ebbi_escape *escape)
{
    ebbi_text_number(text, address, 16);
    ebbi_text_put(text, " lies ");
    ebbi_text_number(text, address - escape->block, 10);
    ebbi_text_put(text, " bytes into ");
    ebbi_text_put(text, escape->freed ? "free memory" : "a block");
    ebbi_text_put(text, " of ");
    ebbi_text_number(text, escape->bytes, 10);
    ebbi_text_put(text, " bytes of region \"");
    ebbi_text_put(text, escape->label);
    ebbi_text_put(text, "\" (number ");
    ebbi_text_number(text, escape->number, 10);
    ebbi_text_put(text, escape->freed ? "), freed or unused before the release" : ")");
}

static void put_report(struct ebbi_text *text, uintptr_t address, const char *what,
                       const struct ebbi_escape *escape)
{
    char head[EBBI_HEAD_ROOM];
    (void)ebbi_message_head(head);
    ebbi_text_put(text, head);
    ebbi_text_put(text, what);
    ebbi_text_put(text, " after release: ");
    put_place(text, address, escape);
    ebbi_text_put(text, ", released at:\n");
    ebbi_stack_put(text, escape->released_by);
    if (!escape->freed) {
        ebbi_text_put(text, "allocated at:\n");
        ebbi_stack_put(text, ebbi_stack_noted(escape->block));
    }
}

bool ebbi_escape_report(uintptr_t address, const char *what)
{
    struct ebbi_escape escape;
    if (!ebbi_quarantine_find(address, &escape)) {
        return false;
    }
    // acquire[escape-take <- escape-drop]: the text is this thread's
    while (ebbi_exchange_acquire(&escape_busy, 1u) != 0) {
        ebbi_os_yield();
    }
    struct ebbi_text text = {escape_text, escape_text + ESCAPE_ROOM};
    put_report(&text, address, what, &escape);
    ebbi_os_write(2, escape_text, (size_t)(text.at - escape_text));
    // release[escape-drop -> escape-take]: the text has been written
    ebbi_store_release(&escape_busy, 0u);
    return true;
}

void ebbi_escape_forget(void)
{
    ebbi_store_relaxed(&escape_busy, 0u); // relaxed: there is no other thread
}

void ebbi_escape_look(uintptr_t address) { (void)ebbi_escape_report(address, "use"); }
