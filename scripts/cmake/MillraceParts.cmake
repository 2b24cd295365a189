# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The parts that Millrace uses and does not write. After this, libraries may name in LINK:
#   yaml-cpp  fmt::fmt  nlohmann_json::nlohmann_json  CLI11::CLI11  Boost::headers
#   SystemC::systemc  ONNX::onnx
# MLIR and LLVM come with the MLIR flag of add_millrace_library.

file(STRINGS "${PROJECT_SOURCE_DIR}/scripts/versions.env" pins REGEX "^[A-Z_]+=")
foreach(pin IN LISTS pins)
  string(REGEX MATCH "^([A-Z_]+)=\"(.*)\"$" matched "${pin}")
  set("MILLRACE_${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
endforeach()

# Where scripts/setup put the Python environment and the ONNX C++ library.
if(DEFINED ENV{MILLRACE_CACHE})
  set(default_cache "$ENV{MILLRACE_CACHE}")
else()
  set(default_cache "$ENV{HOME}/.cache/millrace")
endif()
set(MILLRACE_CACHE "${default_cache}" CACHE PATH "Folder that scripts/setup filled")
string(SHA256 python_key "${MILLRACE_PYTHON_PACKAGES}")
string(SUBSTRING "${python_key}" 0 12 python_key)
set(MILLRACE_PYTHON_BIN "${MILLRACE_CACHE}/python-${python_key}/bin")
set(onnx_prefix "${MILLRACE_CACHE}/onnx-${MILLRACE_ONNX_VERSION}-static")
set(MILLRACE_ONNX_PREFIX "${onnx_prefix}")
foreach(result "${MILLRACE_PYTHON_BIN}/../complete" "${onnx_prefix}/complete")
  if(NOT EXISTS "${result}")
    message(FATAL_ERROR "${result} is missing; run scripts/setup")
  endif()
endforeach()

find_program(ccache ccache)
if(ccache AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache and GCC need to cache compilations that use a precompiled header; and checkouts in
  # different folders share what they compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ccache})
  add_compile_options(-fpch-preprocess)
endif()

set(llvm_root "/usr/lib/llvm-${MILLRACE_LLVM_VERSION}")
set(MILLRACE_LLVM_BIN "${llvm_root}/bin")
find_package(MLIR REQUIRED CONFIG PATHS "${llvm_root}" NO_DEFAULT_PATH)

find_package(yaml-cpp REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)
find_package(GTest REQUIRED)
find_package(Protobuf REQUIRED) # before ONNX, whose configuration expects it
unset(ONNX_DIR CACHE) # it may name the folder of an earlier pin
find_package(ONNX ${MILLRACE_ONNX_VERSION} EXACT REQUIRED CONFIG
             PATHS "${onnx_prefix}" NO_DEFAULT_PATH)

find_library(systemc_library systemc REQUIRED)
add_library(SystemC::systemc INTERFACE IMPORTED)
target_link_libraries(SystemC::systemc INTERFACE "${systemc_library}")
# Debian builds SystemC as C++17; without this it refuses at link time to serve a C++20 program.
target_compile_definitions(SystemC::systemc INTERFACE SC_DISABLE_API_VERSION_CHECK)
