# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR tests: each .mlir file names in RUN lines the commands that must succeed.

Commands find `millrace`, `FileCheck`, `not`, `mlir-opt` by name; `%root` is the source root.
"""

import os

import lit.formats

config.name = "millrace"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.join(config.millrace_source, "tests")
config.test_exec_root = os.path.join(config.millrace_build, "tests", "lit")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.millrace_build, "bin"), config.millrace_llvm_bin,
     config.environment["PATH"]])
config.substitutions.append(("%root", config.millrace_source))
