// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every part of the grid code generator works on.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Codegen/Memory/ConstantData.h"
#include "compiler/Codegen/Memory/Layout.h"
#include "compiler/Codegen/Memory/Tables.h"
#include "compiler/Codegen/Memory/Touches.h"
#include "compiler/Codegen/Memory/Used.h"
#include "compiler/MemoryPlan/Allocator.h"
#include "compiler/Schedule/Program.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace millrace::grid {

/// A PE's hemisphere, and within it the planes that work as one for a format: a worker does
/// contractions on its own.
struct Worker {
  unsigned pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  unsigned plane = 0; ///< first plane
  bool operator==(const Worker &) const = default;
};

/// One vector per byte in MEM: a per-lane constant.
struct ConstantRow {
  std::vector<unsigned> slices, addresses;
  std::vector<uint32_t> regions;
};

/// Weights as Install takes them: plane p, group g, column s lies in slices[s] at addresses[s] + p
/// * pitch + g.
struct WeightTile {
  unsigned groups = 0, pitch = 0;
  int shift = 0; ///< lanes of the rows that hold them, less those of the tensor's vectors
  std::vector<unsigned> slices, addresses; ///< per column of a group
  std::vector<uint32_t> regions;
};

/// Column groups [from, to) of a tile, as many columns each as an install takes at once.
struct ColumnGroups {
  unsigned from = 0, to = 0;
  bool empty() const { return from >= to; }
  unsigned size() const { return to - from; }
};

/// A weight tile of `groups` column groups on `planes` planes multiplies lanes [k0, k1), none of
/// two runs of `step` lanes if it lies beside others.
struct WeightShape {
  unsigned groups = 0, planes = 0, k0 = 0, k1 = 0, step = 0;
};

/// Who installs a weight tile.
struct Installer {
  size_t kernel = 0;
  Worker worker{};
};

/// A tensor that bursts of one piece touch together with another.
struct Company {
  unsigned tensor = 0;
  bool samePort = false; ///< read with it, or written with it: other slices; else other banks
  bool aligned = false;  ///< only lane tiles that begin at one lane meet
  unsigned copies = 0;   ///< row copies in a hemisphere, the first, that meet; 0: all
};

/// Rows [first, first + rows) that one worker writes.
struct RowRun {
  int64_t first = 0, rows = 0;
  unsigned owner = 0;
};
/// Which rows of each lane tile a copy holds.
using RowRuns = std::vector<std::vector<RowRun>>;
/// What an install finds behind the columns of a tensor: its lanes are not used, and no operation
/// makes more of a copy of an element than of the element. Zero rows are loaded with the program,
/// so that the copy keeps its rows to the end.
enum class ColumnPadding { None, Zeros, Repeats };
RowRuns allRows(const TensorLayout &layout);

/// Where column copies go if every set of slices holds something that one piece touches together
/// with them; with Apart, constant rows avoid the slices of operands, too. Neither serves all
/// machines: slices of a table may leave no set alone, and copies in
/// all sets leave no slices to rows.
enum class ColumnPlaces {
  Sets,  ///< into the cheapest set
  Apart, ///< into slices of several sets, or of those for activations
  Shared ///< as Sets; and rows of many writers leave slices to what one piece touches with them
};

/// How rows are stored, and how much of the machine is used.
struct StorageWays {
  ColumnPlaces columnPlaces = ColumnPlaces::Sets;
  bool detours = false; ///< bursts of one piece that meet in a slice are led around each other
  /// The halves of an owner's rows lie in different banks: who reads the first ones does not wait
  /// until the last ones are written.
  bool alternates = false;
  /// If not 0: an owner's rows of a tensor that no piece reads twice lie in so many segments
  /// instead, neighbours in different slices, and the next but one in the other bank of the
  /// first's: who follows the writer reads one while the next two are written.
  unsigned segments = 0;
  /// If known, when what would be touched, and how much places cost at most where it would meet
  /// something else.
  std::shared_ptr<const Touches> touches = nullptr;
  unsigned mostForMeeting = 0;
  /// A share of a contraction sums in 1/bands of the accumulator rows at most; 2 or more, so that
  /// the next share begins while one ends.
  unsigned bands = 2;
  Used used{};
  unsigned pes = 0;        ///< that compute, 0: all; on one alone nothing travels
  bool sharesRows = false; ///< weight tiles of few lanes lie beside each other
  bool spreads = false;    ///< weights that share slices with activations lie in all of them
  /// Values of which each hemisphere holds all rows, read there or not.
  std::set<unsigned> whole = {};
};

