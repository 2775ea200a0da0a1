# SPDX-License-Identifier: MIT OR Apache-2.0
# The blocks of conc/. The refusal tests stand between the blocks and the allocator.
add_core_tests(conc "ebbtide_conc;ebbtide_core")
foreach(name IN ITEMS ebb_malloc ebb_calloc ebb_aligned_alloc ebb_retire_with)
  target_link_options(conc_refusal PRIVATE -Wl,--wrap=${name})
endforeach()
