// SPDX-License-Identifier: MIT OR Apache-2.0
// Lifetimes: a server's requests. What a request builds by name lies in a region that is reset after
// it; what a library allocates meanwhile by plain malloc is counted under the name of a domain; the one
// result that outlives the request is promoted out of the region.
#include <ebbtide/region.hpp>

#include <cstdio>
#include <map>
#include <string>
#include <string_view>

namespace {

constexpr int requests = 20000;
constexpr std::size_t largest = 1 << 20; // bytes that the region may hold, however many requests

using fields = std::pmr::map<std::pmr::string, std::pmr::string>;

// "a=1&b=2": the map, its nodes and their strings all lie in the region.
fields *parse(ebb::region &request, std::string_view query)
{
    auto *parsed = request.make<fields>();
    while (!query.empty()) {
        const std::string_view field = query.substr(0, query.find('&'));
        const std::size_t middle = field.find('=');
        parsed->emplace(field.substr(0, middle), field.substr(middle + 1));
        query.remove_prefix(field.size() == query.size() ? field.size() : field.size() + 1);
    }
    return parsed;
}

// Stands for code that knows nothing of regions and calls malloc: this is malloc under libebbtide.
bool call_library()
{
    void *p = ebb_malloc(100);
    ebb_free(p);
    return p != nullptr;
}

// The reply lives in the heap: its region ends with the request.
std::pmr::string serve(ebb::region &request, const ebb::domain &library, int number)
{
    char query[96];
    std::snprintf(query, sizeof query, "path=/some/long/path/of/a/request&number=%d", number);
    fields &parsed = *parse(request, query);
    std::pmr::string reply("number ", &request);
    const ebb::scope inside(library);
    reply += call_library() ? parsed["number"] : std::pmr::string("none");
    return ebb::promote(reply, ebb::heap());
}

} // namespace

int main()
{
    ebb::domain library("library");
    library.every_scopes(100);
    ebb::region request("request");
    std::pmr::string last;
    for (int number = 1; number <= requests; number++) {
        last = serve(request, library, number);
        request.reset();
    }
    const ebb_region_stats held = request.stats();
    std::printf("%s; the region holds %zu KiB in %zu blocks, held at most %zu KiB; %llu scopes\n",
                last.c_str(), held.held_bytes / 1024, held.live_blocks, held.peak_bytes / 1024,
                static_cast<unsigned long long>(library.stats().opened));
    const bool right = last == "number 20000" && held.live_blocks == 0 &&
                       held.peak_bytes <= largest && library.stats().opened == requests;
    return right ? 0 : 1;
}
