// SPDX-License-Identifier: BSD-3-Clause
// Distribution of small kernels over Kokkos teams: one team per row, per block of rows, or per strip of elements, with
// unit-stride loops inside. Sums over rows are computed in blocks of fixed length, in order and without atomics, so
// that results are bitwise reproducible.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/kokkos/threads.hpp"

namespace gyr {

using Team = Kokkos::TeamPolicy<Space>::member_type;

inline constexpr Index strip = 16384;       // elements of a flat array per Kokkos team
inline constexpr Index block_rows = 64;     // rows that one team adds up
inline constexpr Index sum_columns = 1024;  // columns whose block sums one team adds up

KOKKOS_INLINE_FUNCTION constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
KOKKOS_INLINE_FUNCTION constexpr Index least(Index a, Index b) { return a < b ? a : b; }

// Calls f(team, t) for every t < count, each with its own team.
template <class F>
void for_teams(const char* name, Device& dev, Index count, const F& f) {
  if (count == 0) return;
  ensure(!dev.is_lane, "kernel {} needs a team of threads, but a lane has only one thread", name);
  using Teams = Kokkos::TeamPolicy<Space>;
  const Teams teams = Device::team_size > 0 ? Teams(Space(), int(count), Device::team_size) : Teams(Space(), int(count), Kokkos::AUTO);
  Kokkos::parallel_for(
      name, teams, KOKKOS_LAMBDA(const Team& team) {
        const F local = f;  // a local copy stays in registers, where stores through its pointers cannot reach it
        local(team, Index(team.league_rank()));
      });
}

// Calls f(r) for every row r < rows, each in one thread, whose inner loop the compiler vectorises. On a lane
// (lanes.hpp: a device for one thread), the calling thread processes all rows.
template <class F>
void for_rows(Device& dev, const char* name, Index rows, const F& f) {
  if constexpr (threaded)
    if (dev.is_lane) {
      for (Index r = 0; r < rows; ++r) f(r);
      return;
    }
  Kokkos::parallel_for(name, Kokkos::RangePolicy<Space, Kokkos::IndexType<Index>>(Space(), 0, rows), f);
}

// Calls f(i) for every i < n, with all threads of the team. Adjacent i belong to adjacent vector lanes.
template <class F>
KOKKOS_INLINE_FUNCTION void each(const Team& team, Index n, const F& f) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, n), f);
}

// Sum over i < n of what f(i, sum) adds to `sum`. Every thread of the team gets the result.
template <class A, class F>
KOKKOS_INLINE_FUNCTION A sum(const Team& team, Index n, const F& f) {
  A total = 0;
  Kokkos::parallel_reduce(Kokkos::TeamVectorRange(team, n), f, total);
  return total;
}

// Calls f() in one thread of the team, followed by a barrier.
template <class F>
KOKKOS_INLINE_FUNCTION void once(const Team& team, const F& f) {
  Kokkos::single(Kokkos::PerTeam(team), f);
  team.team_barrier();
}

// Calls f(i) for every i < n of a flat array.
template <class F>
void for_flat(const char* name, Device& dev, Index n, const F& f) {
  for_teams(
      name, dev, ceil_div(n, strip), KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index first = s * strip;
        const F local = f;
        each(team, least(strip, n - first), [=](Index i) { local(first + i); });
      });
}

// out(c) += scale * sum over b of partial(b, c), in the order of b.
template <class A>
void add_blocks(const char* name, Device& dev, Tensor2<const A> partial, A scale, Tensor1<A> out) {
  const Index blocks = partial.extent(0), columns = partial.extent(1);
  for_teams(
      name, dev, ceil_div(columns, sum_columns), KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index first = s * sum_columns, width = least(sum_columns, columns - first);
        A* const o = out.data() + first;
        for (Index b = 0; b < blocks; ++b) {  // each thread of the team keeps its columns from block to block
          const A* const p = partial.data() + b * columns + first;
          each(team, width, [=](Index c) { o[c] += scale * p[c]; });
        }
      });
}

}  // namespace gyr
