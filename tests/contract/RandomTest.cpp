// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random kernel graphs (odd sizes, sizes of 1, sizes around tile boundaries) on machines with
// random parameters: does each compile, take the predicted cycles and give the reference's values?
#include "tests/contract/GridRun.h"
#include "tests/simulator/system/Same.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

using namespace millrace;

namespace {

class Draw {
public:
  explicit Draw(unsigned seed) : random(seed) {}
  int64_t below(int64_t n) { return int64_t(random() % uint64_t(n)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool coin() { return below(2); }
  /// 1, anything, or just below, at or above a multiple of `tile`; at most `most`.
  int64_t size(int64_t tile, int64_t most) {
    const int64_t kind = below(4);
    const int64_t s = kind == 0   ? 1
                      : kind == 1 ? between(1, most)
                                  : tile * between(1, 2) + between(-1, 1);
    return std::clamp<int64_t>(s, 1, most);
  }
  template <class T> T of(std::initializer_list<T> list) {
    return list.begin()[below(int64_t(list.size()))];
  }

private:
  std::mt19937 random;
};

/// Parameters that a machine may have other than tsp-small, as overrides of its keys.
std::vector<std::string> randomOverrides(Draw &draw) {
  std::vector<std::string> list;
  auto set = [&](const char *key, int64_t value) {
    if (draw.coin())
      list.push_back(std::string(key) + "=" + std::to_string(value));
  };
  set("memory.slices_per_register", draw.of<int64_t>({1, 2, 4, 11}));
  set("memory.rows_per_bank", draw.of<int64_t>({2048, 4096, 5000}));
  set("mxm.buffers", draw.between(2, 4));
  set("mxm.accumulator_rows", draw.of<int64_t>({256, 777, 1024}));
  set("vxm.running_accumulators", draw.between(1, 4));
  set("latency.hop", draw.between(1, 3));
  set("latency.mem_read", draw.between(1, 4));
  set("latency.mem_write", draw.between(0, 5));
  set("latency.read_after_write", draw.between(1, 6));
  set("latency.alu_entry", draw.between(0, 6));
  set("latency.alu_op", draw.between(1, 6));
  set("latency.alu_chain", draw.between(0, 2));
  set("latency.alu_exit", draw.between(0, 3));
  set("latency.mxm_entry", draw.between(0, 12));
  set("latency.mxm_multiply", draw.between(1, 20));
  set("latency.mxm_accumulate", draw.between(1, 50));
  set("latency.mxm_exit", draw.between(0, 6));
  set("latency.install_to_activate", draw.between(0, 9));
  set("latency.accumulate_interval", draw.between(1, 50));
  set("latency.start_barrier", draw.between(0, 60));
  set("latency.superlane_stagger", draw.between(0, 40));
  return list;
}

forms::KernelGraph randomGraph(Draw &draw, std::string &text) {
  using namespace forms;
  const ElementType type = draw.of({ElementType::Fp16, ElementType::Fp16, ElementType::Int8});
  auto say = [&](const char *form, std::initializer_list<int64_t> sizes) {
    text = std::string(form) + " " + nameOf(type);
    for (int64_t s : sizes)
      text += " " + std::to_string(s);
  };
  switch (draw.below(6)) {
  case 0: {
    MatmulSpec s{draw.size(16, 70), draw.size(32, 150), draw.size(32, 150), type,
                 draw.coin(),       draw.coin()};
    say("matmul m k n bias relu", {s.m, s.k, s.n, s.bias, s.relu});
    return buildMatmul(s);
  }
  case 1: {
    ConvSpec s;
    s.kernel = draw.of<int64_t>({1, 2, 3});
    s.channels = draw.size(32, 70), s.filters = draw.size(32, 70);
    s.height = draw.between(s.kernel, 9), s.width = draw.between(s.kernel, 9);
    s.stride = draw.between(1, 2), s.pad = draw.between(0, s.kernel - 1);
    s.type = type, s.bias = draw.coin(), s.relu = draw.coin();
    s.residual = type == ElementType::Fp16 && draw.coin();
    say("conv c h w f kernel stride pad bias relu residual",
        {s.channels, s.height, s.width, s.filters, s.kernel, s.stride, s.pad, s.bias, s.relu,
         s.residual});
    return buildConv(s);
  }
  case 2: {
    const int64_t kernel = draw.between(1, 3), channels = draw.size(32, 70);
    const int64_t h = draw.between(kernel, 10), w = draw.between(kernel, 10),
                  stride = draw.between(1, 2);
    say("maxpool c h w kernel stride", {channels, h, w, kernel, stride});
    return buildMaxPool(channels, h, w, kernel, stride, 0, type);
  }
  case 3: {
    const int64_t rows = draw.size(16, 40), width = draw.size(32, 100);
    say("layernorm rows width", {rows, width});
    return buildLayerNorm(rows, width);
  }
  case 4: {
    const int64_t tokens = draw.size(16, 34), width = draw.size(32, 66), head = draw.size(16, 33);
    const bool causal = draw.coin();
    say("attention tokens width head causal", {tokens, width, head, causal});
    return buildAttention(tokens, width, head, causal);
  }
  default: {
    const int64_t rows = draw.size(16, 40), width = draw.size(32, 70), layers = draw.between(1, 3);
    say("perceptron rows width layers", {rows, width, layers});
    return buildPerceptron(rows, width, layers, ElementType::Fp16);
  }
  }
}

/// What the slow simulator finds otherwise than the fast one, or nothing.
std::string differenceFromTruth(const forms::KernelGraph &graph, const Machine &machine,
                                const std::map<unsigned, forms::TensorBytes> &inputs) {
  grid::CompileReport report;
  const Expected<Image> image = grid::compile(graph, machine, {}, report);
  if (!image)
    return image.error();
  sim::SimulationOptions options;
  options.writeInputs = test::inputWriter(*image, graph, inputs);
  return sim::test::differenceOn(*image, machine, options);
}

TEST(RandomGraphs, TakeThePredictedCyclesAndGiveTheReferencesValues) {
  // A campaign takes its length from the environment.
  const char *count = std::getenv("MILLRACE_RANDOM_GRAPHS");
  const unsigned graphs = count ? unsigned(std::atoi(count)) : 400;
  // One graph of so many also runs in the slow simulator.
  const char *every = std::getenv("MILLRACE_RANDOM_STEPPED");
  const unsigned stepped = every ? unsigned(std::max(1, std::atoi(every))) : 10;
  unsigned ran = 0, refused = 0;
  for (unsigned seed = 1; seed <= graphs; ++seed) {
    Draw draw(seed);
    std::string text;
    const forms::KernelGraph graph = randomGraph(draw, text);
    const std::vector<std::string> overrides = randomOverrides(draw);
    Expected<Machine> machine = loadMachine("tsp-small", overrides);
    std::string where = "seed " + std::to_string(seed) + ": " + text + " on tsp-small";
    for (const std::string &o : overrides)
      where += " " + o;
    SCOPED_TRACE(where);
    ASSERT_TRUE(machine) << machine.error();
    const auto inputs = forms::randomInputs(graph, seed);
    const test::GridRun run = test::runOnGrid(graph, *machine, inputs);
    // Known limits of the compiler: several bursts of a kernel need one slice at once (attention
    // over more columns than a plane), or more ALUs than there are (maxima over 3 x 3 windows).
    if (run.error.find("that belong together need") != std::string::npos ||
        run.error.find("epilogue needs") != std::string::npos) {
      ++refused;
      std::printf("refused: %s: %s\n", where.c_str(), run.error.c_str());
      continue;
    }
    EXPECT_EQ(run.error, "");
    if (!run.error.empty())
      continue;
    EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
    if (run.simulated.violation)
      continue;
    EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
    const double distance = test::distanceFromReference(graph, run, inputs);
    EXPECT_EQ(distance, 0) << "not bit for bit what the evaluation gives";
    if (seed % stepped == 0) {
      EXPECT_EQ(differenceFromTruth(graph, *machine, inputs), "");
    }
    ++ran;
  }
  std::printf("%u of %u graphs ran, %u were refused\n", ran, graphs, refused);
  EXPECT_LE(100 * refused, 15 * graphs);
}

} // namespace
