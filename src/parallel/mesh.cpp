// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/mesh.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Reads a number at the beginning of the text and removes it; -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return -1;
  text.remove_prefix(std::size_t(end - text.data()));
  return number;
}

bool take_char(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Mesh Mesh::of_all(int ranks) {
  Mesh mesh{std::vector<int>(std::size_t(ranks))};
  std::iota(mesh.ranks.begin(), mesh.ranks.end(), 0);
  return mesh;
}

std::optional<Mesh> Mesh::read(const std::string& words, int ranks) {
  if (words == "all") return of_all(ranks);
  Mesh mesh;
  std::string_view text = words;
  do {
    const int first = take_number(text), last = take_char(text, '-') ? take_number(text) : first;
    if (first < 0 || last < first || last >= ranks) return {};
    for (int rank = first; rank <= last; ++rank) mesh.ranks.push_back(rank);
  } while (take_char(text, ','));
  std::sort(mesh.ranks.begin(), mesh.ranks.end());
  if (!text.empty() || std::adjacent_find(mesh.ranks.begin(), mesh.ranks.end()) != mesh.ranks.end()) return {};
  return mesh;
}

std::optional<int> Mesh::index_of(int rank) const {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) return {};
  return int(at - ranks.begin());
}

std::string Mesh::text() const {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

MPI_Comm communicator_of(const Mesh& mesh, MPI_Comm world) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  const std::optional<int> here = mesh.index_of(rank);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(world, here ? 0 : MPI_UNDEFINED, here.value_or(0), &comm);
  return comm;
}

}  // namespace gyr
