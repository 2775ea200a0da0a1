// SPDX-License-Identifier: MIT OR Apache-2.0
// The recording's file and its spool. When one can't be written the recording stops, with a line on standard
// error; the program goes on. Blocks are appended whole, or not at all.
#define ZSTD_STATIC_LINKING_ONLY // a compressor in memory that we give it: it would call malloc
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

#include "trace/record/record.h"
#include "trace/record/text.h"

enum {
    LEVEL = 1,     // twice as fast as 3 for a tenth more bytes
    HIGH_FD = 900, // programs close what lies below
    NAMES_MAX = 10000,
};

// A file that is kept open, and found again if the program has closed or replaced its descriptor.
struct file {
    char path[PATH_MAX];
    int fd;
    dev_t device;
    ino_t inode;
};

static struct {
    struct lock lock;
    bool is_stopped;
    struct file blocks, spool;
    off_t bytes; // of whole blocks
    struct trace_spool *head;
    struct trace_slot *spare_slots[4096]; // of ended threads
    uint32_t spares;
    ZSTD_CCtx *compressor;
    unsigned char *packed;
} store = {.lock = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

void lock_store(void) { take(&store.lock); }
void unlock_store(void) { give(&store.lock); }
void forget_store_lock(void) { store.lock = (struct lock){.mutex = PTHREAD_MUTEX_INITIALIZER}; }
bool has_stopped(void) { return __atomic_load_n(&store.is_stopped, __ATOMIC_RELAXED); } // a hint

void *map_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void stop(const char *what, const char *path, int error)
{
    if (!store.is_stopped) {
        char line[PATH_MAX + 256];
        int length =
            snprintf(line, sizeof line,
                     "ebb record: %s %s: %s; the recording stops here, the program goes on\n", what,
                     path, strerrordesc_np(error));
        if (write(STDERR_FILENO, line, (size_t)length) < 0) {
            // nobody listens
        }
    }
    __atomic_store_n(&store.is_stopped, true, __ATOMIC_RELAXED); // relaxed: under the lock
}

// A descriptor that is out of the program's way.
static int raise_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) {
        return fd;
    }
    (void)close(fd);
    return high;
}

static bool adopt_fd(struct file *file, int fd)
{
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return false;
    }
    file->fd = raise_fd(fd);
    file->device = status.st_dev;
    file->inode = status.st_ino;
    (void)fcntl(file->fd, F_SETLK,
                &(struct flock){.l_type = F_WRLCK}); // tells `finish` that we live
    return true;
}

static bool is_open(const struct file *file)
{
    struct stat status;
    return fstat(file->fd, &status) == 0 && status.st_dev == file->device &&
           status.st_ino == file->inode;
}

static bool find_file(struct file *file)
{
    return is_open(file) || adopt_fd(file, open(file->path, O_RDWR | O_CLOEXEC));
}

// A file that would grow beyond a limit of the process is an error, not the signal, which waits for the lock's end.
static int without_signal(int error)
{
    sigset_t too_large;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    if (error == EFBIG) {
        (void)sigtimedwait(&too_large, NULL, &(struct timespec){0});
    }
    return error;
}

// Behind what is there.
static int append(struct iovec *parts, int count, size_t bytes)
{
    ssize_t written = pwritev(store.blocks.fd, parts, count, store.bytes);
    return without_signal(written < 0 ? errno : (size_t)written < bytes ? ENOSPC : 0);
}

static void write_parts(struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += parts[i].iov_len;
    }
    int error = find_file(&store.blocks) ? append(parts, count, bytes) : errno;
    if (error == 0) {
        store.bytes += (off_t)bytes;
        return;
    }
    stop("cannot write", store.blocks.path, error);
    if (ftruncate(store.blocks.fd, store.bytes) != 0) {
        // the reader says that the last block is cut off
    }
}

static uint32_t pack(const struct trace_slot *slot)
{
    size_t most = slot->bytes - 1; // or it is not worth it
    size_t bytes =
        ZSTD_compressCCtx(store.compressor, store.packed, most, slot->events, slot->bytes, LEVEL);
    return ZSTD_isError(bytes) ? slot->bytes : (uint32_t)bytes;
}

static void write_block(const struct trace_slot *slot)
{
    uint32_t stored = slot->bytes > 0 ? pack(slot) : 0;
    const void *payload = stored < slot->bytes ? store.packed : slot->events;
    struct trace_block block = {
        .magic = TRACE_BLOCK_MAGIC,
        .thread = slot->thread,
        .offset = slot->offset,
        .raw_bytes = slot->bytes,
        .stored_bytes = stored,
        .ends = slot->ends,
    };
    block.check = block_check(block, payload);
    struct iovec parts[] = {{&block, sizeof block}, {(void *)(uintptr_t)payload, stored}};
    write_parts(parts, 2);
}

