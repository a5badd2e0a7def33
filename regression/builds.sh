#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds and tests with other compilers and libraries than those of this machine. Packages that conflict with installed ones
# go into a Debian chroot under WORK, which is created once; this machine is not changed.
#   regression/builds.sh [NAME...]       default: all
#     openmpi  Open MPI and the HDF5 built with it: regression table on 1, 2 and 4 ranks against the golden curves, bitwise
#              equal resumed runs; checkpoints are exchanged with the program of BUILD in both directions, with equal losses
#     kokkos   the newest Kokkos in Debian with OpenMP, and the newest compiler, HDF5 and MPICH
#     clang    Clang of this machine with address and undefined-behaviour sanitizers and warnings as errors, as `make sanitize`
# Environment: BUILD build folder of this machine (build/release)   WORK folder of chroots and builds (build/builds), 3 GB,
# which is used again   MIRROR Debian mirror   JOBS parallel compilers
# Needs root, Debian's mmdebstrap and, the first time, the network; or Clang. Exit codes: 0 success, 1 failure, 64 wrong
# arguments, 77 no failure, but something was skipped because its requirements are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/release} WORK=${WORK:-build/builds} MIRROR=${MIRROR:-http://deb.debian.org/debian} JOBS=${JOBS:-$(nproc)}
mkdir -p "$WORK"
WORK=$(realpath "$WORK")
say() { printf '== %s\n' "$*"; }

# ---- Debian chroots
# -------------------------------------------------------------------------------------------------------------------
# make_root NAME SUITE PACKAGES: creates a chroot with PACKAGES, which determine the further packages that
# jobscripts/setup.sh installs. The release dates of a snapshot mirror may have expired, so only signatures are checked.
make_root() {
  local root=$WORK/$1/root
  [ -f "$WORK/$1/ready" ] && return
  [ "$(id -u)" = 0 ] || { echo "SKIPPED: creating a chroot needs root"; return 77; }
  command -v mmdebstrap > /dev/null || { echo "SKIPPED: mmdebstrap is not installed"; return 77; }
  unshare --mount true || { echo "SKIPPED: mounting is not permitted here"; return 77; }
  rm -rf "$root"
  mkdir -p "$WORK/$1"
  mmdebstrap --quiet --mode=root --variant=apt --aptopt='Acquire::Check-Valid-Until "false"' --include="build-essential,ccache,$3" "$2" "$root" "$MIRROR" ||
    { echo "SKIPPED: Debian $2 could not be installed from $MIRROR"; rm -rf "$root"; return 77; }
  inside "$1" jobscripts/setup.sh test || { echo "SKIPPED: setup.sh could not install the other packages"; return 77; }
  touch "$WORK/$1/ready"
}

# inside NAME COMMAND...: runs a command in that chroot, in this folder under the same path. All processes that it
# starts end with it.
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

# build_inside NAME TARGETS...: builds with warnings as errors and little optimisation, because only compilation,
# linking and results are tested.
build_inside() {
  inside "$1" cmake -S . -B "$WORK/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 -DGYR_WERROR=ON \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache --log-level=WARNING
  inside "$1" cmake --build "$WORK/$1/build" --parallel "$JOBS" --target "${@:2}"
}

# ---- Tests
# ----------------------------------------------------------------------------------------------------------------------------
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
  # Kokkos' CMake files name archives of header-only parts, which the package does not contain.
  inside kokkos sh -c 'cd "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" && for a in libkokkosalgorithms.a libkokkossimd.a; do [ -e "$a" ] || ar rc "$a"; done'
  build_inside kokkos gyrfalcon unit_tests grid_tests
  inside kokkos env ctest --test-dir "$WORK/kokkos/build" --output-on-failure \
    -R '^(unit\.(activation|adamw|attention|convolution|cross_entropy|elementwise|embedding|gate|gemm|hdf5|head_norm|layernorm|model|rmsnorm|rope|ssd)|grid\.(checkpoint|equality|node|traffic))$'
}

build_clang() { regression/sanitize.sh; }

# ---- Exchange of checkpoints
# ----------------------------------------------------------------------------------------------------------
# The program of BUILD makes a run of 12 steps on 2 ranks. The same run is stopped by one program after 6 steps and
# resumed by the other.
there_and_back() {
  local build folder=$WORK/openmpi/runs first second
  build=$(realpath "$BUILD")
  [ -x "$build/bin/gyrfalcon" ] || { echo "SKIPPED: $build/bin/gyrfalcon does not exist, so no checkpoints are exchanged"; return 77; }
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
    near "$folder/whole" "$folder/from-$first" || failed "a checkpoint saved $first (here: BUILD, there: Open MPI) and resumed $second gives different losses"
    "$second" info --check "$folder/from-$first/checkpoints/step_00000006" > /dev/null || failed "a checkpoint saved $first does not pass info --check $second"
  done
  say "2 ranks, 12 steps: each program resumed the checkpoints of the other"
}

# Loss and gradient norm of all 12 steps must agree to 1e-5, because other compilers and MPIs sum in another order.
near() {
  local name
  for name in "$1" "$2"; do awk -f regression/table/curve.awk "$name/metrics.jsonl" > "$name.curve"; done
  paste "$1.curve" "$2.curve" | awk '
    function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * (a < 0 ? -a : a) }
    { for (i = 1; i <= NF / 2; ++i) if (far($i, $(i + NF / 2))) { print "step " $1 ": " $i " and " $(i + NF / 2); bad = 1 } }
    NF == 0 || NF % 2 { bad = 1 }
    END { exit bad || NR != 12 }'
}

# ---- Main loop
# ------------------------------------------------------------------------------------------------------------------------
[ $# -gt 0 ] || set -- openmpi kokkos clang
for name in "$@"; do
  [[ $name =~ ^(openmpi|kokkos|clang)$ ]] || { echo "builds: '$name' is none of openmpi, kokkos, clang" >&2; exit 64; }
done
code=0
for name in "$@"; do
  begin=$SECONDS outcome=0
  say "$name"
  # Runs in a subshell, because set -e has no effect inside a function whose exit code is tested.
  (set -e; "build_$name") & wait $! || outcome=$?
  case $outcome in
    0) say "$name: OK, $((SECONDS - begin)) s" ;;
    77) say "$name: SKIPPED"; [ "$code" = 1 ] || code=77 ;;
    *) say "$name: FAILED with $outcome, $((SECONDS - begin)) s"; code=1 ;;
  esac
done
exit "$code"
