#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/readme.sh BUILD [whole]: runs the commands in the indented blocks of all pages, page by
# page. Files that a command names (DIR, DECK, texts.jsonl) are created beforehand under these names, in a small size.
# A command that this script does not know is a failure. A command that several pages contain runs once.
#   BUILD   build folder with the program and the tests. Without `whole`, commands run in a copy of the necessary files
#           and trainings are short. For make targets that build or take long, only their existence is checked (make -n).
#   whole   runs in a fresh clone of the last commit, and includes `make run` and other commands that take minutes
# For commands between backticks: those with a deck of input/ or --help run too, ctest patterns must find tests, and
# commands, make targets, scripts and paths must exist.
# shellcheck disable=SC2016,SC2034  # commands are data until they run; material.sh reads `folder`
set -euo pipefail
build=$(cd "${1:?usage: regression/readme.sh BUILD [whole]}" && pwd) form=${2:-short}
source=$(cd "$(dirname "$0")/.." && pwd)
pages=(README.md input/own-text.md src/README.md src/planner/README.md src/huggingface/README.md modules/README.md
       kernels/README.md kernels/cuda/README.md jobscripts/README.md input/README.md input/clusters/README.md
       src/files.md src/environment.md src/changes.md regression/README.md regression/bench/README.md)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL NP DATA ARGS BUILD PRESET PREFIX  # set by a make that runs this script
export HOME=$work/home OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir "$HOME"
whole() { [ "$form" = whole ]; }

if whole; then
  git -c safe.directory='*' clone -q "$source" "$work/gyrfalcon"
else
  mkdir -p "$work/gyrfalcon/regression"
  cp -r "$source"/{Makefile,input,jobscripts} "$work/gyrfalcon"
  cp -r "$source"/regression/{jobs,table} "$work/gyrfalcon/regression"
  (cd "$source" && cp --parents "${pages[@]}" "$work/gyrfalcon")  # creates src, modules and kernels, which a clone has too
fi
cd "$work/gyrfalcon"

read -r -a launcher <<< "$("$source/jobscripts/launcher.sh" "$build/bin/gyrfalcon")"
mpiexec() { "${launcher[@]}" "$@"; }  # the launcher of the MPI that the program is linked with
folder=$work
# shellcheck source=regression/jobs/material.sh
. regression/jobs/material.sh
stand_in_for_pbs

# ---- Input files ----

must() { "$@" > "$work/preparing" 2>&1 < /dev/null || { tail -n 15 "$work/preparing"; echo "FAILED before $at: $*"; exit 1; }; }
# prose SEED DOCUMENTS: documents with an empty line after each.
prose() { awk -v kind=text -v seed="$1" -v documents="$2" -f regression/table/material.awk; }
# pairs COUNT REPLACEMENT: lines of JSON; \1 and \2 are a prompt and its response.
pairs() {
  awk -v kind=chat -v seed=5 -v documents="$1" -f regression/table/material.awk |
    sed -E "s/.*\"prompt\": \"([^\"]*)\", \"response\": \"([^\"]*)\".*/$2/"
}
prose_lines() { prose "$1" "$2" | sed -n 's/..*/{"text": "&"}/p'; }
exists() { compgen -G "${1%/}" > /dev/null; }

# Kind of the token files PREFIX and of the run in OUT, or none. Commands of several pages change both, so each command
# requests the kind that it needs.
data=none run=none

