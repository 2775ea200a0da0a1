// SPDX-License-Identifier: MIT OR Apache-2.0
// What the C++ headers make of C's errors: ENOMEM is std::bad_alloc, EINVAL std::invalid_argument, or abort where
// exceptions are off.
#ifndef EBBTIDE_DETAIL_ERRORS_HPP
#define EBBTIDE_DETAIL_ERRORS_HPP

#include <cstdlib>
#include <new>
#include <stdexcept>

namespace ebb::detail {

[[noreturn]] inline void throw_bad_alloc()
{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

[[noreturn]] inline void throw_bad_length()
{
#if defined(__cpp_exceptions)
    throw std::bad_array_new_length();
#else
    std::abort();
#endif
}

[[noreturn]] inline void throw_invalid([[maybe_unused]] const char *what)
{
#if defined(__cpp_exceptions)
    throw std::invalid_argument(what);
#else
    std::abort();
#endif
}

template <typename P> P need(P p)
{
    if (p == nullptr)
        throw_bad_alloc();
    return p;
}

inline void need_zero(int result)
{
    if (result != 0)
        throw_bad_alloc();
}

} // namespace ebb::detail

#endif
