// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocks given back by the wrong function, or with a size or an alignment that is not theirs: the
// C++ operators by their mangled names, free_sized and free_aligned_sized.
#include "security.h"

typedef void *new_fn(size_t);
typedef void *new_aligned_fn(size_t, size_t);
typedef void delete_fn(void *);
typedef void delete_sized_fn(void *, size_t);
typedef void delete_both_fn(void *, size_t, size_t);

static byte *take(struct run *run, const char *name)
{
    byte *p = hide(((new_fn *)symbol(name))(run->size));
    memset(p, 0x31, run->size);
    return p;
}

// Taken by one operator; the fault gives it to `wrong`, a clean run to `right`.
static void pair(struct run *run, const char *get, const char *wrong, const char *right)
{
    delete_fn *bad = (delete_fn *)symbol(wrong), *good = (delete_fn *)symbol(right);
    byte *p = take(run, get);
    FAULT_ELSE(run, bad(hide(p)), good(p));
}

static void new_free(struct run *run) { pair(run, "_Znwm", "free", "_ZdlPv"); }
static void array_free(struct run *run) { pair(run, "_Znam", "free", "_ZdaPv"); }
static void malloc_delete(struct run *run) { pair(run, "malloc", "_ZdlPv", "free"); }
static void malloc_delete_array(struct run *run) { pair(run, "malloc", "_ZdaPv", "free"); }
static void new_delete_array(struct run *run) { pair(run, "_Znwm", "_ZdaPv", "_ZdlPv"); }
static void array_delete(struct run *run) { pair(run, "_Znam", "_ZdlPv", "_ZdaPv"); }

static void new_realloc(struct run *run)
{
    delete_fn *give = (delete_fn *)symbol("_ZdlPv");
    byte *p = take(run, "_Znwm");
    FAULT_ELSE(run, keep(run, realloc(hide(p), run->size * 2)), give(p));
}

static void twice(struct run *run, const char *second)
{
    delete_fn *again = (delete_fn *)symbol(second), *give = (delete_fn *)symbol("_ZdlPv");
    byte *p = take(run, "_Znwm");
    give(p);
    FAULT(run, again(hide(p)));
}
static void delete_twice(struct run *run) { twice(run, "_ZdlPv"); }
static void delete_then_free(struct run *run) { twice(run, "free"); }

static void free_then_delete(struct run *run)
{
    delete_fn *give = (delete_fn *)symbol("_ZdlPv");
    byte *p = block(run);
    free(p);
    FAULT(run, give(hide(p)));
}

static void delete_inside(struct run *run)
{
    delete_fn *give = (delete_fn *)symbol("_ZdlPv");
    byte *p = take(run, "_Znwm");
    FAULT(run, give(hide(p + 8)));
    give(p);
}

// The array's elements after a cookie: `delete` of the array's elements.
static void delete_behind_cookie(struct run *run)
{
    delete_fn *give = (delete_fn *)symbol("_ZdlPv"), *array = (delete_fn *)symbol("_ZdaPv");
    byte *p = take(run, "_Znam");
    FAULT(run, give(hide(p + 16)));
    array(p);
}

static void sized(struct run *run, const char *get, const char *put, size_t wrong)
{
    delete_sized_fn *give = (delete_sized_fn *)symbol(put);
    byte *p = take(run, get);
    FAULT_ELSE(run, give(hide(p), wrong), give(p, run->size));
}

