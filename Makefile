# The commands of this project. Each installs what it needs (Debian 12 and 13, Ubuntu 24.04), may be repeated, needs no
# terminal, and shows a log only when a step fails. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
program := build-release/src/cli/longhaul

.PHONY: help demo build test lint format test-slow test-asan test-tsan fuzz bench install test-gpu bench-gpu clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: ## What skipping earns and costs on real activations, as a table and a picture
	@scripts/install-deps.sh build test python
	scripts/build.sh release src/cli/longhaul
	$(program) demo

build: ## The library and the program, in build-release
	@scripts/install-deps.sh build test python
	scripts/build.sh release

test: ## The tests of the release build, those of the Python parts among them; a few minutes
	@scripts/install-deps.sh build test python
	scripts/test.sh release --label-exclude slow

test-slow: ## The slow ones: seeded mutations of the kernels that must be noticed, a static build of the package
	@scripts/install-deps.sh build test python
	scripts/test.sh release --label-regex slow

lint: ## Format check, clang-tidy, shellcheck, ruff and the rules for text
	@scripts/install-deps.sh build test python lint
	scripts/lint.sh

format: ## Rewrites the sources in the project's format
	@scripts/install-deps.sh lint
	scripts/format.sh

test-asan: ## The tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/install-deps.sh build test python
	scripts/test.sh asan

test-tsan: ## The tests of threaded code under ThreadSanitizer
	@scripts/install-deps.sh build test python
	scripts/test.sh tsan --only thread_pool_test --only attention_determinism_property_test

fuzz: ## Every parser under libFuzzer; SECONDS_EACH=10 by default
	@scripts/install-deps.sh build fuzz
	scripts/fuzz.sh $${SECONDS_EACH:-10}

bench: ## The attention shapes of the targets on this machine's CPU, dense and skipping; some minutes
	@scripts/install-deps.sh build test python
	scripts/build.sh release src/cli/longhaul
	$(program) bench attention --set targets

install: ## Library, headers, CMake package and program into PREFIX (default /usr/local)
	@scripts/install-deps.sh build test python
	scripts/build.sh release
	cmake --install build-release --prefix "$(PREFIX)"

test-gpu: ## The tests that need a Hopper GPU; needs nvcc 13.0 or newer
	@scripts/install-deps.sh build test python
	scripts/test.sh cuda --label-regex gpu
	build-cuda/src/cli/longhaul verify --device cuda

bench-gpu: ## Prefill on a Hopper GPU, dense and skipping, on generated data and on the shipped activations
	@scripts/install-deps.sh build test python
	scripts/build.sh cuda src/cli/longhaul
	build-cuda/src/cli/longhaul bench attention --device cuda --length 16384
	build-cuda/src/cli/longhaul bench attention --device cuda --data heavy
	build-cuda/src/cli/longhaul bench attention --device cuda --data captured

clean: ## Removes the presets' build folders
	@rm -rf build-{release,cuda,asan,tsan,fuzz}
