# Shortcuts for CMake commands; `make help` lists them. They write only to $(BUILD) and, for the demo, to $(OUT).
BUILD ?= build
BUILD_TYPE ?= Release
PREFIX ?= /usr/local
OUT ?= alibi-compare
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_ARGS ?=
ARGS ?=

.DEFAULT_GOAL := build
.PHONY: help demo test build bench format lint install package wheel wheel-operator docs gpu-check clean dependencies configure

help:           ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: configure ## train five position methods short, test them long, write a report (ARGS= for more options)
	@cmake --build $(BUILD) --parallel $(JOBS) --target alibi_cli
	$(BUILD)/alibi compare --out $(OUT) $(ARGS)
	@echo "The report is at $(abspath $(OUT))/report.html"

test: build     ## build and run every test
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

build: configure ## build the library, the command and the tests; leaves build/alibi
	@cmake --build $(BUILD) --parallel $(JOBS)

bench: build    ## measure attention on this machine (ARGS= for more options: build/alibi bench attention --help)
	$(BUILD)/alibi bench attention $(ARGS)

format:         ## format all C++ files in place
	@scripts/install-dependencies lint
	@scripts/check/format

lint:           ## check the format and the list of words, then run clang-tidy on the library and the command
	@scripts/install-dependencies build test lint
	@scripts/check/format --check
	@scripts/check/words
	@scripts/check/tidy

install: configure ## install the library, its headers and the command under PREFIX
	@cmake --build $(BUILD) --parallel $(JOBS) --target alibi_to_install
	cmake --install $(BUILD) --prefix $(PREFIX)

package:        ## make Debian packages, in build-debian, and a .tar.gz of all, in $(BUILD)-shared
	@scripts/install-dependencies build package
	@$(MAKE) --no-print-directory configure BUILD=$(BUILD)-shared \
	  CMAKE_ARGS="-DBUILD_SHARED_LIBS=ON -DALIBI_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr $(CMAKE_ARGS)"
	@cmake --build $(BUILD)-shared --parallel $(JOBS)
	@cd $(BUILD)-shared && cpack
	@scripts/release/debian-packages $(BUILD)-shared

wheel:          ## make a wheel of the Python package that needs no library of this machine, in $(BUILD)-python/dist
	@scripts/install-dependencies python
	@scripts/release/build-wheel $(BUILD)-python

wheel-operator: ## the same without language models, in $(BUILD)-python/dist-operator
	@scripts/install-dependencies python
	@scripts/release/build-wheel --operator $(BUILD)-python

docs: configure ## make the documentation site, build-docs/html/index.html
	@scripts/install-dependencies docs python
	@cmake --build $(BUILD) --parallel $(JOBS) --target alibi_cli alibi alibi_attention
	@scripts/release/docs-site $(BUILD)

gpu-check:      ## on a machine with an NVIDIA GPU: build attention for it, test, sanitize, measure beside peers
	@scripts/gpu-check $(ARGS)

clean:          ## remove the build folder
	rm -rf $(BUILD)

dependencies:
	@scripts/install-dependencies build test

# The generator is chosen only once, because CMake cannot change it in an existing folder.
configure: dependencies
	@if [ -f $(BUILD)/CMakeCache.txt ] || ! command -v ninja >/dev/null; then generator=; else generator="-G Ninja"; fi; \
	cmake -S . -B $(BUILD) $$generator -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $(CMAKE_ARGS)