# deck OUTPUT STEPS PREFIX [MORE]: DECK of a small model that 8 ranks can train, with an empty output folder.
deck() {
  rm -rf "$1" DECK
  [ "$1" != OUT ] || run=none
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
unpacked='order: documents, documents: separate'

# The model that most commands start from: TOKENIZER, FILE, tokens, OUT, CKPT and DIR.
base() {
  [ ! -d DIR ] || return 0
  prose 11 400 > words.txt
  must gyrfalcon tokenizer train TOKENIZER words.txt --vocab-size 300 --documents separator
  must gyrfalcon data build words.txt tokens --tokenizer TOKENIZER --documents separator
  cp TOKENIZER FILE
  run_of text
  must gyrfalcon export-hf CKPT DIR
}

# checkpoint: CKPT is a copy of the last checkpoint in OUT.
checkpoint() { rm -rf CKPT && cp -r "$(find OUT/checkpoints -maxdepth 1 -name 'step_*' | sort | tail -n 1)" CKPT; }

adapters=(finetune.lora.rank=16 finetune.lora.alpha=32 'finetune.lora.targets=[q_proj, v_proj, in_proj]')
classify=(train.init_head=new train.objective=classify 'train.classify.labels=[bad,good]')

# run_of KIND: OUT is the output of such a run, and CKPT its last checkpoint.
run_of() {
  if [ "$run" != "$1" ]; then
    case $1 in
      text) deck OUT 20 tokens && must gyrfalcon train DECK train.seq_length=1024 ;;
      classes) data_of classes && deck OUT 10 PREFIX "$unpacked" && must gyrfalcon train DECK --init-from DIR "${classify[@]}" ;;
      adapters) deck OUT 10 tokens && must gyrfalcon train DECK --init-from DIR "${adapters[@]}" ;;
    esac
    run=$1
  fi
  checkpoint
}
any_run() { if [ "$run" = none ]; then run_of text; else checkpoint; fi; }

# texts KIND: the text files that PREFIX of this kind is built from. FILE is a tokenizer again, and PREFIX does not exist.
texts() {
  base
  rm -rf PREFIX*
  cp TOKENIZER FILE
  data=none
  case $1 in
    text) prose_lines 3 200 > my.jsonl ;;
    classes) pairs 200 '{"text": "\1", "label": "bad"}\n{"text": "\2", "label": "good"}' > texts.jsonl ;;
    pairs) pairs 200 '{"prompt": "\1", "chosen": "\2", "rejected": "\1"}' > pairs.jsonl ;;
    translations) pairs 200 '{"en": "\1", "de": "\2"}' > translations.jsonl ;;
    shards) shards ;;
  esac
}
shards() {
  local i
  rm -rf shards && mkdir shards
  for i in 1 2 3; do prose_lines "$i" 40 | zstd -q > "shards/$i.jsonl.zst"; done
}

# data_of KIND: PREFIX are token files of this kind.
data_of() {
  [ "$data" != "$1" ] || return 0
  texts "$1"
  case $1 in
    text) must gyrfalcon data build my.jsonl PREFIX --tokenizer FILE ;;
    classes) must gyrfalcon data build texts.jsonl PREFIX --classes bad,good --tokenizer FILE ;;
    pairs) must gyrfalcon data build pairs.jsonl PREFIX --pairs --tokenizer FILE ;;
    translations) must gyrfalcon data build translations.jsonl PREFIX --source en --key de --tokenizer FILE ;;
  esac
  data=$1
}
reference() {
  data_of pairs
  exists PREFIX_reference.jsonl ||
    must gyrfalcon eval DIR --objective preference --data PREFIX --length 1024 --records PREFIX_reference.jsonl
}

# Fine-tuning with input/finetune.yaml: chats.jsonl, its token files, and the finished run.
chat() {
  base
  rm -rf out/finetune
  pairs 200 '{"messages": [{"role": "user", "content": "\1"}, {"role": "assistant", "content": "\2"}]}' > chat.jsonl
}
chat_tokens() {
  if exists out/finetune/chat.idx; then find out/finetune -mindepth 1 -maxdepth 1 ! -name 'chat*' -exec rm -rf {} +; return; fi
  chat
  must gyrfalcon data build chat.jsonl out/finetune/chat --tokenizer DIR/tokenizer.json \
    --template '<|im_start|>{role}\n{content}<|im_end|>\n'
}
short_chats=(train.seq_length=64 train.global_batch_size=2)
finetuned() {
  base
  exists out/finetune/checkpoints/step_00000300 && return
  chat_tokens
  must gyrfalcon train input/finetune.yaml --init-from DIR "${short_chats[@]}"
}

