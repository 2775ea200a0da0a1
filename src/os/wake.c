// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the helper's state and bell, and the wish for a pass.
#include "os/wake.h"

#include "os/os.h"

static EBBI_ATOMIC(uint32_t) helper_state;
static EBBI_ATOMIC(uint32_t) bell; // counts; what the helper waits on
static EBBI_ATOMIC(uint32_t) gather_wanted;
EBBI_ATOMIC(uint32_t) ebbi_pass_wanted;

uint32_t ebbi_helper_state(void) { return ebbi_load_relaxed(&helper_state); } // relaxed: see wake.h

void ebbi_helper_state_set(uint32_t to)
{
    ebbi_store_relaxed(&helper_state, to); // relaxed: see wake.h
}

bool ebbi_helper_state_move(uint32_t from, uint32_t to)
{
    return ebbi_cas_relaxed(&helper_state, &from, to); // relaxed: see wake.h
}

void ebbi_bell_ring(void)
{
    uint32_t before = ebbi_load_relaxed(&bell); // relaxed: compared, as rings may meet
    // release[bell-ring -> bell-hear]: why it rings
    while (!ebbi_cas_release(&bell, &before, before + 1)) {
    }
    ebbi_os_wake(&bell, 1);
}

uint32_t ebbi_bell_listen(void)
{
    // acquire[bell-hear <- bell-ring]: why it rang
    return ebbi_load_acquire(&bell);
}

// The bell has not rung: who naps goes on with it.
void ebbi_gather_ask(void)
{
    ebbi_store_relaxed(&gather_wanted, 1u); // relaxed: a hint
    ebbi_os_wake(&bell, 1);
}

bool ebbi_gather_claim(void)
{
    uint32_t wanted = 1;
    return ebbi_cas_relaxed(&gather_wanted, &wanted, 0u); // relaxed: a hint
}

void ebbi_nap(uint32_t ms)
{
    static uint32_t never; // always 0
    ebbi_os_wait(&never, 0, ms);
}

void ebbi_bell_wait(uint32_t heard, uint32_t ms) { ebbi_os_wait(&bell, heard, ms); }

bool ebbi_helper_is_there(void) { return ebbi_helper_state() >= EBBI_HELPER_IDLE; }

void ebbi_helper_kick(void)
{
    for (bool told = false; !told;) { // again where the state has changed meanwhile
        switch (ebbi_helper_state()) {
        case EBBI_HELPER_NONE:
            told = ebbi_helper_state_move(EBBI_HELPER_NONE, EBBI_HELPER_WANTED);
            break;
        case EBBI_HELPER_IDLE:
            told = ebbi_helper_state_move(EBBI_HELPER_IDLE, EBBI_HELPER_NAPS);
            if (told) {
                ebbi_bell_ring();
            }
            break;
        case EBBI_HELPER_BUSY:
            told = ebbi_helper_state_move(EBBI_HELPER_BUSY, EBBI_HELPER_KICKED);
            break;
        default:
            told = true;
            break;
        }
    }
}

void ebbi_pass_ask(void)
{
    ebbi_store_relaxed(&ebbi_pass_wanted, 1u); // relaxed: a hint
}

bool ebbi_pass_claim(void)
{
    uint32_t wanted = 1;
    return ebbi_cas_relaxed(&ebbi_pass_wanted, &wanted, 0u); // relaxed: a hint
}
