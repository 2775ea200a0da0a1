# SPDX-License-Identifier: MIT OR Apache-2.0
# make install: the libraries, headers, pkg-config and CMake descriptions, manual, licences.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Ebbtide)
set(templates ${PROJECT_SOURCE_DIR}/packaging)

# The prefix is chosen when installing, so the description finds it from where it lies.
file(RELATIVE_PATH EBBTIDE_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" EBBTIDE_PC_TO_PREFIX ${EBBTIDE_PC_TO_PREFIX})
foreach(package IN ITEMS ebbtide ebbtide-lockfree ebbtide-core ebbtide-compat)
  configure_file(${templates}/${package}.pc.in ${package}.pc @ONLY)
endforeach()
configure_package_config_file(${templates}/EbbtideConfig.cmake.in EbbtideConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(EbbtideConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS ebbtide ebbtide_wait ebbtide_static ebbtide_core ebbtide_lockfree ebbtide_compat ebbtide_compat_static
  EXPORT EbbtideTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT EbbtideTargets NAMESPACE Ebbtide:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/EbbtideConfig.cmake
              ${PROJECT_BINARY_DIR}/EbbtideConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/ebbtide.pc ${PROJECT_BINARY_DIR}/ebbtide-lockfree.pc
              ${PROJECT_BINARY_DIR}/ebbtide-core.pc ${PROJECT_BINARY_DIR}/ebbtide-compat.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE-MIT ${PROJECT_SOURCE_DIR}/LICENSE-APACHE DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB man_pages ${PROJECT_SOURCE_DIR}/docs/man/*.3)
if(man_pages)
  foreach(page IN LISTS man_pages)
    get_filename_component(page_name ${page} NAME)
    file(STRINGS ${page} page_functions REGEX "^[.].\" alias: ")
    foreach(function IN LISTS page_functions)
      string(REGEX REPLACE ".*alias: " "" function ${function})
      file(WRITE ${PROJECT_BINARY_DIR}/man/${function}.3 ".so man3/${page_name}\n")
      list(APPEND man_pages ${PROJECT_BINARY_DIR}/man/${function}.3)
    endforeach()
  endforeach()
  install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endif()
