// SPDX-License-Identifier: MIT OR Apache-2.0
// Proves that the override tests test something: every public name comes from the preloaded
// library.
#include <string>

#include "api_libc.h"

namespace {

std::string provider(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info info = {};
    if (symbol == nullptr || dladdr(symbol, &info) == 0)
        return "(nobody)";
    char *resolved = realpath(info.dli_fname, nullptr);
    std::string path = resolved != nullptr ? resolved : info.dli_fname;
    std::free(resolved);
    return path;
}

std::string preloaded_library()
{
    const char *path = std::getenv("LD_PRELOAD");
    char *resolved = path != nullptr ? realpath(path, nullptr) : nullptr;
    std::string library = resolved != nullptr ? resolved : "(LD_PRELOAD names no file)";
    std::free(resolved);
    return library;
}

class Loaded : public testing::TestWithParam<const char *> {};

TEST_P(Loaded, ComesFromThePreloadedLibrary)
{
    EXPECT_EQ(provider(GetParam()), preloaded_library());
}

INSTANTIATE_TEST_SUITE_P(LibcSurface, Loaded,
                         testing::Values("malloc", "free", "calloc", "realloc", "aligned_alloc",
                                         "memalign", "posix_memalign", "valloc", "pvalloc", "cfree",
                                         "malloc_usable_size", "malloc_trim", "mallinfo",
                                         "mallinfo2", "malloc_info", "malloc_stats", "mallopt",
                                         "free_sized", "free_aligned_sized"));

#ifdef __GLIBC__
INSTANTIATE_TEST_SUITE_P(GlibcsOwnNames, Loaded,
                         testing::Values("__libc_malloc", "__libc_free", "__libc_calloc",
                                         "__libc_realloc", "__libc_memalign", "__libc_valloc",
                                         "__libc_pvalloc", "__libc_cfree", "__posix_memalign"));
#endif

INSTANTIATE_TEST_SUITE_P(OperatorNew, Loaded,
                         testing::Values("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t",
                                         "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
                                         "_ZnamSt11align_val_t",
                                         "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                         "_ZnamSt11align_val_tRKSt9nothrow_t"));

INSTANTIATE_TEST_SUITE_P(OperatorDelete, Loaded,
                         testing::Values("_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm",
                                         "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
                                         "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
                                         "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
                                         "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                         "_ZdaPvSt11align_val_tRKSt9nothrow_t"));

TEST(LibcKeeps, NamesThatItsManualReserves)
{
    EXPECT_NE(provider("strdup"), preloaded_library());
    EXPECT_NE(provider("reallocarray"), preloaded_library());
}

} // namespace
