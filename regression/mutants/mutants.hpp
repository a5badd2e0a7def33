// SPDX-License-Identifier: BSD-3-Clause
// Mutants: plausible one-line errors in the program, to test whether the test suite detects them. A list describes each one:
//
//   mutant  optimizer.decay_forgotten               name
//   file    src/engine/step/optimizer.cpp                       a .cpp file of the program: a header would change every other file too
//   in      const AdamW update{                     only if needed: text that occurs once in the file, and in whose line the snippet occurs once
//   was     p->weight.decays ? c_.decay : 0         original code. A statement if it ends with ';', otherwise an expression
//   now     0                                       the error; may be empty for a statement
//   try     unit optimizer.*                        tests to run first: unit, grid or commands, and a test filter; several lines are possible
//   why     The factor is easily lost ...           why the error is plausible
//
// Mutants are separated by blank lines; comments start with '#'. switched() turns each one into a switch that regression/mutants/mutant.hpp reads.
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

// Throws std::runtime_error with file and line if the list is malformed, a name occurs twice or a field is missing.
std::vector<Mutant> read_mutants(const std::filesystem::path& list);
std::vector<Mutant> parse_mutants(const std::string& text, const std::string& origin);

// Returns the text of a source file in which every mutant of `file` is a switch. Throws std::runtime_error naming the
// mutant if its snippet is missing, occurs more than once, or overlaps that of another mutant.
std::string switched(const std::string& source, const std::string& file, const std::vector<Mutant>& mutants);

}  // namespace gyr::testing
