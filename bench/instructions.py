#!/usr/bin/env python3
"""Counts the instructions of attention per multiply-add, under the emulator qemu, and shows the inner loops.

    scripts/test/arm && bench/instructions.py                      # ARM64 and x86-64 with AVX2
    bench/instructions.py --processors x86-64 --pass backward --length 512

The count is that of one call: bench/instructions.cpp runs without the call and with it, and the difference is taken.
One head, causal, every key visited. A multiply-add is one of the 2 products of the forward pass or of the 5 of the
backward pass, for the pairs of a query and a key that it sees; work on masked pairs is counted as instructions only.
The emulator counts instructions. It says nothing about the time that a processor takes for them.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
INNER_LOOPS = 4
MEMORY = re.compile(r"\[[xs]|\(%")
STACK = re.compile(r"\[(sp|x29)\b|%r[sb]p\)")
PRODUCTS = {"forward": 2, "backward": 5}


def arm():
    root = subprocess.run(["scripts/test/arm-root"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return ["aarch64-linux-gnu-g++", f"--sysroot={root}"], ["qemu-aarch64-static", "-L", root], {}


def x86():
    return ["c++"], ["qemu-x86_64-static", "-cpu", "max"], {"ALIBI_ISA": "avx2"}


PROCESSORS = {"ARM64": (arm, "build-arm-kernels"), "x86-64": (x86, "build")}


def kind(text):
    """'multiply-add', 'load', 'load and multiply-add', 'store', 'stack' (reads or writes it) or 'other'."""
    name, operands = (text.split(None, 1) + [""])[:2]
    multiply_add = name.startswith(("fmla", "vfmadd"))
    memory = MEMORY.search(operands)
    if memory and STACK.search(operands):
        return "stack"
    if name.startswith("st") or (memory and re.match(r"v?mov[a-z]*$", name) and operands.endswith(")")):
        return "store"
    if memory and name not in ("prfm", "prfum") and not name.startswith(("prefetch", "lea", "nop")):
        return "load and multiply-add" if multiply_add else "load"
    return "multiply-add" if multiply_add else "other"


def count(command, environment):
    """How often each block of code was executed: {(instruction, ...): times}."""
    # Without the variables of this environment, so that they do not change the count.
    log = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, bufsize=1 << 20)
    code, times, at = {}, collections.Counter(), None
    for line in log.stderr:
        if line.startswith(b"Trace"):
            times[line.split(b"/", 2)[1]] += 1
        elif line.startswith(b"IN:"):
            at = None
        elif line.startswith(b"0x"):
            address, text = line.split(b":", 1)
            if at is None:
                at = code[address[2:].rjust(16, b"0")] = []  # a block may be translated again
            at.append(re.split("  +", text.decode().strip(), maxsplit=1)[-1])  # after the bytes of the instruction
    if log.wait() != 0:
        raise SystemExit(f"instructions: {' '.join(command)} ended with {log.returncode}")
    blocks = collections.Counter()
    for address, number in times.items():
        blocks[tuple(code[address])] += number
    return blocks


def measure(processor, arguments, folder):
    describe, default = PROCESSORS[processor]
    compiler, emulator, environment = describe()
    build = arguments.builds.get(processor, ROOT / default)
    subprocess.run(["cmake", "--build", build, "--target", "alibi_attention"], check=True, stdout=subprocess.DEVNULL)
    program = folder / processor
    subprocess.run([*compiler, "-std=c++20", "-O2", f"-I{ROOT}/include", ROOT / "bench/instructions.cpp",
                    f"{build}/libalibi_attention.a", "-lhwy", "-lfmt", "-lpthread", "-o", program], check=True)
    runs = [count([*emulator, "-d", "in_asm,exec,nochain", program, arguments.passed, str(arguments.length),
                   str(arguments.head_dim), calls], environment) for calls in ("0", "1")]
    multiply_adds = PRODUCTS[arguments.passed] * arguments.head_dim * arguments.length * (arguments.length + 1) // 2
    runs[1].subtract(runs[0])
    instructions = sum(times * len(text) for text, times in runs[1].items())
    loops = sorted(runs[1].items(), key=lambda block: -block[1] * len(block[0]))[:INNER_LOOPS]
    return {"processor": processor, "pass": arguments.passed, "length": arguments.length,
            "head_dim": arguments.head_dim, "instructions": instructions, "multiply_adds": multiply_adds,
            "inner_loops": [{"times": times, "instructions": text,
                             "kinds": collections.Counter(kind(part) for part in text)} for text, times in loops]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processors", default="ARM64,x86-64", help="default: %(default)s")
    parser.add_argument("--build", action="append", default=[], metavar="PROCESSOR=FOLDER", dest="builds",
                        help="build folders of alibi, default: ARM64=build-arm-kernels and x86-64=build")
    parser.add_argument("--pass", choices=PRODUCTS, default="forward", dest="passed", help="default: %(default)s")
    parser.add_argument("--length", type=int, default=2048, help="tokens, default: %(default)s")
    parser.add_argument("--head-dim", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="everything as JSON on standard output")
    arguments = parser.parse_args()
    arguments.builds = dict(build.split("=", 1) for build in arguments.builds)
    with tempfile.TemporaryDirectory(prefix="alibi-instructions-") as folder:
        found = [measure(name, arguments, pathlib.Path(folder)) for name in arguments.processors.split(",")]
    if arguments.json:
        json.dump(found, sys.stdout, indent=1)
        return
    for result in found:
        print(f"{result['processor']}, {result['pass']} pass of {result['length']} tokens, head dimension "
              f"{result['head_dim']}: {result['instructions']:,} instructions, {result['multiply_adds']:,} multiply-adds, "
              f"{result['instructions'] / result['multiply_adds']:.4f} instructions per multiply-add")
        for loop in result["inner_loops"]:
            share = loop["times"] * len(loop["instructions"]) / result["instructions"]
            print(f"  {share:.0%} in a loop of {len(loop['instructions'])} instructions: " +
                  ", ".join(f"{number} {name}" for name, number in loop["kinds"].most_common()))


if __name__ == "__main__":
    main()