struct Context : StorageWays {
  Context(const Machine &machine, const KernelGraph &graph, schedule::Program &program,
          const StorageWays &ways = {});

  const Machine &machine;
  const KernelGraph &graph;
  schedule::Program &program;
  mutable bool full = false; ///< something found no rows
  std::vector<TensorLayout> layouts;
  std::vector<std::vector<Company>> company;  ///< per tensor
  std::vector<std::vector<size_t>> kernelsOf; ///< per tensor: which take or make it
  std::vector<bool> ofHost;                   ///< per tensor: the host reads or writes its rows
  std::vector<memory::HemisphereAllocator> allocators; ///< per (pe, hemisphere)
  unsigned weightSlices =
      0; ///< slices [0, weightSlices) of each hemisphere hold weights, the others activations
  std::vector<TableCopy> tables;
  std::vector<IndexMap> indexMaps;
  std::vector<std::string> strings;
  std::vector<Block> blocks;
  ConstantData data; ///< that the blocks load

  static size_t allocatorOf(unsigned pe, Hemisphere h) {
    return size_t(pe) * kHemispheres + size_t(h);
  }
  memory::HemisphereAllocator &allocator(unsigned pe, Hemisphere h) {
    return allocators[allocatorOf(pe, h)];
  }
  /// Of the memory that is used: slices of a hemisphere, rows of one and of all.
  unsigned slices() const {
    return used.slicesPerRegister ? machine.groups() * used.slicesPerRegister
                                  : machine.memory.slices;
  }
  unsigned rowsPerSlice() const {
    return used.banks ? used.banks * machine.memory.rowsPerBank : machine.rowsPerSlice();
  }
  uint64_t rowsOfHemisphere() const { return uint64_t(slices()) * rowsPerSlice(); }
  /// Slices [0, this) hold so many that are used.
  unsigned endOfSlices(unsigned count) const {
    const unsigned its = used.slicesPerRegister;
    return its ? count / its * machine.memory.slicesPerRegister + count % its : count;
  }
  uint32_t string(const std::string &text);
  const Tensor &tensor(unsigned t) const { return graph.tensors[t]; }

  /// Adds a copy of the given rows of the tensor. Slices used by the other copies on this
  /// hemisphere are not used again, what a piece touches together with the tensor (see `company`)
  /// is kept apart, and so are rows of different owners: they are written at the same time.
  /// `isPart`: other rows of the tensor are written, too, and not to this copy. `copies`: of this
  /// hemisphere that are yet to come, this one included; they share the slices that are left.
  Status addRowCopy(unsigned tensor, unsigned pe, Hemisphere h, const RowRuns &runs,
                    bool isPart = false, unsigned copies = 1);
  /// Adds a copy for Install of every row, with what lies behind them up to a whole group and one
  /// group more, since a run of columns may begin within a group.
  Status addColumnCopy(unsigned tensor, unsigned pe, Hemisphere h, ColumnPadding padding);
  /// The same in the places of another tensor's padded column copies on the PE, of as many rows,
  /// bytes and lane tiles, which is over before: zero rows stay as they are.
  void inheritColumnCopies(unsigned tensor, unsigned before, unsigned pe);
  /// Do places of the padded column copies of `before` hold what one piece touches together with
  /// the tensor?
  bool wouldMeet(unsigned tensor, unsigned before, unsigned pe) const;
  /// Rows of one slice where a few vectors wait.
  struct WaitingRows {
    unsigned slice = 0, address = 0;
    uint32_t region = 0;
    size_t allocator = 0;
    memory::Span span;
  };
  /// `rows` rows of one slice and bank, of the cheapest ones below `kForbidden` (cost per slice and
  /// bank); nothing if no run is as long.
  std::optional<WaitingRows> takeWaitingRows(unsigned pe, Hemisphere h, unsigned rows,
                                             const std::vector<unsigned> &cost);
  void give(WaitingRows rows);
  /// Gives the rows of all copies back; what follows there waits for the last use.
  void release(unsigned tensor);
  /// A new step begins: whatever used rows before, free or not, is over.
  void forgetTimes();
  /// Marks every region of the tensor as alive to the end.
  void keepToEnd(unsigned tensor);
  /// Constant tensors: the data of a row copy as image blocks.
  void loadConstant(unsigned tensor, const Copy &copy);

  /// The host fills the tensor's rows: before the program starts, or in the present (host) step.
  void loadFromHost(unsigned tensor);

