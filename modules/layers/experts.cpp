// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/experts.hpp"

#include <map>
#include <numeric>

#include "kernels/device/upload.hpp"
#include "kernels/ops/balance_loss.hpp"
#include "kernels/ops/sum.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

namespace {

// Views for data with one row per slot, the choice of one expert by one row. Every slot then counts as a row with a
// single choice.
ExpertRows one_each(const ExpertRows& rows) { return {Tensor2<std::int32_t>(rows.place.data(), rows.slot.extent(0), 1), rows.slot, rows.count}; }
template <class S>
Tensor2<S> one_each(const Tensor2<S>& x) {
  return Tensor2<S>(x.data(), x.span(), 1);
}

template <class T>
GroupMatrices<const T> stored(const std::vector<Factor<T>>& w) {
  GroupMatrices<const T> matrices{{}, w[0].stored.rows, w[0].stored.columns};
  for (const Factor<T>& f : w) matrices.data.push_back(f.stored.data);
  return matrices;
}

template <class T>
void grouped_gemms(Device& dev, const RowGroups& groups, Tensor2<const T> x, const std::vector<Factor<T>>& w, Tensor2<T> y) {
  if (!w[0].int8) return grouped_linear<T>(dev, groups, x, stored(w), y);
  std::vector<Int8Matrix> matrices;
  for (const Factor<T>& f : w) matrices.push_back(f.int8);
  grouped_linear<T>(dev, groups, x, matrices, y);
}

// Calls add(first column, gradients) for the adjacent parameters of each expert, whose outputs are neighbouring
// columns. Frozen parameters may differ between experts, so experts are processed together if they train the same
// columns.
template <class A, class Add>
void each_gradient(const std::vector<std::vector<const Parameter*>>& groups, const Add& add) {
  std::map<std::pair<Index, Index>, GroupMatrices<A>> by_columns;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for_trained(groups[g], [&](const Parameter& first, Index column, Index count) {
      GroupMatrices<A>& gradients = by_columns[{column, count}];
      gradients.data.resize(groups.size()), gradients.rows = count, gradients.columns = first.columns();
      gradients.data[g] = first.matrix_gradient<A>().data();
    });
  for (const auto& [at, gradients] : by_columns) add(at.first, gradients);
}

// dw += dy' x
template <class T>
void weights_backward(Device& dev, const RowGroups& groups, const std::vector<std::vector<const Parameter*>>& weights, Matrix<const T> dy,
                      Tensor2<const T> x) {
  each_gradient<Acc<T>>(weights, [&](Index column, const GroupMatrices<Acc<T>>& dw) {
    grouped_linear_backward_weight<T>(dev, groups, columns(dy, column, dw.rows), x, dw);
  });
}
// db += column sums of dy
template <class T>
void biases_backward(Device& dev, const RowGroups& groups, const std::vector<std::vector<const Parameter*>>& biases, Matrix<const T> dy) {
  each_gradient<Acc<T>>(
      biases, [&](Index column, const GroupMatrices<Acc<T>>& db) { grouped_bias_backward<T>(dev, groups, columns(dy, column, db.rows), db); });
}

Run inner_channels(const MoeConfig& c) { return {c.intermediate_size, c.intermediate_size, false, "moe.intermediate_size"}; }

// Channels of the rows that routed experts read and write.
Index expert_width(const ModelConfig& m) { return m.moe.latent_size > 0 ? m.moe.latent_size : m.hidden_size; }

}  // namespace

bool groups_rows_on_device(const MoeConfig& c, DType dtype, Index rows) { return has_grouped_kernels(dtype, rows * c.routing.top_k / c.experts); }

// All tensor-parallel ranks compute the same routing and the same latents, and each has a partial gradient of them. A rank's part of the latent
// output is projected before the ranks are summed.
OperatorChain experts_operators(const ModelConfig& m, const std::string& name) {
  const MoeConfig& c = m.moe;
  const Run inner = inner_channels(c);
  const Channels stream = undivided(m.hidden_size), latents = undivided(expert_width(m)), channels = by_units({inner});
  const Channels read = by_units(c.gated ? std::vector{inner, inner} : std::vector{inner});
  Operator route{"routing", stream, stream, {}, {{name + ".gate.weight", {c.experts, m.hidden_size}}}};
  route.passages = {{TensorState::shared, TensorState::shared, WeightSplit::nowhere, {{{1, 1}, c.routing.top_k, 0, 1}}}};
  if (c.router_bias) route.weights.push_back({name + ".gate.bias", {c.experts}});
  if (c.bias) route.weights.push_back({name + ".gate.e_score_correction_bias", {c.experts}});
  const std::string each = name + (c.experts > 1 ? ".experts.*" : ".experts.0");
  const std::vector<std::string> up = c.gated ? std::vector{each + ".gate_proj", each + ".up_proj"} : std::vector{each + ".up_proj"};
  OperatorChain chain{route};
  const auto project = [&](const char* what, const Channels& in, const Channels& out, TensorState state, const char* weight) {
    if (c.latent_size > 0) chain.push_back({what, in, out, {{state, state}}, {{name + weight, {out.width, in.width}}}});
  };
  project("latents of experts", stream, latents, TensorState::shared, ".fc1_latent_proj.weight");
  chain.push_back(gemm_operator(c.gated ? "gate and up" : "up", latents, read, up, c.expert_bias));
  chain.push_back(over_units("activation", read, channels));
  chain.push_back(gemm_operator("down", channels, latents, {each + ".down_proj"}, c.expert_bias));
  project("output of latents", latents, stream, TensorState::partial, ".fc2_latent_proj.weight");
  for (Operator& op : chain)
    for (OperatorWeight& w : op.weights)
      if (w.name.starts_with(each)) w.alike = c.experts;
  return chain;
}

