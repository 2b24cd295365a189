// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Reduce.h"

#include <algorithm>
#include <set>

namespace millrace::test {
namespace {

/// The recipe without step `gone`, whose readers read `instead`; steps that read neither move up.
Recipe without(const Recipe &recipe, unsigned gone, unsigned instead) {
  Recipe left;
  left.simplified = recipe.simplified;
  auto moved = [&](unsigned step) {
    const unsigned s = step == gone ? instead : step;
    return s > gone ? s - 1 : s;
  };
  for (unsigned s = 0; s < recipe.steps.size(); ++s) {
    if (s == gone)
      continue;
    left.steps.push_back(recipe.steps[s]);
    for (unsigned &o : left.steps.back().operands)
      o = moved(o);
  }
  for (unsigned o : recipe.outputs)
    if (o != gone)
      left.outputs.push_back(moved(o));
  return left;
}

bool isRead(const Recipe &recipe, unsigned step) {
  return std::any_of(recipe.steps.begin(), recipe.steps.end(), [&](const Step &s) {
    return std::count(s.operands.begin(), s.operands.end(), step);
  });
}

/// An input of what the step makes.
Step inputLike(const Value &v) {
  Step step{"input", {}, {{"type", int64_t(v.type)}, {"lanes", v.lanes()}}};
  if (v.shape.size() == 4)
    step.numbers["height"] = v.shape[2], step.numbers["width"] = v.shape[3];
  else
    step.numbers["rows"] = v.shape[v.shape.size() - 2];
  if (v.shape.size() == 3)
    step.numbers["batch"] = v.shape[0];
  return step;
}

std::string keyOf(const std::string &override) { return override.substr(0, override.find('=')); }

class Reducer {
public:
  Reducer(Case c, const Shows &shows, unsigned mostTries)
      : best(std::move(c)), shows(shows), left(mostTries) {}

  Case run() {
    for (bool smaller = true; smaller && left;)
      smaller = dropSteps() | resetMachine() | shrinkNumbers() | shrinkFabric();
    return best;
  }

private:
  bool keep(const Case &candidate) {
    if (candidate == best || !left)
      return false;
    --left;
    if (!shows(candidate))
      return false;
    best = candidate;
    return true;
  }
  bool keep(Recipe recipe) {
    Case candidate = best;
    candidate.recipe = std::move(recipe);
    return keep(candidate);
  }

  bool dropSteps() {
    bool any = false;
    for (unsigned s = unsigned(best.recipe.steps.size()); s-- > 0;)
      if (s < best.recipe.steps.size())
        any |= dropStep(s);
    for (size_t o = best.recipe.outputs.size(); o-- > 0;) {
      Recipe recipe = best.recipe;
      recipe.outputs.erase(recipe.outputs.begin() + int64_t(o));
      any |= keep(std::move(recipe));
    }
    Recipe recipe = best.recipe;
    recipe.simplified = false;
    return keep(std::move(recipe)) | any;
  }

  bool dropStep(unsigned s) {
    const Step step = best.recipe.steps[s];
    if (!isRead(best.recipe, s))
      return keep(without(best.recipe, s, s)) || readLess(s);
    for (unsigned o : step.operands)
      if (keep(without(best.recipe, s, o)))
        return true;
    const Expected<std::vector<Value>> values = valuesOf(best.recipe);
    if (step.operation != "input" && values) {
      Recipe recipe = best.recipe;
      recipe.steps[s] = inputLike((*values)[s]);
      if (keep(std::move(recipe)))
        return true;
    }
    return readLess(s);
  }

  /// One operand fewer, or the first one twice.
  bool readLess(unsigned s) {
    if (best.recipe.steps[s].operands.size() < 2)
      return false;
    Recipe fewer = best.recipe, twice = best.recipe;
    fewer.steps[s].operands.pop_back();
    twice.steps[s].operands[1] = twice.steps[s].operands[0];
    return keep(std::move(fewer)) || keep(std::move(twice));
  }

  bool shrinkNumbers() {
    bool any = false;
    for (size_t s = 0; s < best.recipe.steps.size(); ++s) {
      const std::map<std::string, int64_t> numbers = best.recipe.steps[s].numbers;
      for (const auto &[name, number] : numbers)
        any |= shrink(s, name);
    }
    return any;
  }

