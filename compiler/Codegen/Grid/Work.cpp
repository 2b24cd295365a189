// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Work.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <limits>

namespace millrace::grid {
namespace {

template <class F> void forEachAccess(const Kernel &kernel, F f) {
  for (const forms::Term &t : kernel.terms)
    f(t.a);
  for (const Access &o : kernel.operands) {
    f(o);
    if (o.lookup)
      f(Access{o.lookup->tensor, o.lookup->index, 0});
  }
  for (const forms::Result &r : kernel.results)
    f(r.access);
}

/// Can (outer, inner) be walked as one loop at the inner one's steps, never leaving any tensor?
bool joins(const Context &c, const Kernel &kernel, unsigned outer, unsigned inner) {
  bool even = true;
  forEachAccess(kernel, [&](const Access &access) {
    const TensorLayout &layout = c.layouts[access.tensor];
    even &= rowCoefficient(layout, access, outer) ==
            rowCoefficient(layout, access, inner) * kernel.loops[inner].extent;
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (!coefficient(access.index[d], outer) && !coefficient(access.index[d], inner))
        continue;
      const auto [low, high] = rangeOf(kernel, access.index[d]);
      even &= low >= 0 && high < c.tensor(access.tensor).shape[d];
    }
  });
  return even;
}

/// Do both loops move one dimension of an access that leaves its tensor? What lies inside is no box
/// of their steps then.
bool leaveTogether(const Context &c, const Kernel &kernel, unsigned outer, unsigned inner) {
  bool leave = false;
  forEachAccess(kernel, [&](const Access &access) {
    const Tensor &t = c.tensor(access.tensor);
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (d == t.laneDim || !coefficient(access.index[d], outer) ||
          !coefficient(access.index[d], inner))
        continue;
      const auto [low, high] = rangeOf(kernel, access.index[d]);
      leave |= low < 0 || high >= t.shape[d];
    }
  });
  return leave;
}

/// The row loop of which most values at a time go through a running reduction: their steps must not
/// leave a tensor where the reduction's do.
void reduceTogether(const Context &c, const Kernel &kernel, const std::vector<unsigned> &running,
                    Work &w) {
  for (const forms::Node &node : kernel.nodes)
    if (node.kind == forms::Node::Kind::Reduce)
      w.interval = std::max(w.interval, c.program.timing.aluOp(node.op));
  if (forms::looksUp(kernel))
    return;
  int64_t most = std::min<int64_t>(c.machine.vxm.runningAccumulators, w.interval);
  if (!kernel.terms.empty()) { // sums wait in the MXM's accumulators for all steps
    int64_t steps = 1;
    for (unsigned r : running)
      steps *= kernel.loops[r].extent;
    most = std::min(most, int64_t(c.machine.mxm.accumulatorRows) / steps);
  }
  const auto turnsOf = [&](int64_t extent, int64_t at) { return (extent + at - 1) / at; };
  double best = 1; // turns for each value
  for (unsigned l : w.roles.rows) {
    const int64_t extent = kernel.loops[l].extent, at = std::min(most, extent);
    const double turns = double(turnsOf(extent, at)) / double(extent);
    if (turns > best || at <= 1 || std::any_of(running.begin(), running.end(), [&](unsigned r) {
          return leaveTogether(c, kernel, l, r);
        }))
      continue;
    best = turns;
    w.beside = l;
    w.together = at;
  }
}

} // namespace

/// Lanes stay where they are: a window that moves along them may not reach beyond them. Nor may one
/// of what is installed, whose rows must all exist.
static Status checkWindows(const Context &c, const Kernel &kernel) {
  for (const forms::Term &term : kernel.terms) {
    const Tensor &a = c.tensor(term.a.tensor), &w = c.tensor(term.w.tensor);
    const forms::AffineIndex &lane = term.a.index[a.laneDim];
    const auto [low, high] = rangeOf(kernel, lane);
    const bool moves = std::any_of(lane.terms.begin(), lane.terms.end(), [&](const auto &t) {
      return kernel.loops[t.first].extent > 1 &&
             kernel.loops[t.first].kind == forms::LoopKind::Parallel;
    });
    if (moves && (low < 0 || high >= a.shape[a.laneDim]))
      return Error{"kernel '" + kernel.name + "' moves a window along the lanes of '" + a.name +
                   "' from " + std::to_string(low) + " to " + std::to_string(high) +
                   ", beyond its " + std::to_string(a.shape[a.laneDim]) +
                   "; pad the input in the model, or give it more channels"};
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == forms::LoopKind::Running && kernel.loops[l].extent > 1 &&
          (coefficient(lane, l) || forms::usesLoop(term.w, l)))
        return Error{"kernel '" + kernel.name + "' runs along the lanes of '" + a.name +
                     "' or the columns of '" + w.name +
                     "', each step of which is a sweep; split the reduction (split-running)"};
    for (size_t d = 0; w.role != forms::TensorRole::Constant && d < w.shape.size(); ++d)
      if (const auto [first, last] = rangeOf(kernel, term.w.index[d]);
          d != w.laneDim && (first < 0 || last >= w.shape[d]))
        return Error{"kernel '" + kernel.name + "' installs '" + w.name + "' from " +
                     std::to_string(first) + " to " + std::to_string(last) + " of dimension " +
                     std::to_string(d) + ", beyond its " + std::to_string(w.shape[d]) +
                     "; pad it in a kernel of its own (pad-operands)"};
  }
  return Success{};
}

