// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Checksum.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace layout;
using ByteSpan = std::span<const uint8_t>;

/// Reads a section's numbers and texts. After the first lack, everything is 0 and `wrong` says what
/// lacked; nothing is allocated that the section could not fill.
class Decoder {
public:
  explicit Decoder(ByteSpan bytes) : bytes(bytes) {}

  template <class T> T number(const char *what) {
    T value{};
    if (!has(sizeof(T), what))
      return value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  /// A count of things of at least `least` bytes each.
  size_t count(const char *what, size_t least) {
    const auto n = number<uint64_t>(what);
    if (wrong.empty() && n > (bytes.size() - at) / least)
      fail(what, "is " + std::to_string(n) + "; the rest of the section holds at most " +
                     std::to_string((bytes.size() - at) / least));
    return wrong.empty() ? size_t(n) : 0;
  }
  std::string text(const char *what) {
    const size_t n = count(what, 1);
    std::string value(reinterpret_cast<const char *>(bytes.data()) + at, n);
    at += n;
    return value;
  }
  template <class T> std::vector<T> numbers(const char *what) {
    std::vector<T> values(count(what, sizeof(T)));
    if (!values.empty())
      std::memcpy(values.data(), bytes.data() + at, values.size() * sizeof(T));
    at += values.size() * sizeof(T);
    return values;
  }
  void finish() {
    if (wrong.empty() && at != bytes.size())
      fail("its end",
           "comes at byte " + std::to_string(at) + " of " + std::to_string(bytes.size()));
  }
  void fail(const char *what, const std::string &why) {
    if (wrong.empty())
      wrong = std::string(what) + " " + why;
  }
  std::string wrong;

private:
  bool has(size_t n, const char *what) {
    if (wrong.empty() && n > bytes.size() - at)
      fail(what, "would lie at byte " + std::to_string(at) + ", beyond the section's " +
                     std::to_string(bytes.size()));
    return wrong.empty();
  }
  ByteSpan bytes;
  size_t at = 0;
};

Step step(Decoder &d) {
  Step s;
  s.kind = Step::Kind(d.number<uint8_t>("kind"));
  s.device = StepDevice(d.number<uint8_t>("device"));
  s.predictedCycles = d.number<uint64_t>("predicted cycles");
  s.pes.resize(d.count("number of ranges", sizeof(PeRange)));
  for (PeRange &r : s.pes) {
    r.begin = d.number<uint32_t>("begin of a range");
    r.end = d.number<uint32_t>("end of a range");
  }
  s.function = d.text("function");
  s.inputs = d.numbers<uint32_t>("inputs");
  s.outputs = d.numbers<uint32_t>("outputs");
  return s;
}

constexpr size_t kLoopBytes = 20, kPlacementBytes = 2 + 1 + 1 + 1 + 8 + 4 + 4 + 8 + 8 + 12;

Placement placement(Decoder &d) {
  Placement p;
  p.pe = d.number<uint16_t>("pe of a placement");
  p.hemisphere = Hemisphere(d.number<uint8_t>("hemisphere of a placement"));
  const auto inLanes = d.number<uint8_t>("bytes-in-lanes of a placement");
  if (inLanes > 1)
    d.fail("bytes-in-lanes of a placement", "is " + std::to_string(inLanes) + ", not 0 or 1");
  p.bytesInLanes = inLanes;
  p.firstByte = d.number<uint8_t>("first byte of a placement");
  p.slices = d.numbers<uint16_t>("slices of a placement");
  p.row = d.number<uint32_t>("row of a placement");
  p.lane = d.number<uint32_t>("lane of a placement");
  p.start = d.numbers<int64_t>("start of a placement");
  p.loops.resize(d.count("number of loops", kLoopBytes));
  for (BindingLoop &l : p.loops) {
    l.count = d.number<uint32_t>("count of a loop");
    l.rowStep = d.number<int32_t>("row step of a loop");
    l.laneStep = d.number<int32_t>("lane step of a loop");
    l.dim = d.number<uint32_t>("dimension of a loop");
    l.step = d.number<int32_t>("step of a loop");
  }
  p.fill = d.number<uint32_t>("fill of a placement");
  p.first = d.number<uint32_t>("first table row of a placement");
  p.rows = d.number<uint32_t>("table rows of a placement");
  return p;
}

Binding binding(Decoder &d) {
  Binding b;
  b.role = Binding::Role(d.number<uint8_t>("role"));
  b.name = d.text("name");
  b.hostType = d.text("host type");
  b.shape = d.numbers<int64_t>("shape");
  b.gridType = ElementType(d.number<uint8_t>("grid type"));
  b.scale = std::bit_cast<double>(d.number<uint64_t>("scale"));
  b.zero = int64_t(d.number<uint64_t>("zero point"));
  b.extent = int64_t(d.number<uint64_t>("extent"));
  b.offset = d.number<uint64_t>("offset");
  b.placements.resize(d.count("number of placements", kPlacementBytes));
  for (Placement &p : b.placements)
    if (d.wrong.empty())
      p = placement(d);
  return b;
}

class ImageReader {
public:
  ImageReader(ByteSpan file, const std::string &name, std::shared_ptr<const void> owner)
      : file(file), name(name), owner(std::move(owner)) {}

