# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What campaigns over many models have in common."""


def effort_of(number: int) -> int:
    """Of the compiler, for one of many models: of four one is searched for a schedule, as by default, and three take the
    first, a tenth of the work."""
    return 1 if number % 4 == 0 else 0
