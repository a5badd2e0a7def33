// SPDX-License-Identifier: BSD-3-Clause
// Mistakes that somebody could make, one line each, to see whether the suite notices. A list names them:
//
//   mutant  optimizer.decay_forgotten               its name
//   file    src/engine/step/optimizer.cpp                       a .cpp of the program: headers would change every other file too
//   in      const AdamW update{                     only if needed: a place that occurs once, in whose line the snippet occurs once
//   was     p->weight.decays ? c_.decay : 0         what stands there. Ends with ';': a statement; otherwise an expression
//   now     0                                       the mistake; may be empty for a statement
//   try     unit optimizer.*                        where to look first: unit, grid or commands, and a filter; several lines are possible
//   why     the factor is easily lost ...           why it is plausible
//
// with blank lines between them and comments after '#'. switched() turns the snippets into switches that regression/mutants/mutant.hpp reads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr::testing {

struct Try {
  std::string kind, filter;
};

struct Mutant {
  std::string name, file, in, was, now, why;
  std::vector<Try> tries;
};

// std::runtime_error naming file and line where the list is not of this form, a name comes twice or something is missing.
std::vector<Mutant> read_mutants(const std::filesystem::path& list);
std::vector<Mutant> parse_mutants(const std::string& text, const std::string& origin);

// The text of a source with every mistake of `mutants` that names `file` as a switch. std::runtime_error naming the mutant whose snippet
// is not there, or not once, or overlaps another's.
std::string switched(const std::string& source, const std::string& file, const std::vector<Mutant>& mutants);

}  // namespace gyr::testing
