// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/ChildProcesses.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using namespace millrace::driver;
using End = ChildResult::End;

std::map<size_t, ChildResult> run(size_t count, const ChildLimits &limits,
                                  const std::function<int(size_t)> &work) {
  std::map<size_t, ChildResult> results;
  const std::string error = runInChildren(count, limits, work, [&](size_t k, ChildResult result) {
    EXPECT_TRUE(results.emplace(k, std::move(result)).second) << "child " << k << " ended twice";
  });
  EXPECT_EQ(error, "");
  return results;
}

TEST(ChildProcesses, every_child_ends_with_its_own_code_and_words) {
  for (unsigned atOnce : {1u, 3u, 100u}) {
    auto results = run(7, {.atOnce = atOnce}, [](size_t k) {
      std::fprintf(stderr, "this is %zu", k);
      return int(k);
    });
    ASSERT_EQ(results.size(), 7u);
    for (const auto &[k, result] : results) {
      EXPECT_EQ(result.end, End::Exited);
      EXPECT_EQ(result.code, int(k));
      EXPECT_EQ(result.errors, "this is " + std::to_string(k));
      EXPECT_GT(result.peakBytes, 0u);
    }
  }
}

TEST(ChildProcesses, a_crash_is_a_result) {
  auto results = run(3, {}, [](size_t k) {
    if (k == 1)
      std::raise(SIGSEGV);
    return 0;
  });
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].end, End::Exited);
  EXPECT_EQ(results[1].end, End::Signaled);
  EXPECT_EQ(results[1].code, SIGSEGV);
  EXPECT_EQ(results[2].end, End::Exited);
}

TEST(ChildProcesses, what_never_ends_is_killed_and_the_others_are_not) {
  auto results = run(3, {.atOnce = 2, .seconds = 0.3}, [](size_t k) {
    while (k == 0)
      ::pause();
    return 0;
  });
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].end, End::TimedOut);
  EXPECT_GE(results[0].seconds, 0.3);
  EXPECT_EQ(results[1].end, End::Exited);
  EXPECT_EQ(results[2].end, End::Exited);
}

TEST(ChildProcesses, memory_is_limited_per_child) {
  auto results = run(2, {.bytes = uint64_t(256) << 20}, [](size_t k) {
    const size_t wanted = (k == 0 ? size_t(64) : size_t(1024)) << 20;
    try {
      std::vector<char> memory(wanted, 1);
      return int(memory.back()) - 1;
    } catch (const std::bad_alloc &) {
      return 9;
    }
  });
  EXPECT_EQ(results[0].code, 0);
  EXPECT_EQ(results[1].code, 9);
}

TEST(ChildProcesses, of_many_words_the_last_are_kept) {
  auto results = run(1, {}, [](size_t) {
    for (int i = 0; i < 100000; ++i)
      std::fputs("word ", stderr);
    std::fputs("end", stderr);
    return 0;
  });
  EXPECT_EQ(results[0].errors.size(), size_t(64) << 10);
  EXPECT_TRUE(results[0].errors.ends_with("end"));
}

TEST(ChildProcesses, none_is_started_for_nothing) { EXPECT_TRUE(run(0, {}, nullptr).empty()); }

} // namespace
