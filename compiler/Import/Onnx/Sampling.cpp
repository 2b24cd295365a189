// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sample is made of neighbours, gathered by the number of their pixel, times what the place's
// distance makes of them.
#include "compiler/Import/Onnx/Sampling.h"

#include "compiler/Import/Onnx/Gather.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// The pixel `step` behind a place along one dimension, and its share of the sample.
std::pair<Value, Value> neighbourOf(Arithmetic &a, Value at, int64_t step, int64_t extent,
                                    bool isNearest) {
  const Value one = a.like(at, 1);
  Value index = isNearest ? a.call<math::RoundEvenOp>(at) : a.call<math::FloorOp>(at), share = one;
  if (!isNearest) {
    const Value behind = a.sub(at, index);
    share = step ? behind : a.sub(one, behind);
    index = step ? a.add(index, one) : index;
  }
  const Value inside = a.clamp(index, 0, double(extent - 1)),
              isInside = a.compare(Arithmetic::Order::Equal, index, inside);
  return {inside, a.choose(isInside, share, a.like(share, 0))};
}

} // namespace

Value nearImage(Arithmetic &a, Value pixel, int64_t extent) {
  return a.clamp(pixel, -2, double(extent) + 1);
}

Value sample(TensorBuilder &t, const SampledImage &image, ArrayRef<Value> at, PlaceBody place,
             Interpolation interpolation) {
  const Type real = elementTypeOf(image.rows), whole = t.ops().getI64Type();
  const bool isNearest = interpolation == Interpolation::Nearest;
  SmallVector<Value> places(at);
  places.push_back(image.first);
  Value result;
  for (int64_t down = 0; down < (isNearest ? 1 : 2); ++down)
    for (int64_t right = 0; right < (isNearest ? 1 : 2); ++right) {
      const Value pixels = t.map(places, whole, [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        const SampledPlace here = place(a, x.drop_back());
        const Value row = neighbourOf(a, here.y, down, image.height, isNearest).first,
                    column = neighbourOf(a, here.x, right, image.width, isNearest).first;
        const Value index =
            a.add(a.mul(a.cast(row, whole, false), a.constant(whole, double(image.width))),
                  a.cast(column, whole, false));
        return a.add(index, x.back());
      });
      const Value shares = t.map(at, real, [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        const SampledPlace here = place(a, x);
        const Value share = a.mul(neighbourOf(a, here.y, down, image.height, isNearest).second,
                                  neighbourOf(a, here.x, right, image.width, isNearest).second);
        return here.weight ? a.mul(share, here.weight) : share;
      });
      Shape spread(shapeOf(shares));
      spread.push_back(1);
      SmallVector<Value> terms{gather(t, image.rows, pixels, 0), t.reshape(shares, spread)};
      if (result)
        terms.push_back(result);
      result = t.map(terms, real, [&](Scalars &s, ValueRange v) {
        Arithmetic a(s);
        const Value its = a.mul(v[0], v[1]);
        if (v.size() == 2)
          return its;
        return interpolation == Interpolation::GreatestShare ? a.max(v[2], its) : a.add(v[2], its);
      });
    }
  return result;
}

} // namespace millrace::onnx_import
