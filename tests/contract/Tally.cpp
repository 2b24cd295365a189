// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Tally.h"

#include <nlohmann/json.hpp>

namespace millrace::test {

void Counts::add(const Verdict &v) {
  ++mutants;
  killed += v.killed();
  malformed += v.kind == Verdict::Kind::Malformed;
  different += v.kind == Verdict::Kind::Different;
  harmless += v.kind == Verdict::Kind::Harmless;
  hung += v.kind == Verdict::Kind::Hung;
  crashed += v.kind == Verdict::Kind::Crashed;
  if (v.kind == Verdict::Kind::Rejected)
    ++rejected[v.invariant];
}

void Tally::add(const std::string &image, const Mutant &mutant, const Verdict &v,
                const std::function<Explanation()> &explanation) {
  total.add(v);
  byImage[image].add(v);
  byKind[mutant.kind].add(v);
  if (v.killed())
    return;
  Survivor s{image, mutant.kind, mutant.where, {}};
  s.why = v.kind == Verdict::Kind::Harmless ? explanation()
          : v.kind == Verdict::Kind::Hung   ? Explanation{{}, "hung"}
                                            : Explanation{{}, "crashed"};
  if (v.kind != Verdict::Kind::Harmless)
    s.why.proof = Explanation::Proof::None;
  unexplained += s.why.proof == Explanation::Proof::None;
  survivors.push_back(s);
}

void Tally::addTruth(const std::string &image, const Mutant &mutant, Truth truth) {
  stepped += truth != Truth::NotCompared;
  if (truth == Truth::Differs)
    disagreements.push_back({image, mutant.kind, mutant.where});
}

std::string Tally::text() const {
  std::string text =
      std::to_string(total.mutants) + " mutants, " + std::to_string(total.killed) + " killed:";
  for (unsigned s = 1; s < 12; ++s)
    text += " S" + std::to_string(s) + " " + std::to_string(total.rejected[s]);
  text += ", malformed " + std::to_string(total.malformed) + ", different " +
          std::to_string(total.different) + ", hung " + std::to_string(total.hung) + ", crashed " +
          std::to_string(total.crashed) + "; " + std::to_string(survivors.size()) + " survivors, " +
          std::to_string(unexplained) + " unexplained\n";
  for (const Survivor &s : survivors)
    text += s.kind + " of " + s.image + ": " + nameOf(s.why.proof) + ": " + s.why.reason +
            "\n    " + s.where + "\n";
  return text;
}

namespace {
nlohmann::ordered_json jsonOf(const Counts &c) {
  nlohmann::ordered_json rejected;
  for (unsigned s = 1; s < 12; ++s)
    rejected["S" + std::to_string(s)] = c.rejected[s];
  return {{"mutants", c.mutants},     {"killed", c.killed},       {"rejected", rejected},
          {"malformed", c.malformed}, {"different", c.different}, {"harmless", c.harmless},
          {"hung", c.hung},           {"crashed", c.crashed}};
}
} // namespace

std::string Tally::json(unsigned each, unsigned seed) const {
  nlohmann::ordered_json j = {{"each", each}, {"seed", seed}, {"total", jsonOf(total)}};
  j["unexplained"] = unexplained;
  j["truth"] = {{"stepped", stepped},
                {"agree", stepped - disagreements.size()},
                {"differ", disagreements.size()}};
  for (const Disagreement &d : disagreements)
    j["disagreements"].push_back({{"image", d.image}, {"kind", d.kind}, {"where", d.where}});
  for (const auto &[name, counts] : byImage)
    j["images"][name] = jsonOf(counts);
  for (const auto &[name, counts] : byKind)
    j["kinds"][name] = jsonOf(counts);
  std::map<std::string, unsigned> reasons;
  for (const Survivor &s : survivors)
    ++reasons[std::string(nameOf(s.why.proof)) + ": " + s.why.reason];
  j["reasons"] = reasons;
  for (const Survivor &s : survivors)
    j["survivors"].push_back({{"image", s.image},
                              {"kind", s.kind},
                              {"where", s.where},
                              {"proof", nameOf(s.why.proof)},
                              {"reason", s.why.reason}});
  return j.dump(1) + "\n";
}

} // namespace millrace::test
