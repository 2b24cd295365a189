# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#   add_millrace_test(NAME [MLIR] [TIMEOUT seconds] SOURCES file... [APART file...]
#                     [DEPENDS millrace-library...] [LINK external-target...])
#
# A GoogleTest program, one entry of ctest. It runs in the source root, so tests name committed
# files by their path in the tree, and leaves its results in test-results/NAME.xml, from which
# scripts/test counts single tests. Files APART are compiled each by itself: their helpers have the
# names that those of other files have.

include_guard(GLOBAL)

set(MILLRACE_TEST_RESULTS "${PROJECT_BINARY_DIR}/test-results")
file(MAKE_DIRECTORY "${MILLRACE_TEST_RESULTS}") # lit fails without it

# Registers a command as a ctest entry that runs in the source root.
function(millrace_add_ctest name timeout)
  if(MILLRACE_COVERAGE)
    math(EXPR timeout "10 * ${timeout}") # counters make all slower
  endif()
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
endfunction()

function(add_millrace_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MLIR" "TIMEOUT" "SOURCES;APART;DEPENDS;LINK")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_APART})
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # A fixture of an anonymous namespace is what GoogleTest derives from; that a file is one of
  # several makes it no header.
  target_compile_options(${name} PRIVATE -Wno-subobject-linkage)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LINK} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin")
  if(arg_MLIR)
    millrace_use_mlir(${name})
  endif()
  millrace_add_ctest(${name} ${arg_TIMEOUT} $<TARGET_FILE:${name}>
                     "--gtest_output=xml:${MILLRACE_TEST_RESULTS}/${name}.xml")
endfunction()
