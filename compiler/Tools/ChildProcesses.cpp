// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/ChildProcesses.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::driver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr off_t kMostErrorBytes = 64 << 10;

struct Child {
  size_t number = 0;
  int errors = -1; ///< a nameless file that is its standard error
  Clock::time_point start, deadline;
  bool isTimedOut = false;
};

/// The signal that announces the end of a child, held back so that it can be waited for.
class HeldSignal {
public:
  HeldSignal() {
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &before);
  }
  ~HeldSignal() { sigprocmask(SIG_SETMASK, &before, nullptr); }
  HeldSignal(const HeldSignal &) = delete;
  HeldSignal &operator=(const HeldSignal &) = delete;

  /// In a child: signals are as they were.
  void release() const { sigprocmask(SIG_SETMASK, &before, nullptr); }
  /// Returns when a child may have ended, at the latest after so many seconds.
  void wait(double seconds) const {
    seconds = std::clamp(seconds, 0.001, 3600.0);
    const timespec time{time_t(seconds), long((seconds - std::floor(seconds)) * 1e9)};
    sigtimedwait(&set, nullptr, &time);
  }

private:
  sigset_t set{}, before{};
};

std::string readErrors(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t length = std::min(std::max<off_t>(size, 0), kMostErrorBytes);
  std::string text(size_t(length), '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), size - length);
  text.resize(size_t(std::max<ssize_t>(got, 0)));
  return text;
}

void setLimit(decltype(RLIMIT_DATA) resource, rlim_t limit) {
  const rlimit both{limit, limit};
  ::setrlimit(resource, &both);
}

/// What a child does before its work: it ends with its parent, leaves no core, and writes its
/// errors where the parent reads them.
void prepareChild(int errors, const ChildLimits &limits, const HeldSignal &held) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  held.release();
  setLimit(RLIMIT_CORE, 0);
  if (limits.bytes)
    setLimit(RLIMIT_DATA, rlim_t(limits.bytes));
  if (const int null = ::open("/dev/null", O_RDWR); null >= 0) {
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
  }
  ::dup2(errors, STDERR_FILENO);
}

ChildResult resultOf(const Child &child, int status, const rusage &usage) {
  ChildResult result;
  result.seconds = std::chrono::duration<double>(Clock::now() - child.start).count();
  result.peakBytes = uint64_t(usage.ru_maxrss) * 1024;
  result.errors = readErrors(child.errors);
  if (WIFEXITED(status)) {
    result.code = WEXITSTATUS(status);
  } else {
    result.end = child.isTimedOut ? ChildResult::End::TimedOut : ChildResult::End::Signaled;
    result.code = WTERMSIG(status);
  }
  return result;
}

/// The children that run now.
class Pool {
public:
  Pool(const ChildLimits &limits, const std::function<int(size_t)> &work)
      : limits(limits), work(work) {}

  bool isFull() const { return running.size() >= limits.atOnce; }
  bool isEmpty() const { return running.empty(); }

  /// Starts a child; an error number if there can be none now.
  int start(size_t number);
  /// Tells of the children that have ended.
  void collect(const std::function<void(size_t, ChildResult)> &done);
  /// Kills those that have run too long, and waits until a child may have ended.
  void wait();

private:
  const ChildLimits &limits;
  const std::function<int(size_t)> &work;
  HeldSignal held;
  std::map<pid_t, Child> running;
};

int Pool::start(size_t number) {
  const auto length =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds));
  const Clock::time_point now = Clock::now();
  Child child{number, ::memfd_create("errors", MFD_CLOEXEC), now, now + length, false};
  if (child.errors < 0)
    return errno;
  std::fflush(nullptr); // or every child would write what waits in the buffers again
  const pid_t pid = ::fork();
  if (pid == 0) {
    prepareChild(child.errors, limits, held);
    const int code = work(number);
    std::fflush(nullptr);
    _exit(code);
  }
  if (pid < 0) {
    const int error = errno;
    ::close(child.errors);
    return error;
  }
  running.emplace(pid, child);
  return 0;
}

void Pool::collect(const std::function<void(size_t, ChildResult)> &done) {
  int status = 0;
  rusage usage{};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;)
    if (auto ended = running.find(pid); ended != running.end()) {
      const Child child = ended->second;
      running.erase(ended);
      ChildResult result = resultOf(child, status, usage);
      ::close(child.errors);
      done(child.number, std::move(result));
    }
}

void Pool::wait() {
  double seconds = 3600;
  for (auto &[pid, child] : running) {
    const double left = std::chrono::duration<double>(child.deadline - Clock::now()).count();
    if (left <= 0) {
      child.isTimedOut = true;
      ::kill(pid, SIGKILL);
    } else {
      seconds = std::min(seconds, left);
    }
  }
  held.wait(seconds);
}

} // namespace

std::string runInChildren(size_t count, const ChildLimits &limits,
                          const std::function<int(size_t)> &work,
                          const std::function<void(size_t, ChildResult)> &done) {
  Pool pool(limits, work);
  for (size_t next = 0; next < count || !pool.isEmpty();) {
    bool canStart = true;
    while (canStart && next < count && !pool.isFull()) {
      const int error = pool.start(next);
      if (error && pool.isEmpty())
        return std::string("cannot start a process: ") + std::strerror(error);
      canStart = !error; // else there is room for fewer: wait for one to end
      next += canStart;
    }
    pool.wait();
    pool.collect(done);
  }
  return {};
}

} // namespace millrace::driver
