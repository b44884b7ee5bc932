# Short names; the scripts in launch/ do the work.
BIN := .venv/bin
CPP := $(shell find csrc -name '*.cpp' -o -name '*.h')

.PHONY: demo build test check format cpp-test

demo:  ## the app on the embedded demo model
	bash launch/demo.sh

build:  ## environment and C++ extension, nothing run
	bash -c '. launch/env.sh && setup_environment dev'

test: build  ## Python tests
	$(BIN)/python -m pytest

check: build  ## lint, format, types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/clang-format --dry-run -Werror $(CPP)

format: build
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format . && $(BIN)/clang-format -i $(CPP)

cpp-test: build  ## C++ tests under AddressSanitizer and UBSan
	PATH=$(CURDIR)/$(BIN):$$PATH cmake -S csrc -B build/sanitized -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DDART_BUILD_PYTHON=OFF -DDART_BUILD_TESTS=ON -DDART_WERROR=ON -DDART_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitized && $(BIN)/ctest --test-dir build/sanitized --output-on-failure
