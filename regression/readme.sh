#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/readme.sh BUILD [whole]: tests the commands in README.md. The lines of its indented blocks run in order. The
# files that they name (DIR, DECK, texts.jsonl) are created beforehand under these names, in small versions. A command line
# that this script does not know is a failure.
#   BUILD   folder with the program and the tests. Without `whole` the commands run in a partial copy of the source tree,
#           training runs are shortened, and make targets that take long are only checked with make -n.
#   whole   the commands run in full in a fresh clone of the last commit, including `make run` and others that take minutes
# Inline commands in backticks are tested too: those with a deck of input/ or --help run, ctest patterns must match tests,
# and other command names must exist.
# shellcheck disable=SC2016,SC2034  # commands are strings that are evaluated later; material.sh uses `folder`
set -euo pipefail
build=$(cd "${1:?usage: regression/readme.sh BUILD [whole]}" && pwd) form=${2:-short}
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL NP DATA ARGS BUILD PRESET PREFIX  # may be set by a make that runs this script
export HOME=$work/home OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir "$HOME"
whole() { [ "$form" = whole ]; }

if whole; then
  git -c safe.directory='*' clone -q "$source" "$work/gyrfalcon"
else
  mkdir -p "$work/gyrfalcon/regression"
  cp -r "$source"/{README.md,Makefile,input,jobscripts} "$work/gyrfalcon"
  cp -r "$source"/regression/{jobs,table} "$work/gyrfalcon/regression"
  mkdir "$work/gyrfalcon"/{src,modules,kernels}  # folders that README.md mentions
fi
cd "$work/gyrfalcon"

read -r -a launcher <<< "$("$source/jobscripts/launcher.sh" "$build/bin/gyrfalcon")"
mpiexec() { "${launcher[@]}" "$@"; }  # the mpiexec of the program's MPI
folder=$work
# shellcheck source=regression/jobs/material.sh
. regression/jobs/material.sh
stand_in_for_pbs

# ---- files that the commands need ----

must() { "$@" > "$work/preparing" 2>&1 < /dev/null || { tail -n 15 "$work/preparing"; echo "FAILED before line $number: $*"; exit 1; }; }
prose() { awk -v kind=text -v seed="$1" -v documents="$2" -f regression/table/material.awk; }
# pairs COUNT TEMPLATE: lines made of TEMPLATE, whose \1 and \2 become a prompt and its response.
pairs() { awk -v kind=chat -v seed=5 -v documents="$1" -f regression/table/material.awk | sed -E "s/.*\"prompt\": \"([^\"]*)\", \"response\": \"([^\"]*)\".*/$2/"; }

# deck OUTPUT STEPS PREFIX [MORE]: writes DECK for a small model that can use 8 ranks, with the empty output folder
# OUTPUT.
deck() {
  rm -rf "$1" DECK
  cat > DECK << END
model:
  pattern: P x 4
  vocab_size: 300
  hidden_size: 64
  attention: {num_heads: 4, num_kv_heads: 2, head_dim: 32}
  mamba: {num_heads: 4, head_dim: 16, state_size: 16, chunk_size: 32, norm: gate_first}
  mlp: {intermediate_size: 128}
data: {prefixes: [$3], tokenizer: TOKENIZER, split: "90,10,0"${4:+, $4}}
train: {steps: $2, global_batch_size: 8, micro_batch_size: 1, seq_length: 64, eval_every: 0}
optimizer: {lr: 1e-3, warmup_steps: 2}
checkpoint: {every: 0}
output: {folder: $1}
END
}
published() { rm -f DECK && cp "input/$1" DECK; }
whole_texts='order: documents, documents: separate'

# checkpoint OUTPUT: copies the newest checkpoint of that run to CKPT.
checkpoint() { rm -rf CKPT && cp -r "$(find "$1/checkpoints" -maxdepth 1 -name 'step_*' | sort | tail -n 1)" CKPT; }

begin() {
  prose 11 400 > prose.txt
  must gyrfalcon tokenizer train TOKENIZER prose.txt --vocab-size 300 --documents separator
  must gyrfalcon data build prose.txt tokens --tokenizer TOKENIZER --documents separator
  cp TOKENIZER FILE
  deck OUT 20 tokens
  must gyrfalcon train DECK train.seq_length=1024
  checkpoint OUT
  must gyrfalcon export-hf CKPT DIR
}

# ---- preparation for each command ----

