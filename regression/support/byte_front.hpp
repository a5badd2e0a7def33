// SPDX-License-Identifier: BSD-3-Clause
// A front that only the tests have: each row of an encoder is a patch of bytes times a matrix, as the front of an
// image tower is. It is declared in this file alone.
//   x(r) = W pixels(r) / 255,   W (D, bytes_of_a_row)
#pragma once

#include "modules/model/front.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr::testing {

constexpr Index bytes_of_a_row = 6;
inline const ValueName<std::uint8_t> pixels{"pixels"};

template <class T>
class ByteFront final : public Front {
 public:
  ByteFront(const ModelConfig& c, Parameters& parameters)
      : width_(c.hidden_size), w_(parameters.declare({"model.patches.weight", {c.hidden_size, bytes_of_a_row}, replicated(), normal(0.5)})) {}

  AnyTensor2 forward(Pass& a, Frame& frame, const FrontInput& input) override {
    ensure(!a.stream.split(), "the front of the tests keeps all rows");
    const auto bytes = input.values.at(pixels);
    const auto patches = frame.put(patch, a.stream.rows, bytes_of_a_row), x = frame.put(rows, a.stream.rows, width_);
    for (Index i = 0; i < Index(bytes.extent(0)) && !a.dev.dry_run(); ++i) patches.data()[i] = T(double(bytes(i)) / 255);
    linear<T>(a.dev, Matrix<const T>(patches), w_.template matrix<const T>(), Matrix<T>(x));
    return x;
  }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override {
    weights_backward<T>(a.dev, {&w_}, Matrix<const T>(dx.as<const T>()), Matrix<const T>(frame.get(patch)));
  }

 private:
  static constexpr Key<Tensor2<T>> patch{"patches"}, rows{"rows of patches"};
  Index width_;
  Parameter& w_;
};

inline std::unique_ptr<Front> make_byte_front(const ModelConfig& c, Parameters& parameters, Embedding&) {
  return make_typed<Front, ByteFront>(parameters.dtype(), c, parameters);
}
inline std::vector<NamedField> byte_fields(const ModelConfig&, Index) {
  return {ValueField<std::uint8_t>{pixels, 0, 0, 0, ValueReader::embedding, bytes_of_a_row}};
}
inline double byte_flops(const ModelConfig& c) { return 2.0 * double(c.hidden_size * bytes_of_a_row); }

inline const RegisteredFront byte_front({"bytes", make_byte_front, byte_fields, byte_flops});

}  // namespace gyr::testing