template <class T>
Experts<T>::Experts(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.moe), name_(name), width_(expert_width(m)) {
  router_ = &parameters.declare({name + ".gate.weight", {c_.experts, m.hidden_size}, replicated(), normal(m.init_std)});
  if (c_.router_bias) router_bias_ = &parameters.declare({name + ".gate.bias", {c_.experts}, replicated(), zeros(), Storage::wide, false});
  if (c_.bias) {
    Weight bias{name + ".gate.e_score_correction_bias", {c_.experts}, replicated(), zeros(), Storage::wide, false};
    bias.learns = false;
    bias_ = &parameters.declare(std::move(bias));
  }
  load_ = &parameters.expert_loads().add(name, c_.experts, bias_);
  if (has_latent()) declare_latents(m, parameters);
  const Span mine = c_.experts > 1 ? parameters.experts(c_.experts) : Span{0, 1};
  for (Index e = mine.first; e < mine.last; ++e) experts_.push_back(declare(m, e, fmt::format("{}.experts.{}", name, e), parameters));
  intermediate_size_ = experts_[0].up->rows();
}

template <class T>
void Experts<T>::declare_latents(const ModelConfig& m, Parameters& parameters) {
  const auto matrix = [&](const char* part, Index rows, Index columns) {
    return &parameters.declare({name_ + part + ".weight", {rows, columns}, replicated(), normal(m.init_std), Storage::factor, true, true});
  };
  latent_in_ = matrix(".fc1_latent_proj", width_, m.hidden_size);
  latent_out_ = matrix(".fc2_latent_proj", m.hidden_size, width_);
}

template <class T>
auto Experts<T>::declare(const ModelConfig& m, Index number, const std::string& name, Parameters& parameters) const -> Expert {
  using P = Parameters;
  const Run inner = inner_channels(c_);
  const auto matrix = [&](const char* part, Shape shape, Shardings shardings, P::Fit fit) {
    Weight weight{name + part + ".weight", std::move(shape), std::move(shardings), normal(m.init_std), Storage::factor};
    weight.tokens = double(c_.routing.top_k) / double(c_.experts);
    if (c_.experts > 1) weight.expert = {number, c_.experts};
    return &parameters.declare(std::move(weight), fit);
  };
  const auto bias = [&](const char* part, Index size, Shardings shardings, P::Fit fit) {
    Weight weight{name + part + ".bias", {size}, std::move(shardings), zeros(), Storage::wide, false};
    if (c_.experts > 1) weight.expert = {number, c_.experts};
    return &parameters.declare(std::move(weight), fit);
  };
  const Shape up{c_.intermediate_size, width_}, down{width_, c_.intermediate_size};
  Expert expert;
  if (c_.gated) expert.gate = matrix(".gate_proj", up, by_rows({inner}), P::Fit::aligned);
  expert.up = matrix(".up_proj", up, by_rows({inner}), c_.gated ? P::Fit::adjacent : P::Fit::aligned);
  expert.down = matrix(".down_proj", down, by_columns({inner}), P::Fit::aligned);
  if (!c_.expert_bias) return expert;
  expert.gate_bias = bias(".gate_proj", c_.intermediate_size, by_rows({inner}), P::Fit::aligned);
  expert.up_bias = bias(".up_proj", c_.intermediate_size, by_rows({inner}), P::Fit::adjacent);
  expert.down_bias = bias(".down_proj", width_, replicated(), P::Fit::aligned);
  return expert;
}

template <class T>
std::vector<Factor<T>> Experts<T>::of_all(Factor<T> (Experts::*of)(const Expert&) const) const {
  std::vector<Factor<T>> all;
  for (const Expert& e : experts_) all.push_back((this->*of)(e));
  return all;
}

// Rows of this rank for each expert. Waits for the device, to copy the counts to the host. In a dry run the rows are
// distributed evenly, which costs the flops of any other routing, and no less than with dropped choices.
template <class T>
std::vector<Index> Experts<T>::counts_of(Pass& a, const ExpertRows& rows) const {
  const Index experts = Index(rows.count.extent(0)) - limited(a), slots = rows.slot.extent(0);
  const Index most = limited(a) ? max_rows_of_expert(c_, a.sequences) : a.stream.rows;
  std::vector<Index> counts;
  if (a.dev.dry_run()) {
    for (Index e = 0; e < experts; ++e) counts.push_back(std::min(most, slots / experts + (e < slots % experts)));
    return counts;
  }
  for (const std::int32_t n : to_host(a.dev, Tensor1<const std::int32_t>(gyr::rows(rows.count, 0, experts)))) counts.push_back(n);
  return counts;
}

