// SPDX-License-Identifier: BSD-3-Clause
// Answers as HTML: facts, prompt, and the text with its tokens shaded by advantage. A script can shade them by other values, which are
// added to the data of the page.
#pragma once

#include <string>
#include <vector>

#include "src/base/json.hpp"
#include "src/samples/sampled_iteration.hpp"
#include "src/samples/token_texts.hpp"

namespace gyr {

// A value per answer token by which a page can shade it.
enum class TokenValue { advantage, log_prob, gap, divergence };

struct Shading {
  TokenValue value = TokenValue::advantage;
  const char *key = "", *name = "";
  double scale = 0;  // magnitude from which a token has the darkest shade
};

// The shadings for which some kept answer has values; advantages always. `scale` is a high quantile of the magnitudes.
std::vector<Shading> shadings_of(const std::vector<SampledIteration>&);

// Magnitude from which a token has the darkest shade: a high quantile of those that are finite and above 0; 0 if there are none.
double shade_scale(std::vector<double> magnitudes);
// Class of a token with this value: "", or p1 to p4 for positive and n1 to n4 for negative values.
std::string shade_class(double value, double scale);

struct AnswerForm {
  const Tokenizer* tokenizer = nullptr;  // nullptr: token ids are shown
  std::vector<Shading> shadings;
  std::size_t most_tokens = 0;  // of an answer or a prompt; a longer one is shortened in the middle
};

// HTML id of an answer on the page.
std::string anchor_of(const SampledIteration&, std::size_t answer);

// HTML of an answer. Adds the values of its shown tokens to `values`, an object by anchor. `reasons`: why it is shown, as in "best".
std::string answer_html(const SampledIteration&, std::size_t answer, const std::string& reasons, const AnswerForm&, Json& values);

// Text from outside as HTML: printable, with its line breaks.
std::string html_text(std::string_view text);
// Text of this program as HTML, with the words in backticks as code.
std::string html_prose(std::string_view text);

}  // namespace gyr
