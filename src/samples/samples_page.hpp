// SPDX-License-Identifier: BSD-3-Clause
// One self-contained HTML page about a policy run: suspects, curves, and answers of some iterations with shaded tokens. The page
// can be read without a script; its script filters the answers, shades them by other values and shows values under the pointer.
#pragma once

#include <filesystem>
#include <string>

#include "src/base/note.hpp"
#include "src/samples/suspects.hpp"

namespace gyr {

struct SamplesOptions {
  Index iterations = 8;        // number of iterations whose answers are read and shown
  double megabytes = 5;        // limit of the size of the page; long answers are shortened to keep it
  std::string tokenizer = {};  // tokenizer.json; "": data.tokenizer of the run's deck
};

struct SamplesPage {
  std::string html;
  std::size_t iterations = 0, answers = 0;  // shown
  std::vector<Suspect> suspects;
};

// Reads the files of the chosen iterations only. `progress` receives a line before each of them. Throws the errors of
// read_policy_run() and read_rollouts(); Exit::missing for a tokenizer that does not exist, Exit::usage if the page cannot keep its limit.
SamplesPage samples_page(const std::filesystem::path& output, const SamplesOptions&, const Note& progress);

}  // namespace gyr
