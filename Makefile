# SPDX-License-Identifier: BSD-3-Clause
# Everyday commands. The build itself uses CMake. Variables, as in `make run NP=4`:
#   NP=2               number of MPI ranks for run, bench and planner
#   DATA=              text files for run to train on; default: an English dictionary from Debian (dict-gcide)
#   ARGS=              further arguments: deck overrides for run, filters for test and bench
#   PRESET=release     CMake preset from CMakePresets.json
#   GPUS=              compute capabilities for the preset cuda, as 80;90; default: all that are supported
#   JOBS=              number of parallel compilers or test processes; default: one per core
#   PREFIX=/usr/local  folder of install
# src/environment.md lists environment variables, such as GYR_INSTALL and GYR_NATIVE_ARCH.
NP     ?= 2
DATA   ?=
GPUS   ?=
ARGS   ?=
PRESET ?= release
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local

BUILD := build/$(PRESET)
MPIEXEC ?= $(shell jobscripts/launcher.sh $(BUILD)/bin/gyrfalcon)
export NP DATA ARGS BUILD

.PHONY: build cuda gpu run demo-encoder demo-phonebook demo-policy demo-retro demo-retro-fit demo-retro-questions demo-retro-text demo-rlhf demo-tiny test regression faults mutants accuracy parity families planner builds sanitize bench bench-peer bench-generate bench-policy bench-ranks bench-retro bench-tokenizer install clean help setup configure

build: configure ## build the program, build/PRESET/bin/gyrfalcon
	@cmake --build $(BUILD) --parallel $(JOBS) --target gyrfalcon

cuda: ## build the program for NVIDIA GPUs, build/cuda/bin/gyrfalcon; CUDA_HOME and NCCL_HOME: folders of the CUDA toolkit and NCCL
	@$(MAKE) --no-print-directory build PRESET=cuda

gpu: ## on a machine with a GPU: test the kernels, then measure their throughput, in under nine minutes; one table
	@regression/gpu.sh

run: build ## train a small model on NP ranks and generate text with it
	@jobscripts/demo.sh

demo-encoder: build ## demonstration: does MLM pretraining on descriptions of Debian packages help an encoder to classify them? SEEDS=5, LABELS=600, STEPS=1200
	@jobscripts/demo-encoder.sh

demo-phonebook: build ## demonstration: a small Mamba-2 state fails to recall entries of a phonebook, one attention layer recalls them; STEPS=3000, TESTS=500
	@jobscripts/demo-phonebook.sh

demo-policy: build ## demonstration: a model with random weights learns from rewards alone to repeat a digit; SEEDS="1 2 3"
	@jobscripts/demo-policy.sh

demo-retro: build ## demonstration: models with retrieval predict digits that only the documents of a database contain; STEPS=1200, FACTS=4000
	@jobscripts/demo-retro.sh

demo-retro-fit: build ## demonstration: layers R that are added to a trained model find digits in a database, and leave its other text as it was; STEPS=1200
	@PARTS=fit OUT=$${OUT:-out/retro-fit} PATTERNS=$${PATTERNS:-'R*-*-*-R;RPPR'} jobscripts/demo-retro.sh

demo-retro-questions: build ## demonstration: a model answers questions without retrieval, with neighbours and with a passage in the prompt (RETRO++); STEPS=2400, FACTS=4000
	@PARTS=questions STEPS=$${STEPS:-2400} OUT=$${OUT:-out/retro-questions} PATTERNS=$${PATTERNS:-'*-*R-*R-'} jobscripts/demo-retro.sh

demo-retro-text: build ## demonstration: bits per byte of changelogs with neighbours of other changelogs, with shuffled ones and without; STEPS=400
	@jobscripts/demo-retro-text.sh

demo-rlhf: build ## demonstration: fine-tuning, reward model, PPO, and a reward that is hacked; SEED=1
	@jobscripts/demo-rlhf.sh

demo-tiny: build ## demonstration: GRPO of the published Falcon-H1-Tiny-90M in bf16: log-probabilities of generation against scoring, tokens/s, memory; MODEL=FOLDER
	@jobscripts/demo-tiny.sh

test: configure ## build and run all tests; compiler warnings are errors if the variable CI is set
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ctest --preset $(PRESET) --parallel $(JOBS) --no-tests=error $(ARGS)

regression: build ## compare training runs on many grids with golden loss curves; one table; ARGS: options of regression/run.sh
	@regression/run.sh --binary $(BUILD)/bin/gyrfalcon --launcher '$(MPIEXEC)' $(ARGS)

faults: configure ## fault injection: break runs and files on purpose for an hour and count the recoveries; ARGS='-LE slow': five minutes
	@cmake --build $(BUILD) --parallel $(JOBS)
	@regression/faults.sh $(BUILD) $(ARGS)

mutants: PRESET := mutants
mutants: BUILD := build/mutants
mutants: configure ## mutation testing: does the test suite detect each of a list of mistakes? ARGS='--hints optimizer.*': only some, quickly
	@cmake --build $(BUILD) --parallel $(JOBS) --target mutants
	@MPIEXEC='$(MPIEXEC)' regression/mutants.sh $(BUILD) $(ARGS)