// Number of this rank's grouped rows that an expert processes, on whichever rank.
template <class T>
Index Experts<T>::used(Pass& a, const ExpertRows& rows) const {
  if (!limited(a)) return rows.slot.extent(0);
  const std::vector<Index> counts = counts_of(a, rows);
  return std::accumulate(counts.begin(), counts.end(), Index(0));
}

// Dropped choices have no output: sets their rows, which come last, to zero.
template <class T>
template <class S>
void Experts<T>::clear_dropped_rows(Pass& a, Index used, Tensor2<S> x) const {
  if (const Index rest = Index(x.extent(0)) - used; rest > 0) fill<S>(a.dev, flat(rows(x, used, rest)), 0);
}

template <class T>
ExpertRows Experts<T>::rows_of(const Frame& frame) const {
  return {frame.get(Keys::place), frame.get(Keys::slot), frame.get(Keys::count)};
}

// Routing: scores, choices and weights of every row, and the rows grouped by expert.
template <class T>
ExpertRows Experts<T>::route_rows(Pass& a, Frame& frame, AllRows<T>& h) {
  const Index rows = a.stream.rows, k = c_.routing.top_k;
  const auto scores = frame.put(Keys::scores, rows, c_.experts);
  const auto weights = frame.put(Keys::weights, rows, k);
  const auto chosen = frame.put(Keys::chosen, rows, k);
  const auto lse = frame.put(Keys::lse, c_.z_loss > 0 ? rows : 0);
  const ExpertRows grouped{frame.put(Keys::place, rows, k), frame.put(Keys::slot, rows * k), frame.put(Keys::count, c_.experts + limited(a))};
  if (!frame.wants(Keys::scores)) return grouped;
  linear<T, A>(a.dev, h.gather(), router_->template matrix<const T>(), scores);
  if (router_bias_) add_bias<A>(a.dev, router_bias_->template vector<const A>(), 1, scores);
  route<A>(a.dev, c_.routing, bias_ ? bias_->template vector<const A>() : Tensor1<const A>(), scores, chosen, weights,
           c_.z_loss > 0 ? lse : Tensor1<A>());
  if (limited(a)) group_within_capacity(a, chosen, weights, grouped);
  else group_rows(a.dev, chosen, grouped);
  return grouped;
}

// Drops choices beyond the expert capacity. All context-parallel ranks make the same decision on their hosts, which
// wait for the counts of rows anyway.
template <class T>
void Experts<T>::group_within_capacity(Pass& a, ExpertIds chosen, Tensor2<const A> weights, const ExpertRows& grouped) const {
  Scope scope(a.dev.scratch);
  const auto to = a.scratch<std::int32_t>("experts after the capacity limit", Index(chosen.extent(0)), Index(chosen.extent(1)));
  if (!a.dev.dry_run()) {
    const auto mine = to_host(a.dev, flat(chosen));
    SharedChoices all{{mine.begin(), mine.end()}, {}};
    if (c_.drop_policy == DropPolicy::probability) {
      const auto here = to_host(a.dev, flat(weights));
      all.weights.assign(here.begin(), here.end());
    }
    if (a.context) {
      const std::vector<double> ids = a.context->gather(std::vector<double>(all.chosen.begin(), all.chosen.end()));
      all.chosen.assign(ids.begin(), ids.end());
      if (!all.weights.empty()) all.weights = a.context->gather(all.weights);
    }
    const std::vector<std::int32_t> experts = experts_within_capacity(c_, a.sequences, all);
    backend::upload(a.dev.queue, experts.data(), to.data(), Index(experts.size() * sizeof(std::int32_t)));
  }
  group_rows(a.dev, to, grouped);
}

// Rows that a rank allocates memory for with expert parallelism.
template <class T>
Index Experts<T>::row_capacity(const Pass& a) const {
  const Index most = ExpertExchange::capacity(a.experts, a.stream.rows, c_.routing.top_k, c_.experts);
  return limited(a) ? std::min(most, c_.experts * max_rows_of_expert(c_, a.sequences)) : most;
}

template <class T>
ExpertExchange Experts<T>::exchange_of(Pass& a, const Frame& frame) const {
  const Index slots = a.stream.rows * c_.routing.top_k, row_capacity = limited(a) ? c_.experts * max_rows_of_expert(c_, a.sequences) : slots;
  if (a.dev.dry_run()) return ExpertExchange::even(*a.experts.ranks, c_.experts, std::min(slots, row_capacity));
  const std::vector<std::int32_t> counts = to_host(a.dev, Tensor1<const std::int32_t>(frame.get(Keys::all_counts)));
  return {*a.experts.ranks, {counts.begin(), counts.end()}};
}

template <class T>
auto Experts<T>::work_of(Pass& a, const Frame& frame) const -> Work {
  const Index slots = a.stream.rows * c_.routing.top_k;
  if (!exchanges(a)) {
    const ExpertRows chosen = rows_of(frame);
    RowGroups groups{rows(chosen.count, 0, c_.experts), slots / c_.experts, limited(a) ? max_rows_of_expert(c_, a.sequences) : a.stream.rows, {}};
    // one copy of the counts to the host serves all GEMMs
    if (a.dev.dry_run() || limited(a) || !has_grouped_kernels(dtype_of<T>(), groups.even)) groups.known = counts_of(a, chosen);
    return {chosen, std::move(groups), slots, {}};
  }
  ExpertExchange exchange = exchange_of(a, frame);
  const Index count = exchange.received();
  const ExpertRows received{rows(frame.get(Keys::received_place), 0, count), rows(frame.get(Keys::received_slot), 0, count),
                            frame.get(Keys::received_count)};
  const Index ranks = a.experts.ranks->size(), most = std::min(row_capacity(a), a.stream.rows * ranks);
  RowGroups groups{received.count, slots * ranks / c_.experts, most, exchange.received_counts()};
  return {received, std::move(groups), row_capacity(a), std::move(exchange)};
}

