# SPDX-License-Identifier: MIT OR Apache-2.0
# The fuzz targets: each runs for its share of EBBTIDE_FUZZ_SECONDS. New inputs are kept in
# the build tree; seeds come from fuzz/corpus/<target>.
file(GLOB sources CONFIGURE_DEPENDS fuzz/*.cc)
list(LENGTH sources count)
if(count EQUAL 0)
  message(FATAL_ERROR "preset fuzz: no target in tests/fuzz")
endif()
math(EXPR seconds "(${EBBTIDE_FUZZ_SECONDS} + ${count} - 1) / ${count}")

foreach(source IN LISTS sources)
  get_filename_component(stem ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" stem ${stem})
  set(name fuzz_${stem})
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${test_options})
  target_link_libraries(${name} PRIVATE ebbtide_core ebbtide_sanitize Threads::Threads)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)

  set(corpus ${CMAKE_CURRENT_BINARY_DIR}/corpus/${stem})
  set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${stem})
  file(MAKE_DIRECTORY ${corpus})
  if(NOT IS_DIRECTORY ${seeds})
    set(seeds)
  endif()
  math(EXPR timeout "${seconds} * 2 + 120")
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${seconds} -timeout=20
    -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/ ${corpus} ${seeds})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endforeach()
