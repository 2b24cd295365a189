// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/fuzz/OnnxMutator.h"

#include <google/protobuf/message.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

/// libFuzzer's own mutator; absent in a replay, which mutates nothing.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace millrace::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// A field that is set, of a message somewhere in the model.
struct Place {
  Message *message;
  const FieldDescriptor *field;
};

void collect(Message &message, std::vector<Place> &places, std::vector<std::string> &names) {
  const auto &reflection = *message.GetReflection();
  std::vector<const FieldDescriptor *> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    places.push_back({&message, field});
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && field->is_repeated())
      for (int k = 0; k < reflection.FieldSize(message, field); ++k)
        names.push_back(reflection.GetRepeatedString(message, field, k));
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      continue;
    if (!field->is_repeated())
      collect(*reflection.MutableMessage(&message, field), places, names);
    else
      for (int k = 0; k < reflection.FieldSize(message, field); ++k)
        collect(*reflection.MutableRepeatedMessage(&message, field, k), places, names);
  }
}

std::vector<std::string> operationNames() {
  std::vector<std::string> names;
  for (const onnx::OpSchema &schema : onnx::OpSchemaRegistry::get_all_schemas())
    names.push_back(schema.Name());
  return names;
}

class Mutator {
public:
  explicit Mutator(unsigned seed) : random(seed) {}

  size_t below(size_t limit) { return limit ? random() % limit : 0; }

  void mutate(onnx::ModelProto &model) {
    for (size_t k = 0, changes = 1 + below(3); k < changes; ++k) {
      places.clear();
      names.clear();
      collect(model, places, names);
      if (places.empty())
        return;
      const Place place = places[below(places.size())];
      if (place.field->is_repeated())
        changeList(place);
      else
        changeOne(place);
    }
  }

private:
  int64_t number(int64_t old) {
    static constexpr int64_t edges[] = {
        0,   1,   2,     3,          4,          5,         7,         8,  16, 17,
        255, 256, 65536, 2147483647, 4294967296, INT64_MAX, INT64_MIN, -1, -2, -3};
    return below(2) ? int64_t(uint64_t(old) + below(9) - 4) : edges[below(std::size(edges))];
  }
  std::string word(const Place &place, std::string old) {
    static const std::vector<std::string> operations = operationNames();
    if (place.field->name() == "op_type" && below(4))
      return operations[below(operations.size())];
    if (below(2) && !names.empty())
      return names[below(names.size())];
    const size_t size = old.size();
    old.resize(size + 8);
    old.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(old.data()), size, old.size()));
    return old;
  }

  void changeOne(const Place &place) {
    Message &m = *place.message;
    const auto &r = *m.GetReflection();
    const FieldDescriptor *f = place.field;
    if (below(8) == 0)
      return r.ClearField(&m, f);
    switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetInt32(&m, f, int32_t(number(r.GetInt32(m, f))));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetInt64(&m, f, number(r.GetInt64(m, f)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.SetFloat(&m, f, float(number(int64_t(below(100)))));
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.SetEnumValue(&m, f, int(below(17)));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetString(&m, f, word(place, r.GetString(m, f)));
    default:
      return;
    }
  }

  void changeElement(const Place &place, int k) {
    Message &m = *place.message;
    const auto &r = *m.GetReflection();
    const FieldDescriptor *f = place.field;
    switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetRepeatedInt32(&m, f, k, int32_t(number(r.GetRepeatedInt32(m, f, k))));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetRepeatedInt64(&m, f, k, number(r.GetRepeatedInt64(m, f, k)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.SetRepeatedFloat(&m, f, k, float(number(int64_t(below(100)))));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetRepeatedString(&m, f, k, word(place, r.GetRepeatedString(m, f, k)));
    default:
      return;
    }
  }

  void changeList(const Place &place) {
    Message &m = *place.message;
    const auto &r = *m.GetReflection();
    const FieldDescriptor *f = place.field;
    const int count = r.FieldSize(m, f), k = int(below(size_t(count)));
    switch (below(6)) {
    case 0: // drop the last after moving another there
      r.SwapElements(&m, f, k, count - 1);
      return r.RemoveLast(&m, f);
    case 1:
      return r.SwapElements(&m, f, k, int(below(size_t(count))));
    case 2:
      return repeat(place, k);
    default:
      return changeElement(place, k);
    }
  }

  void repeat(const Place &place, int k) {
    Message &m = *place.message;
    const auto &r = *m.GetReflection();
    const FieldDescriptor *f = place.field;
    switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      // Adding may move the elements, so the copy comes first.
      const std::unique_ptr<Message> copy(r.GetRepeatedMessage(m, f, k).New());
      copy->CopyFrom(r.GetRepeatedMessage(m, f, k));
      r.AddMessage(&m, f)->CopyFrom(*copy);
      return;
    }
    case FieldDescriptor::CPPTYPE_INT64:
      return r.AddInt64(&m, f, r.GetRepeatedInt64(m, f, k));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.AddFloat(&m, f, r.GetRepeatedFloat(m, f, k));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string copy = r.GetRepeatedString(m, f, k);
      return r.AddString(&m, f, copy);
    }
    default:
      return;
    }
  }

  std::minstd_rand random;
  std::vector<Place> places;
  std::vector<std::string> names;
};

} // namespace

size_t mutateModel(uint8_t *data, size_t size, size_t most, unsigned seed) {
  Mutator mutator(seed);
  onnx::ModelProto model;
  if (mutator.below(16) == 0 || !model.ParseFromArray(data, int(size)))
    return LLVMFuzzerMutate(data, size, most);
  mutator.mutate(model);
  const size_t length = model.ByteSizeLong();
  if (length > most || !model.SerializeToArray(data, int(most)))
    return LLVMFuzzerMutate(data, size, most);
  return length;
}

} // namespace millrace::fuzz
