// SPDX-License-Identifier: BSD-3-Clause
// mutate LIST names                     prints a line per mutant: name, file and tries, separated by tabs
// mutate LIST switch ROOT FILE OUT      writes ROOT/FILE with its mutants as switches to OUT; OUT is not touched if it is up to date
#include <fstream>
#include <iostream>
#include <iterator>

#include "regression/mutants/mutants.hpp"

namespace {

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace gyr::testing;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool names = words.size() == 2 && words[1] == "names", rewrite = words.size() == 5 && words[1] == "switch";
  if (!names && !rewrite) throw std::runtime_error("usage: mutate LIST names | mutate LIST switch ROOT FILE OUT");
  const auto mutants = read_mutants(words[0]);
  if (names)
    for (const Mutant& m : mutants) {
      std::cout << m.name << '\t' << m.file;
      for (const Try& t : m.tries) std::cout << '\t' << t.kind << ' ' << t.filter;
      std::cout << '\n';
    }
  if (rewrite) {
    const std::filesystem::path out = words[4];
    const std::string text = switched(contents(std::filesystem::path(words[2]) / words[3]), words[3], mutants);
    if (std::filesystem::exists(out) && contents(out) == text) return 0;
    std::filesystem::create_directories(out.parent_path());
    std::ofstream(out, std::ios::binary) << text;
    if (contents(out) != text) throw std::runtime_error(out.string() + ": cannot be written");
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