template <class T>
auto Experts<T>::weights_of(const Frame& frame, const Work& work) const -> Tensor2<A> {
  return work.exchange ? rows(frame.get(Keys::received_weights), 0, work.count()) : frame.get(Keys::weights);
}

// Sends rows to the ranks of their experts. x has one row per token, or one per slot (choice of an expert by a token).
template <class T>
template <class S>
void Experts<T>::send_rows(Pass& a, const ExpertExchange& exchange, const ExpertRows& chosen, Tensor2<const S> x, Tensor2<S> received) const {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "expert parallel all-to-all: rows x top_k x width, and routing weights");
  const auto by_expert = a.scratch<S>("rows to send", Index(chosen.slot.extent(0)), Index(x.extent(1)));
  gather_rows<S>(a.dev, chosen, x, by_expert);
  exchange.send<S>(a.dev, by_expert, received);
}

// y (= or +=) the sum of the expert outputs of each row. y has one row per token, or one per slot (choice of an expert
// by a token).
template <class T>
template <class S>
void Experts<T>::return_outputs(Pass& a, const Work& work, const ExpertRows& chosen, Tensor2<S> by_expert, Add add, Tensor2<S> y) const {
  if (!work.exchange) {
    clear_dropped_rows<S>(a, work.used(), by_expert);
    return combine_rows<S>(a.dev, chosen, by_expert, add, y);
  }
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "expert parallel all-to-all: rows x top_k x width, and routing weights");
  const auto by_rank = rows(a.scratch<S>("rows to return", work.row_capacity, Index(y.extent(1))), 0, work.count());
  const auto mine = a.scratch<S>("returned rows", Index(chosen.slot.extent(0)), Index(y.extent(1)));
  combine_rows<S>(a.dev, work.rows, by_expert, Add::no, by_rank);
  work.exchange->template give_back<S>(a.dev, by_rank, mine);
  clear_dropped_rows<S>(a, used(a, chosen), mine);
  combine_rows<S>(a.dev, chosen, mine, add, y);
}

// Exchanges the number of rows that each rank sends to each expert, and the routing weights of these rows.
template <class T>
void Experts<T>::exchange_counts(Pass& a, Frame& frame, const ExpertRows& chosen) const {
  std::optional<ExpertExchange> exchange;
  if (a.dev.dry_run()) {
    exchange.emplace(exchange_of(a, frame));
  } else {
    exchange.emplace(ExpertExchange::ask(*a.experts.ranks, to_host(a.dev, Tensor1<const std::int32_t>(rows(chosen.count, 0, c_.experts)))));
    exchange->check(row_capacity(a), a.experts.capacity_factor);
    const std::vector<std::int32_t> counts(exchange->chosen().begin(), exchange->chosen().end());
    backend::upload(a.dev.queue, counts.data(), frame.get(Keys::all_counts).data(), Index(counts.size() * sizeof(std::int32_t)));
  }
  const Work work = work_of(a, frame);
  Scope scope(a.dev.scratch);
  const auto expert = rows(a.scratch<std::int32_t>("experts of received rows", row_capacity(a), Index(1)), 0, work.count());
  if (!a.dev.dry_run()) {
    const std::vector<std::int32_t> ids = exchange->experts();
    backend::upload(a.dev.queue, ids.data(), expert.data(), Index(ids.size() * sizeof(std::int32_t)));
  }
  group_rows(a.dev, expert, work.rows);
  send_rows<A>(a, *exchange, one_each(chosen), one_each(frame.get(Keys::weights)), weights_of(frame, work));
}

template <class T>
void Experts<T>::receive(Pass& a, Frame& frame, const ExpertRows& chosen, AllRows<T>& h) const {
  if (!exchanges(a)) return;
  const Index ranks = a.experts.ranks->size(), most = row_capacity(a);
  frame.put(Keys::all_counts, ranks * c_.experts);
  frame.put(Keys::received_weights, most, Index(1));
  frame.put(Keys::received_place, most, Index(1)), frame.put(Keys::received_slot, most), frame.put(Keys::received_count, c_.experts / ranks);
  const auto received = frame.put(Keys::received, most, width_);
  if (frame.wants(Keys::all_counts)) exchange_counts(a, frame, chosen);
  if (!frame.wants(Keys::received)) return;
  const ExpertExchange exchange = exchange_of(a, frame);
  send_rows<T>(a, exchange, chosen, read_by_experts(frame, h), rows(received, 0, exchange.received()));
}

template <class T>
void Experts<T>::compress(Pass& a, Frame& frame, AllRows<T>& h) const {
  const auto latents = frame.put(Keys::latents, a.stream.rows, width_);
  if (frame.wants(Keys::latents)) linear<T>(a.dev, h.gather(), latent_in_->template factor<T>(), latents);
}

