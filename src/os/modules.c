// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: what the dynamic loader knows: whose code is where.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "os/lock.h"
#include "os/os.h"

// Around the loader's own, which a thread that holds it at a fork() leaves locked in the child.
static struct ebbi_lock loader = EBBI_LOCK(LOADER);

void ebbi_os_loader_lock(void) { ebbi_lock_take(&loader); }
void ebbi_os_loader_unlock(void) { ebbi_lock_drop(&loader); }

// ---- what the loader knows without a lock ------------------------------------------------------------------

// glibc's, since 2.35: without a lock, also in signal handlers. What follows the first five is of no interest here.
struct found_object {
    unsigned long long flags;
    void *start, *end, *module;
    const unsigned char *unwind_table;
    unsigned long long others[16];
};
typedef int find_object_function(void *address, struct found_object *found);
static find_object_function *find_object; // NULL: there is none that is known of; atomic

void ebbi_os_unwind_by(void *symbol)
{
    find_object_function *found;
    memcpy(&found, &symbol, sizeof found);
    ebbi_store_relaxed(&find_object, found); // relaxed: a function of libc's
}

// ---- one address -----------------------------------------------------------------------------------------

struct module_search {
    uintptr_t address;
    struct ebbi_os_module *module;
};

// The end of the path, where it does not fit. An empty one is the program's.
static void name_module(char *out, size_t room, const char *path)
{
    char program[512];
    size_t length = strlen(path);
    if (length == 0 && ebbi_os_call_begins()) {
        ssize_t got = readlink("/proc/self/exe", program, sizeof program);
        length = got > 0 ? (size_t)got : 0;
        path = program;
        ebbi_os_call_ends();
    }
    size_t kept = ebbi_min(length, room - 1);
    memcpy(out, path + length - kept, kept);
    out[kept] = '\0';
}

static int match_module(struct dl_phdr_info *info, size_t size, void *context)
{
    const struct module_search *search = context;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD &&
            search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            search->module->base = info->dlpi_addr;
            name_module(search->module->name, sizeof search->module->name, info->dlpi_name);
            return 1;
        }
    }
    return 0;
}

bool ebbi_os_module_locks(void)
{
    return ebbi_load_relaxed(&find_object) == NULL; // relaxed: as above
}

bool ebbi_os_module_find(uintptr_t address, struct ebbi_os_module *module)
{
    int saved = errno;
    find_object_function *find = ebbi_load_relaxed(&find_object); // relaxed: a function of libc's
    struct found_object found_here;
    if (find != NULL) {
        bool is_there = find((void *)address, &found_here) == 0;
        if (is_there) {
            const struct link_map *map = found_here.module;
            module->base = map->l_addr;
            name_module(module->name, sizeof module->name, map->l_name);
        }
        errno = saved;
        return is_there;
    }
    struct module_search search = {address, module};
    ebbi_lock_take(&loader);
    bool found = dl_iterate_phdr(match_module, &search) != 0;
    ebbi_lock_drop(&loader);
    errno = saved;
    return found;
}

// ---- what is mapped to be executed ---------------------------------------------------------------------

struct mapping_list {
    struct ebbi_os_mapping *out;
    size_t room, count;
};

// The GNU build id among the notes of one part: each is three words (lengths of name and content, type),
// then both, padded to words.
static void find_id(struct ebbi_os_mapping *mapping, const char *notes, size_t bytes)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)notes;
        const char *name = notes + sizeof *note;
        size_t whole = sizeof *note + ebbi_align_up(note->n_namesz, 4);
        const char *content = notes + whole;
        whole += ebbi_align_up(note->n_descsz, 4);
        if (whole > bytes) {
            return;
        }
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            mapping->id_bytes = ebbi_min(note->n_descsz, sizeof mapping->id);
            memcpy(mapping->id, content, mapping->id_bytes);
        }
        notes += whole;
        bytes -= whole;
    }
}

static void list_part(struct mapping_list *list, const struct dl_phdr_info *info,
                      const ElfW(Phdr) * part)
{
    struct ebbi_os_mapping *mapping = &list->out[list->count++];
    size_t before = part->p_vaddr % ebbi_os_page_size();
    mapping->start = info->dlpi_addr + part->p_vaddr - before;
    mapping->bytes = ebbi_align_up(part->p_memsz + before, ebbi_os_page_size());
    mapping->offset = part->p_offset - before;
    mapping->id_bytes = 0;
    name_module(mapping->name, sizeof mapping->name, info->dlpi_name);
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *notes = &info->dlpi_phdr[i];
        if (notes->p_type == PT_NOTE) {
            find_id(mapping, (const char *)(info->dlpi_addr + notes->p_vaddr), notes->p_memsz);
        }
    }
}

static int list_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct mapping_list *list = context;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum && list->count < list->room; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            list_part(list, info, part);
        }
    }
    return list->count == list->room;
}

size_t ebbi_os_mappings(struct ebbi_os_mapping *out, size_t room)
{
    int saved = errno;
    struct mapping_list list = {out, room, 0};
    ebbi_lock_take(&loader);
    (void)dl_iterate_phdr(list_module, &list);
    ebbi_lock_drop(&loader);
    errno = saved;
    return list.count;
}

// ---- call frame information -----------------------------------------------------------------------------

struct table_search {
    uintptr_t address;
    const unsigned char *table;
};

static int match_table(struct dl_phdr_info *info, size_t size, void *context)
{
    struct table_search *search = context;
    const unsigned char *table = NULL;
    bool found = false;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        found |= part->p_type == PT_LOAD && search->address - start < part->p_memsz;
        if (part->p_type == PT_GNU_EH_FRAME) {
            table = (const unsigned char *)start;
        }
    }
    search->table = found ? table : NULL;
    return found;
}

const unsigned char *ebbi_os_unwind_table(uintptr_t address)
{
    find_object_function *find = ebbi_load_relaxed(&find_object); // relaxed: as above
    if (find != NULL) {
        struct found_object found;
        return find((void *)address, &found) == 0 ? found.unwind_table : NULL;
    }
    int saved = errno;
    struct table_search search = {address, NULL};
    ebbi_lock_take(&loader);
    (void)dl_iterate_phdr(match_table, &search);
    ebbi_lock_drop(&loader);
    errno = saved;
    return search.table;
}

// ---- the library's own -----------------------------------------------------------------------------------

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); // by the linker

void ebbi_os_own_code(uintptr_t *start, size_t *bytes)
{
    uintptr_t file = (uintptr_t)&__ehdr_start;
    const ElfW(Phdr) *parts = (const void *)(file + __ehdr_start.e_phoff);
    *start = *bytes = 0;
    if ((uintptr_t)parts == getauxval(AT_PHDR)) {
        return; // the program's
    }
    for (size_t i = 0; i < __ehdr_start.e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD && (parts[i].p_flags & PF_X) != 0) {
            *start = file + parts[i].p_vaddr; // a shared library is linked for address 0
            *bytes = parts[i].p_memsz;
        }
    }
}

// ---- sanitizers ------------------------------------------------------------------------------------------

extern void __tsan_init(void) __attribute__((weak));
extern void __msan_init(void) __attribute__((weak));

#ifdef __SANITIZE_THREAD__
#define HAS_TSAN true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN true
#endif
#endif
#ifndef HAS_TSAN
#define HAS_TSAN false
#endif

bool ebbi_os_has_tsan(void) { return &__tsan_init != NULL; }
bool ebbi_os_under_tsan(void) { return !HAS_TSAN && ebbi_os_has_tsan(); }
bool ebbi_os_under_msan(void) { return &__msan_init != NULL; }
