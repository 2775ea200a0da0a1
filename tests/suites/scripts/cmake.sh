#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# A small project: configured, built by make, tested by ctest.
#   cmake.sh SCRATCH
set -eu
project=$1/project
rm -rf "$project"
mkdir "$project"
cat >"$project/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.20)
project(small C CXX)
enable_testing()
foreach(number RANGE 1 40)
  file(WRITE ${CMAKE_BINARY_DIR}/part${number}.c "int part${number}(void) { return ${number}; }\n")
  list(APPEND parts ${CMAKE_BINARY_DIR}/part${number}.c)
  add_test(NAME compare${number} COMMAND ${CMAKE_COMMAND} -E compare_files part${number}.c part${number}.c)
endforeach()
add_library(parts STATIC ${parts})
file(WRITE ${CMAKE_BINARY_DIR}/main.cc "extern \"C\" int part40(void);\nint main() { return part40() - 40; }\n")
add_executable(main ${CMAKE_BINARY_DIR}/main.cc)
target_link_libraries(main parts)
add_test(NAME main COMMAND main)
TEXT
cmake -S "$project" -B "$project/build" -G 'Unix Makefiles' >"$project/log"
cmake --build "$project/build" >>"$project/log"
ctest --test-dir "$project/build" | sed -n 's/^ *[0-9]*\/[0-9]* Test *#\([0-9]*\): \([a-z0-9]*\) \.* *\([A-Za-z]*\).*/\1 \2 \3/p' | sort
