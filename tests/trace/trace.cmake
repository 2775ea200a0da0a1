# SPDX-License-Identifier: MIT OR Apache-2.0
# The recorder, ebb-trace and ebb-replay (trace/): truth_*.c and .cc count their own calls, bad_*.c are programs on a
# bad day; *_test.py record them, and say in each case what would be wrong. Python's unittest, one test a file.
set(trace_options -O1 -fno-builtin -Wall -Wextra -Wshadow -Werror)
file(GLOB trace_sources CONFIGURE_DEPENDS trace/*.c trace/*.cc)
foreach(source IN LISTS trace_sources)
  get_filename_component(stem ${source} NAME_WE)
  add_executable(trace_${stem} ${source})
  set_target_properties(trace_${stem} PROPERTIES C_STANDARD 17 C_EXTENSIONS ON
                                                 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/trace)
  target_compile_definitions(trace_${stem} PRIVATE _GNU_SOURCE)
  target_compile_options(trace_${stem} PRIVATE ${trace_options})
  target_link_libraries(trace_${stem} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  needed_by(trace trace_${stem})
endforeach()
needed_by(trace trace_programs)

file(GLOB trace_tests CONFIGURE_DEPENDS trace/*_test.py)
foreach(file IN LISTS trace_tests)
  get_filename_component(stem ${file} NAME_WE)
  string(REGEX REPLACE "_test$" "" stem ${stem})
  add_script_test(trace ${stem} ${Python3_EXECUTABLE} ${file} ${PROJECT_BINARY_DIR}/bench
                  ${CMAKE_CURRENT_BINARY_DIR}/trace)
endforeach()
target_link_options(trace_bad_static PRIVATE -static)

add_library(trace_bad_allocator SHARED trace/preload/bad_allocator.c)
set_target_properties(trace_bad_allocator PROPERTIES C_STANDARD 17 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/trace)
target_compile_options(trace_bad_allocator PRIVATE ${trace_options})
needed_by(trace trace_bad_allocator)
needed_by(trace ebbtide)