// Rows that the experts read: the latents, or those of h.
template <class T>
Tensor2<const T> Experts<T>::read_by_experts(const Frame& frame, AllRows<T>& h) const {
  return has_latent() ? frame.get(Keys::latents) : h.gather();
}

template <class T>
void Experts<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const ExpertRows chosen = route_rows(a, frame, h);
  if (has_latent()) compress(a, frame, h);
  receive(a, frame, chosen, h);
  const Work work = work_of(a, frame);
  const Index n = work.count();
  const auto gate_up = rows(frame.put(Keys::gate_up, work.row_capacity, projected()), 0, n);
  const auto inner = rows(frame.put(Keys::inner, work.row_capacity, intermediate_size_), 0, n);
  Scope scope(a.dev.scratch);
  const auto x = rows(a.scratch<T>("rows grouped by expert", work.row_capacity, width_), 0, n);
  if (frame.wants(Keys::gate_up)) {
    gather_rows<T>(a.dev, work.rows, work.exchange ? Tensor2<const T>(rows(frame.get(Keys::received), 0, n)) : read_by_experts(frame, h), x);
    grouped_gemms<T>(a.dev, work.groups, x, of_all(&Experts::gate_up), gate_up);
    if (c_.expert_bias) grouped_add_bias<T>(a.dev, work.groups, biases(&Expert::gate_bias, 2 * intermediate_size_), gate_up);
    if (!work.exchange) clear_dropped_rows<T>(a, work.used(), gate_up);
  }
  if (frame.wants(Keys::inner)) {
    weighted_glu<T>(a.dev, c_.activation, work.rows, gate_up, weights_of(frame, work), inner);
    contribute_once<T>(a.dev, *experts_[0].down, inner);
  }
  if (!has_latent()) {
    if (y.data()) mix(a, frame, work, chosen, x, add, y);
    return;
  }
  const auto mixed = frame.put(Keys::mixed, a.stream.rows, width_);
  if (frame.wants(Keys::mixed)) mix(a, frame, work, chosen, x, Add::no, mixed);
  if (y.data()) linear<T>(a.dev, mixed, latent_out_->template factor<T>(), y, 1, beta(add));
}

// y (= or +=) the weighted sum of the expert outputs of each row. x: memory for these outputs, grouped by expert.
template <class T>
void Experts<T>::mix(Pass& a, const Frame& frame, const Work& work, const ExpertRows& chosen, Tensor2<T> x, Add add, Tensor2<T> y) const {
  grouped_gemms<T>(a.dev, work.groups, rows(frame.get(Keys::inner), 0, work.count()), of_all(&Experts::down), x);
  if (c_.expert_bias && a.tensor.rank() == 0)
    grouped_add_weighted_bias<T>(a.dev, work.groups, work.rows.slot, weights_of(frame, work), biases(&Expert::down_bias, width_), x);
  return_outputs<T>(a, work, chosen, x, add, y);
}

template <class T>
std::vector<std::vector<const Parameter*>> Experts<T>::all_of(std::initializer_list<Parameter * Expert::*> parts) const {
  std::vector<std::vector<const Parameter*>> all(experts_.size());
  for (std::size_t e = 0; e < experts_.size(); ++e)
    for (const auto part : parts)
      if (experts_[e].*part) all[e].push_back(experts_[e].*part);
  return all;
}

template <class T>
auto Experts<T>::biases(Parameter* Expert::*of, Index size) const -> GroupMatrices<const A> {
  GroupMatrices<const A> all{{}, size, 1};
  for (const Expert& e : experts_) all.data.push_back((e.*of)->template vector<const A>().data());
  return all;
}

template <class T>
void Experts<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const ExpertRows chosen = rows_of(frame);
  const Work work = work_of(a, frame);
  const Index n = work.count();
  const auto dgate_up = rows(frame.put(Keys::dgate_up, work.row_capacity, projected()), 0, n);
  Tensor2<const T> source = has_latent() ? gradient_of_mixed(a, frame, dy) : dy;
  if (work.exchange) {
    const auto received = rows(frame.put(Keys::dreceived, work.row_capacity, width_), 0, n);
    send_rows<T>(a, *work.exchange, chosen, source, received);
    source = received;
  }
  Scope scope(a.dev.scratch);
  const auto x = rows(a.scratch<T>("rows grouped by expert", work.row_capacity, width_), 0, n);
  const auto dinner = rows(a.scratch<T>("gradient of inner", work.row_capacity, intermediate_size_), 0, n);
  const auto dweights = a.scratch<A>("gradient of routing weights", dy.extent(0), c_.routing.top_k);
  const auto dwork = work.exchange ? rows(a.scratch<A>("gradient of received weights", work.row_capacity, Index(1)), 0, n) : dweights;
  gather_rows<T>(a.dev, work.rows, source, x);
  grouped_linear_backward_input<T>(a.dev, work.groups, x, stored(of_all(&Experts::down)), dinner);
  if (!work.exchange) clear_dropped_rows<T>(a, work.used(), dinner);
  contribute_once<T>(a.dev, *experts_[0].down, dinner);
  weighted_glu_backward<T>(a.dev, c_.activation, work.rows, dinner, rows(frame.get(Keys::gate_up), 0, n), weights_of(frame, work), dgate_up, dwork);
  if (c_.expert_bias) experts_biases_backward(a, work, x, weights_of(frame, work), dgate_up, dwork);
  grouped_linear_backward_input<T>(a.dev, work.groups, dgate_up, stored(of_all(&Experts::gate_up)), x);
  if (has_latent()) latents_backward(a, frame, work, chosen, x, add, dh);
  else return_outputs<T>(a, work, chosen, x, add, dh);
  if (work.exchange) {
    Scope inner(a.dev.scratch);
    const Device::Purpose purpose(a.dev, "expert parallel all-to-all: rows x top_k x width, and routing weights");
    const auto mine = a.scratch<A>("gradient of sent weights", Index(chosen.slot.extent(0)), Index(1));
    work.exchange->template give_back<A>(a.dev, dwork, mine);
    clear_dropped_rows<A>(a, used(a, chosen), mine);
    combine_rows<A>(a.dev, one_each(chosen), mine, Add::no, one_each(dweights));
  }
  router_backward(a, frame, dweights, dh);
}

