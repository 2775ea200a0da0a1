// SPDX-License-Identifier: MIT OR Apache-2.0
// The sampled heap profile for C++17: ebb::profile, which is on for as long as the object lives. A thin cover of
// ebbtide/profile.h, which says what is sampled, what it costs and who reads the file. Where C says ENOMEM,
// the constructor throws std::bad_alloc, where it says EINVAL, std::invalid_argument (or abort where exceptions
// are off), and nothing has changed.
#ifndef EBBTIDE_PROFILE_HPP
#define EBBTIDE_PROFILE_HPP

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include <ebbtide/detail/errors.hpp>
#include <ebbtide/profile.h>

namespace ebb {

// There is one profile in a process: where two of these live at a time, the mean is the newer one's, and the first
// that ends ends it for both. An object that was moved from ends nothing.
class [[nodiscard]] profile {
public:
    // mean: bytes from one sample to the next on the average, from 1 to 2^40; 0: 512 KiB.
    explicit profile(std::size_t mean = 0)
    {
        if (ebb_profile_start(mean) != 0) {
            if (errno == EINVAL)
                detail::throw_invalid("ebb::profile: the mean is more than 2^40");
            detail::throw_bad_alloc();
        }
    }
    profile(profile &&other) noexcept : is_on_(std::exchange(other.is_on_, false)) {}
    // What was on goes on when the other one is on, too: they are one profile.
    profile &operator=(profile &&other) noexcept
    {
        if (this != &other) {
            if (!other.is_on_)
                end();
            is_on_ = std::exchange(other.is_on_, false);
        }
        return *this;
    }
    ~profile() { end(); }

    // The file, new or in place of what it held. No file is no reason to end: the error is returned, as open(2) and
    // write(2) say, ENOMEM where memory was refused. Of an object that was moved from: the process's profile.
    [[nodiscard]] std::error_code write(const char *file) const noexcept
    {
        const int error = ebb_profile_write(file) == 0 ? 0 : errno;
        return {error, std::generic_category()};
    }

private:
    void end() noexcept
    {
        if (is_on_)
            ebb_profile_stop();
    }

    bool is_on_ = true;
};

} // namespace ebb

#endif
