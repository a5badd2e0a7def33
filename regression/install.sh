#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/install.sh BUILD: installs BUILD into an empty folder, as into a home folder, and tests the installation: the
# program, man pages, completions of the available shells, the module file with Environment Modules or Lmod, jobscripts, and
# the pages with their links.
# Checks of tools that are missing on this machine are listed as skipped with "-".
set -euo pipefail
build=$(cd "${1:?usage: regression/install.sh BUILD}" && pwd) source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/home/gyrfalcon
failed=0
ok() { printf 'ok    %s\n' "$*"; }
bad() { printf 'FAILED %s\n' "$*"; failed=1; }
left_out() { printf -- '-     %s\n' "$*"; }
is() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2', not '$3'"; fi; }  # WHAT FOUND WANTED
expect() { local what=$1; shift; if "$@" > "$work/out" 2>&1; then ok "$what"; else bad "$what"; head -n 5 "$work/out"; fi; }

cmake --install "$build" --prefix "$prefix" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
make_install() { make -s -o build -C "$source" install BUILD="$build" PREFIX="$1"; }
make_install "$work/a home" > "$work/log.make" 2>&1 || true
is "make install takes a folder with a space" "$("$work/a home/bin/gyrfalcon" --version 2> /dev/null | head -c 9)" Gyrfalcon
if make_install "$work/log/none" > "$work/out" 2>&1; then bad "make install returns an error if it fails"; else ok "make install returns an error if it fails"; fi
cd "$work"
program=$prefix/bin/gyrfalcon
expect "the program starts" "$program" --version
if grep -rlI "$build" "$prefix" > "$work/out"; then bad "no installed text contains the path of the build folder: $(tr '\n' ' ' < "$work/out")"; else ok "no installed text contains the path of the build folder"; fi
if readelf -d "$program" 2> /dev/null | grep -qE "R(UN)?PATH.*$build"; then bad "the RUNPATH of the program excludes the build folder"; else ok "the RUNPATH of the program excludes the build folder"; fi

