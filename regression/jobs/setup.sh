#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Test of jobscripts/setup.sh with imitations of Debian's tools: the packages that each target installs, the question on a
# terminal, and the list for a user without root privileges.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. regression/jobs/material.sh
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD PRESET SETUP  # set by a make that runs the tests
mkdir "$folder/bin" "$folder/home"
imitate() { printf '#!/bin/sh\n%s\n' "$2" > "$folder/bin/$1"; chmod +x "$folder/bin/$1"; }  # NAME SCRIPT
imitate dpkg-query 'shift 3; for name; do ! grep -qxe "$name" "$HAVE" || echo "installed $name"; done'
imitate apt-get 'echo "$*" >> "$APT"'
imitate sudo 'echo sudo >> "$APT"; [ "$1" != -n ] || shift; [ -z "${PASSWORD:-}" ] || exit 1; exec "$@"'
imitate id 'echo "${AS:-1000}"'

# setup CODE [VARIABLE=value ...] [GROUP]: runs setup.sh where the packages in $folder/have are installed.
setup() {
  local expected=$1 code=0
  local -a variables=()
  shift
  while [[ ${1:-} == *=* ]]; do variables+=("$1"); shift; done
  rm -f "$folder/apt"
  env -u CI -u GYR_INSTALL PATH="$folder/bin:$PATH" HAVE="$folder/have" APT="$folder/apt" "${variables[@]}" jobscripts/setup.sh "$@" > "$folder/said" 2>&1 < /dev/null || code=$?
  [ "$code" = "$expected" ] || failed "setup.sh $* returned $code instead of $expected" "$folder/said"
}
# asked ANSWER [VARIABLE=value ...] [GROUP]: the same on a terminal, as an ordinary user who gives this answer.
asked() {
  rm -f "$folder/apt"
  (sleep 1; echo "$1") | env -u CI -u GYR_INSTALL PATH="$folder/bin:$PATH" HAVE="$folder/have" APT="$folder/apt" \
    timeout 20 script -qec "jobscripts/setup.sh ${*:2}" /dev/null > "$folder/said" 2>&1 || true
}
said() { grep -q -- "$1" "$folder/said" || failed "the message '$1' is missing" "$folder/said"; }
silent() { ! grep -q -- "$1" "$folder/said" || failed "the message contains '$1'" "$folder/said"; }
installs() { grep -q -- "$1" "$folder/apt" || failed "'$1' was not installed" "$folder/apt"; }
nothing() { [ ! -e "$folder/apt" ] || failed "$1" "$folder/apt" "$folder/said"; }

# A fresh machine: root gets all packages without a question.
touch "$folder/have"
setup 0 AS=0 test
for package in build-essential libkokkos-dev\\\|libtrilinos-kokkos-dev libgtest-dev libbenchmark-dev python3-h5py dict-gcide clang-format git; do installs "$package"; done
setup 0 AS=0
installs build-essential
for package in libgtest-dev libbenchmark-dev python3-h5py dict-gcide clang-format; do
  ! grep -q "$package" "$folder/apt" || failed "a build installs $package"
done
tr ' ' '\n' < "$folder/apt" > "$folder/have"  # all packages of a build
setup 0 AS=0
nothing "packages are installed again"
setup 0 AS=0 run
installs 'install .* dict-gcide$'

# Only missing packages are named. Without root and without a terminal, nothing is installed.
grep -v yaml-cpp "$folder/have" > "$folder/most" && mv "$folder/most" "$folder/have"
setup 0 GYR_INSTALL=yes
installs sudo && installs 'libyaml-cpp-dev$'
setup 0 CI=true
installs 'libyaml-cpp-dev$'
imitate cmake 'if [ "$1" = --version ]; then echo cmake version 3.25.1; else echo "-- missing:yaml-cpp"; fi'
for choice in GYR_INSTALL=no GYR_INSTALL= "GYR_INSTALL=yes PASSWORD=1"; do
  # shellcheck disable=SC2086
  setup 69 $choice
  [[ $choice == *PASSWORD* ]] || nothing "packages are installed without permission"
  said 'missing: yaml-cpp$'
  said 'apt-get install libyaml-cpp-dev$'
  said 'spack install yaml-cpp  and'
  silent kokkos
done
setup 64 AS=0 everything
said 'write setup.sh \[build | run | test\]'

# On a terminal, the user decides.
if command -v script > /dev/null; then
  asked n
  nothing "packages are installed although the answer is no"
  said 'install them with sudo apt-get install? \[y/N\]'
  said 'missing: yaml-cpp'
  mkdir "$folder/build" && touch "$folder/build/CMakeCache.txt"
  BUILD=$folder/build asked y
  nothing "a configured build asks a question"
  BUILD=$folder/build asked y test
  said 'install them with sudo'
  asked y
  installs sudo && installs 'libyaml-cpp-dev$'
fi
for target in build:build install:build run:run "run DATA=my.txt:build" test:test bench:test mutants:test; do
  # shellcheck disable=SC2086  # split into words
  make -n ${target%:*} | grep "setup.sh ${target#*:}\$" > /dev/null || failed "make ${target%:*} does not run setup.sh ${target#*:}"
done
echo "== setup.sh"

# The program is configured without GoogleTest and oneDNN, and the summary names both. It is printed again only if it changes.
rm -rf "$folder/bin/cmake" "$folder/build"
configure() { cmake -S . -B "$folder/build" --log-level=NOTICE "$@" > "$folder/said" 2>&1 || failed "the configuration failed" "$folder/said"; }
configure -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON
said '^  tests     off, because GoogleTest is missing'
said '^  oneDNN    missing: bf16 GEMMs run in fp32, at half the rate'
configure
silent oneDNN
for line in compiler MPI HDF5 Kokkos CBLAS images CUDA; do grep -q "found($line" jobscripts/summary.cmake || failed "the summary has no $line"; done
configure -UCMAKE_DISABLE_FIND_PACKAGE_dnnl
said '^  oneDNN '
echo "== cmake"
