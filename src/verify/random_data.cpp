// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/random_data.hpp"

#include <cmath>

#include "modules/objective.hpp"

namespace gyr {

namespace {

constexpr std::uint64_t seed = 1;
constexpr double begins = 0.2;  // a document, at a token

double value_of(const Weight& w, const Stream& stream, Index i) {
  if (w.init.kind == Init::constant) return w.init.a + 0.2 * stream.uniform(i) - 0.1;
  if (w.init.kind == Init::normal) return stream.normal(i) / std::sqrt(double(w.shape.back()));
  return draw(w.init, stream, i);
}

}  // namespace

void set_random_weights(Engine& engine) {
  for (const auto& p : engine.parameters()) {
    const Stream stream(seed, p->weight.name);
    assign(engine.device(), *p, [&](Index i) { return value_of(p->weight, stream, i); });
  }
  engine.reset_optimizer();
}

Sample random_sample(const RunConfig& run, Index number) {
  const auto stream = [&](const char* what) { return Stream(seed, fmt::format("{} of sample {}", what, number)); };
  const Stream tokens = stream("tokens"), marks = stream("marks"), documents = stream("documents");
  const Index length = run.train.seq_length + 1;
  const double learned = 1 - 0.25 * double(number % 3);
  const Index padding = run.data.order == "documents" ? Index(double(length / 2) * documents.uniform(length)) : 0;
  const double classes = double(run.model.objective->classes().size());
  Sample s;
  for (Index t = 0, place = 0; t < length; ++t, ++place) {
    const bool padded = t >= length - padding,
               first = run.data.separate && t > 0 && (t == length - padding || (!padded && documents.uniform(t) < begins));
    if (first) place = 0;
    s.tokens.push_back(padded ? 0 : Token(tokens.uniform(t) * double(run.model.vocab_size)));
    s.learned.push_back(!padded && !first && (t == 1 || marks.uniform(t) < learned));
    if (run.data.separate) s.positions.push_back(std::int32_t(place));
    if (classes > 0) s.classes.push_back(s.learned.back() || t == 0 ? Token(documents.uniform(length + 1 + t) * classes) : ignored_label);
  }
  if (number == 0 && length > 1) s.learned[1] = 1;  // so that there is something to learn
  return s;
}

}  // namespace gyr
