"""The stages of the CI, cheapest failures first.

A stage has a name, a title and commands for bash. Further arguments:
    needs   names of stages whose products it uses: they run before it, and whenever it runs
    cores   1: it keeps one core busy, at least for most of its time, so it runs beside another such stage; otherwise it
            runs alone
    reads   what it reads, as patterns of git (gitglossary, "pathspec"). A stage is skipped when all of that, and the
            machine with its packages, are as they were when it last passed. In doubt leave it out: then it is every
            file but those of PROSE.
    by_name True: it runs by its name or with --all only, because it takes long and little of the project can break it
"""

from dataclasses import dataclass, field

PROSE = ["docs/*.md", "CHANGELOG.md", "CONTRIBUTING.md"]
ALL = ["."]
ALL_BUT_PROSE = [".", *(f":(exclude){pattern}" for pattern in PROSE)]


@dataclass
class Stage:
    name: str
    title: str
    commands: str
    needs: list = field(default_factory=list)
    cores: int = 0  # all
    reads: list = field(default_factory=lambda: ALL_BUT_PROSE)
    by_name: bool = False


STAGES = [
    Stage("format", "Format", "scripts/format --check",
          reads=["*.h", "*.c", "*.cc", "*.cpp", "*.cu", ".clang-format", "scripts/format"]),

    Stage("layout", "Folders use each other as docs/explanation/layout.md says; files include what they use; links work; "
                    "pages name options that exist",
          "python3 tests/layout/layout_test.py\nscripts/check-includes\nscripts/check-links\nscripts/check-options",
          reads=ALL),

    Stage("words", "Spelling, and phrases that a reader would have to decode", "scripts/words", reads=ALL),

    Stage("build", "g++, warnings are errors: library, command, tests",
          'cmake --preset strict >/dev/null\ncmake --build --preset strict --parallel "$(nproc)"'),

    Stage("figures", "Tables and figures of the experiments are what their numbers give",
          "scripts/paper draw --check", needs=["build"], reads=ALL),

    Stage("help", "docs/reference/help.md is what --help prints", "scripts/help-page --check", needs=["build"], reads=ALL),

    # Reads pages too: the table of options in docs/reference/training.md, the picture in docs/explanation/layout.md.
    # glibc fills memory that is allocated with odd values.
    Stage("tests", "The tests, as the README says", "MALLOC_PERTURB_=165 make test", needs=["build"], reads=ALL),

    Stage("isa", "What computes, at every lesser instruction set of this CPU", "scripts/test-every-isa build",
          needs=["build"]),

    Stage("compare", "alibi compare on real text", "scripts/test-compare build", needs=["build"]),

    Stage("lint", "clang-tidy, and every file read alone", "scripts/tidy"),

    # All unit tests take hours under the emulator, and the packages half an hour: --whole and --packages, by hand.
    Stage("arm", "Cross-compiled for ARM64: the kernels and a short training under an emulator", "scripts/test-arm build",
          needs=["build"], reads=["CMakeLists.txt", "cmake", "include", "src", "cli", "tests/CMakeLists.txt", "tests/*.h",
                                  "tests/*.cc", "tests/exchange", "scripts/test-arm", "scripts/arm-root",
                                  "scripts/install-dependencies"]),

    Stage("shared", "Shared libraries",
          'cmake --preset shared >/dev/null\ncmake --build --preset shared --parallel "$(nproc)"'),

    # Pairs of these run side by side, those that others need and long ones first.
    # A short comparison, with its processes, runs without the functions that only Linux has.
    Stage("odr", "The command, linked as one program: every class has one definition; it runs with POSIX's functions alone",
          """
cmake --preset odr >/dev/null
cmake --build --preset odr --parallel "$(nproc)"
build-odr/alibi compare README.md --out build-odr/comparison --overwrite --positions alibi,none --train-length 32 --lengths 32 \\
  --train-tokens 512 --batch-tokens 256 --sample-tokens 0 --timing-rounds 0
""", cores=1),

    Stage("threads", "clang under the thread sanitizer: first use from many threads, forks, the end of a process",
          'cmake --preset threads >/dev/null\ncmake --build --preset threads --parallel "$(nproc)"\n'
          "ctest --preset threads", cores=1),

    Stage("transformers", "Model folders in Hugging Face's transformers", "scripts/test-transformers",
          needs=["build"], cores=1),

    Stage("installed", "The shared libraries, installed, in other people's programs",
          "scripts/test-installed build build-shared shared", needs=["build", "shared"], cores=1),

    Stage("python", "The Python package: wheels in an environment with NumPy alone", "scripts/test-python",
          needs=["build"], cores=1, reads=ALL),

    Stage("torch", "The Python package with PyTorch and transformers", "scripts/test-python --torch",
          needs=["python", "transformers"], cores=1, reads=ALL),

    Stage("docs", "The commands of README and docs, as written", "scripts/test-docs build", needs=["build", "python"], reads=ALL),

    # What the sources alone cannot break: which files and libraries are named where.
    Stage("packaging", "Static libraries, as a subproject, in a bare Debian",
          "scripts/test-installed build build-shared static subproject package",
          needs=["build", "shared", "installed"], cores=1,
          reads=["CMakeLists.txt", "CMakePresets.json", "*/CMakeLists.txt", "cmake", "include", "examples",
                 "packaging", "tests/consumers", "scripts/test-installed", "scripts/debian-packages", "scripts/install-dependencies"]),

    Stage("static", "The command as one static file, in an empty folder",
          "scripts/build-static\nmkdir -p build-static/files\ncp build-static/alibi build-static/files/alibi-x86_64-static\n"
          "scripts/first-result build-static/files static", needs=["build"], by_name=True),

    # The operator alone is compiled, and it uses no other folders (tests/layout).
    Stage("cuda", "The build with CUDA, without a GPU", "scripts/test-cuda",
          cores=1, reads=["CMakeLists.txt", "cmake", "include", "src/core", "src/attention", "src/capi", "tests", "bench",
                          "python", "scripts/test-cuda", "scripts/check-registers", "scripts/gpu-check"]),

    # The pictures of the pages are in build-docs/pictures.
    Stage("site", "The documentation site: no warnings, its links, search and narrow screens in a browser",
          "scripts/install-dependencies docs python\nscripts/docs-site build\nscripts/test-site",
          needs=["build", "python"], cores=1, reads=ALL, by_name=True),

    Stage("mpi", "alibi over the ranks of Open MPI: the results of one process", "scripts/test-mpi --results openmpi",
          needs=["build"], cores=1),

    Stage("mpi-all", "alibi over the ranks of Open MPI and MPICH: also kills, signals, full disks, dead links",
          "scripts/test-mpi", needs=["build"], by_name=True),

    Stage("serve", "alibi serve with the clients of OpenAI, lm-evaluation-harness and a browser", "scripts/test-serve",
          needs=["build", "python"], cores=1, reads=ALL),

    # Searches, benchmarks, the longest tests of emulated GPUs and tests that train until a model has learned run in `tests`
    # only: shorter tests run the same code here (CMakePresets.json). Whole processes run here with oneDNN alone. Memory and
    # local variables begin with odd values.
    Stage("sanitize", "clang, warnings are errors: the unit tests under the address and undefined-behaviour sanitizers",
          """
cmake --preset sanitize >/dev/null
cmake --build --preset sanitize --parallel "$(nproc)"
ctest --preset sanitize --parallel "$(nproc)"
# Products without bfloat16, in code that only lesser machines run.
if grep -q avx512 /proc/cpuinfo; then
  ALIBI_ISA=avx2 build-sanitize/tests/alibi_tests --gtest_brief=1 \\
    --gtest_filter='*Matmul*:*Product*:*Linear*:*GoldenRun*:*Transformer*:*LanguageModel*:*Adaptive*'
fi
"""),
]
