// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/generate/service.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "src/base/stopwatch.hpp"

namespace gyr {

std::vector<int> deal(const std::vector<Index>& costs, int coordinates) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<Index> loads(coordinates, 0);
  std::vector<int> dealt(costs.size());
  for (const std::size_t i : order) {
    dealt[i] = int(std::min_element(loads.begin(), loads.end()) - loads.begin());
    loads[dealt[i]] += costs[i];
  }
  return dealt;
}

// The requests of one data coordinate. Texts in progress have a slot each; the next ones wait in the order of requests
// and samples.
class GenerationService::Batch {
 public:
  Batch(GenerationService& service, const Sampling& sampling, const TextHooks& hooks)
      : generator_(service.generator_), pace_(service.pace_), sampling_(sampling), hooks_(hooks), slots_(generator_.limits().sequences) {}

  std::vector<GeneratedText> run(const std::vector<const Request*>& requests) {
    requests_ = requests;
    for (;;) {
      fill_slots();
      const Index n = live();
      if (n == 0) return std::move(replies_);
      decode(n);
    }
  }

 private:
  struct Slot {
    std::optional<std::size_t> text = {};  // index of its reply; none: the slot is free
    Generator::Step next = {};             // input of the next pass
  };

  // Number of slots up to the last one with a text.
  Index live() const {
    Index n = Index(slots_.size());
    while (n > 0 && !slots_[n - 1].text) --n;
    return n;
  }

  // Gives free slots to the texts that wait. A text may end with its first token, which leaves its slot free.
  void fill_slots() {
    const Stopwatch watch(pace_.prompt_seconds);
    for (std::size_t s = 0; s < slots_.size();) {
      if (!slots_[s].text && !start_text(Index(s))) return;
      if (slots_[s].text) ++s;
    }
  }

  // Starts the next text in a free slot; false if there is none left. A prompt with one text is read into the slot. One
  // with several is read once into the prefix slot, and its state is copied.
  bool start_text(Index s) {
    if (started_ == replies_.size() && !read_prompt(s)) return false;
    const std::size_t text = started_++;
    const Request& request = *requests_[read_ - 1];
    if (ends(text, first_[replies_[text].sample])) return true;
    if (request.samples > 1) generator_.copy(generator_.prefix_slot(), s);
    const Index length = Index(request.prompt.size());
    slots_[s] = {text, {replies_[text].tokens.back(), generator_.encodes() ? 1 : length, length, {}}};
    return true;
  }

  // Reads the next prompt and draws the first tokens of its texts; false if there is none.
  bool read_prompt(Index s) {
    if (read_ == requests_.size()) return false;
    const Request& request = *requests_[read_++];
    std::vector<DrawPlace> places;
    for (Index sample = 0; sample < request.samples; ++sample) {
      replies_.push_back({request.id, sample});
      streams_.emplace_back(sampling_, request.id, sample);
      places.push_back(streams_.back().at(0));
    }
    const Index slot = request.samples > 1 ? generator_.prefix_slot() : s;
    first_ = generator_.read(slot, request.prompt, sampling_, places, request.id);
    for (Index sample = 0; sample < request.samples; ++sample) replies_[replies_.size() - 1 - std::size_t(sample)].cited = generator_.cited(slot);
    pace_.prompt_tokens += Index(request.prompt.size());
    return true;
  }

  // Decodes the next token of all slots. A free slot before a used one is computed too, and its result is ignored.
  void decode(Index n) {
    const Stopwatch watch(pace_.new_seconds);
    std::vector<Generator::Step> steps;
    for (Index s = 0; s < n; ++s) {
      Slot& slot = slots_[s];
      if (slot.text) slot.next.place = streams_[*slot.text].at(Index(replies_[*slot.text].tokens.size()));
      steps.push_back(slot.next);
      steps.back().idle = !slot.text;
    }
    const std::vector<DrawnToken> drawn = generator_.decode(steps, sampling_);
    for (Index s = 0; s < n; ++s) {
      Slot& slot = slots_[s];
      if (!slot.text) continue;
      pace_.new_tokens += 1;
      slot.next.past += 1, slot.next.token = drawn[s].token;
      replies_[*slot.text].cited = generator_.cited(s);
      if (ends(*slot.text, drawn[s])) slot.text.reset();
    }
  }

