// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Output files. Everything that Millrace writes goes through here, so that a reader, a kill or a
// power cut finds the old file or the new one, never a part.
#pragma once

#include "arch/spec/Expected.h"

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// The path that stands for the standard output.
constexpr std::string_view kStandardOutput = "-";

/// A file under way: it has no name until replace() gives it one, and vanishes if that is never
/// called. Where the file system knows no nameless files it is called .millrace-XXXXXX meanwhile.
class NewFile {
public:
  /// A new file in the folder of `path`. Errors name the path, the system's reason and a remedy: no
  /// such folder, no permission, or something at `path` that is no regular file. "-" is the standard
  /// output, to which bytes go as they come.
  static Expected<NewFile> create(const std::string &path);
  NewFile(NewFile &&) noexcept;
  NewFile &operator=(NewFile &&) noexcept;
  ~NewFile();

  /// Appends bytes. A failure is kept for replace(), which reports it.
  void write(std::span<const uint8_t> bytes);
  void write(std::string_view text);
  /// The same as a stream; it lives as long as this object, wherever that is moved.
  std::ostream &stream();

  /// Makes the contents durable and puts them at the path, in place of what lay there. Called once,
  /// last.
  Status replace();

private:
  class Buffer;
  explicit NewFile(std::unique_ptr<Buffer> buffer);
  std::unique_ptr<Buffer> buffer;
};

/// Whether a file could be made at `path` now; nothing is left there. Folders are not made.
Status checkWritable(const std::string &path);

/// All of `text` as the file `path`.
Status writeFile(const std::string &path, std::string_view text);

} // namespace millrace
