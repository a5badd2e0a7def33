// SPDX-License-Identifier: BSD-3-Clause
// Mixture of experts: a router sends each row to top_k of E gated MLPs, and their outputs are added up with its weights,
//   y = sum over chosen e of w_e (up_e(h) a(gate_e(h))) down_e',   scores of gate(h) as in routing.hpp
// Every rank has a part of every expert: they are sharded over the tensor axis by inner channels, as an Mlp is. All ranks of the axis compute the
// same routing, in the accumulator's precision. Weights are applied to inner channels, so that their gradient is a sum over the axis of one number
// for each choice. Memory is that of rows times top_k rows, whatever is chosen. No choice is dropped, but in training where experts have room for so
// many tokens of a sequence alone (expert_capacity.hpp): the terms that balance the router count what was chosen, weights are not shared out anew,
// and nothing is dropped where a text is scored or written. Ranks with other tokens may deal the experts among themselves (expert_exchange.hpp): rows
// go to where their experts are, with their weights, and what the experts make of them comes back. What such a rank receives depends on the routing;
// its memory is for the most that it can be, or for less. Terms of the loss that balance the router (balance_loss.hpp) have their gradient here and
// are not told: every sequence of a step counts alike, whatever documents are packed into it and whichever of its tokens have labels.
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
  // Weights NAME.gate and, of each expert E, NAME.experts.E.gate_proj, .up_proj and .down_proj, with biases or without
  Experts(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  using Numbers = Tensor2<std::int32_t>;
  struct Keys {
    static constexpr Key<Tensor2<A>> scores{"scores of experts", RecomputeCost::sum, Phase::input_gradients},
        weights{"routing weights", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor1<A>> lse{"log-sum-exp of the router", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Numbers> place{"places of rows", RecomputeCost::sum};
    static constexpr Key<Tensor1<std::int32_t>> slot{"rows by expert", RecomputeCost::sum}, count{"rows of experts", RecomputeCost::sum};
    static constexpr Key<Numbers> chosen{"chosen experts", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor2<T>> gate_up{"gate and up of experts", RecomputeCost::product, Phase::input_gradients},
        inner{"inner of experts", RecomputeCost::pass}, dgate_up{"gradient of gate and up of experts"}, dlogits{"gradient of the router"};
    static constexpr Key<Tensor1<std::int32_t>> all_counts{"rows of experts on all ranks", RecomputeCost::sum};
    static constexpr Key<Tensor2<T>> received{"received rows", RecomputeCost::product}, dreceived{"gradient of received rows"};
    static constexpr Key<Tensor2<A>> received_weights{"received routing weights", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Numbers> received_place{"places of received rows", RecomputeCost::sum};
    static constexpr Key<Tensor1<std::int32_t>> received_slot{"received rows by expert", RecomputeCost::sum},
        received_count{"received rows of experts", RecomputeCost::sum};
  };
  struct Expert {
    Parameter *gate, *up, *down;
    Parameter *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  };

  // The rows that this rank's experts see: those chosen here, or those that all ranks have sent.
  struct Work {
    ExpertRows rows;
    RowGroups groups;                        // the same, by expert
    Index room;                              // rows that there is memory for
    std::optional<ExpertExchange> exchange;  // where they come from elsewhere

    Index count() const { return rows.slot.extent(0); }
    // Rows that some expert has: all, but where experts have room for some alone, of which the host knows the counts.
    Index used() const { return groups.known.empty() ? count() : std::accumulate(groups.known.begin(), groups.known.end(), Index(0)); }
  };

  Expert declare(const ModelConfig&, Index number, const std::string& name, Parameters&) const;
  // gate and up lie one behind the other: one product serves both.
  Factor<T> gate_up(const Expert& e) const { return e.gate->template factor<T>(2 * intermediate_size_); }
  Factor<T> down(const Expert& e) const { return e.down->template factor<T>(); }
  std::vector<Factor<T>> of_all(Factor<T> (Experts::*of)(const Expert&) const) const;
  ExpertRows route_rows(Pass&, Frame&, AllRows<T>& h);
  // Whether experts have room for some alone. Then a count more stands behind those of experts: of the choices that are dropped, which lie last.
  bool limited(const Pass& a) const { return c_.capacity_factor > 0 && a.sequence_weight > 0; }
  void group_within_capacity(Pass&, Numbers chosen, Tensor2<const A> weights, const ExpertRows& grouped) const;
  std::vector<Index> counts_of(Pass&, const ExpertRows&) const;
  Index used(Pass&, const ExpertRows&) const;
  template <class S>
  void clear_dropped_rows(Pass&, Index used, Tensor2<S> x) const;
  void count_dropped(Pass&, const Frame&) const;
  ExpertRows rows_of(const Frame&) const;
  Index room(const Pass&) const;
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
  Index hidden_size_, intermediate_size_ = 0;  // of an expert, on this rank
  Parameter* router_;
  Parameter* bias_ = nullptr;  // of the choice alone
  Parameter* router_bias_ = nullptr;
  ExpertLoad* load_;
  std::vector<Expert> experts_;
};

// Whether a forward of so many rows, with weights as they are stored, asks the host for nothing that depends on who is chosen.
bool groups_rows_on_device(const MoeConfig&, DType, Index rows);
OperatorChain experts_operators(const ModelConfig&, const std::string& name);  // without the shared expert's
LayerFlops experts_flops(const ModelConfig&, const TextLengths&);              // with the shared expert's
// The model whose Mlp is the shared expert.
ModelConfig with_shared_expert(const ModelConfig&);

void read_moe(Section&, ModelConfig&);
inline constexpr LayerSection moe_section{"moe", "mixture of experts", read_moe};

}  // namespace gyr
