# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#   cmake -DSOURCE=folder -DOUTPUT=Commit.cpp -P WriteCommit.cmake
#
# Writes the definitions of commit() and isModified() (compiler/Tools/Version.h) for the checkout in
# SOURCE. A folder that is no checkout of its own, as an unpacked archive, has no commit. OUTPUT
# keeps its time if it says the same already, so that nothing is built again.

set(commit "")
set(modified false)
get_filename_component(source "${SOURCE}" REALPATH)
find_program(git git)
if(git AND EXISTS "${source}/.git")
  execute_process(COMMAND "${git}" -C "${source}" --no-optional-locks rev-parse --verify HEAD
                  OUTPUT_VARIABLE head RESULT_VARIABLE failed ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND head MATCHES "^[0-9a-f]+$")
    set(commit "${head}")
    execute_process(COMMAND "${git}" -C "${source}" --no-optional-locks diff --quiet HEAD
                    RESULT_VARIABLE differs ERROR_QUIET OUTPUT_QUIET)
    if(differs)
      set(modified true)
    endif()
  endif()
endif()
set(text "// Written by scripts/cmake/WriteCommit.cmake.
#include \"compiler/Tools/Version.h\"
std::string_view millrace::driver::commit() { return \"${commit}\"; }
bool millrace::driver::isModified() { return ${modified}; }
")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
