# SPDX-License-Identifier: Apache-2.0
#
# make                build/: arfuse-tune, arfuse-profile, libarfuse.so, libarfuse.a, examples
# make check          every test that a machine without a GPU can run
# make check-long     the same with more seeds, more kills, longer runs
# make coverage       the tests in a build of its own; line and branch figures by folder (gcovr)
# make coverage-quick the same of the tests that take seconds, as CI shows it
# make fuzz           libFuzzer on everything that reads untrusted bytes (tests/fuzz); needs clang
# make check-kernels  compiles all kernels for sm_90, sm_100 and sm_103; needs libnvrtc, no GPU
# make bench          host benchmarks: two things in one run, and their ratio
# make bench-gpu      every protocol, the routes and their rivals over the tokens, on a GPU, and the
#                     marks that must hold (exit 1 with those that do not); BENCH_FLAGS='--profile F'
# make install        to PREFIX (/usr/local), under DESTDIR if given; make uninstall
#
# CUDA=auto|0|1       with the CUDA device: when cuda.h is found (default), never, or an error
# CUDA_HOME=DIR       where the toolkit is (default /usr/local/cuda)
# DEBUG=1 ASAN=1 TSAN=1 UBSAN is part of ASAN; COVERAGE=1; WERROR=1; V=1 shows commands
#
# Default flags build into build/, every other set into build/<flags>/, so that nothing stale mixes.

VERSION := 0.1.0
SOVERSION := 0

CC ?= gcc
MPICC ?= mpicc
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
COMPLETIONDIR ?= $(DATADIR)/bash-completion/completions
CUDA ?= auto
CUDA_HOME ?= /usr/local/cuda

# ---- what the flags mean ----------------------------------------------------------------------

CUDA_HEADER := $(firstword $(wildcard $(CUDA_HOME)/include/cuda.h))
ifeq ($(CUDA),auto)
  with_cuda := $(if $(CUDA_HEADER),1,)
else ifeq ($(CUDA),1)
  $(if $(CUDA_HEADER),,$(error CUDA=1: no cuda.h under CUDA_HOME=$(CUDA_HOME)))
  with_cuda := 1
else
  with_cuda :=
endif

flavour := $(strip $(if $(filter 0,$(CUDA)),nocuda) $(if $(filter 1,$(DEBUG)),debug) \
             $(if $(filter 1,$(ASAN)),asan) $(if $(filter 1,$(TSAN)),tsan) \
             $(if $(filter 1,$(COVERAGE)),coverage) $(if $(filter aarch64%,$(CC)),aarch64))
empty :=
comma := ,
space := $(empty) $(empty)
BUILD := build$(if $(flavour),/$(subst $(space),-,$(flavour)))
OBJ := $(BUILD)/obj

