// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Devices/AssignDevices.h"
#include "compiler/Forms/Former/Build.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::devices;

namespace {

/// A product with weights, and what is added to it.
constexpr const char *kProduct = R"(
func.func @main(%x: tensor<4x8xf32>, %b: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %w = arith.constant dense<0.5> : tensor<8x6xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %product = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%filled : tensor<4x6xf32>) -> tensor<4x6xf32>
  %sum = linalg.add ins(%product, %b : tensor<4x6xf32>, tensor<4x6xf32>) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %sum : tensor<4x6xf32>
})";

class Devices : public testing::Test {
protected:
  Devices() {
    context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                        mlir::linalg::LinalgDialect, mlir::tensor::TensorDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(kProduct, &context);
  }
  /// Operations that are marked, with their device.
  std::vector<std::pair<std::string, std::string>> marked() {
    std::vector<std::pair<std::string, std::string>> all;
    module->walk([&](mlir::Operation *op) {
      if (auto device = op->getAttrOfType<mlir::StringAttr>(forms::kDevice))
        all.emplace_back(op->getName().getStringRef().str(), device.getValue().str());
    });
    return all;
  }
  Status assign(const std::string &text) {
    const Expected<DeviceMap> map = parseDeviceMap(text);
    EXPECT_TRUE(map) << text;
    std::vector<std::string> remarks;
    return map ? assignDevices(*module, *map, remarks) : Status(Error{"no map"});
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

TEST_F(Devices, FindTheOneProduct) {
  const auto found = findWork(module->lookupSymbol<mlir::func::FuncOp>("main"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].work, Work::Product);
  std::vector<std::string> names;
  for (mlir::Operation *op : found[0].operations)
    names.push_back(op->getName().getStringRef().str());
  EXPECT_NE(std::find(names.begin(), names.end(), "linalg.matmul"), names.end());
}

TEST_F(Devices, MarkWhatWasNamedAlone) {
  ASSERT_TRUE(assign("product=gpu"));
  const auto all = marked();
  EXPECT_NE(std::find(all.begin(), all.end(),
                      std::pair<std::string, std::string>("linalg.matmul", "gpu")),
            all.end());
  for (const auto &[name, device] : all)
    EXPECT_EQ(device, "gpu") << name;
}

TEST_F(Devices, LeaveTheGridItsOwn) {
  ASSERT_TRUE(assign("product=grid"));
  EXPECT_TRUE(marked().empty());
}

TEST_F(Devices, NameWhatThereIsWhereAKindIsMissing) {
  const Status done = assign("norm=cpu");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), "--device-map norm: the model has none; it has product (1)");
  EXPECT_TRUE(marked().empty());
}

TEST(DeviceMaps, RefuseWhatIsNone) {
  for (const char *text : {"", "attention", "attention=", "=gpu", "heads=gpu", "ffn=tpu",
                           "ffn=gpu,ffn=grid", "ffn=gpu,"})
    EXPECT_FALSE(parseDeviceMap(text)) << text;
  const Expected<DeviceMap> map = parseDeviceMap("attention=gpu,ffn=grid,norm=cpu");
  ASSERT_TRUE(map);
  ASSERT_EQ(map->size(), 3u);
  EXPECT_EQ((*map)[0].device, StepDevice::Gpu);
  EXPECT_EQ((*map)[1].device, std::nullopt);
  EXPECT_EQ((*map)[2].device, StepDevice::Cpu);
}

} // namespace
