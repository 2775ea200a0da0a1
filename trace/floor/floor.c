// SPDX-License-Identifier: MIT OR Apache-2.0
// The floor of a replay: an allocator that does next to nothing. Under it a replay's time is what the replay itself
// costs: reading operations, waiting for turns, touching blocks. The replay's own blocks overlap (it is told
// so by --floor); what libc asks for, thread descriptors and buffers, is handed out once and kept.
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum {
    STRIDE = 33 * 64, // an odd number of cache lines, so that the ring visits every set
    RING_BLOCKS = 64,
    RING_REQUEST = 2048,
    ALIGN = 16,
};

#define LARGE_BYTES ((size_t)1 << 32) // address space of which few pages are touched
#define WARM_BYTES ((size_t)1 << 25)
#define KEPT_BYTES ((size_t)1 << 26)

#define EXPORT __attribute__((visibility("default")))

static __thread uint32_t next_block __attribute__((tls_model("initial-exec")));
static __thread _Alignas(64) unsigned char ring[RING_BLOCKS * STRIDE]
    __attribute__((tls_model("initial-exec")));
static unsigned char *large, *kept; // kept: what is left of it
static uintptr_t program_start, program_end;

static int visit(struct dl_phdr_info *object, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            program_start = object->dlpi_addr + part->p_vaddr;
            program_end = program_start + part->p_memsz;
        }
    }
    return 1; // the first is the program
}

static unsigned char *map(size_t bytes)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static unsigned char *keep(size_t align, size_t bytes)
{
    if (kept == NULL) {
        kept = map(KEPT_BYTES);
    }
    uintptr_t start =
        ((uintptr_t)__atomic_fetch_add(&kept, bytes + align, __ATOMIC_RELAXED) + align - 1) &
        ~(align - 1);
    return (unsigned char *)start;
}

static int is_program(const void *caller)
{
    return (uintptr_t)caller - program_start < program_end - program_start;
}

static void *give(size_t align, size_t bytes, const void *caller)
{
    if (!is_program(caller)) {
        return keep(align, bytes);
    }
    if (bytes <= RING_REQUEST && align <= ALIGN) {
        next_block = (next_block + 1) % RING_BLOCKS;
        return ring + (size_t)next_block * STRIDE;
    }
    if (bytes > LARGE_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    return large;
}

__attribute__((constructor)) static void open_floor(void)
{
    large = map(LARGE_BYTES);
    (void)madvise(large, WARM_BYTES,
                  MADV_POPULATE_WRITE); // faults would be the floor's, not the replay's
    (void)dl_iterate_phdr(visit, NULL);
}

EXPORT void *malloc(size_t bytes);
EXPORT void free(void *block);
EXPORT void *calloc(size_t count, size_t size);
EXPORT void *realloc(void *block, size_t bytes);
EXPORT int posix_memalign(void **block, size_t align, size_t bytes);
EXPORT void *aligned_alloc(size_t align, size_t bytes);
EXPORT void *memalign(size_t align, size_t bytes);

void *malloc(size_t bytes) { return give(ALIGN, bytes, __builtin_return_address(0)); }

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size)
{
    return give(ALIGN, count * size, __builtin_return_address(0));
}

// The old contents are the program's to lose; libc asks for none.
void *realloc(void *block, size_t bytes)
{
    (void)block;
    return give(ALIGN, bytes, __builtin_return_address(0));
}

int posix_memalign(void **block, size_t align, size_t bytes)
{
    *block = give(align, bytes, __builtin_return_address(0));
    return *block == NULL ? ENOMEM : 0;
}

void *memalign(size_t align, size_t bytes)
{
    return give(align, bytes, __builtin_return_address(0));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return give(align, bytes, __builtin_return_address(0));
}