// Gradient of the sum of expert outputs, which is the same on all tensor-parallel ranks.
template <class T>
Tensor2<const T> Experts<T>::gradient_of_mixed(Pass& a, Frame& frame, Tensor2<const T> dy) const {
  const auto dmixed = frame.put(Keys::dmixed, Index(dy.extent(0)), width_);
  linear_backward_input<T>(a.dev, dy, latent_out_->template matrix<const T>(), dmixed);
  return dmixed;
}

// dh (= or +=) the part that comes from the latents. dx: gradients of the rows that experts read, grouped by expert.
template <class T>
void Experts<T>::latents_backward(Pass& a, Frame& frame, const Work& work, const ExpertRows& chosen, Tensor2<T> dx, Add add, Tensor2<T> dh) const {
  const auto dlatents = frame.put(Keys::dlatents, Index(dh.extent(0)), width_);
  return_outputs<T>(a, work, chosen, dx, Add::no, dlatents);
  linear_backward_input<T>(a.dev, dlatents, latent_in_->template matrix<const T>(), dh, 1, beta(add));
}

// x: gradients of the expert outputs, grouped by expert.
template <class T>
void Experts<T>::experts_biases_backward(Pass& a, const Work& work, Tensor2<const T> x, Tensor2<const A> weights, Tensor2<const T> dgate_up,
                                         Tensor2<A> dweights) const {
  Scope scope(a.dev.scratch);
  const auto row_capacity = a.scratch<T>("terms of the gradient of biases", work.row_capacity, width_);
  // tensor-parallel rank 0 only: every rank computes the full contribution of the down biases, and the ranks are summed
  // later
  const Tensor2<A> to = a.tensor.rank() == 0 ? dweights : Tensor2<A>();
  const auto terms = rows(row_capacity, 0, work.count());
  grouped_weighted_bias_backward<T>(a.dev, work.groups, work.rows.slot, x, weights, biases(&Expert::down_bias, width_), to, terms);
  biases_backward<T>(a.dev, work.groups, all_of({&Expert::down_bias}), terms);
  biases_backward<T>(a.dev, work.groups, all_of({&Expert::gate_bias, &Expert::up_bias}), dgate_up);
}

// The gradient of the routing weights is a partial sum on each tensor-parallel rank. After the all-reduce all ranks
// have the same router gradient, and only rank 0 adds its part of dh to the sum.
template <class T>
void Experts<T>::router_backward(Pass& a, Frame& frame, Tensor2<A> dweights, Tensor2<T> dh) {
  const Device::Purpose purpose(a.dev, "gradient of routing weights: rows x top_k");
  a.tensor.full().all_reduce(a.dev, flat(dweights));
  const auto dlogits = frame.put(Keys::dlogits, Index(dweights.extent(0)), c_.experts);
  Tensor2<A> wide;
  if constexpr (std::is_same_v<T, A>) wide = dlogits;
  else wide = a.scratch<A>("gradient of router logits", Index(dweights.extent(0)), c_.experts);
  route_backward<A>(a.dev, c_.routing, frame.get(Keys::scores), frame.get(Keys::chosen), dweights, wide);
  count_choices(a, frame);
  count_dropped(a, frame);
  balance(a, frame, wide);
  if constexpr (!std::is_same_v<T, A>) convert<A, T>(a.dev, wide, dlogits);
  if (router_bias_) biases_backward<T>(a.dev, {router_bias_}, dlogits);
  if (a.tensor.rank() == 0) linear_backward_input<T>(a.dev, dlogits, router_->template matrix<const T>(), dh, 1, 1);
}

// Calls body(sequence, first row, count) for the blocks of contiguous tokens of every sequence, without padding.
template <class Body>
void for_blocks(const SequenceLayout& s, const Body& body) {
  const Index length = s.block_length();
  for (Index block = 0; block < s.batch * s.blocks(); ++block) {
    const Index first = block * length, token = s.place(first % s.seq_length);
    const Index count = s.shared() ? std::min(length, s.full_tokens - token) : length;
    if (count > 0) body(first / s.seq_length, first, count);
  }
}

