// SPDX-License-Identifier: BSD-3-Clause
// Mixture of experts: a router sends each row to top_k of E gated MLPs, and their outputs are added up with the routing weights,
//   y = sum over chosen e of w_e (up_e(h) a(gate_e(h))) down_e'
//   h normed rows, a activation, w_e routing weight from the scores of gate(h) as in routing.hpp
// Without a gate (moe.gated: false, Nemotron-3) an expert is a(up_e(h)) down_e'.
// With a latent (moe.latent_size, Nemotron-3) the experts read fc1(h) in place of h, and y is fc2 of their sum. Router and shared expert read h.
// Both projections are replicated. Each tensor-parallel rank projects its own part of the sum, so that its part of y needs no other reduction, and
// has partial gradients of both. Expert-parallel ranks exchange latents, which are narrower than the stream.
// Tensor parallel: every expert is sharded by inner channels, as an Mlp is. All ranks compute the same routing, in accumulator precision. Routing
// weights are applied to the inner channels, so that their gradient is a sum over the ranks of one element per choice.
// Memory: rows times top_k rows, independent of the routing.
// Capacity: choices are dropped only in training, if moe.capacity_factor is set (expert_capacity.hpp). The load-balancing losses count all choices,
// and the weights of the remaining choices are not renormalised. Evaluation and generation drop nothing.
// Expert parallel: ranks that process different tokens may distribute the experts (expert_exchange.hpp). Rows and their weights are sent to the ranks
// of their experts, and the results return. The number of rows that a rank receives depends on the routing; memory is allocated for the maximum, or
// for less (parallel.expert_room).
// Load-balancing losses (balance_loss.hpp): only their gradients are computed, here; their values are not reported. Every sequence of a step counts
// equally, whatever documents are packed into it and whichever of its tokens have labels.
#pragma once

#include <numeric>
#include <optional>

#include "kernels/ops/grouped_biases.hpp"
#include "modules/layers/expert_capacity.hpp"
#include "modules/layers/expert_exchange.hpp"
#include "modules/model/layer.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

