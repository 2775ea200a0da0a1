// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the whole contract with the operating system. The only files with system calls
// are linux.c, memory.c, thread.c and, for signals, fault.c; tests/unit/support has a fake that can refuse any single call.
//
// Any thread may call any function here. None allocates, none touches errno, none is a cancellation
// point, and none is called on a fast path. Sizes are bytes and multiples of the page size unless a
// line says otherwise.
#ifndef EBB_OS_OS_H
#define EBB_OS_OS_H

#include "base/base.h"

// Once, alone, when the process starts: what is asked of the system only then, because a program may
// shut itself in later so that to open a file ends it.
void ebbi_os_start(void);

// Address space that holds nothing, is not charged and no part of a core file; at exactly `at` when that is not NULL
// (nothing is ever replaced), anywhere otherwise. NULL when refused.
void *ebbi_os_reserve(void *at, size_t bytes);

// As reserve, anywhere, but what of it is committed is charged: ebbi_os_commit refuses what the kernel never could give.
void *ebbi_os_reserve_charged(size_t bytes);

// As reserve, but reads as zero. NULL when refused.
void *ebbi_os_reserve_readable(size_t bytes);

// Readable, writable, zeroed memory at or anywhere, as reserve. NULL when refused, also where the kernel
// sees that it never could give so much.
void *ebbi_os_map(void *at, size_t bytes);

// Makes reserved pages readable and writable. 0 or -ENOMEM; on failure nothing has changed.
int ebbi_os_commit(void *start, size_t bytes);
int ebbi_os_make_writable(void *start, size_t bytes); // the same, but no part of a core file

// Gives the pages back at once; they read as zero afterwards and stay committed. Pages whose
// return the kernel refuses (locked memory) keep their contents: false.
bool ebbi_os_purge(void *start, size_t bytes);

// Lets no access through any more, until they are committed again. 0 or -ENOMEM; on failure nothing has changed.
int ebbi_os_close(void *start, size_t bytes);
// The same, and gives the pages back. Locked memory keeps its pages.
int ebbi_os_guard(void *start, size_t bytes);

// Lets no access through, and gives the pages back, where that is done again and again. By markers in the page tables
// (MADV_GUARD_INSTALL, Linux 6.13), which split no mapping, once ebbi_os_fences_begin has found that they hold; else, and
// where the kernel refuses one (locked memory), as ebbi_os_guard. 0 or -ENOMEM; on failure nothing has changed.
int ebbi_os_fence(void *start, size_t bytes);
int ebbi_os_unfence(void *start, size_t bytes); // accessible again. 0 or -ENOMEM: some may be
bool ebbi_os_fences_begin(void);                // one thread at a time. Whether they are markers

// Ends a reservation or mapping.
void ebbi_os_release(void *start, size_t bytes);

// Resizes a mapping in place. False when refused, nothing has changed then.
bool ebbi_os_resize(void *start, size_t old_bytes, size_t new_bytes);
// Moves a mapping, contents and all, onto the reservation at `to` (new_bytes long), which it replaces; to NULL: to where
// the kernel has room, or longer where it is. Returns where it lies then; NULL when refused, nothing has changed then.
void *ebbi_os_move(void *start, size_t old_bytes, void *to, size_t new_bytes);

// The process's map of its pages, which tells those apart that were only read, and take nothing (since Linux 6.7).
struct ebbi_os_pages {
    int file; // open; -1: there is none to be had
};
void ebbi_os_pages_open(struct ebbi_os_pages *pages); // a file: for statistics alone
void ebbi_os_pages_close(struct ebbi_os_pages *pages);
// One byte per page into `vector`: bit 0 set when the page is resident. By the map, where it can tell, else (NULL: at
// once) by mincore, to which pages that were only read are resident. False when unknown, as below a filter.
bool ebbi_os_resident(struct ebbi_os_pages *pages, const void *start, size_t bytes,
                      unsigned char *vector);

