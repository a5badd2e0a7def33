// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/equality.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyr {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double vanishing = 0.01;  // fraction of the norm of all gradients in the denominator of a gradient's error

double as_error(double x) { return std::isnan(x) ? infinity : x; }
double square(double x) { return x * x; }

struct Squares {
  double difference = 0, length = 0;
};

Squares squares_of(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return {infinity, 0};
  Squares s;
  for (std::size_t i = 0; i < a.size(); ++i) s.difference += square(a[i] - b[i]), s.length += square(a[i]);
  return s;
}

// Euclidean distance between two sets of full gradients.
double distance(const NamedGradients& one, const NamedGradients& many) {
  double difference = 0;
  for (const auto& [name, gradient] : one) difference += squares_of(gradient, many.at(name)).difference;
  return std::sqrt(difference);
}

}  // namespace

double Errors::worst_gradient() const {
  double worst = 0;
  for (const auto& [name, error] : gradients) worst = std::max(worst, error);
  return worst;
}

double relative_error(double one, double many) { return many == one ? 0 : as_error(std::abs(many / one - 1)); }

Errors errors_of(const StepOutcome& one, const StepOutcome& many) {
  const double norm = one.result.gradient_norm;
  Errors errors{relative_error(one.result.loss, many.result.loss), relative_error(norm, many.result.gradient_norm), {}};
  const auto &ahead = one.result.ahead_losses, &ahead_there = many.result.ahead_losses;
  for (std::size_t k = 0; k < std::min(ahead.size(), ahead_there.size()); ++k) {
    if (ahead[k].has_value() != ahead_there[k].has_value()) errors.loss = infinity;
    else if (ahead[k]) errors.loss = std::max(errors.loss, relative_error(*ahead[k], *ahead_there[k]));
  }
  if (ahead.size() != ahead_there.size() || one.result.dropped_choices != many.result.dropped_choices || many.result.tokens != one.result.tokens ||
      many.gradients.size() != one.gradients.size())
    errors.loss = infinity;
  for (const auto& [name, gradient] : one.gradients) {
    const auto same = many.gradients.find(name);
    const Squares s = same == many.gradients.end() ? Squares{infinity, 0} : squares_of(gradient, same->second);
    errors.gradients[name] = s.difference == 0 ? 0 : as_error(std::sqrt(s.difference) / (std::sqrt(s.length) + vanishing * norm));
  }
  return errors;
}

double limit_of(DType dtype, std::string_view weight) {
  if (dtype == DType::f64) return 1e-12;
  return weight.ends_with("A_log") || weight.ends_with("dt_bias") ? 2e-5 : 1e-5;
}

bool within_limits(const Errors& e, DType dtype) {
  return e.loss <= limit_of(dtype) && e.norm <= limit_of(dtype) &&
         std::all_of(e.gradients.begin(), e.gradients.end(), [&](const auto& error) { return error.second <= limit_of(dtype, error.first); });
}

Rounding rounding_of(const StepOutcome& exact, const StepOutcome& one, const StepOutcome& many) {
  return {relative_error(one.result.gradient_norm, many.result.gradient_norm),
          as_error(distance(exact.gradients, many.gradients) / distance(exact.gradients, one.gradients))};
}

bool within_limits(const Rounding& r) { return r.norm <= limit_in_bf16.norm && r.ratio <= limit_in_bf16.ratio; }

std::string kind_of(const std::string& weight) {
  const std::string layers = "model.layers.", modules = "mtp.";
  if (weight.starts_with(modules)) return modules + weight.substr(weight.find('.', modules.size()) + 1);
  return weight.starts_with(layers) ? weight.substr(weight.find('.', layers.size()) + 1) : weight;
}

}  // namespace gyr
