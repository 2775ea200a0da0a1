// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: reports of what escaped from a released region. For signal handlers: no lock, no libc but
// write, and little stack.
#include "debug/quarantine.h"
#include "debug/report.h"

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
    struct ebbi_text text = ebbi_report_begin();
    put_report(&text, address, what, &escape);
    ebbi_report_end(&text);
    return true;
}

void ebbi_escape_look(uintptr_t address, uintptr_t pc)
{
    (void)pc;
    (void)ebbi_escape_report(address, "use");
}
