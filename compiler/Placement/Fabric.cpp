// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Placement/Fabric.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>

#include <algorithm>
#include <map>

namespace millrace::placement {
namespace {

struct Wire {
  const Link *link = nullptr;
  unsigned cost = 0;
};
using FabricGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Wire>;

FabricGraph graphOf(const Machine &machine) {
  FabricGraph g(machine.pes());
  for (const Link &link : machine.links)
    boost::add_edge(link.from, link.to, Wire{&link, link.latency + link.slot}, g);
  return g;
}

bool linked(const FabricGraph &g, unsigned from, unsigned to) { return edge(from, to, g).second; }

/// Links from `from` to every PE; UINT_MAX where none lead.
std::vector<unsigned> hops(const FabricGraph &g, unsigned from) {
  std::vector<unsigned> distance(num_vertices(g), UINT_MAX);
  distance[from] = 0;
  boost::breadth_first_search(g, from,
                              boost::visitor(boost::make_bfs_visitor(boost::record_distances(
                                  distance.data(), boost::on_tree_edge()))));
  return distance;
}

unsigned gapsOf(const FabricGraph &g, const std::vector<unsigned> &order) {
  unsigned gaps = 0;
  for (size_t p = 1; p < order.size(); ++p)
    gaps += !linked(g, order[p - 1], order[p]);
  return gaps;
}

} // namespace

Placement solve(const Machine &machine, unsigned first) {
  const FabricGraph g = graphOf(machine);
  std::vector<bool> taken(machine.pes(), false);
  const unsigned rows = machine.fabric.rows;
  const bool begins = first > 0 && first < machine.pes() &&
                      rows * machine.fabric.columns == machine.pes() && first % rows == 0;
  for (unsigned pe = 0; begins && pe < machine.pes(); ++pe) // the others when these are done
    taken[pe] = pe % machine.fabric.columns >= first / rows;
  auto freeNeighbours = [&](unsigned pe) {
    std::vector<unsigned> free;
    for (auto [e, end] = out_edges(pe, g); e != end; ++e)
      if (const unsigned next = unsigned(target(*e, g));
          !taken[next] && std::find(free.begin(), free.end(), next) == free.end())
        free.push_back(next);
    return free;
  };
  Placement p;
  unsigned pe = 0;
  for (unsigned candidate = 1; candidate < machine.pes(); ++candidate) // a corner
    if (!taken[candidate] && freeNeighbours(candidate).size() < freeNeighbours(pe).size())
      pe = candidate;
  while (true) {
    taken[pe] = true;
    p.order.push_back(pe);
    if (p.order.size() == machine.pes())
      break;
    for (unsigned other = 0; begins && p.order.size() == first && other < machine.pes(); ++other)
      taken[other] = other % machine.fabric.columns < first / rows;
    const std::vector<unsigned> distance = hops(g, pe);
    std::vector<std::tuple<unsigned, size_t, unsigned>> candidates; // near, few neighbours left, id
    for (unsigned next = 0; next < machine.pes(); ++next)
      if (!taken[next])
        candidates.push_back({distance[next], freeNeighbours(next).size(), next});
    pe = std::get<2>(*std::min_element(candidates.begin(), candidates.end()));
  }
  p.gaps = gapsOf(g, p.order);
  return p;
}

Status verify(const Machine &machine, const Placement &placement) {
  std::vector<unsigned> sorted = placement.order;
  std::sort(sorted.begin(), sorted.end());
  for (unsigned pe = 0; pe < machine.pes(); ++pe)
    if (sorted.size() != machine.pes() || sorted[pe] != pe)
      return Error{"placement: PE " + std::to_string(pe) + " of " + std::to_string(machine.pes()) +
                   " does not stand in the line exactly once"};
  if (const unsigned gaps = gapsOf(graphOf(machine), placement.order); gaps != placement.gaps)
    return Error{"placement: the line has " + std::to_string(gaps) + " gaps, it says " +
                 std::to_string(placement.gaps)};
  return Success{};
}

Routes::Routes(const Machine &m) : into(m.pes(), std::vector<const Link *>(m.pes(), nullptr)) {
  const FabricGraph g = graphOf(m);
  using Edge = boost::graph_traits<FabricGraph>::edge_descriptor;
  for (unsigned from = 0; from < m.pes(); ++from) {
    std::map<unsigned long, Edge> last;
    boost::dijkstra_shortest_paths(
        g, from,
        boost::weight_map(get(&Wire::cost, g))
            .visitor(boost::make_dijkstra_visitor(boost::record_edge_predecessors(
                boost::make_assoc_property_map(last), boost::on_edge_relaxed()))));
    for (const auto &[pe, edge] : last)
      into[from][pe] = g[edge].link;
  }
}

std::vector<const Link *> Routes::tree(unsigned from, const std::vector<unsigned> &to) const {
  std::vector<const Link *> links;
  for (unsigned target : to) {
    std::vector<const Link *> path;
    for (unsigned pe = target; pe != from; pe = path.back()->from) {
      if (!into[from][pe])
        return {};
      path.push_back(into[from][pe]);
    }
    for (size_t k = path.size(); k-- > 0;)
      if (std::find(links.begin(), links.end(), path[k]) == links.end())
        links.push_back(path[k]);
  }
  return links;
}

} // namespace millrace::placement