# dumped FOLDER [WORDS]: FOLDER has a dump of step 100, from a run that WORDS launch.
dumped() {
  exists "$1/dumps/step_00000100" && return
  deck "$1" 100 tokens
  must "${@:2}" gyrfalcon train DECK 'dump.steps=[100]' 'dump.what=["/activations/layers/3/*", "/gradients/*"]'
}
traced() {
  exists 'OUT/trace/*' && return
  deck OUT 6 tokens
  must gyrfalcon train DECK trace.on=true 'trace.steps=[2,3,4]'
}
probed() { exists here.yaml || must mpiexec -n 2 gyrfalcon probe --out here.yaml; }
# A second run beside that in OUT.
second_run() {
  exists A/metrics.jsonl && return
  deck A 4 tokens
  must gyrfalcon train DECK
}

# The way from a text to a model: my.txt, and what the earlier commands of the page have made of it. Trainings are short.
# Words that occur three times each, so that a tokenizer learns as many tokens as it is asked for.
rare_words() {
  awk 'BEGIN {
    for (state = 3; words < 2000; ++words) {
      for (word = ""; length(word) < 8; word = word sprintf("%c", 97 + int(state / 7) % 26)) state = state * 16807 % 2147483647
      print word, word, word
    }
  }'
}
own_text() { exists my.txt || { prose 11 4000 && rare_words; } > my.txt; }
own_tokens() {
  own_text
  exists out/my/tokenizer.json || must gyrfalcon tokenizer train out/my/tokenizer.json my.txt --vocab-size 4096
  exists out/my/text.idx || must gyrfalcon data build my.txt out/my/text --tokenizer out/my/tokenizer.json --documents page
}
short_own=(train.steps=20 train.eval_every=10 optimizer.warmup_steps=2 checkpoint.every=10)
own_run() {
  own_tokens
  exists 'out/my/checkpoints/step_*' || must gyrfalcon train input/pretrain.yaml "${short_own[@]}"
}

# ---- Preparation of a command ----