# -ffp-contract=off: the bits are part of the contract; a fused multiply-add stands only where the
# source says fmaf. -fno-math-errno lets sqrtf be one instruction and changes no result.
CFLAGS_ALL := -std=c17 -D_GNU_SOURCE -Isrc -I$(OBJ) -fPIC -fvisibility=hidden -ffp-contract=off \
  -fno-math-errno -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
  -pthread -MMD -MP -DARF_VERSION='"$(VERSION)"' -DARF_PREFIX='"$(PREFIX)"' \
  -DARF_DATADIR='"$(DATADIR)"' \
  $(if $(with_cuda),-DARF_CUDA -I. -isystem $(CUDA_HOME)/include) \
  $(if $(filter 1,$(DEBUG)),-O0 -g3,$(if $(filter 1,$(COVERAGE)),-O1,-O2 -g)) $(if $(filter 1,$(WERROR)),-Werror) \
  $(if $(filter 1,$(ASAN)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=all \
    -fno-omit-frame-pointer) \
  $(if $(filter 1,$(TSAN)),-fsanitize=thread) $(if $(filter 1,$(COVERAGE)),--coverage) $(CFLAGS)
# Programs find libcjson beside themselves too, so that a build can be carried to a machine without it.
LDFLAGS_ALL := -pthread -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed \
  $(if $(filter 1,$(ASAN)),-fsanitize=address$(comma)undefined) \
  $(if $(filter 1,$(TSAN)),-fsanitize=thread) $(if $(filter 1,$(COVERAGE)),--coverage) $(LDFLAGS)
LIBS := -lcjson -lm -ldl

quiet := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' '$(1)' '$(2)')

# ---- sources: a file in a folder is part of what the folder makes --------------------------------

core_dirs := base rules profile device device/host device/model runtime fit \
  $(if $(with_cuda),device/cuda)
core_src := $(foreach d,$(core_dirs),$(wildcard src/$(d)/*.c))
tune_src := $(wildcard src/tune/*.c)
cli_src := $(wildcard src/cli/*.c)
example_src := $(wildcard src/examples/*.c src/examples/*.cpp)
man_pages := $(wildcard src/man/*.[1-9])
kernel_src := $(wildcard kernels/*.h kernels/*.cuh kernels/*.cu)
unit_src := $(wildcard tests/unit/*_test.c)
mpi_src := $(wildcard tests/mpi/*_test.c)
gpu_src := $(if $(with_cuda),$(wildcard tests/gpu/*_test.c))
gpu_helper_src := $(filter-out %_test.c,$(wildcard tests/gpu/*.c)) tests/support/pairwise.c
bench_src := $(wildcard tests/bench/*_bench.c)
bench_helper_src := tests/bench/floor.c
gpu_bench_src := $(filter-out %/forked_tune.c,$(wildcard tests/bench/gpu/*.c)) $(bench_helper_src) tests/support/processes_bootstrap.c
fuzz_src := $(wildcard tests/fuzz/*_fuzz.c)
helper_src := $(wildcard tests/support/*.c)
fakecuda := $(if $(with_cuda),$(addprefix $(BUILD)/tests/fakecuda/,libcuda.so.1 libnccl.so.2))
fakenvml := $(if $(with_cuda),$(BUILD)/tests/fakenvml/libnvidia-ml.so.1)

object = $(patsubst %.c,$(OBJ)/%.o,$(1))
core_obj := $(call object,$(core_src)) $(if $(with_cuda),$(if $(kernel_src),$(OBJ)/kernels/embed.o))
program = $(patsubst %.c,$(BUILD)/$(1)/%,$(notdir $(2)))
examples := $(basename $(addprefix $(BUILD)/examples/,$(notdir $(example_src))))
units := $(call program,tests,$(unit_src))
mpis := $(call program,tests,$(mpi_src))
gpus := $(call program,tests,$(gpu_src))
replays := $(patsubst tests/fuzz/%_fuzz.c,$(BUILD)/tests/%_replay,$(fuzz_src))
benches := $(call program,tests,$(bench_src))

programs := $(if $(tune_src),$(BUILD)/arfuse-tune) $(if $(cli_src),$(BUILD)/arfuse-profile)
libraries := $(BUILD)/libarfuse.so $(BUILD)/libarfuse.a

.PHONY: FORCE all lib tests check check-long check-kernels modelcheck fuzz coverage coverage-quick \
  coverage-tests bench bench-gpu install uninstall clean format
all: $(programs) $(libraries) $(examples)
lib: $(libraries)
tests: all $(units) $(mpis) $(gpus) $(replays) $(BUILD)/tests/libfault.so \
  $(BUILD)/tests/interleave_test $(BUILD)/tests/soak_test $(BUILD)/tests/emulator_test \
  $(BUILD)/tests/gpu_bench $(BUILD)/tests/forked_tune $(if $(with_cuda),$(BUILD)/tests/check_kernels)

.SECONDARY:

# ---- objects --------------------------------------------------------------------------------

# Only the group file includes mpi.h; it alone is compiled with the MPI compiler.
$(OBJ)/src/tune/group.o: COMPILER = $(MPICC)
$(OBJ)/tests/mpi/%.o: COMPILER = $(MPICC)
COMPILER = $(CC)
# The arithmetic by rows is written for vectors. This chooses instructions, never other rounding.
$(OBJ)/src/device/numerics.o: CFLAGS_ALL += -ftree-vectorize -fvect-cost-model=dynamic
$(OBJ)/tests/%.o: CFLAGS_ALL += -Itests

$(OBJ)/%.o: %.c Makefile
	$(call say,CC,$<)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(COMPILER) $(CFLAGS_ALL) -c $< -o $@

# The system folder of profiles is compiled in: it follows PREFIX from one make to the next.
$(OBJ)/datadir: FORCE
	$(quiet)mkdir -p $(@D)
	$(quiet)echo '$(DATADIR)' | cmp -s - $@ || echo '$(DATADIR)' > $@
$(OBJ)/src/profile/lookup.o $(OBJ)/tests/unit/lookup_test.o: $(OBJ)/datadir
FORCE:

# The kernels' text, embedded: a table of (name, text) that device/cuda/sources.h declares.
$(OBJ)/kernels/embed.o: scripts/embed-sources $(kernel_src)
	$(call say,EMBED,kernels)
	$(quiet)mkdir -p $(@D)
	$(quiet)scripts/embed-sources $(kernel_src) > $(OBJ)/kernels/embed.S
	$(quiet)$(CC) -c $(OBJ)/kernels/embed.S -o $@

# ---- libraries and programs -------------------------------------------------------------------

# Everything, for our own programs and tests, which may see inside.
$(OBJ)/libcore.a: $(core_obj)
	$(call say,AR,$@)
	$(quiet)rm -f $@ && ar rcs $@ $^

$(BUILD)/libarfuse.so: $(core_obj) src/arfuse.map
	$(call say,LINK,$@)
	$(quiet)$(CC) -shared -o $@.$(VERSION) -Wl,-soname,libarfuse.so.$(SOVERSION) \
	  -Wl,--version-script=src/arfuse.map -Wl,--no-undefined $(core_obj) $(LDFLAGS_ALL) $(LIBS)
	$(quiet)ln -sf libarfuse.so.$(VERSION) $(BUILD)/libarfuse.so.$(SOVERSION)
	$(quiet)ln -sf libarfuse.so.$(SOVERSION) $@

# One object whose other symbols are local, so that the archive, too, exports arfuse_ names only. (By
# name: functions that are compiled twice are never hidden.)
$(BUILD)/libarfuse.a: $(core_obj)
	$(call say,AR,$@)
	$(quiet)ld -r -o $(OBJ)/arfuse.o $(core_obj)
	$(quiet)objcopy --wildcard --keep-global-symbol='arfuse_*' $(OBJ)/arfuse.o
	$(quiet)rm -f $@ && ar rcs $@ $(OBJ)/arfuse.o

# The stages of the tuner without its main and without MPI, so that unit tests can link them.
$(OBJ)/libtune.a: $(call object,$(filter-out src/tune/main.c src/tune/group.c,$(tune_src)))
	$(call say,AR,$@)
	$(quiet)rm -f $@ && ar rcs $@ $^

# The verbs of arfuse-profile, for what tests link; its main has another name there.
$(OBJ)/libcli.a: $(call object,$(cli_src))
	$(call say,AR,$@)
	$(quiet)objcopy --redefine-sym main=arf_cli_main $(OBJ)/src/cli/main.o $(OBJ)/cli_main.o
	$(quiet)rm -f $@ && ar rcs $@ $(filter-out %/cli/main.o,$^) $(OBJ)/cli_main.o

$(BUILD)/arfuse-tune: $(call object,$(tune_src)) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)$(MPICC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

$(BUILD)/arfuse-profile: $(call object,$(cli_src)) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

# Examples are built as a user would: the public header and the shared library, nothing else.
example_flags = -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror) -O2 -g -ffp-contract=off -Isrc \
  $(if $(filter 1,$(ASAN)),-fsanitize=address$(comma)undefined) \
  $(if $(filter 1,$(TSAN)),-fsanitize=thread) $(if $(filter 1,$(COVERAGE)),--coverage) \
  -o $@ $< -L$(BUILD) -larfuse -ldl -pthread -Wl,-rpath,'$$ORIGIN/..'

$(BUILD)/examples/%: src/examples/%.c src/arfuse.h $(wildcard src/examples/*.h) $(BUILD)/libarfuse.so
	$(call say,EXAMPLE,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -std=c11 $(example_flags)

$(BUILD)/examples/%: src/examples/%.cpp src/arfuse.h $(wildcard src/examples/*.h) $(BUILD)/libarfuse.so
	$(call say,EXAMPLE,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CXX) -std=c++17 $(example_flags)

$(BUILD)/tests/%_test: $(OBJ)/tests/unit/%_test.o $(call object,$(helper_src)) $(OBJ)/libtune.a \
  $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) -lcmocka $(TEST_LIBS) $(LIBS)

$(BUILD)/tests/bench_marks_test: $(OBJ)/tests/unit/bench_marks_test.o $(call object,\
  $(addprefix tests/bench/,floor.c gpu/marks.c gpu/copy.c gpu/copy_cuda.c gpu/links.c \
  gpu/links_cuda.c gpu/inline_kernel.c)) \
  $(OBJ)/libtune.a $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) -lcmocka $(LIBS)

# jansson is a test oracle; nothing that is installed links it.
$(BUILD)/tests/schema_test $(BUILD)/tests/json_oracle_test: TEST_LIBS = -ljansson

$(BUILD)/tests/%_test: $(OBJ)/tests/mpi/%_test.o $(call object,$(helper_src)) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(MPICC) -o $@ $^ $(LDFLAGS_ALL) -lcmocka $(LIBS)

$(BUILD)/tests/%_test: $(OBJ)/tests/gpu/%_test.o $(call object,$(gpu_helper_src)) \
  $(OBJ)/tests/support/processes_bootstrap.o $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

$(BUILD)/tests/gpu_bench: $(call object,$(gpu_bench_src)) $(OBJ)/libtune.a $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

# The tuner itself; its main has another name there.
$(OBJ)/tune_main.o: $(OBJ)/src/tune/main.o
	$(quiet)objcopy --redefine-sym main=arf_tune_main $< $@

$(BUILD)/tests/forked_tune: $(call object,$(addprefix tests/,bench/gpu/forked_tune.c bench/gpu/forked.c \
  support/processes_bootstrap.c)) $(OBJ)/tune_main.o $(OBJ)/libtune.a $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

$(BUILD)/tests/%_bench: $(OBJ)/tests/bench/%_bench.o $(call object,$(bench_helper_src)) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

# Stand-ins for libcuda and libnccl. In a folder of their own: only who asks for them gets them.
$(BUILD)/tests/fakecuda/libcuda.so.1: $(OBJ)/tests/fakecuda/fakecuda.o
$(BUILD)/tests/fakecuda/libnccl.so.2: $(OBJ)/tests/fakecuda/fakenccl.o
$(BUILD)/tests/fakecuda/lib%:
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -shared -o $@ -Wl,-soname,$(@F) $^ $(LDFLAGS_ALL)
$(BUILD)/tests/cuda_setup_test $(BUILD)/tests/cuda_launch_test \
  $(BUILD)/tests/cuda_sharing_test $(BUILD)/tests/cuda_library_test: | $(fakecuda) $(fakenvml)

# The stand-in for libnvidia-ml, likewise.
$(BUILD)/tests/fakenvml/libnvidia-ml.so.1: $(OBJ)/tests/fakenvml/fakenvml.o
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -shared -o $@ -Wl,-soname,libnvidia-ml.so.1 $^ $(LDFLAGS_ALL)
$(BUILD)/tests/cuda_clocks_test: | $(fakenvml)

# A fuzz target without libFuzzer, that replays files.
$(BUILD)/tests/%_replay: $(OBJ)/tests/fuzz/%_fuzz.o $(OBJ)/tests/fuzz/replay.o $(OBJ)/libcli.a \
  $(OBJ)/libtune.a $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

# The host device with its points of interleaving; its objects stand before those of the library.
interleave_obj := $(patsubst %.c,$(OBJ)/interleave/%.o,$(wildcard src/device/host/*.c) \
  tests/interleave/interleave_test.c)
$(OBJ)/interleave/%.o: CFLAGS_ALL += -DARF_INTERLEAVE -Itests
$(OBJ)/interleave/%.o: %.c Makefile
	$(call say,CC,$< (interleave))
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) $(CFLAGS_ALL) -c $< -o $@
$(BUILD)/tests/interleave_test: $(interleave_obj) $(call object,$(helper_src)) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) -lcmocka $(LIBS)

$(BUILD)/tests/digest: $(OBJ)/tests/portable/digest.o $(OBJ)/tests/support/device_case.o $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

$(BUILD)/tests/soak_test: $(OBJ)/tests/soak/soak_test.o $(call object,$(helper_src)) \
  $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) -lcmocka $(LIBS)

# The kernels on a CPU: tests/emulator/run.sh compiles them and this runs them. The recipes of the
# CUDA device are needed, whether or not that device is built.
emulator_obj := $(call object,$(wildcard tests/emulator/*.c) src/device/cuda/recipe.c \
  src/device/cuda/layout.c)
$(emulator_obj): CFLAGS_ALL += -I.
$(BUILD)/tests/emulator_test: $(emulator_obj) $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -rdynamic -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

# To preload: one call of the program fails. No link to MPI, so that programs without it can be run.
$(BUILD)/tests/libfault.so: tests/faults/fault.c
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(MPICC) -std=c17 -D_GNU_SOURCE -O2 -g -fPIC -Wall -Wextra -c $< -o $(OBJ)/fault.o
	$(quiet)$(CC) -shared -o $@ $(OBJ)/fault.o -ldl

# ---- tests ------------------------------------------------------------------------------------

check: tests
	$(quiet)BUILD=$(BUILD) tests/run

check-long: tests
	$(quiet)BUILD=$(BUILD) ARFUSE_TEST_LONG=1 tests/run

# Every kernel compiled for every architecture, without a GPU: registers, shared memory, spills.
$(BUILD)/tests/check_kernels: $(OBJ)/tests/kernels/check_kernels.o $(OBJ)/libcore.a
	$(call say,LINK,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(CC) -o $@ $^ $(LDFLAGS_ALL) $(LIBS)

check-kernels: $(if $(with_cuda),$(BUILD)/tests/check_kernels)
	$(quiet)BUILD=$(BUILD) scripts/check-kernels

# Which tests: COVERAGE_TESTS, and what they need built. gcov's counters are kept by objects, so they
# start from none.
COVERAGE_TESTS ?= tests/unit/*_test.c tests/mpi/*.sh tests/fuzz/*.sh tests/cli/*.bats
COVERAGE_NEEDS ?= tests
coverage:
	$(quiet)$(MAKE) --no-print-directory COVERAGE=1 CUDA=$(CUDA) $(COVERAGE_NEEDS)
	$(quiet)find build/coverage build/nocuda-coverage -name '*.gcda' -delete 2>/dev/null || true
	$(quiet)BUILD=$(if $(filter 0,$(CUDA)),build/nocuda-coverage,build/coverage) tests/run $(COVERAGE_TESTS)
	$(quiet)gcovr -r . --filter src/ --exclude-throw-branches --exclude-unreachable-branches \
	  --gcov-ignore-parse-errors $(if $(filter 0,$(CUDA)),build/nocuda-coverage,build/coverage)/obj \
	  --json-summary-pretty -o build/coverage.json && scripts/coverage-table build/coverage.json

# Sweeps over seeds and shapes reach few lines that others do not, and counting makes them slow.
slow_when_counted := $(patsubst %,tests/unit/%_test.c,candidates fit_random host_matrix regret) \
  tests/cli/profile-export.bats tests/cli/profile-memory.bats
coverage-quick:
	$(quiet)$(MAKE) --no-print-directory coverage COVERAGE_NEEDS='all coverage-tests' COVERAGE_TESTS='$(filter-out \
	  $(slow_when_counted),$(unit_src) $(wildcard tests/cli/profile-*.bats tests/cli/tune-*.bats))'
coverage-tests: $(units)

# The waits, model-checked: every model holds, every twin with a planted fault fails.
modelcheck:
	$(quiet)tests/run tests/model/run.sh

# The targets are one whole program each for clang, so that libFuzzer sees every edge.
FUZZ_CC ?= $(firstword $(foreach c,clang clang-14 clang-16 clang-18,$(shell command -v $(c))) clang)
FUZZ_RUNS ?= 100000
fuzz_lib_src := $(foreach d,base rules profile fit cli,$(wildcard src/$(d)/*.c)) src/tune/tokens.c
fuzzers := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(fuzz_src))

build/fuzz/%_fuzz: tests/fuzz/%_fuzz.c tests/fuzz/fuzz.h $(fuzz_lib_src) Makefile
	$(call say,FUZZER,$@)
	$(quiet)mkdir -p $(@D)
	$(quiet)$(FUZZ_CC) -std=c17 -D_GNU_SOURCE -Isrc -Itests -O2 -g -ffp-contract=off \
	  -fno-math-errno -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	  -Dmain=arf_cli_main -DARF_VERSION='"$(VERSION)"' -DARF_PREFIX='"$(PREFIX)"' -DARF_DATADIR='"$(DATADIR)"' \
	  -o $@ $< $(fuzz_lib_src) $(LIBS)

fuzz: $(fuzzers)
	$(quiet)cd build/fuzz && for f in $(notdir $(fuzzers)); do n=$${f%_fuzz}; mkdir -p corpus/$$n; \
	  ./$$f -runs=$(FUZZ_RUNS) -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
	  -dict=../../tests/fuzz/words.dict corpus/$$n ../../tests/fuzz/corpus/$$n || exit 1; done

bench: all $(benches)
	$(quiet)for b in $(benches); do $$b || exit 1; done

bench-gpu: $(BUILD)/tests/gpu_bench
	$(quiet)$< $(BENCH_FLAGS)

# ---- install ----------------------------------------------------------------------------------

# Profiles and schema; where the runtime searches for system profiles (PREFIX/share/arfuse).
# What is committed: a tune in this tree writes into profiles/ too, and is nobody else's.
profile_files := $(or $(shell git ls-files 'profiles/*.json' 'profiles/*.jsonl' 2>/dev/null), \
  $(shell find profiles -name '*.json' -o -name '*.jsonl'))

install: all
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(programs) $(DESTDIR)$(BINDIR)
	install -m 644 src/arfuse.h $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(BUILD)/libarfuse.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(BUILD)/libarfuse.so.$(VERSION) $(DESTDIR)$(LIBDIR)
	ln -sf libarfuse.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libarfuse.so.$(SOVERSION)
	ln -sf libarfuse.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libarfuse.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	  -e 's|@VERSION@|$(VERSION)|' -e 's|@PRIVATE@|-lm -ldl -pthread|' src/arfuse.pc.in \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/arfuse.pc
	for page in $(man_pages); do \
	  install -D -m 644 $$page $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/} || exit 1; done
	for file in $(profile_files); do \
	  install -D -m 644 $$file $(DESTDIR)$(DATADIR)/arfuse/$$file || exit 1; done
	install -d $(DESTDIR)$(COMPLETIONDIR)
	scripts/completions $(BUILD) > $(DESTDIR)$(COMPLETIONDIR)/arfuse-tune
	ln -sf arfuse-tune $(DESTDIR)$(COMPLETIONDIR)/arfuse-profile

uninstall:
	rm -f $(addprefix $(DESTDIR)$(COMPLETIONDIR)/,$(notdir $(programs)))
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,$(notdir $(programs)))
	rm -f $(DESTDIR)$(INCLUDEDIR)/arfuse.h $(DESTDIR)$(LIBDIR)/libarfuse.* \
	  $(DESTDIR)$(LIBDIR)/pkgconfig/arfuse.pc
	for page in $(man_pages); do rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}; done
	for file in $(profile_files); do rm -f $(DESTDIR)$(DATADIR)/arfuse/$$file; done
	if [ -d $(DESTDIR)$(DATADIR)/arfuse ]; then \
	  find $(DESTDIR)$(DATADIR)/arfuse -type d -empty -delete; fi

clean:
	rm -rf build

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