template <class T>
void Experts<T>::count_choices(Pass& a, const Frame& frame) const {
  for_blocks(a.sequences,
             [&](Index, Index first, Index count) { add_choices<double>(a.dev, rows(frame.get(Keys::chosen), first, count), load_->chosen); });
}

// Padding rows go to no expert and do not count as dropped.
template <class T>
void Experts<T>::count_dropped(Pass& a, const Frame& frame) const {
  if (!limited(a) || a.dev.dry_run()) return;
  Index tokens = 0;
  for_blocks(a.sequences, [&](Index, Index, Index count) { tokens += count; });
  load_->dropped += double(tokens * c_.routing.top_k - used(a, rows_of(frame)));
}

// Adds the gradients of the load-balancing loss and of the z-loss. With context parallelism the counts of a sequence
// are summed over its ranks.
template <class T>
void Experts<T>::balance(Pass& a, Frame& frame, Tensor2<A> dlogits) const {
  if (c_.aux_loss == 0 && c_.z_loss == 0) return;
  const SequenceLayout& s = a.sequences;
  const auto n = a.scratch<A>("rows per expert and sequence", s.batch, c_.experts);
  const auto of = [&](Index sequence) { return Tensor1<A>(n.data() + sequence * c_.experts, c_.experts); };
  const auto scores = frame.get(Keys::scores);
  const auto lse = frame.get(Keys::lse);
  fill<A>(a.dev, flat(n), 0);
  for_blocks(s, [&](Index sequence, Index first, Index count) { add_choices<A>(a.dev, rows(frame.get(Keys::chosen), first, count), of(sequence)); });
  const Device::Purpose purpose(a.dev, "rows per expert: sequences x experts");
  if (a.context) a.context->all_reduce(a.dev, flat(n));
  const double tokens = double(s.shared() ? s.full_tokens : s.seq_length), each = a.sequence_weight / tokens;
  const double even = double(c_.experts) / (double(c_.routing.top_k) * tokens);
  for_blocks(s, [&](Index sequence, Index first, Index count) {
    add_balance_gradient<A>(a.dev, c_.routing, rows(scores, first, count), c_.z_loss > 0 ? rows(lse, first, count) : Tensor1<A>(), of(sequence),
                            c_.aux_loss * even * each, c_.z_loss * each, rows(dlogits, first, count));
  });
}

template <class T>
void Experts<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  const Work work = work_of(a, frame);
  const Index n = work.count();
  Scope scope(a.dev.scratch);
  const auto x = rows(a.scratch<T>("rows grouped by expert", work.row_capacity, width_), 0, n);
  const auto inner = rows(frame.get(Keys::inner), 0, n), dgate_up = rows(frame.get(Keys::dgate_up), 0, n);
  const Tensor2<const T> douts = has_latent() ? Tensor2<const T>(frame.get(Keys::dmixed)) : dy,
                         read = has_latent() ? Tensor2<const T>(frame.get(Keys::latents)) : h;
  gather_rows<T>(a.dev, work.rows, work.exchange ? Tensor2<const T>(rows(frame.get(Keys::dreceived), 0, n)) : douts, x);
  weights_backward<T>(a.dev, work.groups, all_of({&Expert::down}), x, inner);
  gather_rows<T>(a.dev, work.rows, work.exchange ? Tensor2<const T>(rows(frame.get(Keys::received), 0, n)) : read, x);
  weights_backward<T>(a.dev, work.groups, all_of({&Expert::gate, &Expert::up}), dgate_up, x);
  weights_backward<T>(a.dev, {router_}, frame.get(Keys::dlogits), h);
  if (!has_latent()) return;
  weights_backward<T>(a.dev, {latent_in_}, frame.get(Keys::dlatents), h);
  weights_backward<T>(a.dev, {latent_out_}, dy, frame.get(Keys::mixed));
}

// Keys that act in training only: balance of the experts, capacity, and auxiliary losses.
void read_moe_training(Section& s, MoeConfig& c) {
  c.bias =
      s.get("bias", c.bias,
            "bias of each expert's score, used only to choose experts (e_score_correction_bias); not trained by gradients, see bias_update_rate");
  c.bias_update_rate = s.get("bias_update_rate", c.bias_update_rate,
                             "amount by which the bias of an underloaded expert rises and that of an overloaded one falls in each step, an "
                             "alternative to aux_loss (Megatron: --moe-router-bias-update-rate); 0: constant biases")
                           .at_least(0)
                           .at_most(1)
                           .effect(Effect::course);
  c.capacity_factor = s.get("capacity_factor", c.capacity_factor,
                            "capacity of an expert for tokens of each sequence, as a multiple of the even load (Megatron: "
                            "--moe-expert-capacity-factor); excess tokens are dropped, in training only; 0: no limit")
                          .at_least(0)
                          .at_most(most_experts)
                          .effect(Effect::course);
  const std::string policy =
      s.get("token_drop_policy", c.drop_policy == DropPolicy::position ? "position" : "probability",
            "choices dropped beyond the capacity. position: the last ones of the sequence; probability: those with the smallest weights, "
            "the last ones among equal weights (Megatron: --moe-token-drop-policy)")
          .one_of({"position", "probability"})
          .effect(Effect::course);
  c.drop_policy = policy == "position" ? DropPolicy::position : DropPolicy::probability;
  c.aux_loss =
      s.get("aux_loss", c.aux_loss,
            "coefficient of the load-balancing loss, computed per sequence; in training only (router_aux_loss_coef; Megatron: --moe-aux-loss-coeff)")
          .at_least(0)
          .finite()
          .effect(Effect::course);
  c.z_loss =
      s.get("z_loss", c.z_loss,
            "coefficient of the router z-loss, the mean square of the log-sum-exp of router logits; in training only (Megatron: --moe-z-loss-coeff)")
          .at_least(0)
          .finite()
          .effect(Effect::course);
}