enum ebbi_os_huge { EBBI_HUGE_SYSTEM, EBBI_HUGE_NEVER, EBBI_HUGE_ALWAYS, EBBI_HUGE_AUTO };
// Advice about transparent huge pages for a reserved range: never, always; nothing for the others.
void ebbi_os_advise_huge(void *start, size_t bytes, enum ebbi_os_huge advice);
// True when the kernel gave huge pages without being asked, at the start.
bool ebbi_os_huge_by_default(void);
bool ebbi_os_huge_on_request(void); // where it is asked, at least

size_t ebbi_os_page_size(void);
// The process's own limit on address space (RLIMIT_AS), SIZE_MAX when there is none. Below a filter (ebbi_os_prctl) what it was.
size_t ebbi_os_address_limit(void);
void ebbi_os_at_exit(void (*call)(void *unused)); // at exit(3), if there is room for it
size_t ebbi_os_memory_bytes(void);                // of the machine; 1 when unknown
size_t ebbi_os_cpus(void);     // that this process might run on at its start, at least 1
size_t ebbi_os_cpu(void);      // that this thread runs on now, numbered without gaps: a hint
uint64_t ebbi_os_now_ms(void); // monotonic, about 4 ms fine, no system call
uint64_t ebbi_os_now_ns(void); // fine
// What the calling thread has run for; where system calls are filtered, as ebbi_os_now_ns.
uint64_t ebbi_os_thread_ns(void);
uint64_t ebbi_os_date_ms(void); // since 1970
uint64_t ebbi_os_entropy(void);
bool ebbi_os_is_secure(void);   // set-user-ID and the like: the environment is not to be trusted
bool ebbi_os_is_threaded(void); // false only while the process certainly has one thread
// VmRSS; 0 when unknown, as below a filter. Opens a file: for statistics alone.
size_t ebbi_os_resident_bytes(void);
uint32_t ebbi_os_process_number(void);
uint32_t ebbi_os_thread_number(void); // of the calling thread, as the kernel and its tools name it
// Of a thread of the process, as it is now; 0: it is no more, or there is no way to ask. Opens a file: for statistics alone.
size_t ebbi_os_thread_name(uint32_t number, char *name, size_t size);
// The process's first thread has done its last step, and others go on. Opens a file.
bool ebbi_os_first_has_ended(void);
bool ebbi_os_is_first_thread(void); // the calling thread is the process's first
void ebbi_os_yield(void);           // the rest of the time slice; below a filter a moment of it

// The system call. A filter of system calls begins with it, and may end the process for what is refused
// elsewhere: from then on there is no membarrier, and threads of our own stay as their creator made them.
#define EBBI_OS_GET_NAME 16 // PR_GET_NAME: the calling thread's, 16 bytes
int ebbi_os_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
// Around a call that a filter may not know of. False: it must not be made, and nothing ends.
bool ebbi_os_call_begins(void);
void ebbi_os_call_ends(void);
void ebbi_os_filters_see(
    void); // from now on every filter that the process makes comes by ebbi_os_prctl
// mincore may be called, which no documentation asks for: that was so from the start, or the user says it, and there is no
// filter of the process's own yet.
bool ebbi_os_may_look(void);
void ebbi_os_look_anyway(void);    // the user says it
void ebbi_os_forget_threads(void); // in the child of a fork: whoever was amid such a call
void ebbi_os_run_anywhere(void); // the calling thread: wherever the process might run at its start

// A full fence in every running thread of the process, after one successful registration (which
// may take tens of milliseconds once there are threads). False: the kernel has no such thing.
bool ebbi_os_membarrier_register(void);
bool ebbi_os_membarrier(void);

// Blocks while *word == expected, until woken or timeout_ms (0: no limit) has passed. May return
// early.
void ebbi_os_wait(uint32_t *word, uint32_t expected, uint32_t timeout_ms);
void ebbi_os_wake(uint32_t *word, int how_many);