  Expected<OpenedImage> run() {
    for (auto stage : {&ImageReader::header, &ImageReader::table, &ImageReader::bodies})
      if (std::string wrong = (this->*stage)(); !wrong.empty())
        return Error{"image '" + name + "': " + wrong};
    if (Status s = checkImage(image); !s)
      return Error{"image '" + name + "': " + s.error()};
    return OpenedImage{std::move(image), name, file.subspan(dataOffset(file)), head.dataChecksum};
  }

private:
  std::string header() {
    if (file.size() < sizeof(Header))
      return "is not a Millrace image: it has " + std::to_string(file.size()) +
             " bytes, a header alone has " + std::to_string(sizeof(Header));
    std::memcpy(&head, file.data(), sizeof(Header));
    if (std::memcmp(head.magic, kMagic, sizeof(kMagic)))
      return "is not a Millrace image (bad magic number)";
    if (head.version != Image::kVersion)
      return "has version " + std::to_string(head.version) + "; this program reads version " +
             std::to_string(Image::kVersion) + "; compile the model again";
    if (head.fileBytes != file.size())
      return "should have " + std::to_string(head.fileBytes) + " bytes and has " +
             std::to_string(file.size()) + "; it was cut off or added to; copy it again";
    for (uint8_t b : head.reserved)
      if (b)
        return "has a damaged header: a reserved byte is " + std::to_string(b) + ", not 0";
    Checksum sum = beginChecksum(head);
    sum.add(file.subspan(sizeof(Header), dataOffset(file) - sizeof(Header)));
    if (sum.result() != head.checksum)
      return "is damaged: its checksum does not fit its contents; copy or compile it again";
    return {};
  }

  std::string table() {
    const size_t most = (file.size() - sizeof(Header)) / sizeof(SectionEntry);
    if (head.sections > most)
      return "section table: names " + std::to_string(head.sections) +
             " sections; the file has room for " + std::to_string(most);
    if (head.sections < 1 + kTailSections || (head.sections - 1 - kTailSections) % 2)
      return "section table: " + std::to_string(head.sections) +
             " sections are not those of a number of PEs";
    pes = (head.sections - 1 - kTailSections) / 2;
    entries.resize(head.sections);
    std::memcpy(entries.data(), file.data() + sizeof(Header),
                entries.size() * sizeof(SectionEntry));
    size_t offset = bodyOffset(entries.size());
    for (size_t k = 0; k < entries.size(); ++k) {
      const SectionEntry &e = entries[k];
      const std::string at = "section table: entry " + std::to_string(k) + " ";
      if (e.kind != kindAt(k) || e.index != indexAt(k))
        return at + "should be " + nameAt(k) + " but has kind " + std::to_string(uint32_t(e.kind)) +
               ", index " + std::to_string(e.index);
      if (e.offset != offset)
        return at + "(" + nameAt(k) + ") begins at byte " + std::to_string(e.offset) +
               ", not where the one before it ends, " + std::to_string(offset);
      if (e.bytes > file.size() - offset)
        return at + "(" + nameAt(k) + ") has " + std::to_string(e.bytes) + " bytes; the file has " +
               std::to_string(file.size() - offset) + " left";
      offset += aligned(e.bytes);
      if (offset > file.size())
        return at + "(" + nameAt(k) + ") ends beyond the file";
    }
    if (offset != file.size())
      return "section table: the sections end at byte " + std::to_string(offset) + " of " +
             std::to_string(file.size());
    return {};
  }

  std::string bodies() {
    image.instructions.resize(pes);
    image.producers.resize(pes);
    for (size_t k = 0; k < entries.size(); ++k)
      if (std::string wrong = section(k); !wrong.empty())
        return "section " + nameAt(k) + ": " + wrong;
    return {};
  }

  std::string section(size_t k) {
    const SectionEntry &e = entries[k];
    const ByteSpan bytes = file.subspan(e.offset, e.bytes);
    Decoder d(bytes);
    switch (e.kind) {
    case SectionKind::Program:
      return program(d);
    case SectionKind::Instructions:
      return records(image.instructions[e.index], e, bytes);
    case SectionKind::Producers:
      return records(image.producers[e.index], e, bytes);
    case SectionKind::Steps:
      return list(image.steps, e, d, 1 + 1 + 8 + 8 + 8 + 8 + 8, step);
    case SectionKind::Blocks:
      return records(image.blocks, e, bytes);
    case SectionKind::Regions:
      return records(image.tensors, e, bytes);
    case SectionKind::Bindings:
      return list(image.bindings, e, d, 1 + 8 + 8 + 8 + 1 + 8 + 8, binding);
    case SectionKind::LaneMaps:
      return list(image.laneMaps, e, d, 8,
                  [](Decoder &from) { return from.numbers<uint16_t>("length"); });
    case SectionKind::Strings:
      return list(image.strings, e, d, 8, [](Decoder &from) { return from.text("length"); });
    case SectionKind::HostModule:
      image.hostModule.assign(bytes.begin(), bytes.end());
      return bytesAreCounted(e);
    case SectionKind::Notes:
      return list(image.notes, e, d, 16, [](Decoder &from) {
        std::string key = from.text("key"), value = from.text("value");
        return std::pair(std::move(key), std::move(value));
      });
    case SectionKind::Data:
      return records(image.data, e, bytes);
    }
    return "is of no known kind";
  }

