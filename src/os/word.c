// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the word that libc keeps for each thread until its end, which costs no static TLS.
#include <errno.h>
#include <pthread.h>

#include "os/os.h"

static pthread_key_t word_key;
static bool has_word_key;
static void (*word_ends)(uintptr_t word);

static void end_word(void *word) { word_ends((uintptr_t)word); }

bool ebbi_os_word_start(void (*ends)(uintptr_t word))
{
    word_ends = ends;
    has_word_key = pthread_key_create(&word_key, end_word) == 0;
    return has_word_key;
}

uintptr_t ebbi_os_word(void) { return has_word_key ? (uintptr_t)pthread_getspecific(word_key) : 0; }

bool ebbi_os_word_set(uintptr_t word)
{
    int saved = errno;
    bool set = has_word_key && pthread_setspecific(word_key, (void *)word) == 0;
    errno = saved;
    return set;
}
