// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/program/Checksum.h"
#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <bit>

namespace millrace {
namespace {

using namespace layout;

/// Little-endian numbers and length-prefixed texts.
class Encoder {
public:
  template <class T> void number(T value) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  void text(const std::string &value) {
    number(uint64_t(value.size()));
    out.insert(out.end(), value.begin(), value.end());
  }
  template <class T> void numbers(const std::vector<T> &values) {
    number(uint64_t(values.size()));
    for (T v : values)
      number(v);
  }
  std::vector<uint8_t> out;
};

std::vector<uint8_t> program(const Image &image) {
  Encoder e;
  e.text(image.machineName);
  e.number(image.machineHash);
  e.text(image.machineYaml);
  e.number(uint32_t(image.instructions.size()));
  return std::move(e.out);
}

/// `from`: a Records or a vector.
template <class From> std::vector<uint8_t> records(const From &from) {
  using Record = std::remove_cvref_t<decltype(from[0])>;
  std::vector<uint8_t> bytes(from.size() * sizeof(Record));
  for (size_t k = 0; k < from.size(); ++k) {
    Record record;
    std::memcpy(static_cast<void *>(&record), &from[k], sizeof(Record));
    clearPadding(record);
    std::memcpy(bytes.data() + k * sizeof(Record), &record, sizeof(Record));
  }
  return bytes;
}

std::vector<uint8_t> steps(const Image &image) {
  Encoder e;
  for (const Step &s : image.steps) {
    e.number(uint8_t(s.kind));
    e.number(uint8_t(s.device));
    e.number(s.predictedCycles);
    e.number(uint64_t(s.pes.size()));
    for (PeRange r : s.pes) {
      e.number(r.begin);
      e.number(r.end);
    }
    e.text(s.function);
    e.numbers(s.inputs);
    e.numbers(s.outputs);
  }
  return std::move(e.out);
}

void placement(Encoder &e, const Placement &p) {
  e.number(p.pe);
  e.number(uint8_t(p.hemisphere));
  e.number(uint8_t(p.bytesInLanes));
  e.number(p.firstByte);
  e.numbers(p.slices);
  e.number(p.row);
  e.number(p.lane);
  e.numbers(p.start);
  e.number(uint64_t(p.loops.size()));
  for (const BindingLoop &l : p.loops) {
    e.number(l.count);
    e.number(l.rowStep);
    e.number(l.laneStep);
    e.number(l.dim);
    e.number(l.step);
  }
  e.number(p.fill);
  e.number(p.first);
  e.number(p.rows);
}

std::vector<uint8_t> bindings(const Image &image) {
  Encoder e;
  for (const Binding &b : image.bindings) {
    e.number(uint8_t(b.role));
    e.text(b.name);
    e.text(b.hostType);
    e.numbers(b.shape);
    e.number(uint8_t(b.gridType));
    e.number(std::bit_cast<uint64_t>(b.scale));
    e.number(uint64_t(b.zero));
    e.number(uint64_t(b.extent));
    e.number(b.offset);
    e.number(uint64_t(b.placements.size()));
    for (const Placement &p : b.placements)
      placement(e, p);
  }
  return std::move(e.out);
}

std::vector<uint8_t> laneMaps(const Image &image) {
  Encoder e;
  for (const std::vector<uint16_t> &map : image.laneMaps)
    e.numbers(map);
  return std::move(e.out);
}

std::vector<uint8_t> strings(const Image &image) {
  Encoder e;
  for (const std::string &s : image.strings)
    e.text(s);
  return std::move(e.out);
}

std::vector<uint8_t> notes(const Image &image) {
  Encoder e;
  for (const auto &[key, value] : image.notes) {
    e.text(key);
    e.text(value);
  }
  return std::move(e.out);
}

/// The pieces of a file in order. Only `data` may be large, and is not copied.
struct Pieces {
  explicit Pieces(const Image &image) {
    const size_t pes = image.instructions.size();
    add(SectionKind::Program, 0, program(image), 1);
    for (size_t pe = 0; pe < pes; ++pe) {
      add(SectionKind::Instructions, pe, records(image.instructions[pe]),
          image.instructions[pe].size());
      static const Records<Producer> none;
      const auto &producers = pe < image.producers.size() ? image.producers[pe] : none;
      add(SectionKind::Producers, pe, records(producers), producers.size());
    }
    add(SectionKind::Steps, 0, steps(image), image.steps.size());
    add(SectionKind::Blocks, 0, records(image.blocks), image.blocks.size());
    add(SectionKind::Regions, 0, records(image.tensors), image.tensors.size());
    add(SectionKind::Bindings, 0, bindings(image), image.bindings.size());
    add(SectionKind::LaneMaps, 0, laneMaps(image), image.laneMaps.size());
    add(SectionKind::Strings, 0, strings(image), image.strings.size());
    add(SectionKind::HostModule, 0, {image.hostModule.begin(), image.hostModule.end()},
        image.hostModule.size());
    add(SectionKind::Notes, 0, notes(image), image.notes.size());
    entries.push_back({SectionKind::Data, 0, 0, image.data.size(), image.data.size()});
    data = image.data;
    finish();
  }

