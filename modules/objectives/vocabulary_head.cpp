// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/vocabulary_head.hpp"

#include "kernels/ops/gpu_plan.hpp"
#include "kernels/ops/sum.hpp"
#include "modules/layers/embedding.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/pass/stream.hpp"

namespace gyr {

namespace {

constexpr const char* sums_purpose = "head: maximum logit and sums of each row";

// Calls body(first, n) for blocks of block_rows rows, the last of which may be smaller.
template <class Body>
void for_blocks(Device& dev, Index rows, Index block_rows, const Body& body) {
  const Index full = rows / block_rows, rest = rows % block_rows;
  for_equal(dev, full, [&](Index i) { body(i * block_rows, block_rows); });
  if (rest > 0) body(full * block_rows, rest);
}

Parameter& output_matrix(const ModelConfig& c, const Output& output, Parameters& parameters) {
  if (output.table) return *output.table;
  if (output.tied) return declare_table_of_first_stage(c, parameters);
  Weight w{output.name + ".weight",
           {output.columns, c.hidden_size},
           by_rows({{output.columns, 0}}),
           output.begins_at_zero ? zeros() : normal(c.init_std),
           Storage::factor};
  w.of_output = true;
  return parameters.declare(std::move(w));
}

}  // namespace

Parameter& declare_table_of_first_stage(const ModelConfig& c, Parameters& parameters) {
  parameters.begin_group();
  Parameter& w = parameters.declare(embedding_weight(c));
  parameters.keep_unsharded();
  w.tied = true;
  return w;
}

Output output_of_tokens(const ModelConfig& c, Parameter* table) {
  return {.name = "lm_head",
          .columns = c.vocab_size,
          .multiplier = c.lm_head_multiplier,
          .soft_cap = c.lm_head_soft_cap,
          .tied = c.tie_word_embeddings,
          .table = table,
          .terms = c.loss_terms};
}

namespace {

// The bias, if there is one, is sharded like the matrix.
ModelChain head_chain(const ModelConfig& c, const Output& output) {
  using S = TensorState;
  const Channels logits = by_units({{output.columns, 0}});
  Operator matrix = gemm_operator("logits", undivided(c.hidden_size), logits, {output.name}, true);
  if (output.tied) matrix.weights[0].name = embedding_weight(c).name;
  const std::vector<InnerSum> sums{{{1, 1}, 1, 1, 0}, {{1, 1}, 2, 1, 0}};  // all-reduces of the maximum logit and of two sums
  const Operator loss{"loss", logits, logits, {{S::full, S::full}, {S::units, S::units, WeightSplit::nowhere, sums}}};
  return {.name = output.name, .operators = {matrix, loss}, .end = {S::full, S::units}, .at_once = true};
}

}  // namespace

ModelChains head_chains(const ModelConfig& c) {
  if (c.objective->gives_values()) return {};  // one rank computes the only column
  ModelChains chains{head_chain(c, c.objective->classes().empty() ? output_of_tokens(c, nullptr) : output_of_classes(*c.objective, c))};
  if (c.norm_placement != NormPlacement::after) chains[0].operators.insert(chains[0].operators.begin(), norm_operator(c, "model.final_layernorm"));
  if (c.objective->predicts_sentence_order()) chains.push_back(head_chain(c, output_of_order));
  return chains;
}

Parameter* declare_bias(const Output& output, Parameters& parameters) {
  if (!output.bias) return nullptr;
  return &parameters.declare({output.name + ".bias", {output.columns}, by_rows({{output.columns, 0}}), zeros(), Storage::wide, false});
}

template <class T>
VocabularyHead<T>::VocabularyHead(const ModelConfig& c, const Output& output, Parameter* bias, Parameters& parameters)
    : Head(output_matrix(c, output, parameters)), bias_(bias), multiplier_(output.multiplier), soft_cap_(output.soft_cap), terms_(output.terms),
      scored_(output.scored) {
  terms_.vocab_size = output.columns;
}

template <class T>
void VocabularyHead<T>::score(Pass& a, Tensor2<T> kept, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum,
                              ObjectiveScores* scores) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "head: rows x hidden");
  AllRows<T> all(a, "normed, all rows", kept);
  const bool trains = scale.extent(0) > 0;
  if (labels.are_few() && trains) score_labelled_rows(a, all.gather(), labels, scale, sum);
  else score_all(a, all.gather(), {labels.of_rows}, scale, sum, scores ? &scores->rows : nullptr);
  if (trains) all.reduce();
}

// Training pass for labelled rows only: these rows are gathered, and the gradient of all others is 0.
template <class T>
void VocabularyHead<T>::score_labelled_rows(Pass& a, Tensor2<T> h, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum) {
  Scope scope(a.dev.scratch);
  const auto picked = a.scratch<T>("normed, labelled rows", Index(labels.picked.extent(0)), Index(h.extent(1)));
  embedding<T>(a.dev, labels.picked, h, 0, 1, picked);
  score_all(a, picked, {labels.label}, scale, sum, nullptr);
  embedding<T>(a.dev, labels.place, picked, 0, 1, h);
}

