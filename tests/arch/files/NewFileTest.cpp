// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class NewFiles : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / ("millrace-files-" + std::to_string(getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const std::string &name = "x") const { return (folder / name).string(); }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  static std::string contents(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path folder;
};

TEST_F(NewFiles, appear_under_their_name_only_when_they_are_replaced) {
  Expected<NewFile> file = NewFile::create(path());
  ASSERT_TRUE(file);
  file->write("one ");
  file->stream() << "two " << 3;
  EXPECT_FALSE(fs::exists(path()));
  ASSERT_TRUE(file->replace());
  EXPECT_EQ(contents(path()), "one two 3");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFiles, that_are_dropped_leave_the_old_file_and_nothing_else) {
  std::ofstream(path()) << "old";
  {
    Expected<NewFile> file = NewFile::create(path());
    ASSERT_TRUE(file);
    file->write(std::string(1 << 20, 'n'));
  }
  EXPECT_EQ(contents(path()), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFiles, take_the_place_of_an_old_file) {
  std::ofstream(path()) << "old and longer";
  ASSERT_TRUE(writeFile(path(), "new"));
  EXPECT_EQ(contents(path()), "new");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFiles, keep_a_symbolic_link_and_replace_what_it_names) {
  std::ofstream(path("real")) << "old";
  fs::create_symlink("real", path("link"));
  ASSERT_TRUE(writeFile(path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(contents(path("real")), "new");
}

TEST_F(NewFiles, have_the_permissions_that_the_mask_leaves) {
  const mode_t before = ::umask(027);
  ASSERT_TRUE(writeFile(path("new"), ""));
  std::ofstream(path()) << "old";
  ASSERT_TRUE(writeFile(path(), ""));
  ::umask(before);
  for (const char *name : {"new", "x"})
    EXPECT_EQ(unsigned(fs::status(path(name)).permissions()), 0640u) << name;
}

TEST_F(NewFiles, may_have_names_as_long_as_the_file_system_allows) {
  const std::string name(255, 'n');
  ASSERT_TRUE(writeFile(path(name), "1"));
  ASSERT_TRUE(writeFile(path(name), "2"));
  EXPECT_EQ(contents(path(name)), "2");
}

TEST_F(NewFiles, in_a_missing_folder_are_an_error_that_names_it) {
  EXPECT_THAT(writeFile(path("no/x"), "").error(),
              AllOf(HasSubstr("cannot write '" + path("no/x") + "': No such file or directory"),
                    HasSubstr("make the folder '" + path("no") + "' first")));
  EXPECT_THAT(checkWritable(path("no/x")).error(), HasSubstr("No such file or directory"));
}

TEST_F(NewFiles, never_replace_a_folder_or_a_device) {
  fs::create_directories(path("sub"));
  EXPECT_THAT(writeFile(path("sub"), "").error(), HasSubstr("is not a regular file"));
  EXPECT_THAT(writeFile("/dev/full", "").error(), HasSubstr("is not a regular file"));
}

TEST_F(NewFiles, that_outgrow_what_the_system_allows_leave_the_old_file) {
  std::ofstream(path()) << "old";
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1 << 16, before.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status written = writeFile(path(), std::string(1 << 20, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_DFL);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error(), AllOf(HasSubstr("File too large"), HasSubstr("make room")));
  EXPECT_EQ(contents(path()), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(NewFiles, a_check_leaves_nothing_behind) {
  EXPECT_TRUE(checkWritable(path()));
  EXPECT_EQ(entries(), 0u);
}

} // namespace
} // namespace millrace