static void delete_size_plus_1(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", run->size + 1); }
static void delete_size_minus_1(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", run->size - 1); }
static void delete_size_more(struct run *run)
{
    sized(run, "_Znwm", "_ZdlPvm", run->size * 3 / 2 + 16);
}
static void delete_size_double(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", run->size * 2); }
static void delete_size_half(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", run->size / 2); }
static void delete_size_huge(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", 64 << 20); }
static void delete_size_8(struct run *run) { sized(run, "_Znwm", "_ZdlPvm", 8); }
static void array_size_double(struct run *run) { sized(run, "_Znam", "_ZdaPvm", run->size * 2); }
static void array_size_8(struct run *run) { sized(run, "_Znam", "_ZdaPvm", 8); }
static void free_sized_plus_1(struct run *run)
{
    sized(run, "malloc", "free_sized", run->size + 1);
}
static void free_sized_double(struct run *run)
{
    sized(run, "malloc", "free_sized", run->size * 2);
}
static void free_sized_8(struct run *run) { sized(run, "malloc", "free_sized", 8); }
static void free_sized_0(struct run *run) { sized(run, "malloc", "free_sized", 0); }

static void *take_aligned(struct run *run, size_t alignment)
{
    new_aligned_fn *get = (new_aligned_fn *)symbol("_ZnwmSt11align_val_t");
    void *p = hide(get(run->size, alignment));
    memset(p, 0x31, run->size);
    return p;
}

static void aligned_delete(struct run *run, size_t alignment, size_t wrong)
{
    delete_sized_fn *give = (delete_sized_fn *)symbol("_ZdlPvSt11align_val_t");
    void *p = take_aligned(run, alignment);
    FAULT_ELSE(run, give(hide(p), wrong), give(p, alignment));
}
static void delete_alignment_more(struct run *run) { aligned_delete(run, 64, 4096); }
static void delete_alignment_less(struct run *run) { aligned_delete(run, 4096, 64); }
static void delete_alignment_odd(struct run *run) { aligned_delete(run, 64, 3); }

static void aligned_plain_delete(struct run *run)
{
    delete_fn *bad = (delete_fn *)symbol("_ZdlPv");
    delete_sized_fn *good = (delete_sized_fn *)symbol("_ZdlPvSt11align_val_t");
    void *p = take_aligned(run, 4096);
    FAULT_ELSE(run, bad(hide(p)), good(p, 4096));
}

static void plain_aligned_delete(struct run *run)
{
    delete_sized_fn *bad = (delete_sized_fn *)symbol("_ZdlPvSt11align_val_t");
    delete_fn *good = (delete_fn *)symbol("_ZdlPv");
    byte *p = take(run, "_Znwm");
    FAULT_ELSE(run, bad(hide(p), 4096), good(p));
}

static void aligned_delete_wrong_size(struct run *run)
{
    delete_both_fn *give = (delete_both_fn *)symbol("_ZdlPvmSt11align_val_t");
    void *p = take_aligned(run, 64);
    FAULT_ELSE(run, give(hide(p), run->size * 4, 64), give(p, run->size, 64));
}

static void aligned_sized(struct run *run, size_t alignment, size_t size)
{
    delete_both_fn *give = (delete_both_fn *)symbol("free_aligned_sized");
    size_t whole = (run->size + 255) & ~(size_t)255;
    void *p = hide(aligned_alloc(256, whole));
    FAULT_ELSE(run, give(hide(p), alignment, size == 0 ? whole : size), give(p, 256, whole));
}
static void free_aligned_wrong_alignment(struct run *run) { aligned_sized(run, 4096, 0); }
static void free_aligned_wrong_size(struct run *run) { aligned_sized(run, 256, run->size * 8); }

static void free_sized_of_aligned(struct run *run)
{
    delete_sized_fn *bad = (delete_sized_fn *)symbol("free_sized");
    size_t whole = (run->size + 4095) & ~(size_t)4095;
    void *p = hide(aligned_alloc(4096, whole));
    FAULT_ELSE(run, bad(hide(p), whole), free(p));
}

#define MISMATCH(name, text) CASE("mismatch", name, text)
const struct test_case mismatch_cases[] = {
    MISMATCH(new_free, "new, then free"),
    MISMATCH(array_free, "new[], then free"),
    MISMATCH(malloc_delete, "malloc, then delete"),
    MISMATCH(malloc_delete_array, "malloc, then delete[]"),
    MISMATCH(new_delete_array, "new, then delete[]"),
    MISMATCH(array_delete, "new[], then delete"),
    MISMATCH(new_realloc, "new, then realloc"),
    MISMATCH(delete_twice, "delete twice"),
    MISMATCH(delete_then_free, "delete, then free of the same block"),
    MISMATCH(free_then_delete, "free, then delete of the same block"),
    MISMATCH(delete_inside, "delete 8 bytes into a block"),
    MISMATCH(delete_behind_cookie, "delete of an array's first element"),
    MISMATCH(delete_size_plus_1, "sized delete, one byte too much"),
    MISMATCH(delete_size_minus_1, "sized delete, one byte too little"),
    MISMATCH(delete_size_more, "sized delete, half as much again"),
    MISMATCH(delete_size_double, "sized delete, twice the size"),
    MISMATCH(delete_size_half, "sized delete, half the size"),
    MISMATCH(delete_size_huge, "sized delete, 64 MiB"),
    MISMATCH(delete_size_8, "sized delete, 8 bytes"),
    MISMATCH(array_size_double, "sized delete[], twice the size"),
    MISMATCH(array_size_8, "sized delete[], 8 bytes"),
    MISMATCH(free_sized_plus_1, "free_sized, one byte too much"),
    MISMATCH(free_sized_double, "free_sized, twice the size"),
    MISMATCH(free_sized_8, "free_sized, 8 bytes"),
    MISMATCH(free_sized_0, "free_sized, nothing"),
    MISMATCH(delete_alignment_more, "aligned delete, 4,096 for 64"),
    MISMATCH(delete_alignment_less, "aligned delete, 64 for 4,096"),
    MISMATCH(delete_alignment_odd, "aligned delete, 3 for 64"),
    MISMATCH(aligned_plain_delete, "aligned new, then plain delete"),
    MISMATCH(plain_aligned_delete, "plain new, then aligned delete"),
    MISMATCH(aligned_delete_wrong_size, "aligned sized delete, four times the size"),
    MISMATCH(free_aligned_wrong_alignment, "free_aligned_sized, 4,096 for 256"),
    MISMATCH(free_aligned_wrong_size, "free_aligned_sized, eight times the size"),
    MISMATCH(free_sized_of_aligned, "free_sized of a block of aligned_alloc"),
    CASES_END,
};
