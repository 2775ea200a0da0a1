# SPDX-License-Identifier: MIT OR Apache-2.0
# Over musl: the programs that an installed library is tried with, by each way of linking.
# musl_program(<name> <source> <libraries>...)
function(musl_program name source)
  add_executable(musl_${name} install/${source})
  target_link_libraries(musl_${name} PRIVATE ${ARGN} Threads::Threads)
  needed_by(short musl_${name})
  add_test(NAME musl_${name} COMMAND musl_${name})
  set_tests_properties(musl_${name} PROPERTIES LABELS short TIMEOUT 60)
endfunction()

musl_program(shared program.c ebbtide)
musl_program(static program.c ebbtide_static -static)
musl_program(blocks_static blocks.c ebbtide_lockfree ebbtide_static -static)

add_test(NAME musl_library COMMAND ${PROJECT_SOURCE_DIR}/tools/check_library $<TARGET_FILE:ebbtide>)
set_tests_properties(musl_library PROPERTIES LABELS short)
needed_by(short ebbtide_wait)
musl_program(calls calls.c ebbtide_compat ebbtide)
musl_program(calls_static calls.c ebbtide_compat_static ebbtide_static -static)
add_test(NAME musl_compat_library COMMAND ${PROJECT_SOURCE_DIR}/tools/check_library $<TARGET_FILE:ebbtide_compat>)
set_tests_properties(musl_compat_library PROPERTIES LABELS short)
