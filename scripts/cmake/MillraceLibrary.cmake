# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#   add_millrace_library(NAME LEVEL n [COLUMN arch|compiler|simulator|driver] [MLIR]
#                        [SOURCES file...] [DEPENDS millrace-library...] [LINK external-target...])
#
# A static library (of headers only without SOURCES), checked by MillraceLevels.cmake. MLIR adds
# the headers, libraries and precompiled header of MLIR.
#
#   add_millrace_tool(NAME SOURCES file... DEPENDS millrace-library... [LINK external-target...])
#
# A program in build/bin. Tools keep their code in a library; the program is main() alone.
#
#   add_millrace_folders()   reads every subfolder that has a CMakeLists.txt

include_guard(GLOBAL)
include(MillraceLevels)

function(add_millrace_folders)
  file(GLOB lists RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
       "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  foreach(list IN LISTS lists)
    cmake_path(GET list PARENT_PATH folder)
    add_subdirectory("${folder}")
  endforeach()
endfunction()

# One precompiled header serves every target that uses MLIR.
file(WRITE "${PROJECT_BINARY_DIR}/MlirHeaders.cpp" "")
add_library(MillraceMlirHeaders OBJECT "${PROJECT_BINARY_DIR}/MlirHeaders.cpp")
target_include_directories(MillraceMlirHeaders SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS})
target_precompile_headers(MillraceMlirHeaders PRIVATE
  <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h> <mlir/IR/PatternMatch.h> <mlir/Pass/Pass.h>
  <mlir/Dialect/Func/IR/FuncOps.h> <mlir/Dialect/Linalg/IR/Linalg.h>
  <mlir/Dialect/Tensor/IR/Tensor.h>)

function(millrace_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS})
  target_link_libraries(${target} PUBLIC MLIR LLVM)
  # Code that TableGen writes into the build folder names parameters that it does not use.
  target_compile_options(${target} PRIVATE -Wno-unused-parameter)
  target_precompile_headers(${target} REUSE_FROM MillraceMlirHeaders)
endfunction()

function(add_millrace_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MLIR" "LEVEL;COLUMN" "SOURCES;DEPENDS;LINK")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_LEVEL)
    message(FATAL_ERROR "${name}: need LEVEL n; do not know '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                             "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>"
                             "$<INSTALL_INTERFACE:include/millrace>")
  target_link_libraries(${name} ${scope} ${arg_DEPENDS} ${arg_LINK})
  if(arg_MLIR)
    millrace_use_mlir(${name})
  endif()
  millrace_declare_level(${name} ${arg_LEVEL} "${arg_COLUMN}" ${arg_DEPENDS})
endfunction()

function(add_millrace_tool name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LINK")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()
