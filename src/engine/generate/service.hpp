// SPDX-License-Identifier: BSD-3-Clause
// Generation as a service. Requests (request.hpp) are distributed over the data coordinates of a generator's grid. Each
// coordinate works through its own with continuous batching: when a text ends, its slot is given to the next one while
// the others go on.
#pragma once

#include "src/engine/generate/generator.hpp"

namespace gyr {

// Tokens processed, and the time that took: prompts (prefill) and new tokens (decode).
struct GeneratorPace {
  Index prompt_tokens = 0, new_tokens = 0;  // the first new tokens of a prompt belong to its prefill
  double prompt_seconds = 0, new_seconds = 0;
};

// Data coordinate that serves each request: those with the most expected tokens first, each to the coordinate with the
// fewest so far; of equal ones the lower index. `costs`: expected tokens of each request.
std::vector<int> deal(const std::vector<Index>& costs, int coordinates);

class GenerationService {
 public:
  explicit GenerationService(Generator& generator) : generator_(generator) {}

  // Returns the texts of all requests on every rank of the grid, in the order of the requests and samples. Collective
  // over the grid; all ranks pass the same requests. Texts do not depend on requests that are served together, except
  // for rounding if more than few_rows texts are in progress (Sampling::exact). Exit::usage if a request exceeds the
  // limits of the generator or two requests have one id; Exit::numeric if logits are not finite.
  std::vector<GeneratedText> serve(const std::vector<Request>&, const Sampling&, const TextHooks& = {});
  // Pace of this rank in all calls.
  const GeneratorPace& pace() const { return pace_; }

 private:
  class Batch;
  void check(const std::vector<Request>&, const Sampling&) const;
  std::vector<GeneratedText> gather(const std::vector<Request>&, std::vector<GeneratedText> mine, const std::vector<int>& served_by);

  Generator& generator_;
  GeneratorPace pace_;
};

}  // namespace gyr
