// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Assign.h"

#include "compiler/Layouts/ChangeLayouts.h"
#include "compiler/Layouts/CopyInputs.h"
#include "compiler/Layouts/Materialize.h"
#include "compiler/Layouts/SplitTaps.h"

#include <algorithm>

namespace millrace::layouts {

Expected<std::vector<std::string>>
assignLayouts(KernelGraph &graph, const Machine &machine, const std::string &name, uint64_t seed,
              const Chosen &chosen, std::shared_ptr<CostCache> cache, bool sparesRoom) {
  const std::vector<LayoutSolver> &solvers = layoutSolvers();
  const auto solver = std::find_if(solvers.begin(), solvers.end(),
                                   [&](const LayoutSolver &s) { return s.name == name; });
  if (solver == solvers.end()) {
    std::string known;
    for (const LayoutSolver &s : solvers)
      known += (known.empty() ? "" : ", ") + s.name;
    return Error{"no layout solver is called '" + name + "'; there are " + known};
  }
  if (!cache)
    cache = std::make_shared<CostCache>();
  std::vector<std::string> lines;
  if (name != "plain") {
    lines = splitTaps(graph, machine, cache);
    if (!sparesRoom) {
      std::ranges::move(copyInputs(graph, machine, cache), std::back_inserter(lines));
      std::ranges::move(changeLayouts(graph, machine, cache), std::back_inserter(lines));
    }
  }
  const LayoutProblem problem(graph, machine, cache, {}, sparesRoom);
  const Choice choice = solver->solve(problem, seed);
  if (Status s = verify(problem, choice); !s)
    return s.takeError();
  if (chosen)
    chosen(problem, choice);
  for (size_t v = 0; v < choice.size(); ++v)
    if (choice[v])
      for (unsigned t : problem.variables[v].tensors)
        lines.push_back(graph.tensors[t].name + ": " +
                        problem.variables[v].candidates[choice[v]].text());
  if (Status s = materialize(graph, machine, problem.layoutsOf(choice)); !s)
    return s.takeError();
  return lines;
}

} // namespace millrace::layouts
