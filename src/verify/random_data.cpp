// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/random_data.hpp"

#include <algorithm>
#include <cmath>

#include "modules/objectives/objective.hpp"
#include "modules/objectives/policy_settings.hpp"

namespace gyr {

namespace {

constexpr std::uint64_t seed = 1;
constexpr double begins = 0.2;  // probability that a document begins at a token

double value_of(const Weight& w, const Stream& stream, Index i) {
  if (w.init.kind == Init::constant) return w.init.a + 0.2 * stream.uniform(i) - 0.1;
  if (w.init.kind == Init::normal) return stream.normal(i) / std::sqrt(double(w.shape.back()));
  return draw(w.init, stream, i);
}

// For preference objectives: each document is a text, two consecutive texts are a pair, and the reference
// log-probability is random.
std::vector<TextSpan> texts_of(std::span<const std::int32_t> positions, const Stream& stream) {
  std::vector<TextSpan> texts;
  for (Index t = 0; t < Index(positions.size()); ++t) {
    if (positions[t] == 0) texts.push_back({t, 0, std::int64_t(texts.size()), -10 * stream.uniform(2 * Index(positions.size()) + t)});
    ++texts.back().count;
  }
  return texts;
}

}  // namespace

void set_random_weights(Engine& engine) {
  for (const auto& p : engine.parameters()) {
    const Stream stream(seed, p->weight.name);
    assign(engine.device(), *p, [&](Index i) { return value_of(p->weight, stream, i); });
  }
  engine.reset_optimizer();
}

namespace {

// Values of the rows of a sample of policy training, whose answers are the runs of target tokens.
NamedHostValues random_policy_values(const std::vector<std::uint8_t>& learned, const Stream& stream) {
  using namespace policy_field;
  NamedHostValues values;
  const std::size_t rows = learned.size() - 1;
  values[answer].assign(rows, -1);
  Token answers = 0;
  for (std::size_t r = 0; r < rows; ++r)
    if (learned[r + 1]) values[answer][r] = r > 0 && learned[r] ? answers - 1 : answers++;
  for (Token i = 0; i < answers; ++i) values[inverse_length].push_back(1 / double(std::count(values[answer].begin(), values[answer].end(), i)));
  const auto fill = [&](const ValueName<double>& name, double low, double high, Index which) {
    for (std::size_t r = 0; r < rows; ++r) values[name].push_back(learned[r + 1] ? low + (high - low) * stream.uniform(Index(r) * 8 + which) : 0);
  };
  fill(old, -4, -2, 0), fill(reference, -4, -2, 1), fill(advantage, -2, 2, 2), fill(correction, 0.5, 1.5, 3);
  fill(weight_in_loss, 0, 1, 4), fill(kl, 0, 0.1, 5), fill(entropy, 0, 0.1, 6), fill(share, 0, 0.1, 7);
  return values;
}

// Values of the rows of a sample of a critic.
NamedHostValues random_critic_values(const std::vector<std::uint8_t>& learned, const Stream& stream) {
  NamedHostValues values;
  for (std::size_t r = 0; r + 1 < learned.size(); ++r) {
    const auto drawn = [&](Index which) { return learned[r + 1] ? stream.uniform(Index(r) * 3 + which) : 0; };
    values[value_field::value].push_back(drawn(0)), values[value_field::returns].push_back(2 * drawn(1)),
        values[value_field::weight].push_back(drawn(2));
  }
  return values;
}

// Neighbours of random lengths, of which one in four is missing.
void add_random_neighbours(const RunConfig& run, const Stream& stream, Sample& s) {
  const RetrievalConfig& c = run.model.retrieval;
  const Index r = c.neighbour_length();
  Index drawn = 0;
  const auto below = [&](Index limit) { return std::int32_t(stream.uniform(drawn++) * double(limit)); };
  for (Index i = run.train.seq_length / c.chunk * c.neighbours; i > 0; --i) {
    const Index length = below(4) == 0 ? 0 : 1 + below(r);
    s.neighbour_lengths.push_back(std::int32_t(length));
    for (Index t = 0; t < r; ++t) s.neighbours.push_back(t < length ? below(run.model.vocab_size) : 0);
  }
}

}  // namespace

Sample random_sample(const RunConfig& run, Index number) {
  const auto stream = [&](const char* what) { return Stream(seed, fmt::format("{} of sample {}", what, number)); };
  const Stream tokens = stream("tokens"), marks = stream("marks"), documents = stream("documents");
  const Index length = run.train.seq_length + 1;
  const double learned = 1 - 0.25 * double(number % 3);
  const bool compares = run.model.objective->most_pairs(run.train.seq_length) > 0, begins_with_pair = compares && number == 0 && length > 3;
  const Index padding = !begins_with_pair && run.data.order == "documents" ? Index(double(length / 2) * documents.uniform(length)) : 0;
  const double classes = double(run.model.objective->classes().size());
  Sample s;
  for (Index t = 0, place = 0; t < length; ++t, ++place) {
    const bool padded = t >= length - padding;
    bool first = run.data.separate && t > 0 && (t == length - padding || (!padded && documents.uniform(t) < begins));
    if (begins_with_pair && t < 4) first = t == 2;
    if (first) place = 0;
    s.tokens.push_back(padded ? 0 : Token(tokens.uniform(t) * double(run.model.vocab_size)));
    if (reads_images(run.model) && s.tokens.back() == run.model.vision.image_token)
      s.tokens.back() = Token((s.tokens.back() + 1) % run.model.vocab_size);
    s.learned.push_back(!padded && !first && (t == 1 || marks.uniform(t) < learned));
    if (run.data.separate) s.positions.push_back(std::int32_t(place));
    if (classes > 0) s.classes.push_back(s.learned.back() || t == 0 ? Token(documents.uniform(length + 1 + t) * classes) : ignored_label);
  }
  if (begins_with_pair) s.learned[3] = 1;
  if (compares) s.texts = texts_of(s.positions, documents);
  if (number == 0 && length > 1) s.learned[1] = 1;  // ensures that there is at least one target token
  if (run.model.objective->reads_rollouts()) s.values = random_policy_values(s.learned, stream("values"));
  if (run.model.objective->name() == std::string_view("value")) s.values = random_critic_values(s.learned, stream("values"));
  if (run.model.objective->reads_pairs()) {
    s.texts = {{0, std::min(run.train.seq_length, length - padding), 2 * number + 1}};
    const Stream of_source = stream("source");
    const Index most = run.lengths().source, count = 1 + Index(of_source.uniform(most) * double(most));
    for (Index t = 0; t < count; ++t) s.source.push_back(Token(of_source.uniform(t) * double(run.model.vocab_size)));
  }
  if (reads_neighbours(run.model)) add_random_neighbours(run, stream("neighbours"), s);
  return s;
}

}  // namespace gyr
