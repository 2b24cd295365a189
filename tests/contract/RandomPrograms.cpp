// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/RandomPrograms.h"

#include "compiler/Forms/Builders.h"

namespace millrace::test {

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

std::vector<std::string> randomShape(Draw &draw) {
  std::vector<std::string> list;
  auto set = [&](const std::string &key, int64_t value) {
    list.push_back(key + "=" + std::to_string(value));
    return value;
  };
  // Vectors of 16 to 80 lanes, planes as tall and as wide. Column groups stay at 16: the simulator
  // takes multiples of 16 only, and says so.
  const int64_t superlanes = set("superlanes", draw.between(1, 5));
  const int64_t lanes = superlanes * set("lanes_per_superlane", 16);

  set("mxm.rows", lanes);
  set("mxm.columns", lanes);
  set("mxm.planes", draw.of<int64_t>({2, 4}));
  for (const char *format : {"int8", "fp16", "bf16"})
    set("mxm.formats." + std::string(format) + ".lanes_per_pass", lanes / draw.between(1, 2));
  set("streams", draw.of<int64_t>({32, 48, 64}));
  set("vxm.alus", draw.between(12, 24));
  set("memory.slices", draw.of<int64_t>({44, 88}));
  set("memory.banks", draw.of<int64_t>({2, 3, 4}));
  const char *topology = draw.of({"single", "single", "mesh", "torus", "ring", "full"});
  list.push_back("fabric.topology=" + std::string(topology));
  if (topology == std::string("single"))
    return list;
  set("c2c.ports", 16);
  set("c2c.position", draw.between(0, 4)); // 44 slices, 11 to a register: the last position
  set("fabric.rows", draw.between(1, 4));
  set("fabric.columns", draw.between(2, 4));
  set("fabric.link.latency", draw.between(1, 40));
  set("fabric.link.slot", draw.between(1, 6));
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

} // namespace millrace::test
