// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Elimination.h"

#include <algorithm>
#include <set>

namespace millrace::layouts {

namespace {
constexpr double kNever = std::numeric_limits<double>::infinity();
} // namespace

/// The variable whose neighbours have the smallest table goes first; the best of its values for
/// each combination of theirs is a new table.
Elimination::Elimination(std::vector<unsigned> itsSizes, std::vector<Table> given, Values itsBase,
                         size_t largest)
    : sizes(std::move(itsSizes)), base(std::move(itsBase)), bucketOf(sizes.size(), -1) {
  std::vector<Held> tables;
  for (Table &table : given)
    tables.push_back({{std::move(table)}, -1});
  std::vector<size_t> tableSizes; // of each with its neighbours; SIZE_MAX: not there any more
  for (unsigned v = 0; v < sizes.size(); ++v)
    tableSizes.push_back(entries(neighbours(tables, v)) * sizes[v]);
  for (size_t left = sizes.size(); left > 0; --left) {
    const auto least = std::min_element(tableSizes.begin(), tableSizes.end());
    const auto next = unsigned(least - tableSizes.begin());
    const std::vector<unsigned> around = neighbours(tables, next);
    if (*least > largest)
      leaveOut(tables, next);
    else
      eliminate(tables, next);
    *least = SIZE_MAX;
    for (unsigned v : around) // no others have other neighbours now
      tableSizes[v] = entries(neighbours(tables, v)) * sizes[v];
  }
}

size_t Elimination::entryOf(const std::vector<unsigned> &variables, const Values &values) const {
  size_t entry = 0;
  for (unsigned v : variables)
    entry = entry * sizes[v] + values[v];
  return entry;
}

double Elimination::at(const Table &table, const Values &values) const {
  return table.costs[entryOf(table.variables, values)];
}

std::vector<unsigned> Elimination::neighbours(const std::vector<Held> &tables,
                                              unsigned variable) const {
  std::set<unsigned> set;
  for (const Table &t : tables)
    if (std::count(t.variables.begin(), t.variables.end(), variable))
      set.insert(t.variables.begin(), t.variables.end());
  set.erase(variable);
  return {set.begin(), set.end()};
}

size_t Elimination::entries(const std::vector<unsigned> &variables) const {
  constexpr size_t kMost =
      SIZE_MAX >> 32; // what is larger counts the same: twice that is no overflow
  size_t size = 1;
  for (unsigned v : variables)
    size = std::min(size * sizes[v], kMost);
  return size;
}

void Elimination::leaveOut(std::vector<Held> &tables, unsigned variable) {
  Values values = base;
  for (Held &t : tables) {
    if (!std::count(t.variables.begin(), t.variables.end(), variable))
      continue;
    Held rest;
    rest.from = t.from;
    for (unsigned v : t.variables)
      if (v != variable)
        rest.variables.push_back(v);
    values[variable] = base[variable];
    forEachValue(sizes, rest.variables, values, [&] { rest.costs.push_back(at(t, values)); });
    t = std::move(rest);
  }
}

void Elimination::eliminate(std::vector<Held> &tables, unsigned variable) {
  Bucket bucket;
  bucket.variable = variable;
  bucket.scope = neighbours(tables, variable);
  Held message{{bucket.scope, {}}, int(buckets.size())};
  bucket.scope.push_back(variable);
  for (size_t t = tables.size(); t-- > 0;)
    if (std::count(tables[t].variables.begin(), tables[t].variables.end(), variable)) {
      if (tables[t].from >= 0)
        buckets[size_t(tables[t].from)].parent = int(buckets.size());
      bucket.tables.push_back(std::move(tables[t]));
      tables.erase(tables.begin() + ptrdiff_t(t));
    }
  Values values = base;
  forEachValue(sizes, message.variables, values, [&] {
    double cheapest = kNever;
    for (unsigned c = 0; c < sizes[variable]; ++c) {
      values[variable] = c;
      double sum = 0;
      for (const Table &t : bucket.tables)
        sum += at(t, values);
      cheapest = std::min(cheapest, sum);
    }
    message.costs.push_back(cheapest);
  });
  tables.push_back(std::move(message));
  bucketOf[variable] = int(buckets.size());
  buckets.push_back(std::move(bucket));
}

bool Elimination::isComplete() const { return buckets.size() == sizes.size(); }

/// Gives every variable that is not known the best value beside those that were eliminated later.
void Elimination::complete(Values &values, std::vector<bool> &known) const {
  for (size_t b = buckets.size(); b-- > 0;) {
    const unsigned variable = buckets[b].variable;
    if (known[variable])
      continue;
    double cheapest = kNever;
    unsigned best = 0;
    for (unsigned c = 0; c < sizes[variable]; ++c) {
      values[variable] = c;
      double sum = 0;
      for (const Table &t : buckets[b].tables)
        sum += at(t, values);
      if (sum < cheapest)
        cheapest = sum, best = c;
    }
    values[variable] = best;
  }
}

Values Elimination::best() const {
  Values values = base;
  std::vector<bool> known(sizes.size(), false);
  complete(values, known);
  return values;
}

void Elimination::findMarginals() {
  for (Bucket &bucket : buckets) // variables that were left out later keep their values
    std::erase_if(bucket.scope, [&](unsigned v) { return isLeftOut(v); });
  for (size_t b = buckets.size(); b-- > 0;)
    findMarginals(buckets[b]);
}

/// All that its tables, and what the parent sent, say of a bucket's variable; and what its children
/// are sent: the same without what they left behind.
void Elimination::findMarginals(Bucket &bucket) {
  bucket.least.assign(sizes[bucket.variable], kNever);
  bucket.entries.assign(sizes[bucket.variable], 0);
  std::vector<const Table *> tables;
  std::vector<Bucket *> children; // per table; null: it was given
  for (const Held &t : bucket.tables) {
    tables.push_back(&t);
    children.push_back(t.from < 0 ? nullptr : &buckets[size_t(t.from)]);
    if (Bucket *child = children.back()) {
      child->above.variables = t.variables;
      child->above.costs.assign(t.costs.size(), kNever);
      child->parentEntries.assign(t.costs.size(), 0);
    }
  }
  if (bucket.parent >= 0)
    tables.push_back(&bucket.above), children.push_back(nullptr);
  Values values = base;
  std::vector<double> costs(tables.size());
  uint32_t entry = 0;
  forEachValue(sizes, bucket.scope, values, [&] {
    double sum = 0; // of what is possible
    unsigned impossible = 0;
    for (size_t t = 0; t < tables.size(); ++t) {
      costs[t] = at(*tables[t], values);
      if (costs[t] < kNever)
        sum += costs[t];
      else
        ++impossible;
    }
    const unsigned value = values[bucket.variable];
    if (!impossible && sum < bucket.least[value])
      bucket.least[value] = sum, bucket.entries[value] = entry;
    for (size_t t = 0; t < tables.size() && impossible < 2; ++t) {
      const bool isPossible = costs[t] < kNever;
      if (!children[t] || (isPossible && impossible))
        continue;
      const size_t place = entryOf(children[t]->above.variables, values);
      if (const double rest = sum - (isPossible ? costs[t] : 0);
          rest < children[t]->above.costs[place])
        children[t]->above.costs[place] = rest, children[t]->parentEntries[place] = entry;
    }
    ++entry;
  });
}

double Elimination::extra(unsigned variable, unsigned value) const {
  const std::vector<double> &least = buckets[size_t(bucketOf[variable])].least;
  return least[value] - *std::min_element(least.begin(), least.end());
}

/// The values of a bucket's scope in one entry of it.
void Elimination::take(const Bucket &bucket, size_t entry, Values &values,
                       std::vector<bool> &known) const {
  for (size_t i = bucket.scope.size(); i-- > 0;) {
    const unsigned v = bucket.scope[i];
    values[v] = unsigned(entry % sizes[v]);
    entry /= sizes[v];
    known[v] = true;
  }
}

Values Elimination::bestWith(unsigned variable, unsigned value) const {
  Values values = base;
  std::vector<bool> known(sizes.size(), false);
  const Bucket *bucket = &buckets[size_t(bucketOf[variable])];
  take(*bucket, bucket->entries[value], values, known);
  for (; bucket->parent >= 0; bucket = &buckets[size_t(bucket->parent)])
    take(buckets[size_t(bucket->parent)],
         bucket->parentEntries[entryOf(bucket->above.variables, values)], values, known);
  complete(values, known);
  return values;
}

} // namespace millrace::layouts
