// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Assign.h"

#include "compiler/Layouts/LayoutProblem.h"
#include "compiler/Layouts/Materialize.h"

namespace millrace::layouts {

static Expected<std::vector<std::string>>
assign(forms::KernelGraph &graph, const LayoutProblem &problem, const Choice &choice) {
  if (Status s = verify(problem, choice); !s)
    return s.takeError();
  std::vector<std::string> lines;
  for (size_t v = 0; v < choice.size(); ++v)
    if (choice[v])
      for (unsigned t : problem.variables[v].tensors)
        lines.push_back(graph.tensors[t].name + ": " +
                        problem.variables[v].candidates[choice[v]].text());
  if (Status s = materialize(graph, problem.machine, problem.layoutsOf(choice)); !s)
    return s.takeError();
  return lines;
}

Expected<std::vector<std::string>> assignLayouts(forms::KernelGraph &graph, const Machine &machine,
                                                 const std::string &name, uint64_t seed) {
  std::string known;
  for (const LayoutSolver &solver : layoutSolvers()) {
    if (solver.name == name) {
      const LayoutProblem problem(graph, machine);
      return assign(graph, problem, solver.solve(problem, seed));
    }
    known += (known.empty() ? "" : ", ") + solver.name;
  }
  return Error{"no layout solver is called '" + name + "'; there are " + known};
}

} // namespace millrace::layouts
