# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every kind of bad input, with the command that meets it. What `millrace` answers stands in
docs/bad-input.md, which test_bad_input_table.py keeps true.

After a change of messages:  python tests/end_to_end/bad_inputs/render.py   (then read the difference)
"""
from bad_inputs.case import CASES, GROUPS, Case, Workplace  # noqa: F401
from bad_inputs import assembly, commands, images, machines, models, tensors  # noqa: F401  (they register cases)
