// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on the heap profile. With a mean of 1 nearly every block is a sample, so that all checks of
// blocks are checks of samples.
#pragma once

#include "ebbtide/profile.h"

#include <sys/mman.h>

#include "api/control.h"
#include "api/profile_file.h"
#include "ops_misuse.h"

namespace random_test {

inline std::atomic<bool> was_profiled; // in this process

inline void op_profile_start(Worker &w, const Record &r)
{
    const std::size_t least = std::size_t{1} << r.x() % 21;
    const std::size_t mean = r.y() % 16 == 0 ? 0 : least + r.number() * least / 65536;
    errno = 0;
    RANDOM_CHECK(ebb_profile_start((std::size_t{1} << 40) + 1) == -1 && errno == EINVAL,
                 "a mean above 2^40, errno %d", errno);
    errno = 0;
    const int result = ebb_profile_start(mean);
    RANDOM_CHECK(result == 0 || (result == -1 && errno == ENOMEM && w.may_be_refused()),
                 "a profile: %d, errno %d", result, errno);
    was_profiled = true;
}

// As another process would; several may at once. Who answers, and when, is not for the asking thread to know.
inline void op_profile_asked(Worker &, const Record &r)
{
    const std::size_t mean = r.x() % 2 == 0 ? 0 : std::size_t{1} << r.y() % 42;
    was_profiled = true;
    const std::uint64_t what = r.x() % 8 == 3   ? control::nothing_known
                               : r.x() % 8 == 5 ? control::trim
                               : r.x() % 8 == 7 ? control::pins
                                                : control::profile;
    control::ask(what, mean, std::uint64_t{1} << r.number() % 17);
}

inline void op_profile_stop(Worker &, const Record &) { ebb_profile_stop(); }

inline void fail_to_write(const char *file, int error)
{
    errno = 0;
    RANDOM_CHECK(ebb_profile_write(file) == -1 && errno == error, "a profile to %s, errno %d", file,
                 errno);
}

inline profile_file::Profile read_profile(const Worker &w)
{
    const int file = memfd_create("profile", MFD_CLOEXEC);
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    errno = 0;
    const int result = ebb_profile_write(path.c_str());
    RANDOM_CHECK(result == 0 || (result == -1 && errno == ENOMEM && w.may_be_refused()),
                 "a profile to %s: %d, errno %d", path.c_str(), result, errno);
    profile_file::Profile profile;
    if (result == 0) {
        profile = profile_file::read(profile_file::contents(file));
        RANDOM_CHECK(profile.wrong.empty(), "a profile: %s", profile.wrong.c_str());
    }
    close(file);
    return profile;
}

inline void op_profile_write(Worker &w, const Record &r)
{
    if (r.x() % 4 == 0)
        return void(read_profile(w));
    if (w.run.refusing || r.x() % 4 != 1)
        return void(ebb_profile_write("/dev/null"));
    fail_to_write("/", EISDIR);
    fail_to_write("/dev/null/file", ENOTDIR);
}

// Samples as well are gone with the blocks, of which the helper may have some on their way home.
inline void require_no_samples(const Worker &w)
{
    ebb_profile_stop();
    if (!was_profiled || !w.run.complete)
        return;
    std::uint64_t left = read_profile(w).inuse_objects();
    for (unsigned i = 0; i < 200 && left != 0; i++) {
        usleep(50000);
        left = read_profile(w).inuse_objects();
    }
    RANDOM_CHECK(left == 0, "%llu sampled objects are in use at the end",
                 static_cast<unsigned long long>(left));
}

} // namespace random_test
