// SPDX-License-Identifier: BSD-3-Clause
// Values that an objective, or the front of an encoder, needs for every row or for every sequence, besides tokens and labels: text indices, labels of
// further losses, reference log-probabilities, token types, bytes of pixels. It declares them as fields, each with a name, a type and the value of
// padding; an objective returns those of one sequence with its labels. Micro-batch, context parallelism, pipeline and head carry them without knowing
// any name:
//   feed      appends the values of each sequence to those of its micro-batch (append_values)
//   chunk     takes the rows of this context-parallel rank, and all values per sequence, and uploads them on the stage that reads them
//   head      finds them by name in device memory (Labels::values)
// A micro-batch without values for a field, as in a dry run, has the value of padding everywhere.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "kernels/ops/embedding.hpp"

namespace gyr {

// Name of a field whose values have type V: Token, double, or std::uint8_t for
// bytes.
template <class V>
struct ValueName {
  std::string text;
};

// Arrays of values by name.
template <template <class> class Array>
class NamedValues {
 public:
  // The values of this name; added if there are none.
  template <class V>
  Array<V>& operator[](const ValueName<V>& name) {
    return std::get<Array<V>>(values_.try_emplace(name.text, Array<V>()).first->second);
  }
  // Null if there are no values of this name.
  template <class V>
  const Array<V>* find(const ValueName<V>& name) const {
    const auto found = values_.find(name.text);
    return found == values_.end() ? nullptr : &std::get<Array<V>>(found->second);
  }
  template <class V>
  const Array<V>& at(const ValueName<V>& name) const {
    ensure(find(name) != nullptr, "the objective declares no field '{}' for this stage", name.text);
    return *find(name);
  }
  bool operator==(const NamedValues&) const = default;

 private:
  std::map<std::string, std::variant<Array<Token>, Array<double>, Array<std::uint8_t>>> values_;
};

template <class V>
using HostArray = std::vector<V>;
template <class V>
using DeviceArray = Tensor1<const V>;
using NamedHostValues = NamedValues<HostArray>;      // values of full sequences
using NamedDeviceValues = NamedValues<DeviceArray>;  // values of this rank's rows, and of all sequences, in device memory

// Part of the model that reads a field: the head, the head in training only, the embedding, or all layers.
enum class ValueReader { head, training_head, embedding, layers };

template <class V>
struct ValueField {
  ValueName<V> name;
  V padding;                 // value of padding rows, of unused values per sequence, and where no values are given
  Index per_sequence = 0;    // number of values per sequence; 0: one value per row
  Index indexed_values = 0;  // values >= 0 are indices into a field with this number of values per sequence; 0: they are no indices
  ValueReader reader = ValueReader::head;
  Index per_row = 1;  // number of values per row, if there are no values per sequence

  Index count(Index sequences, Index seq_length) const { return sequences * (per_sequence > 0 ? per_sequence : seq_length * per_row); }
};
using NamedField = std::variant<ValueField<Token>, ValueField<double>, ValueField<std::uint8_t>>;

// Appends the values of one sequence, which has at most seq_length rows, to those of the sequences before it.
inline void append_values(const std::vector<NamedField>& fields, const NamedHostValues& sequence, Index seq_length, NamedHostValues& all) {
  const auto append = [&]<class V>(const ValueField<V>& field) {
    std::vector<V>& to = all[field.name];
    const Index count = field.count(1, seq_length), before = Index(to.size()) / count;
    const std::vector<V> none, *const given = sequence.find(field.name), &values = given ? *given : none;
    ensure(Index(values.size()) <= count, "{} values '{}' of a sequence exceed {}", values.size(), field.name.text, count);
    for (const V value : values) to.push_back(field.indexed_values == 0 || double(value) < 0 ? value : V(value + V(before * field.indexed_values)));
    to.resize(std::size_t((before + 1) * count), field.padding);
  };
  for (const NamedField& field : fields) std::visit(append, field);
}

}  // namespace gyr
