// SPDX-License-Identifier: MIT OR Apache-2.0
// The headers for C++ compile where they are installed, and new is Ebbtide's.
#include <ebbtide.hpp>
#include <ebbtide/profile.hpp>
#include <ebbtide/region.hpp>
#include <ebbtide/snapshot.hpp>

#include <memory_resource>
#include <vector>

int main()
{
    auto *number = new int(1);
    ebb_free(number); // aborts if the block is another allocator's
    const ebb::profile profile;
    const ebb::snapshot before;
    ebb::region region;
    std::pmr::vector<int> numbers(&region);
    for (int i = 0; i < 1000; i++)
        numbers.push_back(i);
    return numbers.back() == 999 && ebb::snapshot()->span_bytes > before->span_bytes ? 0 : 1;
}
