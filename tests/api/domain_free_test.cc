// SPDX-License-Identifier: MIT OR Apache-2.0
// What is freed inside a domain's scope, of the heap and of the domain, is known to be free there; what is freed
// outside, of the domain, is not collected without bound.
#include <cstdlib>
#include <vector>

#include <unistd.h>

#include "support.h"

#include "ebbtide.h"
#include "ebbtide/region.h"

namespace {

// Frees a block and uses it once more, in one scope of a domain.
void use_freed_inside(bool is_the_domains, void (*use)(void *block))
{
    ebb_domain *domain = ebb_domain_open("free");
    void *block = ebb_malloc(100);
    ebb_scope scope = ebb_domain_enter(domain);
    void *volatile victim = is_the_domains ? ebb_malloc(100) : block;
    ebb_free(victim);
    use(victim);
    ebb_leave(scope);
    _exit(0);
}

void free_it(void *block) { ebb_free(block); }
void resize_in_place(void *block) { support::opaque(ebb_realloc(block, 101)); }
void resize(void *block) { support::opaque(ebb_realloc(block, 1000)); }

TEST(DomainDeathTest, AFreeBlockIsFoundInItsScope)
{
    for (bool is_the_domains : {false, true})
        for (auto *use : {free_it, resize_in_place, resize})
            EXPECT_DEATH(use_freed_inside(is_the_domains, use), "double free");
}

// Blocks of up to 37 sizes, of each one.
TEST(Domain, FewLargeBlocksThatAreFreedOutsideAreKept)
{
    ebb_domain *domain = ebb_domain_open("large");
    ebb_scope scope = ebb_domain_enter(domain);
    support::Random random(1);
    std::vector<void *> blocks(2000);
    for (void *&block : blocks)
        block = ebb_malloc(random.between(65537, 131072));
    ebb_leave(scope);
    for (void *block : blocks)
        ebb_free(block);
    ebb_thread_stats mine{};
    ASSERT_LE(1U, ebb_threads_get(&mine, 1));
    EXPECT_GE(7 * std::size_t{131072}, mine.cached_bytes); // of seven sizes
}

} // namespace