struct ebbi_os_thread {
    void (*run)(void);
    const char *name; // 15 characters at most
};
// Starts a thread of our own: every signal blocked, on all processors that the process had at its
// start, by ordinary scheduling; these are inherited where a system call filter is in force. (With the
// capabilities of its creator: libc's setuid has each thread change its own identity.) Not 0: for one
// of the next two. 0: refused. May allocate; takes locks of libc. `thread` stays where it is.
uintptr_t ebbi_os_start_thread(const struct ebbi_os_thread *thread);
// Waits for its end. No point of cancellation. 0: nothing.
void ebbi_os_join_thread(uintptr_t handle);
// Lets it go, ended or not, and does not wait. 0: nothing.
void ebbi_os_leave_thread(uintptr_t handle);
// By these functions of libc's, all or none of them there; before the first such thread.
void ebbi_os_join_by(void *join, void *try_join, void *detach);
uintptr_t ebbi_os_own_thread(void);         // the calling thread's handle
bool ebbi_os_thread_lives(uint32_t number); // of ebbi_os_thread_number
// Signals of the calling thread wait from here to the other call, but for those of its own faults: of a short time, as a
// filter of system calls waits for it. Where the kernel may not be asked they come. Keep errno. No fork() in between.
struct ebbi_os_signals {
    uint64_t before;
    bool held;
};
struct ebbi_os_signals ebbi_os_hold_signals(void);
void ebbi_os_let_signals(struct ebbi_os_signals signals);
uint32_t ebbi_os_thread_count(void);              // with those on their last steps; 0: unknown
bool ebbi_os_is_own_thread(void *(*run)(void *)); // what pthread_create is passed for one of ours

// A word of each thread's own, 0 at first. One that is not 0 where its thread ends becomes 0, and `ends` gets it; as
// often as libc runs destructors anew it may be set again. To be started once, before threads share this; false, and
// each word stays 0, where libc has no key left.
bool ebbi_os_word_start(void (*ends)(uintptr_t word));
uintptr_t ebbi_os_word(void);
bool ebbi_os_word_set(uintptr_t word); // may allocate at a thread's first; false: refused

// fork(): libc's lock of all streams; and in the child.
void ebbi_os_streams_lock(void);
void ebbi_os_streams_unlock(void);
void ebbi_os_streams_reset(void);

// Whether the calling thread may be in a signal handler: it blocks a signal that has one. Handlers
// with SA_NODEFER, which do not block their own, and with SA_RESETHAND are not found out. Below a filter it always may.
bool ebbi_os_may_handle_signal(void);

// Calls `look` in the signal handler for each access to memory that the kernel refuses (SIGSEGV,
// SIGBUS), then what the program had installed before, as if it were alone. Once for each of two. `pc`: the place in the code.
void ebbi_os_watch_faults(void (*look)(uintptr_t address, uintptr_t pc));

// Calls `look` in the signal handler for each signal of that number from now on. False, and nothing has
// changed: the program has a handler of its own, or there can be none for that number. If the program
// installs one later, that is the only one.
bool ebbi_os_watch_signal(int number, void (*look)(void));

// ---- stacks: what unwind/ needs to know of the machine and of the kernel ---------------------------------
#if defined(__x86_64__)
#define EBBI_OS_FP_COLUMN 6 // of call frame information
#define EBBI_OS_SP_COLUMN 7
#define EBBI_OS_REGISTERS(at)                                                                      \
    __asm__ volatile("mov %%rbp, %0\n\tlea 0(%%rip), %1\n\tmov %%rsp, %2"                          \
                     : "=&r"((at).fp), "=&r"((at).pc), "=&r"((at).sp))
#elif defined(__aarch64__)
#define EBBI_OS_FP_COLUMN 29
#define EBBI_OS_SP_COLUMN 31
#define EBBI_OS_REGISTERS(at)                                                                      \
    __asm__ volatile("mov %0, x29\n\tadr %1, .\n\tmov %2, sp"                                      \
                     : "=&r"((at).fp), "=&r"((at).pc), "=&r"((at).sp))
#endif
struct ebbi_registers {
    uintptr_t pc, sp, fp;
    uintptr_t
        lr; // where it returns to, of a leaf, on machines that keep that in a register; else 0
};
// Where the kernel has saved them, below a signal handler whose caller's stack pointer is `sp`; lr 0: nowhere.
struct ebbi_signal_places {
    uintptr_t pc, sp, fp, lr;
};
void ebbi_os_signal_places(uintptr_t sp, struct ebbi_signal_places *places);
bool ebbi_os_is_readable(uintptr_t address);         // 8 bytes there, aligned; asks the kernel
#define EBBI_OS_POPULATE_READ 22                     // MADV_POPULATE_READ, which older headers lack
uintptr_t ebbi_os_peek(uintptr_t address);           // the word there, whatever it is
uintptr_t ebbi_os_code_address(uintptr_t return_to); // without a signature

