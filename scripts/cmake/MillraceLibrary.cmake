# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Libraries with a level and a column (docs/architecture.md, "Direction of dependence").
#
#   add_millrace_library(NAME LEVEL n [COLUMN arch|compiler|simulator|driver] [MLIR]
#                        SOURCES file... [DEPENDS millrace-library...] [LINK external-target...])
#
# A library depends only on libraries of a strictly lower level, in its own column or in arch; the driver column may
# depend on every column. The column is the top-level folder unless stated. Where the siblings of a level have an order
# of their own, they say so by a fraction: Forms is 3, CostModel 3.1, and so CostModel may use Forms.
# millrace_check_levels() checks this after every folder was read, and writes levels.json for the lint of includes.
#
#   add_millrace_tool(NAME SOURCES file... DEPENDS millrace-library... [LINK external-target...])
#
# makes a program in build/bin. Tools keep their code in a library; the program is main() alone.
#
#   add_millrace_folders()   reads every subfolder that has a CMakeLists.txt

include_guard(GLOBAL)

function(add_millrace_folders)
  file(GLOB lists RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  foreach(list IN LISTS lists)
    cmake_path(GET list PARENT_PATH folder)
    add_subdirectory("${folder}")
  endforeach()
endfunction()

# One precompiled header serves every target that uses MLIR.
file(WRITE "${PROJECT_BINARY_DIR}/MlirHeaders.cpp" "")
add_library(MillraceMlirHeaders OBJECT "${PROJECT_BINARY_DIR}/MlirHeaders.cpp")
target_include_directories(MillraceMlirHeaders SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_precompile_headers(MillraceMlirHeaders PRIVATE
  <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h> <mlir/IR/PatternMatch.h> <mlir/Pass/Pass.h>
  <mlir/Dialect/Func/IR/FuncOps.h> <mlir/Dialect/Linalg/IR/Linalg.h> <mlir/Dialect/Tensor/IR/Tensor.h>)

function(millrace_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
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
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE folder)
  if(NOT arg_COLUMN)
    string(REGEX MATCH "^[^/]+" arg_COLUMN "${folder}")
  endif()

  set(scope PUBLIC)
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
  else()
    add_library(${name} INTERFACE) # headers only
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} ${scope} ${arg_DEPENDS} ${arg_LINK})
  if(arg_MLIR)
    millrace_use_mlir(${name})
  endif()

  set_property(GLOBAL APPEND PROPERTY MILLRACE_LIBRARIES ${name})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_LEVEL ${arg_LEVEL})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_COLUMN ${arg_COLUMN})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_FOLDER ${folder})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_DEPENDS "${arg_DEPENDS}")
endfunction()

function(add_millrace_tool name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LINK")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()

# Stops configuration unless `library` may depend on `dependency`.
function(millrace_check_dependency library dependency known)
  if(NOT dependency IN_LIST known)
    message(FATAL_ERROR "${library} depends on ${dependency}, which no add_millrace_library declares; "
                        "name libraries that are not Millrace's in LINK")
  endif()
  foreach(side library dependency)
    get_property(${side}_level GLOBAL PROPERTY MILLRACE_${${side}}_LEVEL)
    get_property(${side}_column GLOBAL PROPERTY MILLRACE_${${side}}_COLUMN)
  endforeach()
  if(NOT dependency_level VERSION_LESS library_level)
    message(FATAL_ERROR "${library} (level ${library_level}) depends upward or sideways on ${dependency} "
                        "(level ${dependency_level}); move what both need to a lower level")
  endif()
  if(NOT library_column STREQUAL "driver" AND NOT dependency_column MATCHES "^(arch|${library_column})$")
    message(FATAL_ERROR "${library} (column ${library_column}) depends on ${dependency} (column ${dependency_column}); "
                        "the columns share arch only")
  endif()
endfunction()

function(millrace_check_levels)
  get_property(libraries GLOBAL PROPERTY MILLRACE_LIBRARIES)
  set(entries)
  foreach(library IN LISTS libraries)
    get_property(depends GLOBAL PROPERTY MILLRACE_${library}_DEPENDS)
    foreach(dependency IN LISTS depends)
      millrace_check_dependency(${library} ${dependency} "${libraries}")
    endforeach()
    get_property(folder GLOBAL PROPERTY MILLRACE_${library}_FOLDER)
    list(JOIN depends "\", \"" depends)
    if(depends)
      set(depends "\"${depends}\"")
    endif()
    list(APPEND entries "  {\"name\": \"${library}\", \"folder\": \"${folder}\", \"depends\": [${depends}]}")
  endforeach()
  list(JOIN entries ",\n" entries)
  file(WRITE "${PROJECT_BINARY_DIR}/levels.json" "[\n${entries}\n]\n")
endfunction()
