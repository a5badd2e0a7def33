// SPDX-License-Identifier: BSD-3-Clause
// Module of multi-token prediction (MTP), which predicts one token further ahead than the module before it (DeepSeek-AI, "DeepSeek-V3 Technical
// Report", 2024, section 2.2). The module of depth k computes
//   u(i) = M [ norm_e(E(t(i+k))) ; norm_h(h^(k-1)(i)) ]
//   h^k  = layers(u)
// The output matrix of the model predicts token t(i+k+1) from norm(h^k).
//   M (D, 2D) weight eh_proj, E embedding matrix, h^0 residual stream after the last layer of the model
//   R rows of a micro-batch, D hidden_size
// The first half of the columns of M multiplies the embedding, as in the published checkpoints; the paper has the halves in the opposite order.
#pragma once

#include "kernels/ops/embedding.hpp"
#include "modules/layers/norm.hpp"

namespace gyr {

template <class T>
class MtpModule {
 public:
  // Weights NAME.enorm, NAME.hnorm, NAME.eh_proj (sharded by rows), NAME.layers.I for each layer symbol of `pattern`,
  // and NAME.norm.
  MtpModule(const ModelConfig&, const std::string& name, const std::string& pattern, Parameters&);

  // Returns h^k, given h^(k-1), for the rows of the residual stream that this rank keeps: a tensor of the frame. `h`
  // must stay allocated until the backward has ended. `ahead`: token ids t(i+k).
  Tensor2<T> forward(Pass&, Frame&, const Parameter& table, Tensor1<const Token> ahead /*(R)*/, Tensor2<T> h);
  // Returns norm(h^k). The backward does not need this tensor.
  Tensor2<T> normed(Pass&, Frame&);
  // Computes dh (= or +=), the gradient of h^k, from the gradient dy of norm(h^k).
  void normed_backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh);
  // dh holds the gradient of h^k on entry and the gradient of h^(k-1) on return.
  void backward(Pass&, Frame&, const Parameter& table, Tensor2<T> dh);

 private:
  struct Keys {
    static constexpr Key<Tensor1<const Token>> ahead{"MTP input tokens"};
    static constexpr Key<Tensor2<T>> embedded{"MTP embeddings"}, joined{"MTP eh_proj output"}, output{"output"};
  };
  enum Part { of_embedding, of_stream, of_output, first_layer };  // indices of the nested frames

  Tensor2<T> embed(Pass&, Frame&, const Parameter& table);
  void embed_backward(Pass&, Frame&, const Parameter& table, Tensor2<T> dx);
  // y = M [e ; h]
  Tensor2<T> join(Pass&, Frame&, Tensor2<T> e, Tensor2<T> h);
  void join_backward(Pass&, Frame&, Tensor2<T> dy, Tensor2<T> de, Tensor2<T> dh);
  // columns_here: columns of y that this rank's rows of M produce. half: this rank's rows of one half of the columns of
  // M (0: embedding, 1: stream).
  template <class S>
  Matrix<S> columns_here(Tensor2<S> y) const;
  template <class S>
  Matrix<S> half(Tensor2<S> of_matrix, int which) const;
  Index rows_here() const { return eh_proj_->held.boxes.empty() ? 0 : eh_proj_->held.boxes[0].box.count[0]; }

  std::string name_;
  double multiplier_, dropped_;  // multiplier and dropout probability of the embedding
  Token pad_token_id_;
  Norm<T> enorm_, hnorm_;
  Parameter* eh_proj_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Norm<T> norm_;
};

}  // namespace gyr
