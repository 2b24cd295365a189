# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What `cmake --install` puts where. The prefix may be moved afterwards: programs find the machines
# beside themselves, and the package files know paths relative to their own.
#
#   bin/                      millrace, millrace-compiler
#   share/millrace/machines/  the machines that ship
#   share/                    manual page, completion for bash, zsh and fish, license
#   lib/, include/millrace/   the libraries of compiler and simulator, for find_package(Millrace)
#
#   millrace_install_shell_files(COMPILER)   what the program says about itself, by itself
#   millrace_install()                       the rest; after every folder was read

include_guard(GLOBAL)

# Programs find LLVM's libraries where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

function(millrace_install_shell_files compiler)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/shell")
  file(MAKE_DIRECTORY "${folder}")
  set(files)
  foreach(entry "millrace.1:help --man" "millrace:completion bash" "_millrace:completion zsh"
          "millrace.fish:completion fish")
    string(REPLACE ":" ";" entry "${entry}")
    list(GET entry 0 file)
    list(GET entry 1 command)
    separate_arguments(command)
    add_custom_command(OUTPUT "${folder}/${file}" COMMAND ${compiler} ${command} > "${folder}/${file}"
                       DEPENDS ${compiler} COMMENT "Writing ${file}" VERBATIM)
    list(APPEND files "${folder}/${file}")
  endforeach()
  add_custom_target(MillraceShellFiles ALL DEPENDS ${files})
  install(FILES "${folder}/millrace.1" DESTINATION share/man/man1)
  install(FILES "${folder}/millrace" DESTINATION share/bash-completion/completions)
  install(FILES "${folder}/_millrace" DESTINATION share/zsh/site-functions)
  install(FILES "${folder}/millrace.fish" DESTINATION share/fish/vendor_completions.d)
endfunction()

# The libraries of a column, with their headers.
function(millrace_install_column column installed)
  get_property(libraries GLOBAL PROPERTY MILLRACE_LIBRARIES)
  set(names)
  foreach(library IN LISTS libraries)
    get_property(of GLOBAL PROPERTY MILLRACE_${library}_COLUMN)
    get_property(folder GLOBAL PROPERTY MILLRACE_${library}_FOLDER)
    if(NOT of STREQUAL column OR folder STREQUAL "arch/tools")
      continue()
    endif()
    list(APPEND names ${library})
    string(REGEX REPLACE "^Millrace" "Part" short ${library}) # wholes are Compiler and Simulator
    set_target_properties(${library} PROPERTIES EXPORT_NAME ${short})
    install(TARGETS ${library} EXPORT MillraceTargets ARCHIVE DESTINATION lib)
    file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.h"
         "${PROJECT_SOURCE_DIR}/${folder}/*.def")
    install(FILES ${headers} DESTINATION "include/millrace/${folder}")
  endforeach()
  set(${installed} ${names} PARENT_SCOPE)
endfunction()

# Millrace::Compiler and Millrace::Simulator: all of a column at once.
function(millrace_install_package)
  millrace_install_column(arch arch)
  foreach(column compiler simulator)
    millrace_install_column(${column} libraries)
    string(SUBSTRING ${column} 0 1 first)
    string(TOUPPER ${first} first)
    string(SUBSTRING ${column} 1 -1 rest)
    set(package "MillracePackage${first}${rest}")
    add_library(${package} INTERFACE)
    target_link_libraries(${package} INTERFACE ${libraries} ${arch})
    target_compile_features(${package} INTERFACE cxx_std_20)
    set_target_properties(${package} PROPERTIES EXPORT_NAME ${first}${rest})
    install(TARGETS ${package} EXPORT MillraceTargets)
  endforeach()
  # What TableGen wrote.
  install(DIRECTORY "${PROJECT_BINARY_DIR}/compiler/Dialect" DESTINATION include/millrace/compiler
          FILES_MATCHING PATTERN "*.h.inc" PATTERN "CMakeFiles" EXCLUDE)
  install(EXPORT MillraceTargets NAMESPACE Millrace:: DESTINATION lib/cmake/Millrace)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/scripts/cmake/MillraceConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/MillraceConfig.cmake" INSTALL_DESTINATION lib/cmake/Millrace)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake"
                                   VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/MillraceConfig.cmake"
                "${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake"
          DESTINATION lib/cmake/Millrace)
endfunction()

function(millrace_install)
  install(TARGETS millrace millrace-compiler RUNTIME DESTINATION bin)
  install(DIRECTORY arch/machines/ DESTINATION share/millrace/machines FILES_MATCHING PATTERN "*.yaml")
  install(FILES LICENSE DESTINATION share/doc/millrace)
  millrace_install_package()
  # The importer needs ONNX's library, which no distribution has in this version.
  install(DIRECTORY "${MILLRACE_ONNX_PREFIX}/lib" "${MILLRACE_ONNX_PREFIX}/include"
          DESTINATION lib/millrace/onnx)
endfunction()