  std::string program(Decoder &d) {
    image.machineName = d.text("machine name");
    image.machineHash = d.number<uint64_t>("machine hash");
    image.machineYaml = d.text("machine");
    const auto stated = d.number<uint32_t>("number of PEs");
    if (stated != pes)
      d.fail("number of PEs",
             "is " + std::to_string(stated) + "; there are sections for " + std::to_string(pes));
    d.finish();
    return d.wrong;
  }

  std::string bytesAreCounted(const SectionEntry &e) {
    return e.count == e.bytes
               ? ""
               : "counts " + std::to_string(e.count) + " bytes and has " + std::to_string(e.bytes);
  }

  /// Puts a section's records into `to`, a Records or a vector.
  template <class To> std::string records(To &to, const SectionEntry &e, ByteSpan bytes) {
    using Record = std::remove_cvref_t<decltype(to[0])>;
    if (e.count > bytes.size() / sizeof(Record) || e.count * sizeof(Record) != bytes.size())
      return "counts " + std::to_string(e.count) + " records of " + std::to_string(sizeof(Record)) +
             " bytes and has " + std::to_string(bytes.size());
    // Sections are aligned, and a record of any bytes is one: checkImage looks at its values.
    static_assert(std::is_trivially_copyable_v<Record> && alignof(Record) <= kAlignment);
    const std::span lying(reinterpret_cast<const Record *>(bytes.data()), size_t(e.count));
    if constexpr (std::is_same_v<To, Records<Record>>) {
      if (owner) {
        to = Records<Record>(lying, owner);
        return {};
      }
    }
    to = std::vector<Record>(lying.begin(), lying.end());
    return {};
  }

  template <class Entry, class F>
  std::string list(std::vector<Entry> &to, const SectionEntry &e, Decoder &d, size_t least, F one) {
    if (e.count > e.bytes / least)
      return "counts " + std::to_string(e.count) + " entries; its bytes hold at most " +
             std::to_string(e.bytes / least);
    to.reserve(e.count);
    while (to.size() < e.count && d.wrong.empty())
      to.push_back(one(d));
    d.finish();
    return d.wrong.empty() ? ""
                           : "entry " + std::to_string(to.size() - !to.empty()) + ": " + d.wrong;
  }

  SectionKind kindAt(size_t k) const {
    if (k == 0)
      return SectionKind::Program;
    if (k <= 2 * pes)
      return k % 2 ? SectionKind::Instructions : SectionKind::Producers;
    return kTail[k - 2 * pes - 1];
  }
  uint32_t indexAt(size_t k) const { return k && k <= 2 * pes ? uint32_t((k - 1) / 2) : 0; }
  std::string nameAt(size_t k) const {
    std::string text = kSectionNames[unsigned(kindAt(k))];
    return k && k <= 2 * pes ? text + " of pe " + std::to_string(indexAt(k)) : text;
  }

  ByteSpan file;
  const std::string &name;
  std::shared_ptr<const void> owner;
  Header head{};
  std::vector<SectionEntry> entries;
  size_t pes = 0;
  Image image;
};

} // namespace

Status OpenedImage::readData() const {
  if (layout::dataChecksum(dataSection) != dataChecksum)
    return Error{"image '" + path +
                 "': is damaged: the checksum of its data does not fit; copy or compile it again"};
  return Success{};
}

/// With the data, once that is read.
static Expected<Image> whole(Expected<OpenedImage> opened) {
  if (!opened)
    return opened.takeError();
  if (Status s = opened->readData(); !s)
    return s.takeError();
  return std::move(opened->image);
}

Expected<Image> decodeImage(std::span<const uint8_t> bytes, const std::string &name,
                            std::shared_ptr<const void> owner) {
  return whole(ImageReader(bytes, name, std::move(owner)).run());
}

Expected<OpenedImage> openImage(const std::string &path) {
  const auto failed = [&] {
    return Error{"cannot read image '" + path + "': " + std::strerror(errno) + "; check the path"};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return failed();
  const auto close = std::shared_ptr<void>(nullptr, [fd](void *) { ::close(fd); });
  struct stat info;
  if (::fstat(fd, &info))
    return failed();
  if (!S_ISREG(info.st_mode))
    return Error{"cannot read image '" + path + "': it is not a regular file; name an image"};
  const size_t size = size_t(info.st_size);
  if (size == 0)
    return ImageReader({}, path, nullptr).run();
  void *mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED)
    return failed();
  const std::shared_ptr<const void> owner(
      mapped, [size](const void *p) { ::munmap(const_cast<void *>(p), size); });
  return ImageReader({static_cast<const uint8_t *>(mapped), size}, path, owner).run();
}

Expected<Image> readImage(const std::string &path) { return whole(openImage(path)); }

} // namespace millrace
