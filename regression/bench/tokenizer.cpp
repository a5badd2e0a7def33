// SPDX-License-Identifier: BSD-3-Clause
// tokenizer_benchmark TOKENIZER.json TEXT [SECONDS]: encoding throughput of one thread over the paragraphs of a text,
// after one warm-up pass.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "kernels/base/error.hpp"
#include "src/base/mapped_file.hpp"
#include "src/tokenizer/tokenizer.hpp"

using namespace gyr;

namespace {

std::vector<std::string_view> paragraphs(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto blank = text.find("\n\n");
    const std::size_t end = blank == std::string_view::npos ? text.size() : blank + 2;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::size_t encode(const Tokenizer& tokenizer, const std::vector<std::string_view>& parts) {
  std::size_t tokens = 0;
  for (const std::string_view part : parts) tokens += tokenizer.encode(part, Tokenizer::Specials::complete).size();
  return tokens;
}

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 3 || argc == 4, Exit::usage, "usage: tokenizer_benchmark TOKENIZER.json TEXT [SECONDS]");
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    const MappedFile file(argv[2]);
    const auto parts = paragraphs(file.text());
    const double least = argc == 4 ? std::atof(argv[3]) : 2;
    const std::size_t tokens = encode(tokenizer, parts);
    const auto begin = std::chrono::steady_clock::now();
    const double start = processor_seconds();
    int passes = 0;
    double used = 0;
    for (; used < least; used = processor_seconds() - start, ++passes) encode(tokenizer, parts);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double megabytes = double(file.size()) * passes / 1e6;
    std::printf("texts: %zu\ntokens: %zu\nMB/s: %.2f\nprocessor MB/s: %.2f\n", parts.size(), tokens, megabytes / wall, megabytes / used);
  } catch (const Error& error) {
    std::fprintf(stderr, "tokenizer_benchmark: %s\n", error.what());
    return int(error.code);
  }
}
