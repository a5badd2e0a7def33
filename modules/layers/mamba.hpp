// SPDX-License-Identifier: BSD-3-Clause
// Mamba-2: projection to (z, x, B, C, dt), causal convolution of (x, B, C), SSD scan, gate or gated norm, output
// projection. Sharded over the tensor-parallel ranks by heads, B and C by groups. A norm group that spans ranks sums
// its statistics over them. If there are more ranks than heads, each rank has some of a head's channels, and the full
// state of these channels.
#pragma once

#include "kernels/ops/gate.hpp"
#include "kernels/ops/ssd.hpp"
#include "modules/model/layer.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

template <class T>
class Mamba final : public Branch<T> {
 public:
  // Weights NAME.in_proj, .conv1d, .A_log, .D, .dt_bias, .norm and .out_proj
  Mamba(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr auto until_input = Phase::input_gradients;
    static constexpr Key<Tensor2<T>> projected{"projected", RecomputeCost::gemm, until_input, RowSplit::split},
        convolved{"convolved", RecomputeCost::pass, until_input}, scan{"scan", RecomputeCost::mixing, until_input},
        gated{"gated", RecomputeCost::pass}, dprojected{"gradient of projected"};
    static constexpr Key<Tensor1<A>> magnitudes{"magnitudes of gated"};  // with ternary layers only
    static constexpr Key<Tensor2<A>> dt{"time steps", RecomputeCost::mixing, until_input},
        squares{"squares of norm groups", RecomputeCost::sum, until_input};
    static constexpr Key<Tensor3<A>> states{"states of chunks", RecomputeCost::mixing, until_input}, state{"SSM state"};
    static constexpr Key<Tensor3<T>> convolution{"convolution state"}, before{"inputs before blocks", RecomputeCost::sum, until_input};
    // Saved with context parallelism only, for each block of contiguous tokens.
    static constexpr Key<Tensor2<A>> entering{"states that enter blocks", RecomputeCost::sum, until_input},
        total{"decay over blocks", RecomputeCost::sum, until_input};
    static constexpr Key<Tensor3<A>> decay{"decay over chunks", RecomputeCost::sum, until_input};
  };
  // Column widths of the projected rows on this rank.
  Index inner() const { return num_heads_ * head_dim_; }
  Index group_width() const { return num_groups_ * c_.state_size; }
  Index channels() const { return inner() + 2 * group_width(); }
  Index projected() const { return inner() + channels() + num_heads_; }
  template <class S>
  Matrix<S> z(const Tensor2<S>& p) const {
    return columns(p, 0, inner());
  }
  template <class S>
  Matrix<S> xbc(const Tensor2<S>& p) const {
    return columns(p, inner(), channels());
  }
  template <class S>
  Matrix<S> dt(const Tensor2<S>& p) const {
    return columns(p, inner() + channels(), num_heads_);
  }
  template <class S>
  Matrix<S> x(const Tensor2<S>& c) const {
    return columns(c, 0, inner());
  }
  template <class S>
  Matrix<S> b(const Tensor2<S>& c) const {
    return columns(c, inner(), group_width());
  }
  template <class S>
  Matrix<S> c(const Tensor2<S>& c) const {
    return columns(c, inner() + group_width(), group_width());
  }

  Tensor1<A> multipliers(Device&) const;  // factor of each projected column, in scratch memory
  SsdShape scan_shape(const SequenceLayout&) const;
  SsdWeights<A> scan_weights() const;
  Tensor1<const A> optional(const Parameter* p) const { return p ? p->vector<const A>() : Tensor1<const A>(); }
  Tensor2<const A> conv_weight() const { return Tensor2<const A>(conv_->vector<const A>().data(), channels(), c_.conv_kernel); }
  GateOrder order() const { return c_.norm == SsmNorm::gate_first ? GateOrder::gate_first : GateOrder::norm_first; }
  Index norm_width() const { return c_.inner() / c_.num_groups; }
  Communicator& norm_ranks(Pass& a) const {
    BlockedCommunicator& ranks = a.holders(*out_);
    return ranks.block(std::max(1, ranks.size() / int(c_.num_groups)));
  }
  void mix(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A>);
  void mix_shared(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A>);
  void scan_backward(Pass&, Frame&, Tensor2<T> p, Tensor2<T> conv, SsdSaved<A>, Tensor2<T> dscan, Tensor2<T> dconv, Tensor2<T> dp);
  void scan_backward_shared(Pass&, Frame&, const SsdInput<T>&, SsdSaved<A>, Tensor2<T> dscan, const SsdInputGradient<T>&,
                            const SsdWeightGradient<A>&);
  void convolution_backward_of(Pass&, Frame&, Tensor2<T> p, Tensor2<T> dconv, Tensor2<T> dp);
  void gate_and_norm(Pass&, Frame&, Tensor2<T> p, Tensor2<T> scan, Tensor2<T> gated);
  void scan_with_past(Pass&, Tensor2<T> p, Tensor2<T> conv, Tensor2<T> scan, SsdSaved<A>);

  MambaConfig c_;
  std::string name_;
  double rms_norm_eps_;
  Index num_heads_, num_groups_;  // number of heads and of B/C groups on this rank
  Index head_dim_;                // number of channels per head on this rank
  Parameter *in_, *conv_, *a_log_, *d_, *dt_bias_, *out_;
  Parameter *in_bias_ = nullptr, *conv_bias_ = nullptr, *norm_ = nullptr, *out_bias_ = nullptr;
};

OperatorChain mamba_operators(const ModelConfig&, const std::string& name);
LayerFlops mamba_flops(const ModelConfig&, const TextLengths&);

// Traits of a layer type with a Mamba-2 mixer.
constexpr LayerTraits with_mamba(LayerTraits t) {
  t.ssm = t.ternary = true, t.convolution = {[](const ModelConfig& m) { return m.mamba.conv_kernel; }, "mamba.conv_kernel"};
  return t;
}
void read_mamba(Section&, ModelConfig&);
inline constexpr LayerSection mamba_section{"mamba", "Mamba-2 state-space branch", read_mamba};

}  // namespace gyr
