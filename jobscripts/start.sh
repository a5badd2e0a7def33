# SPDX-License-Identifier: BSD-3-Clause
# Common part of job.sh and submit.sh: site file, program, and checks before ranks are requested or launched. Sourced with
# `here` set, the folder of the jobscripts.
# shellcheck shell=bash disable=SC2034,SC2154

# Variables that a job passes to the jobs that it submits (PBS).
job_variables=(GYRFALCON GYRFALCON_SITE GYRFALCON_JOBSCRIPTS LAUNCHER RANKS THREADS BIND RESERVE JOBS SELFTEST VERIFY)

refuse() { printf '%s: %s\n' "$(basename "$0")" "$2" >&2; exit "$1"; }  # CODE MESSAGE

# note_failure STATUS LINE COMMAND: sets `missing` to the first line of a site file with a missing command or sourced file.
note_failure() {
  local name
  case $1,$3 in
    127,*) missing=${missing:-$2: $3: command not found; correct the line, or define the command before it, as in \`. /etc/profile.d/modules.sh\` for module} ;;
    *,'. '* | *,'source '*)
      name=$(eval "set -- ${3#* }" 2> /dev/null && echo "$1") || return 0
      [[ $name != */* || -e $name ]] || missing=${missing:-$2: $3: the file does not exist; correct its path or remove the line} ;;
  esac
}

# Settings of site files that no scheduler, launcher or library reads but these scripts.
site_settings=(PARTITION ACCOUNT CLUSTER_FILE SUBMIT SUBMIT_SBATCH SUBMIT_QSUB SLURM_MPI_TYPE)

# check_names FILE: exit code 69 if the site file assigns a variable whose name differs from a setting by at most two letters
# or by its case. A second assignment in the same file is reported, unless it is indented, as in an `if`.
check_names() {
  local said
  said=$(awk -v known="${site_settings[*]} ${job_variables[*]}" -v file="$1" '
    function least(a, b, c) { return a < b ? (a < c ? a : c) : (b < c ? b : c) }
    function distance(a, b,  i, j, d) {
      for (i = 0; i <= length(a); ++i)
        for (j = 0; j <= length(b); ++j)
          d[i, j] = !i || !j ? i + j : least(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (substr(a, i, 1) != substr(b, j, 1)))
      return d[length(a), length(b)]
    }
    BEGIN { n = split(known, names, " "); for (i = 1; i <= n; ++i) is_known[names[i]] }
    match($0, /^[ \t]*(export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*\+?=/) {
      name = substr($0, 1, RLENGTH - 1); sub(/^[ \t]*(export[ \t]+)?/, "", name)
      if (name in is_known) {
        if ($0 !~ /^[ \t]/ && first[name]) printf "again %s:%d: %s is set a second time; the value of line %d is not used\n", file, FNR, name, first[name]
        if ($0 !~ /^[ \t]/) first[name] = FNR
      } else if (name !~ /\+$/)
        for (i = 1; i <= n; ++i)
          if (toupper(name) == names[i] || distance(name, names[i]) <= (length(names[i]) < 7 ? 1 : 2)) {
            printf "slip %s:%d: %s is not a setting; did you mean %s?\n", file, FNR, name, names[i]
            break
          }
    }' "$1")
  sed -n "s/^again /$(basename "$0"): warning: /p" <<< "$said" >&2
  said=$(sed -n 's/^slip //p' <<< "$said")
  [ -z "$said" ] || refuse 69 "$said"
}

# Sources the file GYRFALCON_SITE, or else site.sh of the jobscripts and then that of the user. `module` and other
# functions of a site may fail under `set -eu`. Exit code 69 for a command that does not exist (status 127), or a file that
# the site file sources and that does not exist.
read_site() {
  local file missing=''
  local -a files=("$here/site.sh" "${XDG_CONFIG_HOME:-${HOME:-}/.config}/gyrfalcon/site.sh")
  if [ -n "${GYRFALCON_SITE:-}" ]; then
    [ -f "$GYRFALCON_SITE" ] || refuse 66 "GYRFALCON_SITE is $GYRFALCON_SITE, which is not a file; correct or unset it"
    files=("$GYRFALCON_SITE")
  fi
  for file in "${files[@]}"; do
    [ -f "$file" ] || continue
    [ -r "$file" ] || refuse 74 "the site file $file cannot be read; change its permissions, or set GYRFALCON_SITE to another one"
    bash -n "$file" || refuse 69 "$file is not valid bash (see above); correct it"
    check_names "$file"
    set +eu
    trap 'note_failure $? "$LINENO" "$BASH_COMMAND"' ERR
    # shellcheck disable=SC1090
    . "$file"
    trap - ERR
    set -eu
    [ -z "$missing" ] || refuse 69 "$file:$missing"
  done
}

# Sets `gyrfalcon` to GYRFALCON, or to the program of the installation or clone that has these jobscripts. $1: the value of
# BIND, gpu if ranks have devices. Exit code 69 if it is missing, or if ranks have devices and the program has no GPU backend.
find_program() {
  local build=release make=make
  case $1 in rank | gpu | none) ;; *) refuse 64 "BIND=$1: must be rank, gpu or none" ;; esac
  [ "$1" != gpu ] || { build=cuda make='make cuda'; }
  if [ -n "${GYRFALCON:-}" ]; then
    gyrfalcon=$GYRFALCON
    command -v "$gyrfalcon" > /dev/null || refuse 69 "the program GYRFALCON=$gyrfalcon is missing; correct or unset the variable"
    check_backend "$1"
    return
  fi
  case $here in
    */share/gyrfalcon/jobscripts) gyrfalcon=${here%/share/gyrfalcon/jobscripts}/bin/gyrfalcon make='make install' ;;
    *) gyrfalcon=$(dirname "$here")/build/$build/bin/gyrfalcon ;;
  esac
  [ -x "$gyrfalcon" ] || refuse 69 "the program $gyrfalcon is missing; build it with \`$make\`, or set GYRFALCON to a program"
  check_backend "$1"
}

# check_backend BIND: exit code 69 if BIND is gpu and the program was built for CPUs. A program that cannot run here, as on a
# login node without its libraries, is not checked.
check_backend() {
  [ "$1" = gpu ] || return 0
  ! timeout 60 "$gyrfalcon" version 2> /dev/null | grep '^backend *kokkos$' > /dev/null ||
    refuse 69 "the program $gyrfalcon is built for CPUs, but the ranks of this script have GPUs; set GYRFALCON to the program of \`make cuda\`, or take a script for CPUs (slurm-cpu.sh, pbs-cpu.sh)"
}

# check_deck [DECK]: exit code 64 without a deck, 66 if it is no file. Relative paths start in the folder of the submission.
check_deck() {
  case ${1:-} in
    '') [ -z "${PBS_SCRIPT:-}" ] ||
      refuse 64 "no deck is given; $(basename "$PBS_SCRIPT") reads its name from the variable DECK, as in qsub -v DECK=FILE SCRIPT or DECK=FILE bash SCRIPT"
      refuse 64 "no deck is given; name one, as in sbatch SCRIPT DECK or qsub -v DECK=FILE SCRIPT" ;;
    *=* | -*) [ -f "$1" ] || refuse 64 "the first word must be a deck, not $1; write SCRIPT DECK key=value ..." ;;
  esac
  [ ! -d "$1" ] || refuse 66 "$1 is a folder, not a deck"
  [ -f "$1" ] || refuse 66 "there is no deck $1 in $PWD"
}

# check_grid RANKS DECK [key=value ...]: exit code of `gyrfalcon plan` if it refuses the deck on RANKS ranks, 66 for missing
# and 65 for other token files that train would refuse, unless `waits` is set because the job waits for another one, which may write them,
# 74 for a file that cannot be read. With CLUSTER_FILE, also 78 if the deck does not fit in the memory of that machine. It launches nothing and reads no weights. If the program cannot run here, as on a login node without its MPI, the job is not
# checked.
check_grid() {
  local code=0 said data
  [ -z "${CLUSTER_FILE:-}" ] || [ -f "$CLUSTER_FILE" ] || refuse 66 "CLUSTER_FILE is $CLUSTER_FILE, which is not a file; correct it in the site file"
  said=$(timeout 60 "$gyrfalcon" plan "${@:2}" --ranks "$1" ${CLUSTER_FILE:+--cluster "$CLUSTER_FILE"} 2>&1) || code=$?
  data=$(sed -n 's/^warning: train stops: //p; s/^note: \(the deck names no training data.*\)/\1/p' <<< "$said")
  case $code in
    0) [ -z "$data" ] || [ -n "${waits:-}" ] || refuse "$(case $data in *'does not exist'*) echo 66 ;; *) echo 65 ;; esac)" "the job would stop at its start: $data" ;;
    64 | 65 | 66 | 78) refuse "$code" "the deck is refused on the $1 ranks of this job: $(sed -n '/^RUN /d; /^gyrfalcon: /,$p' <<< "$said")" ;;
    74) refuse 74 "gyrfalcon plan cannot read the deck or a file that it names: $(sed -n '/^RUN /d; /^gyrfalcon: /,$p' <<< "$said")" ;;
    *) said=$(sed '/^RUN /d' <<< "$said" | tail -n 1)
      if [ "$code" = 124 ]; then said='took longer than 60 s' code=''; fi
      printf '%s: the deck is not checked on %s ranks, because gyrfalcon plan %s here%s\n' "$(basename "$0")" "$1" "${code:+returned }${code:-$said}" "${code:+${said:+: $said}}" >&2 ;;
  esac
}