# need COMMAND: creates what the command needs. Sets `more` (additional arguments), `instead` (the command that runs in
# its place), `why` (the reason why it does not run) and `after` (a change of the state if it succeeds).
need() {
  local short_demo
  more='' instead='' why='' after=''
  case $1 in
    'make '* | 'cmake '* | 'ctest '* | 'sbatch '* | 'module '*) ;;
    *) command -v gyrfalcon > /dev/null || PATH=$build/bin:$PATH; base ;;
  esac
  case $1 in
    'make run')
      short_demo='DATA=prose.txt BUILD=$build ARGS="train.steps=6 train.eval_every=3 checkpoint.every=3" jobscripts/demo.sh'
      whole || { prose 11 4000 > prose.txt; instead=$short_demo; } ;;
    'make install '*) whole || instead='cmake --install "$build" --prefix $HOME/gyrfalcon' ;;
    'make regression' | 'make families' | 'make parity') whole || instead="make -n ${1#make }" ;;
    'make '*) instead="make -n ${1#make }" ;;  # builds, hours, or the test suite that this test belongs to
    'module use '*)
      exists "$HOME/gyrfalcon/bin/gyrfalcon" || must cmake --install "$build" --prefix "$HOME/gyrfalcon"
      if no_module; then instead='PATH=$HOME/gyrfalcon/bin:$PATH'; fi ;;
    'PATH='*) instead='PATH=$build/bin:$PATH' ;;
    'jobscripts/submit.sh -l select='*)  # the PBS imitation accepts the job
      deck OUT 4 tokens && for name in a b; do for file in tokens.*; do cp "$file" "$name.${file#tokens.}"; done; done
      instead='GYRFALCON=$build/bin/gyrfalcon '"$1" ;;
    'jobscripts/submit.sh --dry-run '*) deck OUT 4 tokens && instead='GYRFALCON=$build/bin/gyrfalcon '"$1" after="logged '^ranks: +4$'" ;;
    'jobscripts/submit.sh '* | *'sbatch '* | 'squeue'* | 'scancel '*) why='it would use the queue of a real Slurm; ctest -L slurm' ;;
    'spack '* | 'apptainer '* | *' apptainer exec '*) why='it needs an installation of Spack or Apptainer' ;;
    'ctest '*) instead="finds_tests ${1#ctest }" ;;
    'cmake --preset '*) instead="has_preset ${1#cmake --preset }" ;;
    'build/release/regression/'*_tests\ *) instead='lists_tests "$build"/'"${1#build/release/}" ;;
    regression/*.sh*) instead='test -x "$source/${line%% *}"' ;;

    'gyrfalcon import-hf DIR model') rm -rf model ;;
    *'import-hf DIR model --adapters PEFT') run_of adapters && rm -rf model PEFT && must gyrfalcon export-hf CKPT PEFT --adapters ;;
    *'--batch prompts.jsonl'*) pairs 20 '{"prompt": "\1"}' > prompts.jsonl ;;
    *'--text wiki.txt'*) prose 12 20 > wiki.txt ;;
    *'data build chat.jsonl'*) chat ;;

    'gzip -dc /usr/share/dictd/gcide.dict.dz > my.txt') whole && exists /usr/share/dictd/gcide.dict.dz || instead=own_text ;;
    'gyrfalcon tokenizer train out/my/'*) own_text && rm -rf out/my && after="logged 'tokenizer.json: [0-9]+ tokens, learned from'" ;;
    'gyrfalcon data build my.txt out/my/text '*)
      own_text && rm -f out/my/text.* && after="logged 'text.bin: [0-9]+ tokens in [0-9]+ documents' && logged '^in the deck: ' && logged '^suggested: '" ;;
    'gyrfalcon plan input/pretrain.yaml') own_tokens && after="logged 'tokens .* per parameter, [0-9.e+]+ epochs of'" ;;
    *'gyrfalcon train input/pretrain.yaml')
      own_tokens && { whole || more=${short_own[*]}; } && after="logged '^validation at step [0-9]+: loss' && logged 'RUN OK' && unlogged warning" ;;
    'gyrfalcon generate out/my '* | 'gyrfalcon eval out/my '* | 'gyrfalcon report out/my') own_run ;;
    'gyrfalcon export-hf out/my '*) own_run && rm -rf out/my/hf && after='exists out/my/hf/model.safetensors' ;;
    'gyrfalcon export-gguf out/my '*) own_run && rm -f out/my/model.gguf && after='[ "$(head -c 4 out/my/model.gguf)" = GGUF ]' ;;
    'gyrfalcon data build my.txt out/lora/text '*) own_tokens && rm -rf out/lora ;;
    'gyrfalcon train input/lora.yaml '*)  # of plain text, or of pairs
      own_run && { whole || more='train.steps=4 optimizer.warmup_steps=1 train.eval_every=2'; } && after="logged 'RUN OK' && unlogged warning" ;;
    'gyrfalcon export-hf out/lora '*) rm -rf NEW ;;
    'gyrfalcon data build pairs.jsonl out/pairs/'*) own_tokens && pairs 8000 '{"prompt": "\1", "response": "\2"}' > pairs.jsonl ;;
    'gyrfalcon generate out/pairs '*) ;;
    'gyrfalcon train input/pretrain.yaml --init-from out/my/checkpoints/'*)
      instead=${1/400/010}
      own_run && { whole && instead='' || instead="${instead/1.17e-3/3.77e-3} train.steps=14 optimizer.wsd_decay=4 optimizer.warmup_steps=2 train.eval_every=0"; }
      after="logged 'branches off from .* at step' && logged 'RUN OK' && unlogged warning" ;;
    *'train input/finetune.yaml'*) chat_tokens && { whole || more=${short_chats[*]}; } ;;
    'gyrfalcon export-hf out/finetune/'*) finetuned && rm -rf NEW ;;
    'gyrfalcon export-gguf out/finetune/'*) finetuned && rm -f model.gguf ;;
    *'out/finetune/checkpoints/'*) finetuned ;;

    'gyrfalcon tokenizer train FILE my.jsonl'*) texts text && rm -f FILE ;;
    *'data build my.jsonl PREFIX'*) texts text && after='data=text' ;;
    'cp input/'*' DECK') rm -f DECK ;;
    'mpiexec -n 2 gyrfalcon train DECK')  # training on own data: the keys that the page names are set
      data_of text && deck OUT 10 PREFIX && sed -i -e 's/vocab_size: .*/vocab_size: 32768/' -e 's/TOKENIZER/FILE/' DECK && after='run=own' ;;
    *'data build texts.jsonl'*) texts classes && after='data=classes' ;;
    *'train.objective=classify'*) data_of classes && deck OUT 10 PREFIX "$unpacked" && after='run=classes' ;;
    'gyrfalcon eval CKPT --data PREFIX'*) run_of classes && data_of classes ;;
    *'data build pairs.jsonl'*) texts pairs && after='data=pairs' ;;
    *'--objective preference'*) data_of pairs && rm -f PREFIX_reference.jsonl ;;
    *'train.objective=preference'*) reference && deck OUT 10 PREFIX "$unpacked" && after='run=preference' ;;
    *'data build translations.jsonl'*) texts translations && after='data=translations' ;;
    *'train.objective=seq2seq'*)
      data_of translations && deck OUT 10 PREFIX && sed -i 's/^  pattern: .*/  pattern: "*-*->*X-*X-"/' DECK
      more='train.seq2seq.source_length=64' after='run=seq2seq' ;;
    *"'shards/*.jsonl.zst' "*) if has zstd; then texts shards && after='data=shards'; fi ;;
    'gyrfalcon data info PREFIX') [ "$data" != none ] || data_of text ;;
    *'finetune.lora'*) deck OUT 10 tokens && after='run=adapters' ;;
    'gyrfalcon export-hf CKPT NEW --adapters') run_of adapters && rm -rf NEW ;;
    'gyrfalcon export-hf CKPT NEW') run_of adapters && rm -rf NEW ;;

    'gyrfalcon verify DECK '*) deck OUT 4 tokens ;;
    'qsub '* | *' qsub '*) deck OUT 4 tokens ;;  # only submits to the PBS imitation; ctest -R jobs.pbs runs such a job
    'gyrfalcon run DECK '*) deck OUT 10 tokens && after='run=text' ;;
    'gyrfalcon ps OUT') any_run ;;
    *'train DECK '*'dump.steps='*) deck A 100 tokens ;;
    'gyrfalcon diff A/dumps/'*) dumped A && dumped B mpiexec -n 2 && echo '* 1e-3 1e-2' > FILE ;;
    *'train DECK trace.on'*) deck OUT 6 tokens ;;
    'gyrfalcon trace show OUT') traced ;;
    'gyrfalcon plan DECK --ranks '*) published falcon-h1-34b.yaml ;;
    'gyrfalcon plan DECK') deck OUT 4 tokens ;;
    'gyrfalcon plan DECK --cluster here.yaml'*) published falcon-h1-73m.yaml ;;  # fits in the memory of small machines
    'gyrfalcon plan DECK '*) published falcon-h1-0.5b.yaml ;;
    *'gyrfalcon probe'*) rm -f here.yaml ;;
    *'gyrfalcon profile DECK '*) deck OUT 4 tokens ;;
    'gyrfalcon profile input/'*) whole || instead='is_command "${line#gyrfalcon }"' ;;
    *'parallel.plan=auto '*) probed && deck OUT 4 tokens ;;
    *'train DECK --resume'*) deck OUT 8 tokens && must gyrfalcon train DECK train.steps=4 && after='run=text' ;;
    *'train DECK'*) deck OUT 10 tokens ;;
    'gyrfalcon report OUT...'*) any_run && second_run && instead=${1/OUT.../OUT A} ;;

    'gyrfalcon reshard CKPT NEW'*) any_run && rm -rf NEW ;;
    'gyrfalcon export-gguf '*) any_run && rm -f model.gguf ;;
    'gyrfalcon '*' CKPT'* | 'h5ls '* | 'h5dump '*) any_run && { has "${1%% *}" || true; } ;;
    'gyrfalcon '*' DIR'* | 'gyrfalcon plan input/'* | 'gyrfalcon '*--help | 'gyrfalcon --version') ;;
    *) echo "FAILED $at: this script does not know what the command needs: $1"; exit 1 ;;
  esac
}

