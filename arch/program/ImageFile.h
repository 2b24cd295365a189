// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Images as files. docs/spec/image.md describes the bytes.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

#include <span>
#include <string>

namespace millrace {

/// Writes an image. The bytes go to a new file beside `path`, which then replaces `path`: a reader,
/// or a power cut, finds the old file or the new one. Errors name the path and the reason of the
/// system; nothing is left behind.
Status writeImage(const Image &image, const std::string &path);

/// The bytes that writeImage writes: equal images give equal bytes.
std::vector<uint8_t> encodeImage(const Image &image);

/// An image of which only the data section is unread: most of a file, and of no use to whoever asks
/// for cycles alone.
struct OpenedImage {
  Image image; ///< its `data` has the right size; what lies there counts once readData() succeeds
  std::string path;
  std::span<const uint8_t> dataSection; ///< with what fills its last 64 bytes; lies in the mapping
  uint64_t dataChecksum = 0;            ///< as the header states it

  /// Reads the data and holds it against its checksum.
  Status readData() const;
};

/// Maps an image and reads all but its data. Data, instructions and annotations are views of the
/// mapping (the file must not be changed in place meanwhile; writeImage replaces it), all else is
/// copied. Whatever the file holds, the result is either an image for which checkImage holds or an
/// error that names file, section, index, value and limit. Memory is proportional to the file's
/// size.
Expected<OpenedImage> openImage(const std::string &path);

/// The same with the data.
Expected<Image> readImage(const std::string &path);

/// The same from bytes in memory, which begin at a multiple of 8; views are of them, kept alive by
/// `owner` (copied when null).
Expected<Image> decodeImage(std::span<const uint8_t> bytes, const std::string &name,
                            std::shared_ptr<const void> owner = nullptr);

/// Recomputes the checksums in the header of an encoded image, so that tests can damage what lies
/// behind it. `bytes` holds at least a header and is a multiple of 64 bytes long.
void sealImage(std::span<uint8_t> bytes);

} // namespace millrace
