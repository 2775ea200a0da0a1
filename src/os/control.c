// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the word by which another process asks.
#include "os/control.h"

struct ebbi_control ebbi_control;

struct ebbi_question ebbi_control_read(void)
{
    struct ebbi_question question;
    question.number = ebbi_load_relaxed(&ebbi_control.asked); // relaxed: the fence orders it
    ebbi_fence_full(); // full[control <-> control]: the other process writes the number last
    question.what = ebbi_load_relaxed(&ebbi_control.what); // relaxed: behind the fence
    question.with = ebbi_load_relaxed(&ebbi_control.with); // relaxed: behind the fence
    question.ms = ebbi_load_relaxed(&ebbi_control.ms);     // relaxed: behind the fence
    return question;
}

void ebbi_control_answer(uint32_t number, int result)
{
    ebbi_store_relaxed(&ebbi_control.result, result); // relaxed: the fence orders it
    ebbi_fence_full(); // full[control <-> control]: the other process reads the result, and what was done, behind it
    ebbi_store_relaxed(&ebbi_control.answered, number); // relaxed: behind the fence
}

void ebbi_control_forget(void)
{
    uint32_t asked = ebbi_load_relaxed(&ebbi_control.asked); // relaxed: the only thread
    ebbi_store_relaxed(&ebbi_control.answered, asked);       // relaxed: as above
}