void read_moe(Section& s, ModelConfig& m) {
  MoeConfig& c = m.moe;
  Routing& r = c.routing;
  c.experts = s.get("experts", c.experts, "experts per layer (num_local_experts, n_routed_experts; Megatron: --num-experts)")
                  .positive()
                  .at_most(most_experts);
  r.top_k = s.get("top_k", r.top_k, "experts per token (num_experts_per_tok; Megatron: --moe-router-topk)").positive().at_most(most_experts);
  c.intermediate_size =
      s.get("intermediate_size", c.intermediate_size, "inner channels of each expert (moe_intermediate_size), sharded over the tensor-parallel ranks")
          .positive()
          .at_most(widest);
  c.latent_size = s.get("latent_size", c.latent_size,
                        "channels of the latent of a row that routed experts read and write, for all experts one projection each to it and from it "
                        "(moe_latent_size; Megatron: --moe-latent-size); 0: experts read and write the stream")
                      .at_least(0)
                      .at_most(widest);
  c.shared_intermediate_size =
      s.get("shared_intermediate_size", c.shared_intermediate_size,
            "inner channels of the shared expert, which processes all tokens (Megatron: --moe-shared-expert-intermediate-size); 0: none")
          .at_least(0)
          .at_most(widest);
  c.shared_gate =
      s.get("shared_gate", c.shared_gate, "output of the shared expert is multiplied by the sigmoid of a score of the row (shared_expert_gate)");
  c.activation = get_word(s, "activation", c.activation, activation_words, "activation of the experts, the shared one included (hidden_act)");
  c.gated = s.get("gated", c.gated, "gated experts, down(a(gate) up), the shared one included; false: down(a(up))");
  c.shared_multiplier = s.get("shared_multiplier", c.shared_multiplier, "factor on the output of the shared expert").finite();
  c.expert_bias = s.get("expert_bias", c.expert_bias, "biases of gate_proj, up_proj and down_proj in all experts, the shared one included");
  c.router_bias = s.get("router_bias", c.router_bias, "bias of the router logits");
  const std::string score = s.get("score", r.score == Routing::softmax ? "softmax" : "sigmoid",
                                  "function that turns router logits into scores (scoring_func; Megatron: --moe-router-score-function)")
                                .one_of({"softmax", "sigmoid"});
  r.score = score == "softmax" ? Routing::softmax : Routing::sigmoid;
  r.normalize = s.get("normalize_top_k", r.normalize, "routing weights of a token are divided by their sum (norm_topk_prob)");
  r.scale = s.get("routed_scale", r.scale, "factor on the routing weights (routed_scaling_factor)").finite();
  r.groups = s.get("groups", r.groups, "equal groups of experts, of which the best are chosen first (n_group; Megatron: --moe-router-num-groups)")
                 .positive()
                 .at_most(most_experts);
  r.top_groups = s.get("top_groups", r.top_groups, "groups from which a token's experts are chosen (topk_group; Megatron: --moe-router-group-topk)")
                     .positive()
                     .at_most(most_experts);
  read_moe_training(s, c);
}

ModelConfig with_shared_expert(const ModelConfig& m) {
  ModelConfig shared = m;
  shared.mlp = {.intermediate_size = m.moe.shared_intermediate_size,
                .activation = m.moe.activation,
                .gated = m.moe.gated,
                .bias = m.moe.expert_bias,
                .down_multiplier = m.moe.shared_multiplier};
  return shared;
}

ModelConfig with_gated_shared_expert(const ModelConfig& m) {
  ModelConfig shared = m;
  shared.moe = {};
  shared.moe.experts = shared.moe.routing.top_k = 1, shared.moe.intermediate_size = m.moe.shared_intermediate_size;
  shared.moe.routing.score = Routing::sigmoid, shared.moe.routing.normalize = false;
  shared.moe.routing.scale = m.moe.shared_multiplier;
  shared.moe.activation = m.moe.activation, shared.moe.gated = m.moe.gated, shared.moe.expert_bias = m.moe.expert_bias;
  return shared;
}

LayerFlops experts_flops(const ModelConfig& m, const TextLengths&) {
  const MoeConfig& c = m.moe;
  LayerFlops f;
  const double stream = double(m.hidden_size), routed = double(expert_width(m)) * double(c.routing.top_k) * double(c.intermediate_size);
  f.gemms = 2.0 * stream * double(c.experts + c.shared_gate) + 4.0 * stream * double(c.latent_size) +
            (c.gated ? 6.0 : 4.0) * (routed + stream * double(c.shared_intermediate_size));
  return f;
}

template class Experts<double>;
template class Experts<float>;
template class Experts<bf16>;

}  // namespace gyr
