#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks that everything needed to build Gyrfalcon is available. On Debian and Ubuntu it installs missing packages, as root
# or with a password-free sudo. Elsewhere (Spack, environment modules) it checks each dependency and lists the missing ones.
#   GYR_INSTALL=no   never install, only check      BUILD=folder   skip the check if this build folder is already configured
# Exit codes: 0 nothing is missing, 69 something is missing.
set -eu

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# Debian has several MPIs and, recently, its own Kokkos package: an installed one is used.
mpi=mpich launcher=mpich kokkos=libtrilinos-kokkos-dev
if ! installed libhdf5-mpich-dev && { installed libhdf5-openmpi-dev || installed libopenmpi-dev; }; then mpi=openmpi launcher=openmpi-bin; fi
if installed libkokkos-dev; then kokkos=libkokkos-dev; fi

# Columns: dependency | Debian package | Spack spec | how it is found elsewhere: program NAMES, pkg-config MODULES,
# cmake PACKAGE
parts="
C++20 compiler   | build-essential        | gcc@12:             | program c++ g++ clang++ CC
CMake 3.25       | cmake                  | cmake@3.25:         | program cmake
make or Ninja    | ninja-build            | ninja               | program ninja make
pkg-config       | pkg-config             | pkgconf             | program pkg-config pkgconf
git              | git                    | git                 | program git
MPI compiler     | lib$mpi-dev            | mpich               | program mpicxx mpic++ CC
MPI launcher     | $launcher              | mpich               | program mpiexec srun aprun
HDF5 with MPI    | libhdf5-$mpi-dev       | hdf5+mpi+tools      | cmake HDF5
HDF5 tools       | hdf5-tools             | hdf5+mpi+tools      | program h5dump
Kokkos           | $kokkos                | kokkos              | cmake Kokkos
CBLAS            | libopenblas-dev        | openblas            | pkg-config openblas cblas-openblas cblas
oneDNN           | libdnnl-dev            | onednn              |
OpenCL for oneDNN| ocl-icd-opencl-dev     |                     |
Boost.Context    | libboost-context-dev   | boost+context       |
yaml-cpp         | libyaml-cpp-dev        | yaml-cpp            | cmake yaml-cpp
JSON             | nlohmann-json3-dev     | nlohmann-json       | cmake nlohmann_json
CLI11            | libcli11-dev           | cli11               | cmake CLI11
fmt              | libfmt-dev             | fmt                 | cmake fmt
PCRE2            | libpcre2-dev           | pcre2               | pkg-config libpcre2-8
utf8proc         | libutf8proc-dev        | utf8proc            | pkg-config libutf8proc
xxHash           | libxxhash-dev          | xxhash              | pkg-config libxxhash
zlib             | zlib1g-dev             | zlib                | pkg-config zlib
Zstandard        | libzstd-dev            | zstd                | pkg-config libzstd
GoogleTest       | libgtest-dev           | googletest          | cmake GTest
benchmark        | libbenchmark-dev       | benchmark           |
demo text        | dict-gcide             |                     |
h5py (one test)  | python3-h5py           | py-h5py             |
clang-format     | clang-format           | llvm                |
"

# The n-th column of the table, without surrounding spaces.
column() { printf '%s\n' "$parts" | awk -F'|' -v n="$1" 'NF > 1 { gsub(/^ +| +$/, "", $n); if ($n != "") print $n }'; }
say() { printf 'setup: %s\n' "$*" >&2; }

on_debian() { command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; }

packages_missing() {
  # shellcheck disable=SC2046  # one word per package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(column 2) 2>/dev/null | sed -n 's/^installed //p')
  for package in $(column 2); do
    printf '%s\n' "$installed" | grep -qx "$package" || printf '%s ' "$package"
  done
}

# Prints the command that gives root privileges: nothing for root, sudo if it asks for no password. Fails otherwise.
privilege() {
  if [ "$(id -u)" = 0 ]; then return 0; fi
  if sudo -n true 2>/dev/null; then echo sudo; else return 1; fi
}

install_packages() {
  become=$(privilege) || return 1
  say "installing $*"
  # The package lists may be old or missing, as in a fresh container. If the first attempt fails, they are updated.
  $become env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 ||
    { $become apt-get update -qq >&2 &&
      $become env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2; }
}

have_program() { for name in "$@"; do command -v "$name" >/dev/null 2>&1 && return 0; done; return 1; }
have_module() {
  finder=$(command -v pkg-config || command -v pkgconf) || return 1
  for name in "$@"; do "$finder" --exists "$name" && return 0; done
  return 1
}

# Prints those of the given CMake packages that CMake cannot find.
cmake_packages_missing() {
  have_program cmake || { echo "$*"; return; }
  probe=$(mktemp -d)
  cat >"$probe/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(probe C CXX)
set(HDF5_PREFER_PARALLEL ON)
foreach(package IN LISTS PACKAGES)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND OR (package STREQUAL HDF5 AND NOT HDF5_IS_PARALLEL))
    message(STATUS "missing:${package}")
  endif()
endforeach()
END
  list=$(printf '%s;' "$@")
  cmake -S "$probe" -B "$probe/build" -DPACKAGES="$list" 2>/dev/null | sed -n 's/^-- missing://p'
  rm -rf "$probe"
}

# Prints the missing dependencies, one per line.
parts_missing() {
  # shellcheck disable=SC2046  # one word per package
  absent=$(cmake_packages_missing $(column 4 | sed -n 's/^cmake //p'))
  printf '%s\n' "$parts" | while IFS='|' read -r what _ _ how; do
    # shellcheck disable=SC2086  # split into words
    set -- $how
    kind=${1:-}
    [ $# -gt 0 ] && shift
    case $kind in
      program) have_program "$@" ;;
      pkg-config) have_module "$@" ;;
      cmake) ! printf '%s\n' "$absent" | tr ' ' '\n' | grep -qx "$1" ;;
    esac || printf '%s\n' "$what" | sed 's/ *$//'
  done
}

cmake_is_old() { ! cmake --version | awk 'NR == 1 { split($3, v, "."); exit 1000 * v[1] + v[2] < 3025 }'; }

give_up() {
  say "missing: $1"
  say "Debian, Ubuntu:  apt-get install $(column 2 | tr '\n' ' ')"
  say "Spack:           spack install $(column 3 | sort -u | tr '\n' ' ')  and spack load them"
  say "modules:         names like gcc cmake cray-mpich|mpich|openmpi cray-hdf5-parallel|hdf5 kokkos openblas"
  say "                 yaml-cpp nlohmann-json cli11 fmt pcre2 utf8proc xxhash zlib zstd googletest; try: module spider NAME"
  exit 69
}

if on_debian; then
  missing=$(packages_missing)
  # shellcheck disable=SC2086  # one word per package
  if [ -n "$missing" ] && [ "${GYR_INSTALL:-yes}" != no ] && install_packages $missing; then missing=; fi
  if [ -z "$missing" ]; then
    if cmake_is_old; then give_up "CMake 3.25 or newer ($(cmake --version | head -n 1) is here)"; fi
    exit 0
  fi
fi

# Without Debian packages: check the dependencies one by one, unless the build folder is already configured.
if [ -n "${BUILD:-}" ] && [ -f "$BUILD/CMakeCache.txt" ]; then exit 0; fi
missing=$(parts_missing)
if [ -n "$missing" ]; then give_up "$(printf '%s\n' "$missing" | paste -sd, - | sed 's/,/, /g')"; fi
if cmake_is_old; then give_up "CMake 3.25 or newer ($(cmake --version | head -n 1) is here)"; fi
