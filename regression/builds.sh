#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds with other compilers and libraries than this machine has, and what must hold of each. Packages that cannot be installed beside each
# other go into a Debian of their own, a folder made of packages once and entered by chroot; nothing of this machine changes.
#   regression/builds.sh [NAME...]       without a name: all
#     openmpi  Open MPI and the HDF5 built with it. Runs of the regression table on 1, 2 and 4 ranks, resumed ones with equal bits, against the
#              golden curves; checkpoints of the program of BUILD are resumed with the same losses, and the reverse
#     kokkos   the newest Kokkos that Debian has, with OpenMP, and with it the newest compiler, HDF5 and MPICH
#     clang    Clang on this machine, warnings as errors, with address and undefined-behaviour sanitizers: the same as `make sanitize`
# Environment: BUILD a build folder of this machine (build/release)   WORK where roots and builds go (build/builds), 3 GB; what is there is
# used again   MIRROR Debian's archive   JOBS compilers at once
# Needs root and Debian's mmdebstrap, and the network the first time, or Clang. Exit codes: 0 all held, 1 something did not, 64 command line,
# 77 nothing failed and something was skipped, because what it needs is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/release} WORK=${WORK:-build/builds} MIRROR=${MIRROR:-http://deb.debian.org/debian} JOBS=${JOBS:-$(nproc)}
mkdir -p "$WORK"
WORK=$(realpath "$WORK")
say() { printf '== %s\n' "$*"; }

# ---- A Debian of its own --------------------------------------------------------------------------------------------------------------
# make_root NAME SUITE PACKAGES: those that decide which others jobscripts/setup.sh installs there. The dates of a mirror that is a snapshot
# have passed; signatures are checked all the same.
make_root() {
  local root=$WORK/$1/root
  [ -f "$WORK/$1/ready" ] && return
  [ "$(id -u)" = 0 ] || { echo "SKIPPED: a root takes root"; return 77; }
  command -v mmdebstrap > /dev/null || { echo "SKIPPED: mmdebstrap is not installed"; return 77; }
  unshare --mount true || { echo "SKIPPED: nothing may be mounted here"; return 77; }
  rm -rf "$root"
  mkdir -p "$WORK/$1"
  mmdebstrap --quiet --mode=root --variant=apt --aptopt='Acquire::Check-Valid-Until "false"' --include="build-essential,ccache,$3" "$2" "$root" "$MIRROR" ||
    { echo "SKIPPED: Debian $2 could not be made of packages from $MIRROR"; rm -rf "$root"; return 77; }
  inside "$1" jobscripts/setup.sh || { echo "SKIPPED: setup.sh could not install the rest"; return 77; }
  touch "$WORK/$1/ready"
}

# inside NAME WORDS...: runs them in that root, in this folder, which is there under the same name. All it has started ends with it.
inside() {
  local root=$WORK/$1/root cache=${CCACHE_DIR:-$HOME/.cache/ccache}
  mkdir -p "$root$PWD" "$root$cache" "$cache"
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1 folder=$2 cache=$3
    shift 3
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/tmp"
    mount --bind "$folder" "$root$folder"
    mount --bind "$cache" "$root$cache"
    cd "$folder"
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin CCACHE_DIR="$cache" OMP_NUM_THREADS=1 chroot "$root" \
      sh -c "cd \"\$0\" && exec \"\$@\"" "$folder" "$@"' - "$root" "$PWD" "$cache" "${@:2}"
}

# build_inside NAME TARGETS...: with warnings as errors, and little optimisation: whether it compiles, links and counts is what is asked.
build_inside() {
  inside "$1" cmake -S . -B "$WORK/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 -DGYR_WERROR=ON \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache --log-level=WARNING
  inside "$1" cmake --build "$WORK/$1/build" --parallel "$JOBS" --target "${@:2}"
}

# ---- What must hold -------------------------------------------------------------------------------------------------------------------
build_openmpi() {
  make_root openmpi "$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")" openmpi-bin,libopenmpi-dev,libhdf5-openmpi-dev || return
  build_inside openmpi gyrfalcon unit_tests grid_tests
  inside openmpi ldd "$WORK/openmpi/build/bin/gyrfalcon" | grep -q libopen-rte || { echo "FAILED: the program is not linked with Open MPI"; return 1; }
  inside openmpi ctest --test-dir "$WORK/openmpi/build" --output-on-failure -R '^(unit\.(checkpoint|conveyor|hdf5|head_norm|layernorm|layout)|grid\.(checkpoint|startup|traffic))$'
  inside openmpi regression/run.sh --binary "$WORK/openmpi/build/bin/gyrfalcon" --work "$WORK/openmpi/table" --ranks 4 \
    --only 'another-grid,hybrid-fp32,restart-*'
  there_and_back
}

