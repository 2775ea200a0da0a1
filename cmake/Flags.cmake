# SPDX-License-Identifier: MIT OR Apache-2.0
# How the library is compiled and linked.

# A project that has this one in it keeps its own type; if it has none, these files are optimized all the same.
if(alone AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()
add_compile_options($<$<COMPILE_LANGUAGE:C>:-std=gnu17> $<$<CONFIG:>:-O3>)
set(CMAKE_C_FLAGS_RELEASE "-O3")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(EBBTIDE_WARNINGS -Wall -Wextra -Wpedantic -Wundef -Wshadow -Wconversion $<$<BOOL:${EBBTIDE_STRICT}>:-Werror>)

# The bodies of these functions are written here: a compiler that knows them would
# fold malloc and memset into calloc, and so make calloc call itself.
set(EBBTIDE_NO_BUILTINS
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
  -fno-builtin-aligned_alloc -fno-builtin-memalign -fno-builtin-posix_memalign
  -fno-builtin-valloc -fno-builtin-pvalloc)

# Every object of a sanitized build, tests included, takes the same flags.
add_library(ebbtide_sanitize INTERFACE)
if(EBBTIDE_SANITIZE)
  set(sanitize_flags -fsanitize=${EBBTIDE_SANITIZE} -fno-sanitize-recover=all
                     -fno-omit-frame-pointer -g1)
  target_compile_options(ebbtide_sanitize INTERFACE ${sanitize_flags})
  target_link_options(ebbtide_sanitize INTERFACE -fsanitize=${EBBTIDE_SANITIZE})
endif()

function(ebbtide_public_headers target)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# Compiles a library made of files in src/.
function(ebbtide_compile target)
  ebbtide_public_headers(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE
    ${EBBTIDE_WARNINGS} ${EBBTIDE_NO_BUILTINS}
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    -fvisibility=hidden -ftls-model=initial-exec -fno-semantic-interposition
    -ffunction-sections -fdata-sections) # for packaging/order.ld
  target_compile_definitions(${target} PRIVATE EBB_INSIDE)
  # Tests read internal headers, whose structs know more in checked builds.
  target_compile_definitions(${target} PUBLIC $<BUILD_INTERFACE:$<$<CONFIG:Debug>:EBB_ASSERT=1>>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:ebbtide_sanitize>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Links the preload: libc alone, the exports of the version script, calls between its own functions
# bound at once. Every process pays for its start, so the file has two load segments and no part that
# the loader must protect afterwards: separate-code and relro each cost a short program some per cent,
# and the start files' weak symbols are looked for in vain in every library. __dso_handle is theirs
# too: any address of this library will do, which is never unloaded.
function(ebbtide_link_shared target)
  set(map ${PROJECT_SOURCE_DIR}/packaging/ebbtide.map)
  set(preempted ${PROJECT_SOURCE_DIR}/packaging/preempted.list)
  set(order ${PROJECT_SOURCE_DIR}/packaging/order.ld)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map} -Wl,--dynamic-list=${preempted} -Wl,-T,${order}
    -Wl,--no-undefined -Wl,--as-needed -Wl,--hash-style=gnu
    -Wl,-O1 -Wl,-Bsymbolic -Wl,-z,noexecstack -Wl,-z,nodelete
    -Wl,-z,noseparate-code -Wl,-z,norelro -nostartfiles
    -Wl,--defsym=__dso_handle=ebbi_start)
  ebbtide_link_glibc(${target})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${map};${preempted};${order}")
endfunction()