accuracy: configure ## compare the fp32 gradient errors with PyTorch's; ARGS: names of models in regression/golden/huggingface
	@cmake --build $(BUILD) --parallel $(JOBS) --target accuracy_table
	@OMP_NUM_THREADS=1 $(BUILD)/regression/accuracy_table $(ARGS)

parity: configure ## table of parallel layouts that covers every pair of features twice, with errors relative to one rank; ARGS=GYR_SEED=2: other rows
	@cmake --build $(BUILD) --parallel $(JOBS) --target grid_tests
	@OMP_NUM_THREADS=1 $(ARGS) $(MPIEXEC) -n 16 $(BUILD)/regression/grid_tests --gtest_filter='equality_table.*' --gtest_brief=1

families: configure ## compare every supported Hugging Face model family with transformers on up to 8 ranks; one table
	@cmake --build $(BUILD) --parallel $(JOBS) --target grid_tests
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n 8 $(BUILD)/regression/grid_tests --gtest_filter='families/huggingface*:huggingface/*' --gtest_brief=1

builds: build ## build and test with Open MPI, the newest Kokkos and Clang, in separate chroots (as root); ARGS: arguments of regression/builds.sh
	@BUILD=$(BUILD) regression/builds.sh $(ARGS)

sanitize: setup ## build the tests with address and undefined-behaviour sanitizers in build/debug and run them; ARGS as for test
	@regression/sanitize.sh $(ARGS)

planner: configure ## compare predicted step times with published and locally measured ones, and time the layout search; DECKS=10; ARGS=--fit: refit the constants
	@cmake --build $(BUILD) --parallel $(JOBS) --target planner_table planner_machine
	@$(BUILD)/regression/planner_table $(ARGS)
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n $(NP) $(BUILD)/regression/planner_machine $(DECKS)

bench: configure ## time the kernels, then a full training step and its GEMMs
	@cmake --build $(BUILD) --parallel $(JOBS) --target benchmarks
	@OMP_NUM_THREADS=1 $(BUILD)/regression/kernel_benchmarks $(ARGS)
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n $(NP) $(BUILD)/regression/step_benchmark input/falcon-h1-73m.yaml

bench-peer: configure ## time a training step here and in PyTorch (from PyPI, 6 GB), alternately; MODEL=gpt2-124m: GPT-2; LLMC=.../train_gpt2: also llm.c
	@cmake --build $(BUILD) --parallel $(JOBS) --target benchmarks
	@MODEL='$(MODEL)' LLMC='$(LLMC)' regression/bench/peer.sh

bench-generate: build ## time prompt processing and token generation here and in llama.cpp (from PyPI), alternately; RANKS=2 ROUNDS=5 TYPES="fp32 bf16 int8"
	@RANKS='$(RANKS)' ROUNDS='$(ROUNDS)' TYPES='$(TYPES)' regression/bench/generate.sh

bench-policy: build ## train on rewards here and in TRL (from PyPI, 6 GB), alternately; MODELS="digits tiny-90m" SEEDS="1 2 3 4 5" ROUNDS=3
	@regression/bench/policy.sh

bench-ranks: build ## time a training step on two ranks with data, tensor, pipeline and context parallelism; LENGTH=16384 SEQUENCES=2 ROUNDS=1: long sequences
	@LENGTH='$(LENGTH)' SEQUENCES='$(SEQUENCES)' ROUNDS='$(ROUNDS)' LAYOUTS='$(LAYOUTS)' regression/bench/ranks.sh

bench-retro: configure ## time BM25 here and in bm25s (from PyPI), indexes of drawn vectors, and steps with and without layers R; CHUNKS=100000 VECTORS=100000
	@cmake --build $(BUILD) --parallel $(JOBS) --target search_benchmark gyrfalcon
	@regression/bench/search.sh
	@regression/bench/retrieval.sh

bench-tokenizer: configure ## time tokenizer encoding here and in Hugging Face tokenizers (from PyPI), alternately
	@cmake --build $(BUILD) --parallel $(JOBS) --target tokenizer_benchmark
	@regression/bench/tokenizer.sh

install: build ## install the program, man pages, shell completions, decks, jobscripts, pages and a module file to PREFIX
	@log=$$(cmake --install $(BUILD) --prefix "$(subst ~/,$(HOME)/,$(PREFIX))") && printf '%s\n' "$$log" | sed -n 's/^-- to use it/to use it/p'

clean: ## remove all build folders
	@rm -rf build

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p; s/^#   \([A-Z]*=[^ ]*\) */  \1|/p' Makefile | \
	  awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

# Installs missing dependencies on Debian and Ubuntu, as root or after a question. Elsewhere it lists them and exits with
# code 69. SETUP names the packages: those of the build, also those of the demonstration, or also those of the tests.
SETUP := build
run: SETUP := $(if $(DATA),build,run)
test faults mutants accuracy parity families planner sanitize bench bench-peer bench-retro bench-tokenizer: SETUP := test
setup:
	@jobscripts/setup.sh $(SETUP)

configure: setup
	@if [ -z "$$CMAKE_GENERATOR" ] && command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi; \
	 cmake --preset $(PRESET) -DGYR_WERROR=$(if $(CI),ON,OFF) $(if $(GPUS),-DGYR_GPUS="$(GPUS)") \
	   $(if $(GYR_NATIVE_ARCH),-DGYR_NATIVE_ARCH=$(GYR_NATIVE_ARCH)) --log-level=NOTICE