# need COMMAND: prepares its files. Sets `more` (extra arguments), `instead` (a command that runs in its place), or
# `why` (a reason to skip it).
need() {
  more='' instead='' why=''
  case $1 in
    'make run') whole || { prose 11 4000 > prose.txt; instead='DATA=prose.txt BUILD=$build ARGS="train.steps=6 train.eval_every=3 checkpoint.every=3" jobscripts/demo.sh'; } ;;
    'make install '*) whole || instead='cmake --install "$build" --prefix $HOME/gyrfalcon' ;;
    'make regression' | 'make families' | 'make parity') whole || instead="make -n ${1#make }" ;;
    'make test' | 'make faults' | 'make mutants') instead="make -n ${1#make }" ;;  # this test is part of that suite, and it takes hours
    'make cuda' | 'make gpu') instead="make -n ${1#make }" ;;                      # tested by ctest -R 'builds.cuda|cuda.gpu'
    'module use '*) if no_module; then instead='PATH=$HOME/gyrfalcon/bin:$PATH'; fi ;;
    'sbatch '*) why='needs a real Slurm; tested by ctest -L slurm' ;;

    'gyrfalcon import-hf DIR model') begin ;;
    *'--batch prompts.jsonl'*) pairs 20 '{"prompt": "\1"}' > prompts.jsonl ;;
    *'--prompt "..."') ;;
    *'--text wiki.txt'*) prose 12 20 > wiki.txt ;;
    *'data build chat.jsonl'*) pairs 200 '{"messages": [{"role": "user", "content": "\1"}, {"role": "assistant", "content": "\2"}]}' > chat.jsonl ;;
    *'input/finetune.yaml'*) whole || more='train.seq_length=64 train.global_batch_size=2' ;;
    'gyrfalcon export-hf out/finetune/'*) rm -rf NEW ;;
    'gyrfalcon export-gguf out/finetune/'*) rm -f model.gguf ;;

    *'data build texts.jsonl'*) pairs 200 '{"text": "\1", "label": "bad"}\n{"text": "\2", "label": "good"}' > texts.jsonl ;;
    *'train.objective=classify'*) deck OUT 10 PREFIX "$whole_texts" ;;
    'gyrfalcon eval CKPT '*) checkpoint OUT ;;
    *'data build pairs.jsonl'*) rm -rf PREFIX* && pairs 200 '{"prompt": "\1", "chosen": "\2", "rejected": "\1"}' > pairs.jsonl ;;
    *'--objective preference'*) ;;
    *'train.objective=preference'*) deck OUT 10 PREFIX "$whole_texts" ;;
    *'data build translations.jsonl'*) rm -rf PREFIX* && pairs 200 '{"en": "\1", "de": "\2"}' > translations.jsonl ;;
    *'train.objective=seq2seq'*) deck OUT 10 PREFIX && sed -i 's/^  pattern: .*/  pattern: "*-*->*X-*X-"/' DECK && more='train.seq2seq.source_length=64' ;;
    *"'shards/*.jsonl.zst' "*) if has zstd; then shards; fi ;;
    'gyrfalcon data info PREFIX') ;;
    *'finetune.lora'*) deck OUT 10 PREFIX ;;
    'gyrfalcon export-hf CKPT NEW') checkpoint OUT && rm -rf NEW ;;
    *'--adapters PEFT') rm -rf model PEFT && must gyrfalcon export-hf CKPT PEFT --adapters ;;

    'gyrfalcon verify DECK '*) deck OUT 4 tokens ;;
    'qsub '*) deck OUT 4 tokens ;;  # only queued in the PBS imitation; ctest -R jobs.pbs runs such a job
    'gyrfalcon run DECK '*) deck OUT 10 tokens ;;
    'gyrfalcon ps OUT') ;;
    *'train DECK '*'dump.steps='*) deck A 100 tokens ;;
    'gyrfalcon diff A/dumps/'*) another_dump && echo '* 1e-3 1e-2' > FILE ;;
    *'train DECK trace.on'*) deck OUTPUT 6 tokens ;;
    'gyrfalcon trace show OUTPUT') ;;
    'gyrfalcon plan DECK --ranks '*) published falcon-h1-34b.yaml ;;
    'gyrfalcon plan DECK '*' --longest' | 'gyrfalcon plan DECK '*' --explain-layout') published falcon-h1-0.5b.yaml ;;
    *'gyrfalcon probe '*) ;;
    *'gyrfalcon profile DECK '*) deck OUT 4 tokens ;;
    *'parallel.plan=auto '*) deck OUT 4 tokens ;;
    'gyrfalcon report OUT...'*) instead=${1/OUT.../OUT A} ;;
    *) echo "FAILED line $number: $0 does not know what this line needs: $1"; exit 1 ;;
  esac
}