Expected<Work> workOf(const Context &c, const Kernel &kernel) {
  if (Status windows = checkWindows(c, kernel); !windows)
    return windows.takeError();
  Work w;
  w.roles = rolesOf(c.graph, kernel, c.machine);
  std::vector<unsigned> inner = w.roles.running.empty() ? w.roles.rows : w.roles.running;
  std::vector<unsigned> outer = w.roles.batch;
  if (!w.roles.running.empty())
    outer.insert(outer.end(), w.roles.rows.begin(), w.roles.rows.end());
  auto isTrivial = [&](unsigned l) { return kernel.loops[l].extent == 1; };
  inner.erase(std::remove_if(inner.begin(), inner.end(), isTrivial), inner.end());
  if (!w.roles.running.empty())
    reduceTogether(c, kernel, inner, w);
  const bool tooMany = inner.size() > 2;
  while (inner.size() > 2) {
    outer.push_back(inner.front());
    inner.erase(inner.begin());
  }
  if (inner.size() == 2 && w.roles.running.empty() &&
      leaveTogether(c, kernel, inner[0], inner[1])) {
    outer.push_back(inner.front());
    inner.erase(inner.begin());
  }
  if (inner.size() == 2 && joins(c, kernel, inner[0], inner[1])) {
    w.linear = true;
    w.strips = kernel.loops[inner[0]].extent * kernel.loops[inner[1]].extent;
    w.loop0 = inner[1];
  } else if (inner.size() == 2) {
    w.loop1 = inner[0];
    w.loop0 = inner[1];
    w.strips = kernel.loops[inner[0]].extent;
    w.stripRows = kernel.loops[inner[1]].extent;
  } else if (inner.size() == 1) { // one row a strip: cut anywhere
    w.loop0 = inner[0];
    w.strips = kernel.loops[inner[0]].extent;
  }
  if (!w.roles.running.empty() && (w.loop1 || tooMany))
    return Error{"kernel '" + kernel.name +
                 "' runs over two loops that do not step evenly through a tensor"};
  if (w.stripRows > std::numeric_limits<uint16_t>::max())
    return Error{"kernel '" + kernel.name + "' walks " + std::to_string(w.stripRows) +
                 " rows at once, more than the " +
                 std::to_string(std::numeric_limits<uint16_t>::max()) +
                 " that an instruction counts; use a smaller input"};
  int64_t instances = 1;
  for (unsigned l : outer)
    if (kernel.loops[l].extent > kMostBundles / instances)
      return tooManyBundles(kernel, kMostBundles, kMostBundles);
    else
      instances *= kernel.loops[l].extent;
  w.instances.push_back(std::vector<int64_t>(kernel.loops.size(), 0));
  for (unsigned l : outer) {
    std::vector<std::vector<int64_t>> next;
    for (const auto &instance : w.instances)
      for (int64_t v = 0; v < kernel.loops[l].extent; v += w.beside == l ? w.together : 1) {
        next.push_back(instance);
        next.back()[l] = v;
      }
    w.instances = std::move(next);
  }
  const Access &result = kernel.results.front().access;
  const Tensor &out = c.tensor(result.tensor);
  int64_t first = evaluate(result.index[out.laneDim], w.instances.front());
  int64_t lanes = w.roles.lane ? kernel.loops[*w.roles.lane].extent : 1;
  if (w.roles.group)
    lanes *= kernel.loops[*w.roles.group].extent;
  for (const LaneTile &tile : c.layouts[result.tensor].tiles)
    if (tile.start >= first && tile.start < first + lanes)
      w.tiles.push_back({tile.start - first, tile.count});
  return w;
}

