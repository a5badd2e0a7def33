// SPDX-License-Identifier: BSD-3-Clause
// Objective that only the tests have, for values of rows: a scalar head, a weight per row and a target per sequence.
//   loss = constant * sum over rows with a label of weight(r) (y(r) - target(sequence of r))^2 / 2
// The scale of the loss is a constant of the objective, whatever the number of labels.
#pragma once

#include "modules/objectives/objective.hpp"
#include "modules/objectives/scalar_head.hpp"

namespace gyr::testing {

inline const ValueName<double> row_weight{"weights of rows"}, sequence_target{"targets of sequences"};

template <class T>
class WeightedSquares : public ScalarHead<T> {
 public:
  using ScalarHead<T>::ScalarHead;

 protected:
  using A = Acc<T>;
  void loss_of(Pass& a, Tensor1<const A> y, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum, Tensor1<A> dy,
               ObjectiveScores* scores) override {
    if (a.dev.dry_run()) return;
    const auto weights = labels.values.at(row_weight), targets = labels.values.at(sequence_target);
    for (Index r = 0; r < Index(y.extent(0)); ++r) {
      const double weight = labels.of_rows(r) == ignored_label ? 0 : weights(r), error = double(y(r)) - targets(r / a.sequences.seq_length);
      sum(0) += weight * error * error / 2;
      if (dy.extent(0) > 0) dy(r) = A(scale(0) * weight * error);
      if (scores) scores->rows.push_back({weight * error * error / 2, 0, -1, labels.of_rows(r)});
    }
  }
};

template <class T>
using WeightedHead = FrontedHead<T, FinalNorm, WeightedSquares>;

class WeightedValues final : public Objective {
 public:
  static constexpr double constant = 0.25;
  const char* name() const override { return "weighted_values"; }
  Labelled label(const SampleView& s) const override {
    Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, next_tokens(s.tokens, s.learned)};
    for (Index t = 0; t < Index(l.tokens.size()); ++t) l.values[row_weight].push_back(0.5 + double((7 * t + s.number) % 5));
    l.values[sequence_target] = {double(s.number % 3) - 1.5};
    return l;
  }
  std::vector<NamedField> fields(const ModelConfig&, Index) const override {
    return {ValueField<double>{row_weight, 0}, ValueField<double>{sequence_target, 0, 1}};
  }
  double scale(const LossSum&, Index) const override { return constant; }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& p) const override {
    return make_typed<Head, WeightedHead>(p.dtype(), c, output_of_values, p);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size); }
};

}  // namespace gyr::testing
