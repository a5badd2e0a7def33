// SPDX-License-Identifier: BSD-3-Clause
// A module that looks one token further ahead than the one before it (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2). Of depth k:
//   u(i) = M [ norm_e(E(t(i+k))) ; norm_h(h^(k-1)(i)) ]   M (D, 2D), E the embedding's matrix, h^0 the stream behind the last layer
//   h^k  = layers(u)                                      and norm(h^k) is what the model's output matrix reads, to tell t(i+k+1)
// The halves of M stand as in the published folders, which begin with the embedding; the paper writes them the other way round.
//   R rows of a micro-batch, D hidden_size
#pragma once

#include "kernels/ops/embedding.hpp"
#include "modules/layers/norm.hpp"

namespace gyr {

template <class T>
class MtpModule {
 public:
  // Weights NAME.enorm, NAME.hnorm, NAME.eh_proj (sharded by its rows), NAME.layers.I of each symbol, and NAME.norm.
  MtpModule(const ModelConfig&, const std::string& name, const std::string& pattern, Parameters&);

  // h^k of h^(k-1), in rows of the stream that this rank keeps: a tensor of the frame. h^(k-1) must stay until the backward has ended.
  Tensor2<T> forward(Pass&, Frame&, const Parameter& table, Tensor1<const Token> ahead /*(R)*/, Tensor2<T> h);
  // norm(h^k): its rows are not needed for the backward.
  Tensor2<T> normed(Pass&, Frame&);
  // dh (= or +=) the gradient of h^k, from that of norm(h^k).
  void normed_backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh);
  // dh holds the gradient of h^k on entry and that of h^(k-1) on return.
  void backward(Pass&, Frame&, const Parameter& table, Tensor2<T> dh);

 private:
  struct Keys {
    static constexpr Key<Tensor1<const Token>> ahead{"tokens ahead"};
    static constexpr Key<Tensor2<T>> embedded{"tokens ahead, embedded"}, joined{"stream and tokens ahead, joined"}, output{"output"};
  };
  enum Part { of_embedding, of_stream, of_output, first_layer };  // numbers of nested frames

  Tensor2<T> embed(Pass&, Frame&, const Parameter& table);
  void embed_backward(Pass&, Frame&, const Parameter& table, Tensor2<T> dx);
  // y = M [e ; h]
  Tensor2<T> join(Pass&, Frame&, Tensor2<T> e, Tensor2<T> h);
  void join_backward(Pass&, Frame&, Tensor2<T> dy, Tensor2<T> de, Tensor2<T> dh);
  // Of the columns of y and the rows of M those of this rank, and of M one half.
  template <class S>
  Matrix<S> columns_here(Tensor2<S> y) const;
  template <class S>
  Matrix<S> half(Tensor2<S> of_matrix, int which) const;
  Index rows_here() const { return eh_proj_->held.boxes.empty() ? 0 : eh_proj_->held.boxes[0].box.count[0]; }

  std::string name_;
  double multiplier_, dropped_;  // of the embedding
  Token pad_token_id_;
  Norm<T> enorm_, hnorm_;
  Parameter* eh_proj_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Norm<T> norm_;
};

}  // namespace gyr