  bool shrink(size_t s, const std::string &name) {
    Recipe erased = best.recipe;
    erased.steps[s].numbers.erase(name);
    if (name != "type" && keep(std::move(erased)))
      return true;
    bool any = false;
    for (;;) {
      const int64_t number = best.recipe.steps[s].numbers.at(name);
      bool smaller = false;
      for (int64_t to : {int64_t(0), int64_t(1), number / 4, number / 2, number - number / 4,
                         number - 2, number - 1}) {
        if (to >= number || (to < 0 && name != "from"))
          continue;
        Recipe one = best.recipe;
        one.steps[s].numbers[name] = to;
        // Sizes that must stay equal become smaller together.
        Recipe all = best.recipe;
        for (Step &step : all.steps)
          for (auto &[other, value] : step.numbers)
            if (value == number && other != "type")
              value = to;
        if ((smaller = keep(std::move(one)) || (name != "type" && keep(std::move(all)))))
          break;
      }
      any |= smaller;
      if (!smaller || !best.recipe.steps[s].numbers.contains(name))
        return any;
    }
  }

  bool keepWithout(const std::function<bool(const std::string &)> &drops) {
    Case candidate = best;
    std::erase_if(candidate.machine, [&](const std::string &o) { return drops(keyOf(o)); });
    return keep(candidate);
  }

  bool resetMachine() {
    auto isShape = [](const std::string &key) {
      return key.starts_with("superlanes") || key.starts_with("lanes_per") || key == "mxm.rows" ||
             key.starts_with("mxm.columns") || key.starts_with("mxm.formats");
    };
    bool any = keepWithout([](const std::string &) { return true; });
    any |= keepWithout([&](const std::string &key) { return isShape(key); });
    for (const char *section : {"latency.", "energy.", "sxm.", "host.", "fabric.links.", "fabric.",
                                "memory.", "mxm.formats.", "mxm."})
      any |= keepWithout([&](const std::string &key) { return key.starts_with(section); });
    any |= keepWithout([](const std::string &key) {
      return key.starts_with("fabric.") || key.starts_with("c2c.");
    });
    for (size_t k = best.machine.size(); k-- > 0;)
      if (k < best.machine.size()) {
        const std::string key = keyOf(best.machine[k]);
        any |= keepWithout([&](const std::string &other) { return other == key; });
      }
    return any;
  }

  /// Fewer PEs, or a topology without a list of links.
  bool shrinkFabric() {
    bool any = false;
    for (const char *topology : {"mesh", "ring", "full"})
      for (const char *size : {"1 2", "2 1", "1 3", "2 2", "1 4", ""}) {
        Case candidate = best;
        const std::string_view words = size;
        bool found = false;
        for (std::string &o : candidate.machine) {
          found |= keyOf(o) == "fabric.topology" && !o.ends_with("single");
          if (keyOf(o) == "fabric.topology")
            o = std::string("fabric.topology=") + topology;
          if (!words.empty() && keyOf(o) == "fabric.rows")
            o = "fabric.rows=" + std::string(words.substr(0, 1));
          if (!words.empty() && keyOf(o) == "fabric.columns")
            o = "fabric.columns=" + std::string(words.substr(2));
        }
        std::erase_if(candidate.machine,
                      [](const std::string &o) { return o.starts_with("fabric.links."); });
        if (!found || size_.contains({topology, size}))
          continue;
        size_.insert({topology, size});
        if (keep(candidate))
          return true;
      }
    return any;
  }

  Case best;
  const Shows &shows;
  unsigned left;
  std::set<std::pair<std::string, std::string>> size_; ///< fabrics tried
};

} // namespace

Case reduce(Case c, const Shows &shows, unsigned mostTries) {
  return Reducer(std::move(c), shows, mostTries).run();
}

Shows sameAs(const Outcome &outcome, const TrialOptions &options) {
  return [outcome, options](const Case &c) {
    const Outcome o = tryCaseApart(c, options, 10);
    return o.verdict == outcome.verdict && o.kind == outcome.kind;
  };
}

} // namespace millrace::test
