// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions of os/ under other names, for the fake to call. real_os.c defines them and
// includes this, so a difference is a compile error.
#ifndef EBB_TESTS_UNIT_REAL_OS_H
#define EBB_TESTS_UNIT_REAL_OS_H

#include "os/os.h"

void *real_os_reserve(void *at, size_t bytes);
void *real_os_reserve_charged(size_t bytes);
void *real_os_reserve_readable(size_t bytes);
void *real_os_map(void *at, size_t bytes);
int real_os_commit(void *start, size_t bytes);
int real_os_make_writable(void *start, size_t bytes);
bool real_os_purge(void *start, size_t bytes);
int real_os_close(void *start, size_t bytes);
int real_os_guard(void *start, size_t bytes);
void real_os_release(void *start, size_t bytes);
bool real_os_resize(void *start, size_t old_bytes, size_t new_bytes);
void *real_os_move(void *start, size_t old_bytes, void *to, size_t new_bytes);
void real_os_pages_open(struct ebbi_os_pages *pages);
void real_os_pages_close(struct ebbi_os_pages *pages);
bool real_os_resident(struct ebbi_os_pages *pages, const void *start, size_t bytes,
                      unsigned char *vector);
void real_os_advise_huge(void *start, size_t bytes, enum ebbi_os_huge advice);
bool real_os_huge_by_default(void);
bool real_os_huge_on_request(void);
size_t real_os_page_size(void);
size_t real_os_address_limit(void);
size_t real_os_memory_bytes(void);
size_t real_os_cpu(void);
uint64_t real_os_now_ms(void);
uint64_t real_os_now_ns(void);
uint64_t real_os_date_ms(void);
uint64_t real_os_entropy(void);
bool real_os_is_secure(void);
bool real_os_is_threaded(void);
size_t real_os_resident_bytes(void);
void real_os_start(void);
uint32_t real_os_process_number(void);
uint32_t real_os_thread_number(void);
uint64_t real_os_thread_ns(void);
size_t real_os_thread_name(uint32_t number, char *name, size_t size);
void real_os_yield(void);
bool real_os_membarrier_register(void);
bool real_os_membarrier(void);
void real_os_wait(uint32_t *word, uint32_t expected, uint32_t timeout_ms);
void real_os_wake(uint32_t *word, int how_many);
uintptr_t real_os_start_thread(const struct ebbi_os_thread *thread);
bool real_os_first_has_ended(void);
bool real_os_is_first_thread(void);
void real_os_join_thread(uintptr_t handle);
void real_os_leave_thread(uintptr_t handle);
uintptr_t real_os_own_thread(void);
bool real_os_thread_lives(uint32_t number);
uint32_t real_os_thread_count(void);
struct ebbi_os_signals real_os_hold_signals(void);
void real_os_let_signals(struct ebbi_os_signals signals);
bool real_os_is_own_thread(void *(*run)(void *));
void real_os_streams_lock(void);
void real_os_streams_unlock(void);
void real_os_streams_reset(void);
int real_os_write(int fd, const char *text, size_t length);
int real_os_append(const char *path, const char *text, size_t length);
int real_os_file_open(const char *path);
int real_os_file_close(int fd);
int real_os_file_begin(const char *path, const char *to);
int real_os_file_end(int fd, const char *path, const char *to);

#endif
