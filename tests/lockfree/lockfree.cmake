# SPDX-License-Identifier: MIT OR Apache-2.0
# The blocks of lockfree/. The refusal tests stand between the blocks and the allocator.
add_core_tests(lockfree "ebbtide_lockfree;ebbtide_core")
foreach(name IN ITEMS ebb_malloc ebb_calloc ebb_aligned_alloc ebb_retire_with)
  target_link_options(lockfree_refusal PRIVATE -Wl,--wrap=${name})
endforeach()
