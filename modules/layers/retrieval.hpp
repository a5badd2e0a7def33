// SPDX-License-Identifier: BSD-3-Clause
// Retrieval (RETRO; Borgeaud et al., "Improving language models by retrieving from trillions of tokens", 2022): the branch of
// layer R. Rows of the text attend to the neighbours of the last chunk that has ended before or with them. The first R of a
// model encodes the neighbours, with its normed rows h of the text, and all R attend to the result E:
//   E = encoder(neighbours; h),   y = chunked cross-attention(h, E)
// Its encoder is a stack of layers *, - and X over the tokens of each neighbour, which sees itself in both directions and, in
// X, the chunk that it was retrieved for. A decoder is causal nevertheless: no neighbour of a chunk is seen before its end.
#pragma once

#include <optional>

#include "modules/layers/cross_attention.hpp"

namespace gyr {

template <class T>
class NeighbourEncoder {
 public:
  // Weights NAME.layers.0 and so on, named like those of a model.
  NeighbourEncoder(const ModelConfig&, const std::string& name, Parameters&);
  // x: embedded neighbours in the rows that this rank keeps; h: all rows of the text. Returns E, a tensor of the frame.
  Tensor2<T> forward(Pass& text, Frame&, Tensor2<T> x, Tensor2<T> h);
  // d: gradient of E on entry, of x on return. dh += this rank's part of the gradient of h.
  void backward(Pass& text, Frame&, Tensor2<T> d, Tensor2<T> dh);
  void backward_weights(Pass& text, Frame&, Tensor2<const T> h);

 private:
  static constexpr Key<Tensor2<T>> encoded{"encoded neighbours", RecomputeCost::never};
  Pass pass_of(Pass& text, const EncoderState& h) const;

  std::vector<std::unique_ptr<Layer>> layers_;
};

template <class T>
class Retrieval final : public Branch<T> {
 public:
  // Weights NAME.cross_attn and, in the first layer R of the model, NAME.encoder
  Retrieval(const ModelConfig&, const std::string& name, Parameters&);
  // The first layer replaces the embedded neighbours of the pass by E, and their gradient by that of the embedded ones.
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  Frame& attention_frame(Frame& frame) const { return frame.nested(0, "attention to neighbours"); }
  Frame& encoder_frame(Frame& frame) const { return frame.nested(1, "encoder of neighbours"); }
  // Generation (retrieval_decoding.cpp): encodes the neighbours of the chunks that end in this pass.
  static constexpr Key<Tensor3<T>> present{"rows of the present chunk"};
  Tensor2<T> ended_rows(Pass&, Tensor2<T> h);
  void encode_in_generation(Pass&, Frame&, Tensor2<T> h);

  Index chunk_;  // m
  CrossAttention<T> attention_;
  std::optional<NeighbourEncoder<T>> encoder_;
};

}  // namespace gyr