has() { command -v "$1" > /dev/null || { why="$1 is not installed"; return 1; }; }
# Succeeds if the shell has no `module` command (Environment Modules or Lmod), after sourcing the usual start-up files.
no_module() {
  local init
  for init in /usr/share/modules/init/bash /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /etc/profile.d/lmod.sh; do
    # shellcheck disable=SC1090
    if [ -f "$init" ] && set +u && . "$init" && command -v module > /dev/null; then return 1; fi
  done
}
tests=$(ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
labels=$(ctest --test-dir "$build" --print-labels | sed -n 's/^  *//p')
# each_matches LIST PATTERN: each alternative of the pattern matches a line of the list.
each_matches() {
  local alternative
  local -a alternatives=("$2")
  [[ $2 == *\(* ]] || IFS='|' read -ra alternatives <<< "$2"
  for alternative in "${alternatives[@]}"; do
    grep -E -- "$alternative" <<< "$1" > /dev/null || { echo "no test matches $alternative"; return 1; }
  done
}
# finds_tests ARGUMENTS OF CTEST...
finds_tests() {
  while [ $# -gt 0 ]; do
    case $1 in
      -R) each_matches "$tests" "${2:?}" || return 1; shift 2 ;;
      -L) each_matches "$labels" "${2:?}" || return 1; shift 2 ;;
      -E | -LE | -j | --test-dir | --preset) shift 2 ;;
      --output-on-failure | -V) shift ;;
      *) echo "unknown option of ctest: $1"; return 1 ;;
    esac
  done
}
lists_tests() { [ -n "$("$1" --gtest_list_tests "${@:2}")" ]; }
has_preset() { (cd "$source" && cmake --list-presets) | grep "\"$1\"" > /dev/null; }
is_command() { gyrfalcon "${1%% *}" --help | grep "^Usage: gyrfalcon ${1%% *} " > /dev/null; }