/// Sweeps through the MXM that a share makes, heads aside.
static int64_t passesOfShare(const Context &c, const Kernel &kernel, const Work &w) {
  int64_t passes = 0;
  for (const forms::Term &t : kernel.terms) {
    int64_t taps = 1;
    for (unsigned l : w.roles.contracted)
      if ((forms::usesLoop(t.a, l) || forms::usesLoop(t.w, l)) && // not another term's
          coefficient(t.a.index[c.tensor(t.a.tensor).laneDim], l) == 0)
        taps *= kernel.loops[l].extent;
    passes += taps * int64_t(c.layouts[t.a.tensor].tiles.size());
  }
  return passes;
}

int64_t vectorsOf(const Context &c, const Kernel &kernel, const Work &w) {
  const int64_t rows = w.units() * w.stripRows;
  if (kernel.terms.empty())
    return rows * w.interval;
  int64_t sweeps = int64_t(w.tiles.size());
  if (w.roles.heads) {
    sweeps = 0;
    for (const Work::LaneRange &tile : w.tiles)
      sweeps += int64_t(headsOf(kernel, w, tile.start, tile.count).size());
  }
  return rows / int64_t(w.tiles.size()) * sweeps * passesOfShare(c, kernel, w);
}

Error tooManyBundles(const Kernel &kernel, int64_t bundles, int64_t all) {
  return Error{"kernel '" + kernel.name + "' takes " + std::to_string(bundles) +
               " sweeps through the machine, the most of the " + std::to_string(all) +
               " that the program takes or more; " + std::to_string(kMostBundles) +
               " are scheduled at most; use a smaller input, or compute '" + kernel.provenance +
               "' outside"};
}

int64_t leastBundlesOf(const Context &c, const Kernel &kernel, const Work &w) {
  return int64_t(w.instances.size() * w.tiles.size()) *
         std::max<int64_t>(1, passesOfShare(c, kernel, w));
}

std::vector<Head> headsOf(const Kernel &kernel, const Work &w, int64_t start, int64_t count) {
  const int64_t perHead = kernel.loops[*w.roles.lane].extent;
  std::vector<Head> heads;
  for (int64_t head = start / perHead; head * perHead < start + count; ++head)
    heads.push_back({head, std::max<int64_t>(0, head * perHead - start),
                     std::min(count, (head + 1) * perHead - start)});
  return heads;
}

std::vector<Share> sharesOf(const Work &w, int64_t from, int64_t to, int64_t most) {
  std::vector<Share> shares;
  while (from < to) {
    const int64_t strip = from % w.strips, rest = from / w.strips;
    const int64_t run = std::min(w.strips - strip, to - from);
    const int64_t pieces = (run + most - 1) / most;
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t a = run * p / pieces, b = run * (p + 1) / pieces;
      shares.push_back(
          {size_t(rest) / w.tiles.size(), size_t(rest) % w.tiles.size(), strip + a, b - a});
    }
    from += run;
  }
  return shares;
}

Domain domainOf(const Work &w, const Kernel &kernel, const Share &share, unsigned pe,
                uint32_t provenance) {
  Domain d;
  d.pe = pe;
  d.kernel = &kernel;
  d.roles = &w.roles;
  d.loops = w.instances[share.instance];
  d.provenance = provenance;
  d.lanes = w.tiles[share.tile].count;
  if (w.roles.lane) {
    int64_t n = w.tiles[share.tile].start;
    if (w.roles.group) {
      d.loops[*w.roles.group] = n / kernel.loops[*w.roles.lane].extent;
      n %= kernel.loops[*w.roles.lane].extent;
    }
    d.loops[*w.roles.lane] = n;
  }
  if (!w.roles.running.empty()) { // the rows beside each other, then a step
    d.linear = w.linear;
    d.loop1 = w.loop0;
    d.loop0 = w.beside;
    const int64_t rows =
        w.beside ? std::min(w.together, kernel.loops[*w.beside].extent - d.loops[*w.beside]) : 1;
    d.flow = {unsigned(rows), unsigned(share.strips), 1, std::max<Cycle>(w.interval, rows)};
  } else if (w.loop1) {
    d.loop0 = w.loop0;
    d.loop1 = w.loop1;
    d.loops[*w.loop1] = share.strip;
    d.flow = dense(unsigned(w.stripRows), unsigned(share.strips));
  } else {
    d.linear = w.linear;
    if (w.loop0) {
      d.loop0 = w.loop0;
      d.loops[*w.loop0] =
          share.strip; // with linear, beyond the loop's extent: the outer loop stays at 0
    }
    d.flow = dense(unsigned(share.strips), 1);
  }
  return d;
}

} // namespace millrace::grid