// The .eh_frame_hdr of the program or library that the address belongs to; NULL: it has none, or none is there. Takes
// the loader's lock where the loader has no other way (before glibc 2.35, musl), or none is known of.
const unsigned char *ebbi_os_unwind_table(uintptr_t address);
void ebbi_os_unwind_by(void *symbol); // that way: glibc's _dl_find_object; NULL: there is none

struct ebbi_os_module {
    uintptr_t base; // address - base: as in the file
    char name[112]; // path; its end, where it is longer
};
// The program or library that the address belongs to; false: none. Takes the dynamic loader's lock, but where this is false.
bool ebbi_os_module_locks(void);
bool ebbi_os_module_find(uintptr_t address, struct ebbi_os_module *module);

// Built with one of these, where the library is not. ThreadSanitizer's runtime does not know threads of ours, in which
// the program's destructors may run; under it and under MemorySanitizer not every address may be a block's.
bool ebbi_os_under_tsan(void);
bool ebbi_os_has_tsan(void); // and the library perhaps, too
bool ebbi_os_under_msan(void);

// What a program or library has mapped to be executed.
struct ebbi_os_mapping {
    uintptr_t start;
    size_t bytes, offset; // in the file
    size_t id_bytes;      // 0: it has no build id
    unsigned char id[20];
    char name[256]; // path; its end, where it is longer
};
// Up to `room` of them, returns how many. Takes the dynamic loader's lock.
size_t ebbi_os_mappings(struct ebbi_os_mapping *out, size_t room);
// fork(), before all others but the threads': no thread of ours is in the loader then.
void ebbi_os_loader_lock(void);
void ebbi_os_loader_unlock(void);
// That of the library itself, if it is a shared one; else 0 bytes.
void ebbi_os_own_code(uintptr_t *start, size_t *bytes);

// How every line on standard error begins: "ebbtide: NAME[PID]: ", with a NUL. Returns its length. For
// signal handlers too.
#define EBBI_HEAD_ROOM 80
size_t ebbi_message_head(char out[EBBI_HEAD_ROOM]);
#define EBBI_NAME_ROOM 48
void ebbi_message_name(char out[EBBI_NAME_ROOM]); // NAME alone
void ebbi_message_start(void); // the name as it is now: programs write over their arguments

// One such line, cut if need be. Not for signal handlers.
void ebbi_message(const char *format, ...) EBBI_PRINTF(1, 2);
// "WHAT: why (errno N): FILE", of a file that cannot be written; error: negative. Also in signal handlers.
void ebbi_message_file(const char *what, int error, const char *file);

// What ebbi_fatal does behind its message: the process is over. The thread may hold locks of a heap.
EBBI_NORETURN void ebbi_end(void);
// Called between the message and abort(). Set once, at start-up.
extern EBBI_HIDDEN void (*ebbi_before_abort)(void);

// Unbuffered, retried on EINTR; errno stays. 0, or why it failed, below 0.
int ebbi_os_write(int fd, const char *text, size_t length);
// To the end of the file, which is made where there is none, by a single write: nothing of another process comes between. 0, or
// why not, below 0; then a part may be there. Does not wait for a reader. For signal handlers too.
int ebbi_os_append(const char *path, const char *text, size_t length);
// New and empty, or what there was emptied. Of a FIFO that nobody reads: -ENXIO, instead of a wait. Below 0: why not.
int ebbi_os_file_open(const char *path);
int ebbi_os_file_close(int fd); // no point of cancellation, as the others
// A new file, in place of one of that name; to be written, and ended as `to`, of which it has the mode. Below 0: why there is none;
// -EINVAL: `to` is no regular file.
int ebbi_os_file_begin(const char *path, const char *to);
// Closes it and gives it the name `to`, in place of what had that one; NULL, or refused: it is removed. As write.
int ebbi_os_file_end(int fd, const char *path, const char *to);

#endif
