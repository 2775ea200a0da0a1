// SPDX-License-Identifier: MIT OR Apache-2.0
// What of os/ the fake stands before once more, under the names of real_os.h.
#define ebbi_os_reserve real_os_reserve
#define ebbi_os_reserve_charged real_os_reserve_charged
#define ebbi_os_reserve_readable real_os_reserve_readable
#define ebbi_os_map real_os_map
#define ebbi_os_commit real_os_commit
#define ebbi_os_make_writable real_os_make_writable
#define ebbi_os_purge real_os_purge
#define ebbi_os_close real_os_close
#define ebbi_os_guard real_os_guard
#define ebbi_os_release real_os_release
#define ebbi_os_resize real_os_resize
#define ebbi_os_move real_os_move
#define ebbi_os_pages_open real_os_pages_open
#define ebbi_os_pages_close real_os_pages_close
#define ebbi_os_resident real_os_resident
#define ebbi_os_advise_huge real_os_advise_huge
#define ebbi_os_huge_by_default real_os_huge_by_default
#define ebbi_os_huge_on_request real_os_huge_on_request
#define ebbi_os_page_size real_os_page_size
#define ebbi_os_address_limit real_os_address_limit
#define ebbi_os_memory_bytes real_os_memory_bytes
#define ebbi_os_cpu real_os_cpu
#define ebbi_os_now_ms real_os_now_ms
#define ebbi_os_now_ns real_os_now_ns
#define ebbi_os_date_ms real_os_date_ms
#define ebbi_os_entropy real_os_entropy
#define ebbi_os_is_secure real_os_is_secure
#define ebbi_os_is_threaded real_os_is_threaded
#define ebbi_os_resident_bytes real_os_resident_bytes
#define ebbi_os_start real_os_start
#define ebbi_os_process_number real_os_process_number
#define ebbi_os_thread_number real_os_thread_number
#define ebbi_os_thread_ns real_os_thread_ns
#define ebbi_os_thread_name real_os_thread_name
#define ebbi_os_yield real_os_yield
#define ebbi_os_membarrier_register real_os_membarrier_register
#define ebbi_os_membarrier real_os_membarrier
#define ebbi_os_wait real_os_wait
#define ebbi_os_wake real_os_wake
#define ebbi_os_start_thread real_os_start_thread
#define ebbi_os_may_look real_os_may_look
#define ebbi_os_first_has_ended real_os_first_has_ended
#define ebbi_os_is_first_thread real_os_is_first_thread
#define ebbi_os_join_thread real_os_join_thread
#define ebbi_os_leave_thread real_os_leave_thread
#define ebbi_os_own_thread real_os_own_thread
#define ebbi_os_thread_lives real_os_thread_lives
#define ebbi_os_thread_count real_os_thread_count
#define ebbi_os_hold_signals real_os_hold_signals
#define ebbi_os_let_signals real_os_let_signals
#define ebbi_os_is_own_thread real_os_is_own_thread
#define ebbi_os_streams_lock real_os_streams_lock
#define ebbi_os_streams_unlock real_os_streams_unlock
#define ebbi_os_streams_reset real_os_streams_reset
#define ebbi_os_write real_os_write
#define ebbi_os_append real_os_append
#define ebbi_os_file_open real_os_file_open
#define ebbi_os_file_close real_os_file_close
#define ebbi_os_file_begin real_os_file_begin
#define ebbi_os_file_end real_os_file_end

#include "os/linux.c"
#include "os/memory.c"
#include "os/thread.c"

#include "support/real_os.h"