# commands prints all subcommands; all prints them with their own subcommands, as "data build"; options NAME... prints
# the options in a help text.
commands() { "$program" "$@" --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [a-z]/ { print $1 }'; }
all() { for c in $(commands); do inner=$(commands "$c"); if [ -n "$inner" ]; then for i in $inner; do echo "$c $i"; done; else echo "$c"; fi; done; }
# shellcheck disable=SC2086
options() { "$program" $1 --help | awk '/^Options:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  -/ { print $1 }' | tr ',' '\n' | sort; }
all > "$work/commands"
expect "$(wc -l < "$work/commands") commands" [ "$(wc -l < "$work/commands")" -gt 15 ]

# Every command has a man page that lists its options.
missing=
while read -r words; do
  page=$prefix/share/man/man1/gyrfalcon-${words// /-}.1
  for option in $(options "$words"); do grep -qF -- "${option//-/\\-}" "$page" 2> /dev/null || missing="$missing $words:$option"; done
done < "$work/commands"
is "every man page lists the options of its command" "$missing" ""
if command -v groff > /dev/null; then
  warned=$(for page in "$prefix"/share/man/man*/*; do groff -man -Tutf8 -ww -z "$page" 2>&1; done | head -n 3)
  is "groff accepts all man pages without warnings" "$warned" ""
else left_out "no groff"; fi

# Completions that bash offers after these words.
offers() {
  bash -c 'compopt() { :; }; . "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _gyrfalcon; printf "%s\n" "${COMPREPLY[@]}"' - \
    "$prefix/share/bash-completion/completions/gyrfalcon" gyrfalcon "$@" | sort
}
wrong=
while read -r words; do
  # shellcheck disable=SC2086
  [ "$(offers $words -)" = "$(options "$words")" ] || wrong="$wrong $words;"
done < "$work/commands"
is "bash completes the options of every command" "$wrong" ""
is "bash completes commands" "$(offers "")" "$({ commands; printf -- '--help\n--version\n'; } | sort)"
is "bash completes choices" "$(offers eval --weights "")" "$(printf 'int8\nstored\n')"
is "bash completes keys of a deck" "$(offers train deck.yaml parallel.ten)" parallel.tensor=
if command -v fish > /dev/null; then
  fish_offers() { fish -N -c "source $prefix/share/fish/vendor_completions.d/gyrfalcon.fish; complete -C '$1'" | cut -f1 | sort; }
  wrong=
  while read -r words; do
    for option in $(options "$words" | grep ^--); do fish_offers "gyrfalcon $words $option" | grep -qxF -- "$option" || wrong="$wrong $words:$option"; done
  done <<< "$(printf 'plan\ndata build\ndiff\n')"
  is "fish completes options" "$wrong" ""
  is "fish completes commands" "$(fish_offers 'gyrfalcon re')" "$(printf 'report\nreshard\n')"
else left_out "no fish"; fi
if command -v zsh > /dev/null; then
  cat > "$work/ask.zsh" << 'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= fpath=($1 \$fpath); autoload -Uz compinit && compinit -u -D; setopt noautomenu nolistbeep; stty cols 4000 -echo; LISTMAX=1000; print READY"
zpty -r shell line '*READY*READY*' 2> /dev/null
zpty -w -n shell "$2"$'\t\t'
sleep 2
while zpty -rt shell line; do print -r -- "$line"; done
zpty -d shell
END
  timeout 60 zsh "$work/ask.zsh" "$prefix/share/zsh/site-functions" 'gyrfalcon plan --cl' > "$work/zsh" 2>&1 || true
  expect "zsh completes options" grep -- '--cluster' "$work/zsh"
else left_out "no zsh"; fi

# load INIT: loads and unloads the module in a shell that sources INIT, and checks the environment.
load() {
  bash -c '. "$1" > /dev/null 2>&1; module use "$2/share/modulefiles"; module load gyrfalcon || exit 1
           [ "$(command -v gyrfalcon)" = "$2/bin/gyrfalcon" ] || { echo "PATH: $PATH"; exit 1; }
           [ "$GYRFALCON" = "$2/bin/gyrfalcon" ] || { echo "GYRFALCON: $GYRFALCON"; exit 1; }
           if command -v man > /dev/null; then man -w gyrfalcon-train > /dev/null && man -w bash > /dev/null || [ -n "$(man -w gyrfalcon-train)" ] || { echo "MANPATH: $MANPATH"; exit 1; }; fi
           module unload gyrfalcon; ! command -v gyrfalcon' - "$1" "$prefix"
}
tried=0
for init in /usr/share/modules/init/bash /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /etc/profile.d/lmod.sh; do
  if [ "$tried" = 1 ] || ! bash -c '. "$1" && type module' - "$init" > "$work/out" 2>&1; then continue; fi
  expect "module load and unload by $init" load "$init"
  tried=1
done
[ "$tried" = 1 ] || left_out "neither Environment Modules nor Lmod"

# All pages are installed in their folders, with the files that they link.
documents=$prefix/share/doc/gyrfalcon
missing=$(cd "$source" && find README.md input jobscripts kernels modules regression src -name '*.md' | while read -r page; do
  cmp -s "$page" "$documents/$page" || echo "$page"
done)
is "every page is installed" "$missing" ""
links() { awk '/^```/ { fence = !fence } !fence' "$1" | grep -oE '\]\([^)# ]+' | cut -c3- | grep -v '^[a-z]*:' || true; }
find "$prefix" -name '*.md' > "$work/pages"
while read -r page; do
  for link in $(links "$page"); do echo "$page $link"; done
done < "$work/pages" > "$work/links"
missing=$(while read -r page link; do [ -e "$(dirname "$page")/$link" ] || echo "${page#"$prefix/"}: $link"; done < "$work/links")
is "$(wc -l < "$work/links") links of $(wc -l < "$work/pages") installed pages name installed files" "$missing" ""
expect "the pages have links" [ "$(wc -l < "$work/links")" -gt 100 ]
named=$("$program" help exit | grep -oE '[a-z/]+/README\.md' || true)
expect "the page that gyrfalcon help exit names is installed" [ -f "$documents/${named:-none}" ]

# An installed jobscript must find its helper scripts and the program from any folder.
printf 'train:\n  stepz: 1\n' > "$work/wrong.yaml"
code=0
LAUNCHER="env" "$prefix/share/gyrfalcon/jobscripts/job.sh" wrong.yaml > "$work/out" 2>&1 || code=$?
is "an installed jobscript starts the installed program" "$code $(grep -c 'stepz' "$work/out")" "78 1"
code=0
LAUNCHER="env" "$prefix/share/gyrfalcon/jobscripts/slurm-cpu.sh" missing.yaml > "$work/out" 2>&1 || code=$?
is "an installed jobscript for Slurm reports a missing deck" "$code $(grep -c 'missing.yaml' "$work/out")" "66 1"
exit "$failed"
