/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Linked with -Wl,--wrap=_exit,--wrap=execv by MILLRACE_COVERAGE alone. Neither runs the handlers
   that write GCC's counters (GCC's own wrapper of execv is not for standard C++), so they are
   written here. */
#include <signal.h>

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
int __real_execv(const char *path, char *const arguments[]);

__attribute__((noreturn)) void __wrap__exit(int status) {
  __gcov_dump();
  __real__exit(status);
}

int __wrap_execv(const char *path, char *const arguments[]) {
  /* A program that is to ignore files that grow too large may not have got as far. */
  void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
  __gcov_dump();
  signal(SIGXFSZ, before);
  return __real_execv(path, arguments);
}