template <class T>
auto VocabularyHead<T>::Rows::part(Index first, Index n) const -> Rows {
  Rows part{rows(labels, first, n)};
  if (losses.extent(0) > 0) part.losses = rows(losses, first, n);
  if (entropies.extent(0) > 0) part.entropies = rows(entropies, first, n);
  if (weights.loss.extent(0) > 0) part.weights.loss = rows(weights.loss, first, n);
  if (weights.entropy.extent(0) > 0) part.weights.entropy = rows(weights.entropy, first, n);
  part.terms = terms;
  return part;
}

template <class T>
void VocabularyHead<T>::score_all(Pass& a, Tensor2<T> h, const Rows& given, Tensor1<const double> scale, Tensor1<double> sum,
                                  std::vector<RowScore>* each) {
  const Workspace workspace(a.dev.scratch, "loss");
  const auto here = a.dev.scratch.template tensor<double>(1);
  fill<double>(a.dev, here, 0);
  for_blocks(a.dev, h.extent(0), gemm_row_layout(a.dev, columns_here()),
             [&](Index first, Index n) { block_loss(a, rows(h, first, n), given.part(first, n), scale, here, each); });
  add_in_order(a.dev, here, sum);
}

template <class T>
void VocabularyHead<T>::logits_of(Pass& a, Tensor2<const T> h, Tensor2<A> logits) {
  linear<T, A>(a.dev, h, w_.template factor<T>(), logits, multiplier_);
  if (bias_) add_bias<A>(a.dev, bias_->template vector<const A>(), 1, logits);
  if (soft_cap_ > 0) soft_cap<A>(a.dev, soft_cap_, logits);
}

// Adds the loss of some rows to `sum`. With a scale, h becomes the gradient of scale * loss. With `each`, also appends
// the score of every row.
template <class T>
void VocabularyHead<T>::block_loss(Pass& a, Tensor2<T> h, const Rows& given, Tensor1<const double> scale, Tensor1<double> sum,
                                   std::vector<RowScore>* each) {
  const Index n = h.extent(0), columns = columns_here(), first_token = first_column();
  Scope scope(a.dev.scratch);
  auto& scratch = a.dev.scratch;
  auto logits = scratch.template tensor<A>(n, columns);
  auto top = scratch.template tensor<A>(n);
  const bool trains = scale.extent(0) > 0;
  const LossTerms terms = trains ? given.terms.value_or(terms_) : LossTerms{};
  const bool has_entropies = given.entropies.extent(0) > 0;
  auto sums = scratch.template tensor<A>(has_entropies ? 4 : terms.sums(), n);
  auto losses = given.losses.extent(0) > 0 ? given.losses : scratch.template tensor<double>(n);
  Tensor1<A> found;
  if (scored_) found = scratch.template tensor<A>(n);
  logits_of(a, h, logits);
  if (each && observer_ && !a.dev.dry_run()) observer_(logits);
  const Device::Purpose purpose(a.dev, sums_purpose);
  logits_top<A>(a.dev, logits, valid(), top);
  a.tensor.full().all_reduce(a.dev, top, Reduction::max);
  logits_sums<A>(a.dev, logits, valid(), top, given.labels, first_token, sums);
  a.tensor.full().all_reduce(a.dev, flat(sums));
  cross_entropy<A>(a.dev, sums, top, given.labels, terms, losses);
  if (has_entropies) row_entropies<A>(a.dev, sums, given.labels, given.entropies);
  add_in_order(a.dev, losses, sum);
  if (trains) block_gradient(a, h, logits, top, sums, given, scale, terms);
  if (!each || a.dev.dry_run()) return;
  const auto loss = to_host(a.dev, losses);
  const auto below = to_host(a.dev, rows(flat(sums), n, n));  // logit of the label minus the maximum logit
  const auto label = to_host(a.dev, given.labels);
  for (Index r = 0; r < n; ++r) each->push_back({loss[r], -double(below[r]), -1, label[r]});
  if (scored_) add_scores(a, logits, top, found, std::span(*each).last(std::size_t(n)));
}

template <class T>
void VocabularyHead<T>::block_gradient(Pass& a, Tensor2<T> h, Tensor2<A> logits, Tensor1<const A> top, Tensor2<const A> sums, const Rows& given,
                                       Tensor1<const double> scale, const LossTerms& terms) {
  Tensor2<T> dlogits;
  if constexpr (std::is_same_v<T, A>) dlogits = logits;
  else dlogits = a.dev.scratch.template tensor<T>(h.extent(0), columns_here());
  cross_entropy_backward<T>(a.dev, logits, valid(), top, sums, given.labels, first_column(), scale, terms, dlogits, soft_cap_, given.weights);
  weights_backward<T>(a.dev, {&w_}, dlogits, h, multiplier_);
  if (bias_) biases_backward<T>(a.dev, {bias_}, dlogits);
  linear_backward_input<T>(a.dev, dlogits, w_.template matrix<const T>(), h, multiplier_);
}

// Sets the most likely column of each row; among equal ones, the first.
template <class T>
void VocabularyHead<T>::add_scores(Pass& a, Tensor2<const A> logits, Tensor1<const A> top, Tensor1<A> found, std::span<RowScore> rows) {
  logits_argmax<A>(a.dev, logits, valid(), top, first_column(), found);
  a.tensor.full().all_reduce(a.dev, found, Reduction::max);
  const auto here = to_host(a.dev, found);
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r].likeliest = Token(-here[r]);
}

template class VocabularyHead<double>;
template class VocabularyHead<float>;
template class VocabularyHead<bf16>;

}  // namespace gyr
