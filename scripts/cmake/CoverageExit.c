/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Linked with -Wl,--wrap=_exit by MILLRACE_COVERAGE alone: _exit() runs none of the handlers that
   write GCC's counters, so they are written here. */
void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));

__attribute__((noreturn)) void __wrap__exit(int status) {
  __gcov_dump();
  __real__exit(status);
}