  // Appends a token to a text. Returns true if the text ends with it.
  bool ends(std::size_t text, const DrawnToken& drawn) {
    GeneratedText& reply = replies_[text];
    require(drawn.token != no_token, Exit::numeric,
            "the logits of token {} after prompt {} are not all finite: the weights contain NaN or infinity (`info --statistics` shows where), or "
            "are too large for this precision",
            reply.tokens.size() + 1, reply.id + 1);
    reply.tokens.push_back(drawn.token), reply.log_probs.push_back(drawn.log_prob), reply.kept.push_back(drawn.kept);
    if (sampling_.ends.contains(drawn.token)) reply.end = TextEnd::end;
    else if (hooks_.stops && hooks_.stops(reply)) reply.end = TextEnd::stop;
    else if (Index(reply.tokens.size()) >= sampling_.tokens) reply.end = TextEnd::length;
    if (reply.end == TextEnd::none) return false;
    if (hooks_.done) hooks_.done(reply);
    return true;
  }

  Generator& generator_;
  GeneratorPace& pace_;
  const Sampling& sampling_;
  const TextHooks& hooks_;
  std::vector<const Request*> requests_;
  std::vector<Slot> slots_;
  std::vector<GeneratedText> replies_;  // of all prompts that were read
  std::vector<TextStream> streams_;     // of the same texts
  std::vector<DrawnToken> first_;       // first tokens of the prompt that was read last
  std::size_t read_ = 0, started_ = 0;
};

void GenerationService::check(const std::vector<Request>& requests, const Sampling& sampling) const {
  const GeneratorCapacity& limits = generator_.limits();
  require(sampling.tokens > 0 && sampling.tokens <= limits.tokens, Exit::usage,
          "{} new tokens requested, and the generator has memory for {}: request 1 to {}", sampling.tokens, limits.tokens, limits.tokens);
  std::set<Index> ids;
  for (const Request& r : requests) {
    const Index length = Index(r.prompt.size());
    require(ids.insert(r.id).second, Exit::usage, "two requests have the id {}: number the requests of a call differently", r.id);
    require(length > 0 && length <= limits.prompt, Exit::usage,
            "request {} has a prompt of {} tokens, and the generator has memory for 1 to {}: make a generator for longer prompts", r.id, length,
            limits.prompt);
    require(r.samples > 0 && r.samples <= limits.samples, Exit::usage,
            "request {} has {} samples, and the generator has memory for 1 to {}: make a generator for more samples", r.id, r.samples,
            limits.samples);
  }
}

std::vector<GeneratedText> GenerationService::serve(const std::vector<Request>& requests, const Sampling& sampling, const TextHooks& hooks) {
  check(requests, sampling);
  generator_.wait_for_weights();
  Grid& grid = generator_.grid();
  std::vector<Index> costs;
  for (const Request& r : requests) costs.push_back(Index(r.prompt.size()) + r.samples * sampling.tokens);
  const std::vector<int> served_by = deal(costs, grid.size(token_axes));
  std::vector<const Request*> mine;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (served_by[i] == grid.coordinate(token_axes)) mine.push_back(&requests[i]);
  std::vector<GeneratedText> replies = Batch(*this, sampling, hooks).run(mine);
  return grid.size(token_axes) > 1 ? gather(requests, std::move(replies), served_by) : replies;
}

void append_values(const GeneratedText& text, std::vector<double>& values) {
  values.insert(values.end(), {double(text.tokens.size()), double(text.end)});
  for (std::size_t t = 0; t < text.tokens.size(); ++t) values.insert(values.end(), {double(text.tokens[t]), text.log_probs[t], text.kept[t]});
}

GeneratedText text_of_values(Index id, Index sample, const double*& from) {
  GeneratedText text{id, sample};
  const auto length = std::size_t(*from++);
  text.end = TextEnd(int(*from++));
  for (std::size_t t = 0; t < length; ++t, from += 3)
    text.tokens.push_back(Token(from[0])), text.log_probs.push_back(from[1]), text.kept.push_back(from[2]);
  return text;
}

// Gathers the texts over the data coordinates, in the order of the requests.
std::vector<GeneratedText> GenerationService::gather(const std::vector<Request>& requests, std::vector<GeneratedText> mine,
                                                     const std::vector<int>& served_by) {
  Communicator& coordinates = generator_.grid().group(token_axes);
  std::vector<double> sent;
  for (const GeneratedText& text : mine) append_values(text, sent);
  sent.resize(std::size_t(coordinates.max(double(sent.size()))), 0);
  const std::vector<double> all = coordinates.gather(sent);
  std::vector<const double*> at;  // next value of each coordinate
  for (int c = 0; c < coordinates.size(); ++c) at.push_back(all.data() + std::size_t(c) * sent.size());
  std::vector<GeneratedText> replies;
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (Index sample = 0; sample < requests[i].samples; ++sample)
      replies.push_back(text_of_values(requests[i].id, sample, at[std::size_t(served_by[i])]));
  return replies;
}

}  // namespace gyr
