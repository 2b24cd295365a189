// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of the tensor level that work row by row, as texts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace millrace::gpu {

/// Text with $R, $C and $B replaced.
inline std::string text(std::string pattern, int64_t rows, int64_t columns, int64_t behind = 1) {
  const std::pair<const char *, int64_t> names[] = {{"$R", rows}, {"$C", columns}, {"$B", behind}};
  for (const auto &[name, value] : names)
    for (size_t at; (at = pattern.find(name)) != pattern.npos;)
      pattern.replace(at, 2, std::to_string(value));
  return pattern;
}

inline const char *const kMaps = R"(
#m = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>
#c = affine_map<(d0, d1) -> (d1)>
#v = affine_map<(d0) -> (d0)>
#m3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#r3 = affine_map<(d0, d1, d2) -> (d0, d2)>
)";

// Softmax along dimension 1 of R x C x B.
inline const char *const kSoftmax = R"(
func.func @main(%x: tensor<$Rx$Cx$Bxf32>) -> tensor<$Rx$Cx$Bxf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cx$Bxf32>
  %er = tensor.empty() : tensor<$Rx$Bxf32>
  %f = linalg.fill ins(%low : f32) outs(%er : tensor<$Rx$Bxf32>) -> tensor<$Rx$Bxf32>
  %most = linalg.generic {indexing_maps = [#m3, #r3], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<$Rx$Cx$Bxf32>) outs(%f : tensor<$Rx$Bxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<$Rx$Bxf32>
  %exp = linalg.generic {indexing_maps = [#m3, #r3, #m3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %most : tensor<$Rx$Cx$Bxf32>, tensor<$Rx$Bxf32>) outs(%e : tensor<$Rx$Cx$Bxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<$Rx$Cx$Bxf32>
  %z = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rx$Bxf32>) -> tensor<$Rx$Bxf32>
  %sum = linalg.generic {indexing_maps = [#m3, #r3], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%exp : tensor<$Rx$Cx$Bxf32>) outs(%z : tensor<$Rx$Bxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<$Rx$Bxf32>
  %y = linalg.generic {indexing_maps = [#m3, #r3, #m3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%exp, %sum : tensor<$Rx$Cx$Bxf32>, tensor<$Rx$Bxf32>) outs(%e : tensor<$Rx$Cx$Bxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<$Rx$Cx$Bxf32>
  return %y : tensor<$Rx$Cx$Bxf32>
})";

// Layer normalisation of x + r, with the sum as a result of its own.
inline const char *const kLayerNorm = R"(
func.func @main(%x: tensor<$Rx$Cxf32>, %r: tensor<$Rx$Cxf32>, %g: tensor<$Cxf32>, %h: tensor<$Cxf32>)
    -> (tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %n = arith.constant $C.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %s = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %r : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<$Rx$Cxf32>
  %z = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %sum = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<$Rx$Cxf32>) outs(%z : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<$Rxf32>
  %mean = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]}
      ins(%sum : tensor<$Rxf32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %n : f32
    linalg.yield %0 : f32
  } -> tensor<$Rxf32>
  %d = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%s, %mean : tensor<$Rx$Cxf32>, tensor<$Rxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<$Rx$Cxf32>
  %squares = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<$Rx$Cxf32>) outs(%z : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<$Rxf32>
  %k = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]}
      ins(%squares : tensor<$Rxf32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %n : f32
    %1 = arith.addf %0, %eps : f32
    %2 = math.sqrt %1 : f32
    %3 = arith.divf %one, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#m, #r, #c, #c, #m], iterator_types = ["parallel", "parallel"]}
      ins(%d, %k, %g, %h : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Cxf32>, tensor<$Cxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %b2: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    %2 = arith.addf %1, %b2 : f32
    linalg.yield %2 : f32
  } -> tensor<$Rx$Cxf32>
  return %y, %s : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>
})";

// RMS normalisation, quantised to int8 with scale 1/16.
inline const char *const kRmsNorm = R"(
func.func @main(%x: tensor<$Rx$Cxf32>, %g: tensor<$Cxf32>) -> tensor<$Rx$Cxi8> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant $C.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %sixteen = arith.constant 16.0 : f32
  %lo = arith.constant -128.0 : f32
  %hi = arith.constant 127.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cxi8>
  %er = tensor.empty() : tensor<$Rxf32>
  %z = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %squares = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxf32>) outs(%z : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#m, #r, #c, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares, %g : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Cxf32>) outs(%e : tensor<$Rx$Cxi8>) {
  ^bb0(%a: f32, %s: f32, %c: f32, %o: i8):
    %0 = arith.divf %s, %n : f32
    %1 = arith.addf %0, %eps : f32
    %2 = math.sqrt %1 : f32
    %3 = arith.divf %a, %2 : f32
    %4 = arith.mulf %3, %c : f32
    %5 = arith.mulf %4, %sixteen : f32
    %6 = math.roundeven %5 : f32
    %7 = arith.maximumf %6, %lo : f32
    %8 = arith.minimumf %7, %hi : f32
    %9 = arith.fptosi %8 : f32 to i8
    linalg.yield %9 : i8
  } -> tensor<$Rx$Cxi8>
  return %y : tensor<$Rx$Cxi8>
})";

} // namespace millrace::gpu
