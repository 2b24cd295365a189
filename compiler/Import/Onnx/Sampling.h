// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Images at places that are data: used by GridSample, DeformConv and RoiAlign.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// An image as rows x channels: its pixel (y, x) is row `first` + y * width + x. `first`, an
/// integer for each place, broadcasts to the places.
struct SampledImage {
  mlir::Value rows, first;
  int64_t height = 1, width = 1;
};

/// Where an image is sampled, in pixels, at most a few outside of it (`nearImage`), and by what the
/// sample is multiplied (null: by 1).
struct SampledPlace {
  mlir::Value y, x, weight;
};
/// A pixel's number, brought near the image where it lies far outside: there, too, are zeros.
mlir::Value nearImage(Arithmetic &a, mlir::Value pixel, int64_t extent);
/// Emits a place from its elements of the tensors that describe it.
using PlaceBody = llvm::function_ref<SampledPlace(Arithmetic &, mlir::ValueRange)>;

enum class Interpolation {
  Nearest,       ///< ties to even
  Linear,        ///< the four pixels around, each by its share
  GreatestShare, ///< the greatest of the four, each times its share
};

/// places x channels. Outside of the image lie zeros. The tensors in `at` broadcast to the places.
mlir::Value sample(TensorBuilder &t, const SampledImage &image, llvm::ArrayRef<mlir::Value> at,
                   PlaceBody place, Interpolation interpolation);

} // namespace millrace::onnx_import