  /// Calls f with each stretch of the file; each is followed by zeros up to a multiple of 64 bytes.
  template <class F> void forEach(F f) const {
    f(std::span<const uint8_t>(head));
    for (const std::vector<uint8_t> &b : bodies)
      f(std::span<const uint8_t>(b));
    f(data);
  }
  size_t fileBytes = 0;

private:
  void add(SectionKind kind, size_t index, std::vector<uint8_t> body, size_t count) {
    entries.push_back({kind, uint32_t(index), 0, body.size(), count});
    bodies.push_back(std::move(body));
  }
  void finish() {
    size_t offset = bodyOffset(entries.size());
    for (SectionEntry &e : entries) {
      e.offset = offset;
      offset += aligned(e.bytes);
    }
    fileBytes = offset;
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    header.version = Image::kVersion;
    header.sections = uint32_t(entries.size());
    header.fileBytes = fileBytes;
    head.resize(bodyOffset(entries.size()));
    std::memcpy(head.data() + sizeof(Header), entries.data(),
                entries.size() * sizeof(SectionEntry));
    header.dataChecksum = dataChecksum(data);
    Checksum sum = beginChecksum(header);
    sum.add(std::span<const uint8_t>(head).subspan(sizeof(Header)));
    for (const std::vector<uint8_t> &b : bodies)
      sum.add(b);
    header.checksum = sum.result();
    std::memcpy(head.data(), &header, sizeof(Header));
  }

  std::vector<SectionEntry> entries;
  std::vector<std::vector<uint8_t>> bodies;
  std::vector<uint8_t> head;
  std::span<const uint8_t> data;
};

} // namespace

std::vector<uint8_t> encodeImage(const Image &image) {
  const Pieces pieces(image);
  std::vector<uint8_t> bytes;
  bytes.reserve(pieces.fileBytes);
  pieces.forEach([&](std::span<const uint8_t> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    bytes.resize(aligned(bytes.size()));
  });
  return bytes;
}

Status writeImage(const Image &image, const std::string &path) {
  Expected<NewFile> file = NewFile::create(path);
  if (!file)
    return file.takeError();
  const Pieces pieces(image);
  pieces.forEach([&](std::span<const uint8_t> piece) {
    static const uint8_t zeros[kAlignment] = {};
    file->write(piece);
    file->write({zeros, aligned(piece.size()) - piece.size()});
  });
  return file->replace();
}

void sealImage(std::span<uint8_t> bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(Header));
  const size_t data = dataOffset(bytes);
  header.dataChecksum = dataChecksum(bytes.subspan(data));
  Checksum sum = beginChecksum(header);
  sum.add(bytes.subspan(sizeof(Header), data - sizeof(Header)));
  header.checksum = sum.result();
  std::memcpy(bytes.data(), &header, sizeof(Header));
}

} // namespace millrace
