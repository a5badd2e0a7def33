# SPDX-License-Identifier: BSD-3-Clause
# Everyday commands; the build itself is CMake's. Variables, as in `make run NP=4`:
#   NP=2               MPI ranks of run
#   DATA=              files to train on; without them a text that Debian packages
#   ARGS=              more words: overrides for run, filters for test and bench
#   PRESET=release     one of CMakePresets.json
#   GPUS=              of cuda, as 80;90; without it all that the toolkit and we know
#   JOBS=              compilers, or processes of tests, at once; one per core by default
#   PREFIX=/usr/local  where install goes
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

.PHONY: build cuda gpu run demo-encoder demo-phonebook test regression faults mutants accuracy parity families planner builds sanitize bench bench-peer bench-generate bench-ranks bench-tokenizer install clean help setup configure

build: configure ## the program, build/PRESET/bin/gyrfalcon
	@cmake --build $(BUILD) --parallel $(JOBS) --target gyrfalcon

cuda: ## the program for NVIDIA's GPUs, build/cuda/bin/gyrfalcon; CUDA_HOME and NCCL_HOME say where CUDA's toolkit and NCCL are
	@$(MAKE) --no-print-directory build PRESET=cuda

gpu: ## where there is a GPU: its laws, then its rates, in under nine minutes; one table
	@regression/gpu.sh

run: build ## train a small model and let it write
	@jobscripts/demo.sh

demo-encoder: build ## does reading descriptions of Debian's packages help an encoder to label them? SEEDS=5, LABELS=600, STEPS=1200
	@jobscripts/demo-encoder.sh

demo-phonebook: build ## where a state is too small to look numbers up, one layer of attention mends it; STEPS=3000, TESTS=500
	@jobscripts/demo-phonebook.sh

test: configure ## build and run every test; in CI (variable CI set) warnings are errors
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ctest --preset $(PRESET) --parallel $(JOBS) $(ARGS)

regression: build ## golden runs on many grids, one table; ARGS are words for regression/run.sh
	@regression/run.sh --binary $(BUILD)/bin/gyrfalcon --launcher '$(MPIEXEC)' $(ARGS)

faults: configure ## break runs and files on purpose, for an hour, and count what survived; ARGS='-LE slow': five minutes
	@cmake --build $(BUILD) --parallel $(JOBS)
	@regression/faults.sh $(BUILD) $(ARGS)

mutants: PRESET := mutants
mutants: BUILD := build/mutants
mutants: configure ## switch plausible mistakes on, one by one: does the suite notice? ARGS='--hints optimizer.*': some, quickly
	@cmake --build $(BUILD) --parallel $(JOBS) --target mutants
	@MPIEXEC='$(MPIEXEC)' regression/mutants.sh $(BUILD) $(ARGS)

accuracy: configure ## errors of gradients in float beside PyTorch's; ARGS: names of models in regression/golden/huggingface
	@cmake --build $(BUILD) --parallel $(JOBS) --target accuracy_table
	@OMP_NUM_THREADS=1 $(BUILD)/regression/accuracy_table $(ARGS)

parity: configure ## the table of layouts, every pair of features twice, with their errors against one rank; ARGS=GYR_SEED=2: other rows
	@cmake --build $(BUILD) --parallel $(JOBS) --target grid_tests
	@OMP_NUM_THREADS=1 $(ARGS) $(MPIEXEC) -n 16 $(BUILD)/regression/grid_tests --gtest_filter='equality_table.*' --gtest_brief=1

families: configure ## every family of Hugging Face's models beside transformers' own class, on up to 8 ranks: one table
	@cmake --build $(BUILD) --parallel $(JOBS) --target grid_tests
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n 8 $(BUILD)/regression/grid_tests --gtest_filter='families/huggingface*:huggingface/*' --gtest_brief=1

builds: build ## Open MPI, the newest Kokkos and Clang, in roots of their own (as root); ARGS are words for regression/builds.sh
	@BUILD=$(BUILD) regression/builds.sh $(ARGS)

sanitize: setup ## build the suite with address and undefined-behaviour sanitizers in build/debug and run it; ARGS as for test
	@regression/sanitize.sh $(ARGS)

planner: configure ## the planner beside published steps, speed of its search, and steps of random decks measured here; DECKS=10, ARGS=--fit: fit the constants anew
	@cmake --build $(BUILD) --parallel $(JOBS) --target planner_table planner_machine
	@$(BUILD)/regression/planner_table $(ARGS)
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n $(NP) $(BUILD)/regression/planner_machine $(DECKS)

bench: configure ## time the kernels, then a whole training step beside its matrix products
	@cmake --build $(BUILD) --parallel $(JOBS) --target benchmarks
	@OMP_NUM_THREADS=1 $(BUILD)/regression/kernel_benchmarks $(ARGS)
	@OMP_NUM_THREADS=1 $(MPIEXEC) -n $(NP) $(BUILD)/regression/step_benchmark input/falcon-h1-73m.yaml

bench-peer: configure ## time a training step here and in PyTorch (from PyPI, 6 GB), in turns; MODEL=gpt2-124m: GPT-2's, LLMC=.../train_gpt2: llm.c's too
	@cmake --build $(BUILD) --parallel $(JOBS) --target benchmarks
	@MODEL='$(MODEL)' LLMC='$(LLMC)' regression/bench/peer.sh

bench-generate: build ## reading prompts and generating here and in llama.cpp (from PyPI), in turns; RANKS=2 ROUNDS=5 TYPES="fp32 bf16 int8"
	@RANKS='$(RANKS)' ROUNDS='$(ROUNDS)' TYPES='$(TYPES)' regression/bench/generate.sh

bench-ranks: build ## time a step on two ranks that share work in different ways; LENGTH=16384 SEQUENCES=2 ROUNDS=1: long sequences
	@LENGTH='$(LENGTH)' SEQUENCES='$(SEQUENCES)' ROUNDS='$(ROUNDS)' LAYOUTS='$(LAYOUTS)' regression/bench/ranks.sh

bench-tokenizer: configure ## time encoding here and in Hugging Face's tokenizers (from PyPI), in turns
	@cmake --build $(BUILD) --parallel $(JOBS) --target tokenizer_benchmark
	@regression/bench/tokenizer.sh

install: build ## program, pages for man, completion, decks, jobscripts and a module file to PREFIX
	@log=$$(cmake --install $(BUILD) --prefix "$(subst ~/,$(HOME)/,$(PREFIX))") && printf '%s\n' "$$log" | sed -n 's/^-- to use it/to use it/p'

clean: ## remove what was built
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p; s/^#   \([A-Z]*=[^ ]*\) */  \1|/p' Makefile | \
	  awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

# Installs what is missing where it may; otherwise names it and stops with exit code 69.
setup:
	@jobscripts/setup.sh

configure: setup
	@if [ -z "$$CMAKE_GENERATOR" ] && command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi; \
	 cmake --preset $(PRESET) -DGYR_WERROR=$(if $(CI),ON,OFF) $(if $(GPUS),-DGYR_GPUS="$(GPUS)") --log-level=WARNING