# ---- Running commands ----

# commands PAGE: the lines of its indented blocks as NUMBER:COMMAND, without comments. A \ at the end continues a line.
commands() {
  awk '/^```/ { fence = !fence }
       !fence && (/^    [^ ]/ || joined != "") {
         sub(/^ +/, ""); sub(/ +#.*/, "")
         if (joined == "") number = NR
         line = joined $0
         if (sub(/\\$/, "", line)) { joined = line; next }
         joined = ""
         if (line !~ /^#/) print number ":" line
       }' "$1"
}
# quoted PAGE: the text between backticks outside of code blocks, one per line. In a table with the header cell
# `ctest -R`, last cells hold patterns, and become commands here.
quoted() {
  awk '/^```/ { fence = !fence; next }
       fence || /^    / { next }
       /^\|.*\| `ctest -R` \|$/ { table = 1; next }
       !/^\|/ { table = 0 }
       table {
         n = split($0, cells, / \| /); last = cells[n]; $0 = cells[1]
         for (i = 2; i < n; ++i) $0 = $0 " | " cells[i]
         while (match(last, /`[^`]+`/)) {
           pattern = substr(last, RSTART + 1, RLENGTH - 2); last = substr(last, RSTART + RLENGTH)
           $0 = $0 " `" (pattern ~ / / ? pattern : "ctest -R '"'"'" pattern "'"'"'") "`"
         }
       }
       { print }' "$1" | tr '\n' ' ' | { grep -oE '`[^`]+`' || true; } |
    sed -e 's/^`//' -e 's/`$//' -e 's/\\|/|/g' | sort -u
}

failed=0 ran=0
# attempt PLACE TEXT COMMAND: runs the command. A pattern that matches no file is an error, as in zsh.
attempt() {
  local begin=$SECONDS code=0
  case $3 in
    'module '* | 'PATH='*) eval "$3" > "$work/log" 2>&1 || code=$? ;;  # changes this shell
    *) (shopt -s failglob && eval "$3") > "$work/log" 2>&1 < /dev/null || code=$? ;;
  esac
  ran=$((ran + 1))
  if [ "$code" = 0 ]; then printf 'ok %5d s  %s %s\n' $((SECONDS - begin)) "$1" "$2"; return; fi
  failed=$((failed + 1))
  tail -n 15 "$work/log"
  printf 'FAILED %d  %s %s\n' "$code" "$1" "$2"
  return "$code"
}

# Output of the last command, as the page shows it: a line matches the pattern, or none does.
logged() { grep -E -- "$1" "$work/log" > /dev/null || { tail -n 15 "$work/log"; echo "no line of the output matches: $1"; return 1; }; }
unlogged() { ! grep -E -- "$1" "$work/log"; }

declare -A seen=()
for page in "${pages[@]}"; do
  while IFS=: read -r number line <&3; do
    [ -z "${seen[$line]:-}" ] || continue
    seen[$line]=1 at="$page:$number"
    need "$line"
    if [ -n "$why" ]; then printf -- '-          %s: %s: %s\n' "$at" "$line" "$why"; continue; fi
    if attempt "$at:" "$line${instead:+   (as: $instead)}${more:+   (with: $more)}" "${instead:-$line $more}"; then
      eval "$after" || { failed=$((failed + 1)); echo "FAILED  $at: $line: the output is not as expected"; }
    fi
  done 3< <(commands "$page")
done
[ "$ran" -gt 50 ] || { echo "FAILED: the code blocks of all pages have only $ran commands"; exit 1; }

# ---- Text between backticks ----

# check_path PAGE PATH: a file of the project, named from the project's root or from the folder of the page, exists.
# Paths with placeholders such as NAME.cpp are not checked.
placeholder='(^|/)[A-Z_]+(\.|/|$)|[{}<>]|\.\.\.'
check_path() {
  [[ ! $2 =~ $placeholder ]] || return 0
  if exists "$source/$2" || exists "$source/$(dirname "$1")/$2"; then return 0; fi
  failed=$((failed + 1))
  printf 'FAILED  %s: %s does not exist\n' "$1" "$2"
}
seen=()
for page in "${pages[@]}"; do
  while IFS= read -r words <&3; do
    [ -z "${seen[$words]:-}" ] || continue
    seen[$words]=1
    case $words in
      'gyrfalcon profile input/'*) if whole; then attempt "$page" "$words" "$words" || true; fi ;;
      'gyrfalcon COMMAND'* | 'ctest -R' | 'ctest -L') ;;
      'gyrfalcon '*input/* | 'gyrfalcon '*--help | 'gyrfalcon --'* | 'gyrfalcon help'* | 'gyrfalcon keys'*) attempt "$page" "$words" "$words" || true ;;
      'gyrfalcon '*) attempt "$page" "$words" 'is_command "${words#gyrfalcon }"' || true ;;
      'ctest -'*) attempt "$page" "$words" "finds_tests ${words#ctest }" || true ;;
      'command_tests '*) attempt "$page" "$words" 'lists_tests "$build/regression/command_tests" '"${words#command_tests }" || true ;;
      'make '*) attempt "$page" "$words" "make -n ${words#make }" || true ;;
      'cmake --preset '*) attempt "$page" "$words" "has_preset ${words#cmake --preset }" || true ;;
      regression/*.sh | regression/*.sh\ *) attempt "$page" "$words" 'test -x "$source/${words%% *}"' || true ;;
      *\ *) ;;
      *?/*.hpp | *?/*.cpp | *?/*.cu) check_path "$page" "$words" ;;
      src/* | modules/* | kernels/* | input/* | jobscripts/* | regression/*) check_path "$page" "$words" ;;
    esac
  done 3< <(quoted "$page")
done

echo "$ran commands, $failed failures"
[ "$failed" = 0 ]
