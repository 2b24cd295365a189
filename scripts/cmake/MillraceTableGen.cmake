# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Code that mlir-tblgen writes. Outputs mirror the source tree inside the build folder, so `#include
# "compiler/Dialect/Spatial/IR/SpatialOps.h.inc"` finds them. Call after add_millrace_library, in
# its folder.
#
#   millrace_tablegen(LIBRARY input.td output.inc mlir-tblgen-argument...)
#   add_millrace_dialect(LIBRARY Name)    from NameOps.td:
#                                         Name{Dialect,Enums,Attributes,Types,Ops}.{h,cpp}.inc
#   add_millrace_passes(LIBRARY Group)    from Passes.td: Passes.h.inc

include_guard(GLOBAL)

function(millrace_tablegen library input output)
  set(target_file "${CMAKE_CURRENT_BINARY_DIR}/${output}")
  list(TRANSFORM MLIR_INCLUDE_DIRS PREPEND "-I" OUTPUT_VARIABLE includes)
  add_custom_command(
    OUTPUT "${target_file}"
    COMMAND "${MILLRACE_LLVM_BIN}/mlir-tblgen" ${ARGN} "${CMAKE_CURRENT_SOURCE_DIR}/${input}"
            "-I${PROJECT_SOURCE_DIR}" ${includes} -o "${target_file}" -d "${target_file}.d"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${input}"
    DEPFILE "${target_file}.d"
    COMMENT "TableGen ${output}"
    VERBATIM)
  target_sources(${library} PRIVATE "${target_file}")
endfunction()

function(add_millrace_dialect library name)
  string(TOLOWER ${name} mnemonic)
  foreach(kind dialect:Dialect enum:Enums attrdef:Attributes typedef:Types op:Ops)
    string(REPLACE ":" ";" kind "${kind}")
    list(GET kind 0 generator)
    list(GET kind 1 suffix)
    set(only "")
    if(generator STREQUAL "dialect")
      set(only "-dialect=${mnemonic}") # of those that the file includes
    endif()
    millrace_tablegen(${library} ${name}Ops.td ${name}${suffix}.h.inc -gen-${generator}-decls ${only})
    millrace_tablegen(${library} ${name}Ops.td ${name}${suffix}.cpp.inc -gen-${generator}-defs ${only})
  endforeach()
endfunction()

function(add_millrace_passes library group)
  millrace_tablegen(${library} Passes.td Passes.h.inc -gen-pass-decls -name=${group})
endfunction()
