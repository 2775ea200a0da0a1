# SPDX-License-Identifier: MIT OR Apache-2.0
# Heap misuse, a case each with a run without the fault beside it (catalogue.py), and what docs/safety.md promises of it.
file(GLOB security_sources CONFIGURE_DEPENDS security/*.c)
add_executable(security ${security_sources})
set_target_properties(security PROPERTIES C_STANDARD 17 C_EXTENSIONS ON)
target_compile_options(security PRIVATE -O1 -fno-builtin -Wall -Wextra -Werror)
target_link_libraries(security PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
needed_by(security security)
needed_by(security ebbtide)
foreach(mode IN ITEMS default checked log any-family unsaid)
  add_script_test(security ${mode} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/security/promises.py
                  $<TARGET_FILE:security> $<TARGET_FILE:ebbtide> ${mode})
endforeach()
# Reports, as a program reads them.
foreach(name IN ITEMS misuse misuse_with_it)
  add_executable(${name} security/reports/misuse.c)
  set_target_properties(${name} PROPERTIES C_STANDARD 17 C_EXTENSIONS ON)
  target_compile_options(${name} PRIVATE -O1 -fno-builtin -Wall -Wextra -Werror)
  target_link_libraries(${name} PRIVATE Threads::Threads)
  needed_by(security ${name})
endforeach()
target_link_libraries(misuse_with_it PRIVATE ebbtide_static)
add_script_test(security reports ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/security/reports.py
                $<TARGET_FILE:misuse> $<TARGET_FILE:ebbtide> $<TARGET_FILE:misuse_with_it>)
