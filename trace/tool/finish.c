// SPDX-License-Identifier: MIT OR Apache-2.0
// Ends a recording: however its process ended, the last events of its threads are in the spool beside it.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/tool/tool.h"

// Where the thread's stream ends in the file.
static uint64_t end_of(const struct recording *recording, uint32_t thread)
{
    for (size_t i = 0; i < recording->stream_count; i++) {
        const struct stream *stream = &recording->streams[i];
        if (stream->thread == thread) {
            struct trace_block last;
            memcpy(&last, recording->blocks[stream->first + stream->count - 1], sizeof last);
            return last.offset + last.raw_bytes;
        }
    }
    return 0;
}

// A block whole, or not at all.
static bool append(int fd, const struct trace_block *block, const void *events)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (try_write_block(fd, block, events)) {
        return true;
    }
    int error = errno;
    if (ftruncate(fd, end) != 0) {
        // the next who finishes it cuts the block off
    }
    errno = error;
    return false;
}

// Events that became a block just before the process was killed lie behind the slot's offset; those of a recording
// that had stopped before do not reach it.
static bool append_slot(int fd, const struct recording *recording, const struct trace_slot *slot)
{
    if (slot->is_used != 1 || slot->bytes == 0 || slot->bytes > TRACE_RAW_BYTES ||
        slot->offset != end_of(recording, slot->thread)) {
        return true;
    }
    struct trace_block block = {.magic = TRACE_BLOCK_MAGIC,
                                .thread = slot->thread,
                                .offset = slot->offset,
                                .raw_bytes = slot->bytes,
                                .ends = 1};
    return append(fd, &block, slot->events);
}

// False: the disk is full.
static bool append_spool(int fd, const struct recording *recording, const char *spool)
{
    int from = open(spool, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (from < 0 || fstat(from, &status) != 0 || status.st_size < TRACE_SLOT_BYTES) {
        return true; // it never had a slot
    }
    if (!S_ISREG(status.st_mode)) {
        fail("%s is no spool of a recording", spool);
    }
    size_t bytes = (size_t)status.st_size;
    const unsigned char *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, from, 0);
    (void)close(from);
    if (data == MAP_FAILED) {
        fail("cannot map %s: %s", spool, strerror(errno));
    }
    const struct trace_spool *head = (const void *)data;
    if (head->magic != TRACE_SPOOL_MAGIC || head->version != TRACE_VERSION) {
        fail("%s is no spool of a recording", spool);
    }
    bool has_room = true;
    for (size_t i = 1; has_room && i <= head->slots && (i + 1) * TRACE_SLOT_BYTES <= bytes; i++) {
        has_room = append_slot(fd, recording, (const void *)(data + i * TRACE_SLOT_BYTES));
    }
    (void)munmap((void *)(uintptr_t)data, bytes);
    return has_room;
}

// A process that is killed while it writes a block leaves a part of it: its events are in the spool still.
static void cut_last_block(int fd, const struct recording *recording)
{
    size_t rest = recording->bytes - recording->whole_bytes;
    if (rest >= sizeof(struct trace_block) + TRACE_RAW_BYTES) {
        fail("%s is damaged at byte %zu", recording->path, recording->whole_bytes);
    }
    if (rest > 0 && ftruncate(fd, (off_t)recording->whole_bytes) != 0) {
        fail("cannot cut %s: %s", recording->path, strerror(errno));
    }
}

// The recorder holds a lock while its process lives.
static void check_lock(int fd, const char *path)
{
    struct flock lock = {.l_type = F_WRLCK};
    if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
        fail("%s is still written by process %d", path, (int)lock.l_pid);
    }
}

static void finish_blocks(const struct recording *recording, const char *spool)
{
    int fd = open(recording->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) {
        fail("cannot write %s: %s", recording->path, strerror(errno));
    }
    check_lock(fd, recording->path);
    cut_last_block(fd, recording);
    if (!append_spool(fd, recording, spool)) {
        fprintf(stderr, "ebb-trace: %s: %s; the last events are left out\n", recording->path,
                strerror(errno));
    }
    (void)unlink(spool); // makes room, where there is none
    struct trace_block trailer = {.magic = TRACE_BLOCK_MAGIC, .thread = TRACE_NO_THREAD};
    (void)append(fd, &trailer, NULL); // without it the recording is one that was not finished
    (void)close(fd);
}

void finish_recording(const char *path)
{
    char spool[PATH_MAX];
    if (snprintf(spool, sizeof spool, "%s.spool", path) >= (int)sizeof spool) {
        fail("%s: the name is too long", path);
    }
    struct recording recording;
    recording_open_cut(&recording, path);
    if (recording.is_finished && recording.whole_bytes != recording.bytes) {
        fail("%s is damaged at byte %zu", path, recording.whole_bytes);
    }
    if (!recording.is_finished) {
        finish_blocks(&recording, spool);
    }
    recording_close(&recording);
    (void)unlink(spool);
}