template <class T>
class Experts final : public Branch<T> {
 public:
  // Weights NAME.gate and, for each expert E, NAME.experts.E.gate_proj, .up_proj and .down_proj, with or without biases; with a latent also
  // NAME.fc1_latent_proj and .fc2_latent_proj
  Experts(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  using ExpertIds = Tensor2<std::int32_t>;
  struct Keys {
    static constexpr Key<Tensor2<A>> scores{"router scores", RecomputeCost::sum, Phase::input_gradients},
        weights{"routing weights", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor1<A>> lse{"log-sum-exp of the router", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<ExpertIds> place{"grouped row of each choice", RecomputeCost::sum};
    static constexpr Key<Tensor1<std::int32_t>> slot{"choice of each grouped row", RecomputeCost::sum}, count{"rows per expert", RecomputeCost::sum};
    static constexpr Key<ExpertIds> chosen{"chosen experts", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor2<T>> gate_up{"gate and up of experts", RecomputeCost::gemm, Phase::input_gradients},
        inner{"inner activations of experts", RecomputeCost::pass}, dgate_up{"gradient of gate and up of experts"},
        dlogits{"gradient of router logits"};
    static constexpr Key<Tensor2<T>> latents{"latents that experts read", RecomputeCost::gemm}, mixed{"sum of expert outputs (latent)"},
        dlatents{"gradient of latents"}, dmixed{"gradient of the sum of expert outputs"};
    static constexpr Key<Tensor1<std::int32_t>> all_counts{"rows per expert on all ranks", RecomputeCost::sum};
    static constexpr Key<Tensor2<T>> received{"received rows", RecomputeCost::gemm}, dreceived{"gradient of received rows"};
    static constexpr Key<Tensor2<A>> received_weights{"received routing weights", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<ExpertIds> received_place{"grouped row of each received row", RecomputeCost::sum};
    static constexpr Key<Tensor1<std::int32_t>> received_slot{"received row of each grouped row", RecomputeCost::sum},
        received_count{"received rows per expert", RecomputeCost::sum};
  };
  struct Expert {
    Parameter *gate = nullptr, *up, *down;  // gate: null if experts have none
    Parameter *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  };

  // Rows that this rank's experts process: its own rows, or those received from all expert-parallel ranks.
  struct Work {
    ExpertRows rows;
    RowGroups groups;                        // number of these rows for each expert
    Index row_capacity;                      // number of rows that memory is allocated for
    std::optional<ExpertExchange> exchange;  // all-to-all with the expert-parallel ranks; empty: no expert parallelism

    Index count() const { return rows.slot.extent(0); }
    // Rows that an expert processes. Without a capacity limit these are all rows; with one, dropped choices are
    // excluded, and the host knows the counts.
    Index used() const { return groups.known.empty() ? count() : std::accumulate(groups.known.begin(), groups.known.end(), Index(0)); }
  };

  Expert declare(const ModelConfig&, Index number, const std::string& name, Parameters&) const;
  void declare_latents(const ModelConfig&, Parameters&);
  bool has_latent() const { return c_.latent_size > 0; }
  void compress(Pass&, Frame&, AllRows<T>& h) const;
  Tensor2<const T> read_by_experts(const Frame&, AllRows<T>& h) const;
  void mix(Pass&, const Frame&, const Work&, const ExpertRows& chosen, Tensor2<T> x, Add, Tensor2<T> y) const;
  Tensor2<const T> gradient_of_mixed(Pass&, Frame&, Tensor2<const T> dy) const;
  void latents_backward(Pass&, Frame&, const Work&, const ExpertRows& chosen, Tensor2<T> dx, Add, Tensor2<T> dh) const;
  // gate_proj and up_proj are adjacent in memory, so that one GEMM serves both.
  Index projected() const { return (c_.gated ? 2 : 1) * intermediate_size_; }
  Factor<T> gate_up(const Expert& e) const { return (c_.gated ? e.gate : e.up)->template factor<T>(projected()); }
  Factor<T> down(const Expert& e) const { return e.down->template factor<T>(); }
  std::vector<Factor<T>> of_all(Factor<T> (Experts::*of)(const Expert&) const) const;
  ExpertRows route_rows(Pass&, Frame&, AllRows<T>& h);
  // True if the experts are distributed over expert-parallel ranks.
  bool exchanges(const Pass& a) const { return a.experts.ranks && c_.experts > 1; }
  // True if the expert capacity is limited, which is so only in training. Then an additional count follows those of the
  // experts: the dropped choices, which are grouped last.
  bool limited(const Pass& a) const { return c_.capacity_factor > 0 && a.sequence_weight > 0; }
  void group_within_capacity(Pass&, ExpertIds chosen, Tensor2<const A> weights, const ExpertRows& grouped) const;
  std::vector<Index> counts_of(Pass&, const ExpertRows&) const;
  Index used(Pass&, const ExpertRows&) const;
  template <class S>
  void clear_dropped_rows(Pass&, Index used, Tensor2<S> x) const;
  void count_dropped(Pass&, const Frame&) const;
  ExpertRows rows_of(const Frame&) const;
  Index row_capacity(const Pass&) const;
  void receive(Pass&, Frame&, const ExpertRows& chosen, AllRows<T>& h) const;
  void exchange_counts(Pass&, Frame&, const ExpertRows& chosen) const;
  ExpertExchange exchange_of(Pass&, const Frame&) const;
  Work work_of(Pass&, const Frame&) const;
  Tensor2<A> weights_of(const Frame&, const Work&) const;
  template <class S>
  void send_rows(Pass&, const ExpertExchange&, const ExpertRows& chosen, Tensor2<const S> x, Tensor2<S> received) const;
  template <class S>
  void return_outputs(Pass&, const Work&, const ExpertRows& chosen, Tensor2<S> by_expert, Add, Tensor2<S> y) const;
  std::vector<std::vector<const Parameter*>> all_of(std::initializer_list<Parameter * Expert::*> parts) const;
  GroupMatrices<const A> biases(Parameter* Expert::*, Index size) const;
  void experts_biases_backward(Pass&, const Work&, Tensor2<const T> x, Tensor2<const A> weights, Tensor2<const T> dgate_up,
                               Tensor2<A> dweights) const;
  void router_backward(Pass&, Frame&, Tensor2<A> dweights, Tensor2<T> dh);

  void count_choices(Pass&, const Frame&) const;
  void balance(Pass&, Frame&, Tensor2<A> dlogits) const;

  MoeConfig c_;
  std::string name_;
  Index width_, intermediate_size_ = 0;  // width_: channels of a row that experts read; intermediate_size_: inner channels of each on this rank
  Parameter* router_;
  Parameter* bias_ = nullptr;  // e_score_correction_bias, used only to choose experts
  Parameter* router_bias_ = nullptr;
  Parameter *latent_in_ = nullptr, *latent_out_ = nullptr;  // fc1_latent_proj and fc2_latent_proj; null if there is no latent
  ExpertLoad* load_;
  std::vector<Expert> experts_;
};

// True if a forward of `rows` rows, with weights as stored, never waits for routing results on the host.
bool groups_rows_on_device(const MoeConfig&, DType, Index rows);
OperatorChain experts_operators(const ModelConfig&, const std::string& name);  // operators of the routed experts only
LayerFlops experts_flops(const ModelConfig&, const TextLengths&);              // flops of the routed and the shared experts
// A copy of the configuration whose `mlp` describes the shared expert.
ModelConfig with_shared_expert(const ModelConfig&);
// A copy of the configuration whose `moe` describes the gated shared expert: a single expert that all rows choose, with
// the sigmoid of its router score as their weight. It is not distributed over expert-parallel ranks.
ModelConfig with_gated_shared_expert(const ModelConfig&);

void read_moe(Section&, ModelConfig&);
inline constexpr LayerSection moe_section{"moe", "mixture of experts", read_moe};

}  // namespace gyr
