// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millrace {
namespace {

std::string folderOf(const std::string &path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Error cannotWrite(const std::string &path, int reason) {
  std::string remedy;
  switch (reason) {
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
    remedy = "; make room there or choose another folder";
    break;
  case EACCES:
  case EPERM:
  case EROFS:
    remedy = "; choose a folder that you may write to";
    break;
  case ENOTDIR:
    remedy = ", where a folder should be; choose another name";
    break;
  case ENOENT:
    remedy = "; make the folder '" + folderOf(path) + "' first";
    break;
  default:
    break;
  }
  const std::string what = path == kStandardOutput ? "to the standard output" : "'" + path + "'";
  return Error{"cannot write " + what + ": " + std::strerror(reason) + remedy};
}

/// Where the file shall lie in the end: behind symbolic links, if `path` is one.
Expected<std::string> targetOf(const std::string &path) {
  if (path == kStandardOutput)
    return path;
  struct stat existing;
  if (::stat(path.c_str(), &existing) != 0)
    return path;
  if (!S_ISREG(existing.st_mode))
    return Error{"cannot write '" + path +
                 "': it exists and is not a regular file; choose another name"};
  std::unique_ptr<char, void (*)(void *)> resolved(::realpath(path.c_str(), nullptr), std::free);
  return resolved ? std::string(resolved.get()) : path;
}

} // namespace

class NewFile::Buffer : public std::streambuf {
public:
  Buffer(std::string path, std::string target)
      : path(std::move(path)), target(std::move(target)), out(this) {
    setp(pending.data(), pending.data() + pending.size());
  }
  ~Buffer() override {
    if (fd >= 0)
      ::close(fd);
    if (!name.empty())
      ::unlink(name.c_str());
  }

  Status open() {
    if (path == kStandardOutput) {
      std::fflush(stdout); // what was printed before comes before
      fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
      return fd < 0 ? Status(cannotWrite(path, errno)) : Status(Success{});
    }
    const std::string folder = folderOf(target);
    // Its permissions are those of any new file; a link through /proc will name it.
    if (::access("/proc/self/fd", X_OK) == 0)
      fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
      openNamed();
    if (fd < 0)
      return cannotWrite(path, errno);
    return Success{};
  }

  void write(std::span<const uint8_t> bytes) {
    while (!bytes.empty() && !failure) {
      const ssize_t done = ::write(fd, bytes.data(), bytes.size());
      if (done > 0)
        bytes = bytes.subspan(size_t(done));
      else if (done == 0 || errno != EINTR)
        failure = done == 0 ? ENOSPC : errno;
    }
  }

  Status replace() {
    flush();
    if (path != kStandardOutput)
      giveName();
    if (failure)
      return cannotWrite(path, failure);
    return Success{};
  }

  std::ostream &stream() { return out; }

protected:
  int_type overflow(int_type c) override {
    flush();
    if (c != traits_type::eof())
      sputc(traits_type::to_char_type(c));
    return failure ? traits_type::eof() : traits_type::not_eof(c);
  }
  int sync() override {
    flush();
    return failure ? -1 : 0;
  }

private:
  void giveName() {
    if (!failure && ::fsync(fd) != 0)
      failure = errno;
    if (!failure && !(name.empty() && linkTo(target)) && !moveOver())
      failure = errno;
  }

  void flush() {
    write({reinterpret_cast<const uint8_t *>(pbase()), size_t(pptr() - pbase())});
    setp(pending.data(), pending.data() + pending.size());
  }

  std::string freshName() const { return folderOf(target) + "/.millrace-XXXXXX"; }

  void openNamed() {
    name = freshName();
    fd = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) {
      name.clear();
      return;
    }
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(fd, 0666 & ~mask);
  }

  bool linkTo(const std::string &where) const {
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, where.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }

  /// A nameless file cannot be put over another one: it takes a name first.
  bool moveOver() {
    if (name.empty()) {
      name = freshName();
      const int placeholder = ::mkostemp(name.data(), O_CLOEXEC); // for a name that is free
      if (placeholder < 0) {
        name.clear();
        return false;
      }
      ::close(placeholder);
      if (::unlink(name.c_str()) != 0 || !linkTo(name))
        return false;
    }
    if (::rename(name.c_str(), target.c_str()) != 0)
      return false;
    name.clear();
    return true;
  }

  std::string path, target; ///< as given; behind symbolic links
  std::string name;         ///< of the file meanwhile; empty while it has none
  int fd = -1, failure = 0; ///< failure: the first errno
  std::array<char, 1 << 16> pending;
  std::ostream out;
};

Expected<NewFile> NewFile::create(const std::string &path) {
  Expected<std::string> target = targetOf(path);
  if (!target)
    return target.takeError();
  auto buffer = std::make_unique<Buffer>(path, std::move(*target));
  if (Status s = buffer->open(); !s)
    return s.takeError();
  return NewFile(std::move(buffer));
}

NewFile::NewFile(std::unique_ptr<Buffer> buffer) : buffer(std::move(buffer)) {}
NewFile::NewFile(NewFile &&) noexcept = default;
NewFile &NewFile::operator=(NewFile &&) noexcept = default;
NewFile::~NewFile() = default;

void NewFile::write(std::span<const uint8_t> bytes) {
  buffer->pubsync();
  buffer->write(bytes);
}
void NewFile::write(std::string_view text) {
  write({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}
std::ostream &NewFile::stream() { return buffer->stream(); }
Status NewFile::replace() { return buffer->replace(); }

Status checkWritable(const std::string &path) {
  Expected<NewFile> file = NewFile::create(path);
  if (!file)
    return file.takeError();
  return Success{};
}

Status writeFile(const std::string &path, std::string_view text) {
  Expected<NewFile> file = NewFile::create(path);
  if (!file)
    return file.takeError();
  file->write(text);
  return file->replace();
}

} // namespace millrace
