# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Levels and columns of libraries (docs/architecture.md, "Direction of dependence").
#
# A library depends only on libraries of a strictly lower level, in its own column or in arch; the
# driver column may depend on every column. Where the siblings of a level have an order of their
# own, they say so by a fraction: Forms is 3, CostModel 3.1, and so CostModel may use Forms.
#
#   millrace_declare_level(NAME level column depends...)   an empty column: the top-level folder
#   millrace_check_levels()   after every folder was read: stops configuration on a forbidden
#                             dependence, and writes levels.json for scripts/lint/includes.py

include_guard(GLOBAL)

function(millrace_declare_level name level column)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}"
             OUTPUT_VARIABLE folder)
  if(NOT column)
    string(REGEX MATCH "^[^/]+" column "${folder}")
  endif()
  set_property(GLOBAL APPEND PROPERTY MILLRACE_LIBRARIES ${name})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_LEVEL ${level})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_COLUMN ${column})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_FOLDER ${folder})
  set_property(GLOBAL PROPERTY MILLRACE_${name}_DEPENDS "${ARGN}")
endfunction()

# Stops configuration unless `library` may depend on `dependency`.
function(millrace_check_dependency library dependency known)
  if(NOT dependency IN_LIST known)
    message(FATAL_ERROR "${library} depends on ${dependency}, which no "
                        "add_millrace_library declares; name libraries that are not Millrace's in LINK")
  endif()
  foreach(side library dependency)
    get_property(${side}_level GLOBAL PROPERTY MILLRACE_${${side}}_LEVEL)
    get_property(${side}_column GLOBAL PROPERTY MILLRACE_${${side}}_COLUMN)
  endforeach()
  if(NOT dependency_level VERSION_LESS library_level)
    message(FATAL_ERROR "${library} (level ${library_level}) depends upward or sideways on "
                        "${dependency} (level ${dependency_level}); "
                        "move what both need to a lower level")
  endif()
  if(NOT library_column STREQUAL "driver" AND
     NOT dependency_column MATCHES "^(arch|${library_column})$")
    message(FATAL_ERROR "${library} (column ${library_column}) depends on ${dependency} "
                        "(column ${dependency_column}); the columns share arch only")
  endif()
endfunction()

function(millrace_check_levels)
  get_property(libraries GLOBAL PROPERTY MILLRACE_LIBRARIES)
  set(entries)
  foreach(library IN LISTS libraries)
    get_property(folder GLOBAL PROPERTY MILLRACE_${library}_FOLDER)
    get_property(depends GLOBAL PROPERTY MILLRACE_${library}_DEPENDS)
    foreach(dependency IN LISTS depends)
      millrace_check_dependency(${library} ${dependency} "${libraries}")
    endforeach()
    list(TRANSFORM depends REPLACE "^(.+)$" "\"\\1\"")
    list(JOIN depends ", " depends)
    list(APPEND entries
         "  {\"name\": \"${library}\", \"folder\": \"${folder}\", \"depends\": [${depends}]}")
  endforeach()
  list(JOIN entries ",\n" entries)
  file(WRITE "${PROJECT_BINARY_DIR}/levels.json" "[\n${entries}\n]\n")
endfunction()
