#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks that everything needed is available. On Debian and Ubuntu it installs missing packages: as root without a question,
# otherwise with sudo, after a question on the terminal. Elsewhere (Spack, environment modules) it checks each dependency.
#   setup.sh         dependencies to build and run the program
#   setup.sh run     also the text of the demonstration (make run)
#   setup.sh test    also the packages of the test suite (make test)
#   GYR_INSTALL=yes  install without a question      GYR_INSTALL=no   never install, only list
#   BUILD=folder     no question and no check for `build` if this build folder is already configured
# Exit codes: 0 nothing is missing, 64 usage, 69 something is missing.
set -eu

case ${1:-build} in
  build) groups=build ;;
  run) groups='build run' ;;
  test) groups='build run test' ;;
  *) echo "setup: the group $1 does not exist; write setup.sh [build | run | test]" >&2; exit 64 ;;
esac

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# Debian has several MPIs and, recently, its own Kokkos package: an installed one is used.
mpi=mpich launcher=mpich kokkos=libtrilinos-kokkos-dev
if ! installed libhdf5-mpich-dev && { installed libhdf5-openmpi-dev || installed libopenmpi-dev; }; then mpi=openmpi launcher=openmpi-bin; fi
if installed libkokkos-dev; then kokkos=libkokkos-dev; fi

# Columns: group | dependency | Debian package | Spack spec | how it is found elsewhere: program NAMES, pkg-config MODULES,
# cmake PACKAGE
parts="
build | C++20 compiler   | build-essential        | gcc@12:             | program c++ g++ clang++ CC
build | CMake 3.25       | cmake                  | cmake@3.25:         | program cmake
build | make or Ninja    | ninja-build            | ninja               | program ninja make
build | pkg-config       | pkg-config             | pkgconf             | program pkg-config pkgconf
build | MPI compiler     | lib$mpi-dev            | mpich               | program mpicxx mpic++ CC
build | MPI launcher     | $launcher              | mpich               | program mpiexec srun aprun
build | HDF5 with MPI    | libhdf5-$mpi-dev       | hdf5+mpi            | cmake HDF5
build | Kokkos           | $kokkos                | kokkos              | cmake Kokkos
build | CBLAS            | libopenblas-dev        | openblas            | pkg-config openblas cblas-openblas cblas
build | oneDNN           | libdnnl-dev            | onednn@2            |
build | OpenCL for oneDNN| ocl-icd-opencl-dev     |                     |
build | yaml-cpp         | libyaml-cpp-dev        | yaml-cpp            | cmake yaml-cpp
build | JSON             | nlohmann-json3-dev     | nlohmann-json       | cmake nlohmann_json
build | CLI11            | libcli11-dev           | cli11               | cmake CLI11
build | fmt              | libfmt-dev             | fmt                 | cmake fmt
build | PCRE2            | libpcre2-dev           | pcre2               | pkg-config libpcre2-8
build | utf8proc         | libutf8proc-dev        | utf8proc            | pkg-config libutf8proc
build | xxHash           | libxxhash-dev          | xxhash              | pkg-config libxxhash
build | zlib             | zlib1g-dev             | zlib                | pkg-config zlib
build | Zstandard        | libzstd-dev            | zstd                | pkg-config libzstd
build | PNG images       | libpng-dev             | libpng              |
build | JPEG images      | libjpeg62-turbo-dev    | libjpeg-turbo       |
build | WebP images      | libwebp-dev            | libwebp             |
build | EXIF data        | libexif-dev            | libexif             |
run   | demo text        | dict-gcide             |                     |
test  | git              | git                    | git                 | program git
test  | HDF5 tools       | hdf5-tools             | hdf5+mpi+tools      | program h5dump
test  | Boost.Context    | libboost-context-dev   | boost+context       |
test  | GoogleTest       | libgtest-dev           | googletest          | cmake GTest
test  | benchmark        | libbenchmark-dev       | benchmark           |
test  | h5py (one test)  | python3-h5py           | py-h5py             |
test  | clang-format     | clang-format           | llvm                |
"

