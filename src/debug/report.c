// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/report.h"

#include "ebbtide/detail/atomic.h"
#include "os/os.h"

#define REPORT_ROOM 8192

static uint32_t report_busy; // atomic
static EBBI_SPARSE char report_text[REPORT_ROOM];

struct ebbi_text ebbi_report_begin(void)
{
    char head[EBBI_HEAD_ROOM];
    // acquire[report-take <- report-drop]: the text is this thread's
    while (ebbi_exchange_acquire(&report_busy, 1u) != 0) {
        ebbi_os_yield();
    }
    struct ebbi_text text = {report_text, report_text + REPORT_ROOM};
    (void)ebbi_message_head(head);
    ebbi_text_put(&text, head);
    return text;
}

void ebbi_report_end(const struct ebbi_text *text)
{
    ebbi_os_write(2, report_text, (size_t)(text->at - report_text));
    // release[report-drop -> report-take]: the text has been written
    ebbi_store_release(&report_busy, 0u);
}

void ebbi_report_forget(void)
{
    ebbi_store_relaxed(&report_busy, 0u); // relaxed: there is no other thread
}