// The offset goes on when the block is in the file and nothing is left in the slot: wherever the process is killed, a
// reader of its spool tells by the offset whether the file has the slot's events.
void flush_slot(struct trace_slot *slot)
{
    uint32_t bytes = slot->bytes;
    if (!store.is_stopped && (bytes > 0 || slot->ends != 0)) {
        write_block(slot);
    }
    if (!store.is_stopped) {
        slot->bytes = 0;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        slot->offset += bytes;
    }
}

static void *map_spool(off_t offset)
{
    int error =
        find_file(&store.spool) ? posix_fallocate(store.spool.fd, offset, TRACE_SLOT_BYTES) : errno;
    if (without_signal(error) != 0) {
        stop("cannot enlarge", store.spool.path, error);
        return NULL;
    }
    void *p =
        mmap(NULL, TRACE_SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, store.spool.fd, offset);
    if (p == MAP_FAILED) {
        stop("cannot map", store.spool.path, errno);
        return NULL;
    }
    return p;
}

static struct trace_slot *new_slot(void)
{
    if (store.spares > 0) {
        return store.spare_slots[--store.spares];
    }
    struct trace_slot *slot = map_spool((off_t)(store.head->slots + 1) * TRACE_SLOT_BYTES);
    store.head->slots += slot != NULL;
    return slot;
}

struct trace_slot *take_slot(uint32_t thread)
{
    struct trace_slot *slot = store.is_stopped ? NULL : new_slot();
    if (slot != NULL) {
        slot->bytes = 0;
        slot->ends = 0;
        slot->offset = 0;
        slot->thread = thread;
        slot->is_used = 1;
    }
    return slot;
}

void drop_slot(struct trace_slot *slot)
{
    slot->is_used = 0;
    if (store.spares < sizeof store.spare_slots / sizeof store.spare_slots[0]) {
        store.spare_slots[store.spares++] = slot;
    }
}

// The first name that is not there yet: one process id may run several programs, one after the other.
static bool create_files(const char *base)
{
    for (int n = 0; n < NAMES_MAX; n++) {
        snprintf(store.blocks.path, sizeof store.blocks.path, "%s.%d.%d", base, (int)getpid(), n);
        snprintf(store.spool.path, sizeof store.spool.path, "%s.%d.%d.spool", base, (int)getpid(),
                 n);
        int fd = open(store.blocks.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST) {
            continue;
        }
        if (!adopt_fd(&store.blocks, fd)) {
            stop("cannot create", store.blocks.path, errno);
            return false;
        }
        if (!adopt_fd(&store.spool,
                      open(store.spool.path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600))) {
            stop("cannot create", store.spool.path, errno);
            return false;
        }
        return true;
    }
    stop("cannot create", base, EEXIST);
    return false;
}

static bool make_compressor(void)
{
    if (store.packed != NULL) {
        return true;
    }
    size_t workspace = ZSTD_estimateCCtxSize(LEVEL);
    unsigned char *memory = map_memory(workspace + TRACE_RAW_BYTES);
    if (memory == NULL) {
        stop("no memory for", "a compressor", ENOMEM);
        return false;
    }
    store.packed = memory + workspace;
    store.compressor = ZSTD_initStaticCCtx(memory, workspace);
    return store.compressor != NULL;
}

bool open_store(const char *base)
{
    static char text[TRACE_TEXT_MAX];
    if (!make_compressor() || !create_files(base)) {
        return false;
    }
    store.head = map_spool(0);
    if (store.head == NULL) {
        return false;
    }
    *store.head = (struct trace_spool){.magic = TRACE_SPOOL_MAGIC, .version = TRACE_VERSION};
    struct trace_start start = {.magic = TRACE_MAGIC, .version = TRACE_VERSION};
    start.text_bytes = describe_process(text, sizeof text);
    struct iovec parts[] = {{&start, sizeof start}, {text, start.text_bytes}};
    write_parts(parts, 2);
    return !store.is_stopped;
}

void forget_store(void)
{
    if (store.head != NULL && is_open(&store.blocks)) {
        (void)close(store.blocks.fd);
    }
    if (store.head != NULL && is_open(&store.spool)) {
        (void)close(store.spool.fd);
    }
    store.is_stopped = false;
    store.bytes = 0;
    store.head = NULL;
    store.spares = 0;
}