# rows [DEPENDENCY...]: rows of the table in these groups, or only those of the given dependencies, without extra spaces.
rows() {
  printf '%s\n' "$parts" | awk -F'|' -v groups=" $groups " -v only="$(printf '%s\n' "$@")" '
    BEGIN { n = split(only, list, "\n"); for (i = 1; i <= n; ++i) if (list[i] != "") { wanted[list[i]]; some = 1 } }
    NF > 1 { gsub(/ *\| */, "|"); gsub(/^ +| +$/, ""); split($0, cell, "|") }
    NF > 1 && index(groups, " " cell[1] " ") && (!some || cell[2] in wanted)'
}
# column N [DEPENDENCY...]: the n-th cells of these rows.
column() { n=$1; shift; rows "$@" | cut -d'|' -f"$n" | sed '/^$/d'; }
say() { printf 'setup: %s\n' "$*" >&2; }

on_debian() { command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; }

# Prints the dependencies whose Debian packages are missing, one per line.
packages_missing() {
  # shellcheck disable=SC2046  # one word per package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(column 3) 2>/dev/null | sed -n 's/^installed //p')
  rows | while IFS='|' read -r _ what package _; do
    printf '%s\n' "$installed" | grep -qx "$package" || printf '%s\n' "$what"
  done
}

terminal() { [ -t 0 ] && [ -t 2 ]; }
# Succeeds if the build folder has been configured, so that the program's dependencies were found, from whatever source.
configured() { [ "$groups" = build ] && [ -n "${BUILD:-}" ] && [ -f "$BUILD/CMakeCache.txt" ]; }

# Succeeds if these packages may be installed. Sets `become` to the command that gives root privileges.
may_install() {
  become=
  [ "${GYR_INSTALL:-}" != no ] || return 1
  if [ "$(id -u)" != 0 ]; then
    become=sudo
    command -v sudo >/dev/null 2>&1 || return 1
    if [ "${GYR_INSTALL:-}" = yes ] || [ -n "${CI:-}" ]; then
      terminal || sudo -n true 2>/dev/null
      return
    fi
    terminal && ! configured || return 1
    printf 'setup: missing packages: %s\nsetup: install them with sudo apt-get install? [y/N] ' "$*" >&2
    read -r answer || answer=
    case $answer in [yY]*) ;; *) return 1 ;; esac
  fi
}

install_packages() {
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
  absent=$(cmake_packages_missing $(column 5 | sed -n 's/^cmake //p'))
  rows | while IFS='|' read -r _ what _ _ how; do
    # shellcheck disable=SC2086  # split into words
    set -- $how
    kind=${1:-}
    [ $# -gt 0 ] && shift
    case $kind in
      program) have_program "$@" ;;
      pkg-config) have_module "$@" ;;
      cmake) ! printf '%s\n' "$absent" | tr ' ' '\n' | grep -qx "$1" ;;
    esac || printf '%s\n' "$what"
  done
}

cmake_is_old() { ! cmake --version | awk 'NR == 1 { split($3, v, "."); exit 1000 * v[1] + v[2] < 3025 }'; }

words() { sort -u | tr '\n' ' ' | sed 's/ $//'; }

# Names these dependencies, one per line, and how to get them.
give_up() {
  say "missing: $(printf '%s\n' "$1" | paste -sd, - | sed 's/,/, /g')"
  set -f
  IFS='
'
  # shellcheck disable=SC2086  # one argument per line
  set -- $1
  unset IFS
  say "Debian, Ubuntu:  apt-get install $(column 3 "$@" | words)"
  specs=$(column 4 "$@" | words)
  [ -z "$specs" ] || say "Spack:           spack install $specs  and spack load them"
  [ -z "$specs" ] || say "modules:         module spider NAME, for names like $(column 4 "$@" | sed 's/[@+].*//' | words)"
  exit 69
}

check_cmake() {
  if cmake_is_old; then
    say "missing: CMake 3.25 or newer ($(cmake --version | head -n 1) is here); pip install cmake, or load its module"
    exit 69
  fi
}

if on_debian; then
  missing=$(packages_missing)
  if [ -n "$missing" ]; then
    packages=$(printf '%s\n' "$missing" | { set --; while read -r what; do set -- "$@" "$what"; done; column 3 "$@" | words; })
    # shellcheck disable=SC2086  # one word per package
    if may_install $packages && install_packages $packages; then missing=; fi
  fi
  if [ -z "$missing" ]; then
    check_cmake
    exit 0
  fi
fi

# Without Debian packages: check the dependencies one by one, unless the build folder is already configured.
if configured; then exit 0; fi
missing=$(parts_missing)
if [ -n "$missing" ]; then give_up "$missing"; fi
check_cmake