  /// Keeps `rows` rows of every slice for constant rows: rows that tensors have used before cannot
  /// be loaded with the program.
  void reserveConstantRows(unsigned rows);
  /// A per-lane constant of `width` bytes per lane, little endian, for a piece of the kernel: in
  /// slices that the piece `reads` not yet and the kernel does not look into, if possible in banks
  /// that it does not write. Copies are made as needed and found again.
  Expected<ConstantRow> constantRow(const Kernel &kernel, unsigned pe, Hemisphere h,
                                    const std::vector<uint8_t> &bytes, unsigned width,
                                    const std::function<bool(unsigned)> &reads);
  /// The same where who asks knows of another way: nothing if there are no rows, and no account of
  /// what takes them.
  std::optional<ConstantRow> findConstantRow(const Kernel &kernel, unsigned pe, Hemisphere h,
                                             const std::vector<uint8_t> &bytes, unsigned width,
                                             const std::function<bool(unsigned)> &reads);
  /// Constant tensors of one type and of equal bytes have one number.
  unsigned numberOfData(unsigned constant);
  /// One key for all weight tiles of equal content; `content` is asked once for each name.
  const std::string &keyOfContent(const std::string &name,
                                  const std::function<std::string()> &content);
  /// Lanes [k0, k1) of the weight tiles of one key.
  struct TileLanes {
    std::string key;
    unsigned k0, k1;
    auto operator<=>(const TileLanes &) const = default;
  };
  /// Groups of columns outside of which these weights are all zero. `look` is asked once.
  ColumnGroups groupsOf(TileLanes lanes, const std::function<ColumnGroups()> &look);
  /// Stores a weight tile of the tensor once per (key, pe, hemisphere). `writer` is asked once for
  /// each key, for what writes its bytes: [slice][plane][group][lane bytes].
  Expected<WeightTile> weightTile(const std::string &key, const std::string &tensor,
                                  const Installer &by, const WeightShape &shape,
                                  const std::function<ConstantData::Writer()> &writer);
  /// The same in some lanes of rows that other tiles take, too.
  Expected<WeightTile> weightTileBeside(const std::string &key, const std::string &tensor,
                                        const Installer &by, const WeightShape &shape,
                                        const std::function<ConstantData::Writer()> &writer);

  /// Tables and map vectors for every lookup of the kernel on a PE. Errors name the table or the
  /// tensor of indices.
  Status addLookups(const Kernel &kernel, unsigned pe);
  const TableCopy *tableCopy(const LookupKey &key, unsigned pe, unsigned tile) const;
  const IndexMap *indexMap(const LookupKey &key, unsigned pe, Hemisphere h) const;
  /// Does a lookup of the kernel use this slice: for map vectors, or for a lane tile (any, or
  /// `tile`)?
  bool looksUpIn(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice,
                 std::optional<unsigned> tile = std::nullopt) const;

  /// Does a copy of one of the kernel's results share this row's bank?
  bool writesIn(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice,
                unsigned address) const;
  /// Does a copy of one of the kernel's operands lie in this slice?
  bool readsFrom(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice) const;