build_kokkos() {
  make_root kokkos sid libkokkos-dev,mpich,libhdf5-mpich-dev || return
  # Its CMake files name archives that the package does not have, for parts of Kokkos that are headers alone.
  inside kokkos sh -c 'cd "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" && for a in libkokkosalgorithms.a libkokkossimd.a; do [ -e "$a" ] || ar rc "$a"; done'
  build_inside kokkos gyrfalcon unit_tests grid_tests
  inside kokkos env ctest --test-dir "$WORK/kokkos/build" --output-on-failure \
    -R '^(unit\.(activation|adamw|attention|convolution|cross_entropy|elementwise|embedding|gate|gemm|hdf5|head_norm|layernorm|model|rmsnorm|rope|ssd)|grid\.(checkpoint|equality|node|traffic))$'
}

build_clang() { regression/sanitize.sh; }

# ---- Checkpoints there and back -------------------------------------------------------------------------------------------------------
# A run of 12 steps on 2 ranks by the program of BUILD; the same stopped by one program after 6 steps and resumed by the other.
there_and_back() {
  local build folder=$WORK/openmpi/runs first second
  build=$(realpath "$BUILD")
  [ -x "$build/bin/gyrfalcon" ] || { echo "SKIPPED: $build/bin/gyrfalcon is not there to exchange checkpoints with"; return 77; }
  local -a settings
  rm -rf "$folder"
  mkdir -p "$folder"
  . regression/jobs/material.sh
  make_material 12
  here() { local -a start; read -r -a start <<< "$(jobscripts/launcher.sh "$build/bin/gyrfalcon")"; OMP_NUM_THREADS=1 "${start[@]}" -n 2 "$build/bin/gyrfalcon" "$@"; }
  there() { inside openmpi sh -c 'exec $(jobscripts/launcher.sh "$0") -n 2 "$0" "$@"' "$WORK/openmpi/build/bin/gyrfalcon" "$@"; }
  train() { "$1" train input/demo.yaml "${settings[@]}" parallel.tensor=2 output.folder="$folder/$2" "${@:3}" > "$folder/$2.log" 2>&1 || failed "$2" "$folder/$2.log"; }
  train here whole
  for first in here there; do
    second=$([ $first = here ] && echo there || echo here)
    train $first "from-$first" train.steps=6
    train $second "from-$first" train.steps=12 --resume
    near "$folder/whole" "$folder/from-$first" || failed "a checkpoint saved $first and resumed $second gives other losses"
    "$second" info --check "$folder/from-$first/checkpoints/step_00000006" > /dev/null || failed "a checkpoint saved $first does not check $second"
  done
  say "2 ranks, 12 steps: checkpoints of both programs resumed by the other"
}

# Loss and gradient norm of all 12 steps, to 1e-5: other compilers and MPIs sum in another order.
near() {
  local name
  for name in "$1" "$2"; do awk -f regression/table/curve.awk "$name/metrics.jsonl" > "$name.curve"; done
  paste "$1.curve" "$2.curve" | awk '
    function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * (a < 0 ? -a : a) }
    { for (i = 1; i <= NF / 2; ++i) if (far($i, $(i + NF / 2))) { print "step " $1 ": " $i " and " $(i + NF / 2); bad = 1 } }
    NF == 0 || NF % 2 { bad = 1 }
    END { exit bad || NR != 12 }'
}

# ---- All that were asked for ----------------------------------------------------------------------------------------------------------
[ $# -gt 0 ] || set -- openmpi kokkos clang
for name in "$@"; do
  [[ $name =~ ^(openmpi|kokkos|clang)$ ]] || { echo "builds: '$name' is none of openmpi, kokkos, clang" >&2; exit 64; }
done
code=0
for name in "$@"; do
  begin=$SECONDS outcome=0
  say "$name"
  # A shell of its own: set -e does not hold in a function whose code is looked at.
  (set -e; "build_$name") & wait $! || outcome=$?
  case $outcome in
    0) say "$name: OK, $((SECONDS - begin)) s" ;;
    77) say "$name: SKIPPED"; [ "$code" = 1 ] || code=77 ;;
    *) say "$name: FAILED with $outcome, $((SECONDS - begin)) s"; code=1 ;;
  esac
done
exit "$code"