has() { command -v "$1" > /dev/null || { why="there is no $1"; return 1; }; }
shards() {
  local i
  rm -rf shards PREFIX* && cp TOKENIZER FILE && mkdir shards
  for i in 1 2 3; do prose "$i" 40 | sed -n 's/..*/{"text": "&"}/p' | zstd -q > "shards/$i.jsonl.zst"; done
}
another_dump() {
  local words
  words=$(commands | sed -n 's/.*gyrfalcon train DECK \(.*dump.*\)/\1/p')
  deck B 100 tokens
  eval "must mpiexec -n 2 gyrfalcon train DECK $words"
}
# Returns 1 after it has loaded Environment Modules or Lmod as a login shell does, and 0 if there are none.
no_module() {
  local init
  for init in /usr/share/modules/init/bash /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /etc/profile.d/lmod.sh; do
    # shellcheck disable=SC1090
    if [ -f "$init" ] && set +u && . "$init" && command -v module > /dev/null; then return 1; fi
  done
}

# ---- running the commands ----

# Lines of README.md's indented blocks as NUMBER:COMMAND, without trailing comments.
commands() { awk '/^```/ { fence = !fence } !fence && /^    [^ ]/ { sub(/^ +/, ""); sub(/ +#.*/, ""); print NR ":" $0 }' README.md; }
# Texts in backticks outside of the blocks, one per line.
quoted() { awk '/^```/ { fence = !fence; next } !fence && !/^    /' README.md | tr '\n' ' ' | { grep -oE '`[^`]+`' || true; } | sed -e 's/^`//' -e 's/`$//' -e 's/\\|/|/g' | sort -u; }

failed=0 ran=0
# attempt PLACE TEXT COMMAND: runs COMMAND and prints a result line. A glob pattern that matches no file is an error, as
# in zsh.
attempt() {
  local begin=$SECONDS code=0
  case $3 in
    'module '* | 'PATH='*) eval "$3" > "$work/log" 2>&1 || code=$? ;;  # changes this shell's environment
    *) (shopt -s failglob && eval "$3") > "$work/log" 2>&1 < /dev/null || code=$? ;;
  esac
  ran=$((ran + 1))
  if [ "$code" = 0 ]; then printf 'ok %5d s  %s %s\n' $((SECONDS - begin)) "$1" "$2"; else
    failed=$((failed + 1))
    tail -n 15 "$work/log"
    printf 'FAILED %d  %s %s\n' "$code" "$1" "$2"
  fi
}

while IFS=: read -r number line <&3; do
  need "$line"
  if [ -n "$why" ]; then printf -- '-          line %d: %s: %s\n' "$number" "$line" "$why"; continue; fi
  attempt "line $number:" "$line${instead:+   (as: $instead)}${more:+   (with: $more)}" "${instead:-$line $more}"
done 3< <(commands)
[ "$ran" -gt 30 ] || { echo "FAILED: README.md has only $ran command lines in its blocks"; exit 1; }

finds_tests() { [ "$(eval "ctest --test-dir '$build' -N $1" | sed -n 's/^Total Tests: //p')" -gt 0 ]; }
is_command() { gyrfalcon "${1%% *}" --help | grep "^Usage: gyrfalcon ${1%% *} " > /dev/null; }
lists_tests() { [ -n "$("$build/regression/command_tests" --gtest_list_tests "$1")" ]; }
while IFS= read -r words <&3; do
  case $words in
    'gyrfalcon profile input/'*) if whole; then attempt between "$words" "$words"; fi ;;
    'gyrfalcon '*input/* | 'gyrfalcon '*--help) attempt between "$words" "$words" ;;
    'gyrfalcon '*) attempt between "$words" 'is_command "${words#gyrfalcon }"' ;;
    'ctest -'*) attempt between "$words" 'finds_tests "${words#ctest }"' ;;
    'command_tests '*) attempt between "$words" 'lists_tests "${words#command_tests }"' ;;
    'make '*) attempt between "$words" "make -n ${words#make }" ;;
    regression/*.sh) attempt between "$words" 'test -x "$source/$words"' ;;
  esac
done 3< <(quoted)

echo "$ran commands, $failed failed"
[ "$failed" = 0 ]