  const Copy *rowCopy(unsigned tensor, unsigned pe, Hemisphere h, unsigned which = 0) const;
  const Copy *columnCopy(unsigned tensor, unsigned pe, Hemisphere h) const;

private:
  /// Cost of a bank that holds what one piece touches together with the tensor.
  static constexpr unsigned kTogether = 400;
  /// Rows of one slice kept for constant rows.
  struct Reserve {
    unsigned address = 0, rows = 0;
  };
  std::vector<std::vector<Reserve>> reserved; ///< per allocator, slice
  std::map<std::string, uint32_t> stringIds;
  std::unordered_map<std::string, std::vector<ConstantRow>> constantRows;
  std::unordered_map<std::string, WeightTile> weightTiles;
  /// Rows that weight tiles share: each takes some lanes of a pass, above those that were there
  /// before.
  struct SharedRows {
    WeightTile rows;
    uint64_t data = 0;          ///< offset of [slice][plane][group][lane]
    std::vector<unsigned> used; ///< per lane: column groups
    uint64_t free = 0;          ///< of all lanes: column groups
  };
  /// A place in them: its lane, the first column group, and what below it can no longer be used.
  struct SharedPlace {
    SharedRows *rows = nullptr;
    unsigned lane = 0, group = 0;
    uint64_t wasted = 0;
  };
  static std::optional<SharedPlace> placeIn(SharedRows &rows, const WeightShape &shape);
  using SharedKind = std::tuple<size_t, unsigned, unsigned>; ///< allocator, planes, step
  std::map<SharedKind, std::vector<SharedRows>> sharedRows;
  Expected<WeightTile> takeWeightRows(const std::string &tensor, const Installer &by,
                                      unsigned groups, unsigned planes, unsigned lanes,
                                      uint64_t dataAt);
  /// Slices in which a worker's weights lie for now.
  struct WeightPlace {
    std::vector<bool> slices;
    unsigned rows = 0;        ///< of each, that were taken since its weights began there
    size_t kernel = SIZE_MAX; ///< for which the last were taken
  };
  std::map<std::pair<size_t, unsigned>, WeightPlace> weightPlaces; ///< by allocator, plane
  /// Slices that hold weights of a kernel, by allocator and kernel.
  std::map<std::pair<size_t, size_t>, std::vector<bool>> slicesOfWeights;
  /// Sets of as many slices as an install reads at once that weights fill one after the other, and
  /// leave the rest to activations; 0 if they take more slices than that.
  unsigned weightSets() const {
    const unsigned width = machine.mxm.columnsPerInstall;
    return weightSlices % width ? 0 : weightSlices / width;
  }
  /// Do weights of neighbours lie together, so that activations find other slices? Where weights
  /// take most of them, activations find too few that hold none.
  bool gathersWeights() const {
    return !spreads && !weightSets() && 2 * weightSlices > machine.memory.slices;
  }
  /// Slices that hold weights of the kernel, from which what it touches stays away; in their order.
  std::vector<unsigned> slicesToLeave(size_t kernel, unsigned pe, Hemisphere h) const;
  const WeightTile &noteWeights(const Installer &by, const WeightTile &tile);
  std::unordered_map<std::string, std::string> contentKeys; ///< per name of a tile
  std::unordered_map<std::string, std::string> keysByContent;
  std::map<TileLanes, ColumnGroups> groups;                        ///< as groupsOf
  std::unordered_map<unsigned, unsigned> dataNumbers;              ///< per constant tensor
  std::unordered_map<uint64_t, std::vector<unsigned>> firstOfData; ///< tensors by size and a sample
  std::unordered_map<std::string, uint64_t>
      tileData; ///< key to offset: hemispheres share the bytes
  std::unordered_map<unsigned, std::vector<std::pair<size_t, memory::Span>>>
      spans; ///< per tensor, allocator

  std::unordered_map<uint32_t, uint32_t> heirs; ///< regions of column copies: whose rows are next

  unsigned mostReadsOf(unsigned tensor) const;
  std::optional<Meetings> meetings; ///< with `touches`
  /// The next copy of a tensor in a hemisphere.
  CopyTile nextCopy(unsigned tensor, unsigned pe, Hemisphere h, bool columns, unsigned tile) const;
  std::vector<unsigned> costs(unsigned tensor, unsigned tile, unsigned pe, Hemisphere h) const;
  /// `rows` rows of as many slices as an install reads at once; with `fresh`, that nothing used.
  /// Rows for `groups` columns of each place and byte: a run for each place, or for each place of
  /// each byte, byte by byte.
  std::vector<memory::Span> takeColumnRows(unsigned pe, Hemisphere h, unsigned groups,
                                           unsigned bytes, const std::vector<unsigned> &avoid,
                                           bool fresh);
  std::vector<memory::Span> takeInstallRows(unsigned pe, Hemisphere h, unsigned rows,
                                            const std::vector<unsigned> &avoid, bool fresh = true);
  std::vector<memory::Span> takeTable(const Kernel &kernel, unsigned pe, Hemisphere h,
                                      unsigned tile, unsigned width, unsigned rows);
  void loadTable(const TableCopy &copy, const LookupKey &key);
  bool addTables(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned tile);
  Status addMaps(const Kernel &kernel, unsigned operand, unsigned pe, Hemisphere h);
  Error outOfMemory(const std::string &what, unsigned pe, Hemisphere h, uint64_t rows,
                    unsigned first, unsigned last) const;
  uint32_t region(const std::string &name, unsigned pe, Hemisphere h, unsigned slice, unsigned row,
                  unsigned rows, Cycle notBefore);
  uint32_t constantRegion(const std::string &name, unsigned pe, Hemisphere h, unsigned slice,
                          unsigned row, unsigned rows);
  void addBlock(unsigned pe, Hemisphere h, unsigned slice, unsigned row, unsigned rows,
                unsigned bytes, uint32_t region, uint64_t offset);
};

} // namespace millrace::grid
