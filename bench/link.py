#!/usr/bin/env python3
"""Measures training over ranks that are joined by a slow network, and compares it with what the plan predicts.

    bench/link.py --alibi build-openmpi/alibi --ranks 8 --rate 1e9 --delay 0.001 TEXT      # as root, with Open MPI

Every rank has a network namespace of its own, which stands for a host. A relay carries the packets between them: each
host sends and receives at most `--rate` bits per second, and every packet arrives `--delay` seconds after it was sent.
The ideal is the time of an update of the same ranks over the same relay without limit and delay. The
kernel and the relay use the same cores as the ranks, so their work is part of both times. The plan gets the ideal by
--update-seconds. Measurement and plan therefore differ only in the time that rate and delay add. The time over shared
memory is measured too.
"""

import argparse
import ctypes
import fcntl
import heapq
import json
import os
import pathlib
import select
import signal
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEFAULT = ["--layers", "6", "--d-model", "256", "--heads", "8", "--train-length", "256", "--batch-tokens", "65536",
           "--micro-batch-tokens", "4096", "--train-tokens", "524288", "--checkpoint-minutes", "0", "--eval-tokens", "256",
           "--precision", "bf16"]
CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 1, 0x1000
MTU = 65000  # large packets, so that the relay has time for each


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, stderr=subprocess.PIPE)


def open_tunnel(host):
    """A TUN device in the namespace of the host. What is sent there is read from the file, and the reverse."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net", "rb") as own, open(f"/run/netns/{host}", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            tunnel = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
        finally:
            libc.setns(own.fileno(), CLONE_NEWNET)
    return tunnel


def relay(tunnels, rate, delay):
    """Carries packets until it is killed. Host N has the address that ends in N."""
    os.nice(-10)
    sent_until, received_until = [0.0] * len(tunnels), [0.0] * len(tunnels)
    waiting, number = [], 0
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, to, packet = heapq.heappop(waiting)
            os.write(tunnels[to], packet)
        ready = select.select(tunnels, [], [], max(0.0, waiting[0][0] - time.monotonic()) if waiting else None)[0]
        for source in ready:
            packet = os.read(source, MTU + 100)
            if packet[0] >> 4 != 4 or not 1 <= packet[19] <= len(tunnels):
                continue
            start, takes, to = tunnels.index(source), 8 * len(packet) / rate, packet[19] - 1
            sent_until[start] = max(time.monotonic(), sent_until[start]) + takes
            received_until[to] = max(sent_until[start] + delay, received_until[to] + takes)
            number += 1
            heapq.heappush(waiting, (received_until[to], number, to, packet))


class Hosts:
    """Namespaces alibi-host1, ... with the addresses 10.77.34.1, ..., joined by a relay."""

    def __init__(self, count, rate, delay):
        self.names, self.relay = [f"alibi-host{i + 1}" for i in range(count)], None
        self.close()  # those that an earlier run left
        try:
            self.open(rate, delay)
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def open(self, rate, delay):
        tunnels = []
        for number, name in enumerate(self.names, 1):
            ip("netns", "add", name)
            tunnels.append(open_tunnel(name))
            ip("-n", name, "addr", "add", f"10.77.34.{number}/24", "dev", "wire")
            ip("-n", name, "link", "set", "dev", "wire", "mtu", str(MTU), "up")
            ip("-n", name, "link", "set", "lo", "up")
        self.relay = os.fork()
        if self.relay == 0:
            relay(tunnels, rate, delay)
        for tunnel in tunnels:
            os.close(tunnel)

    def close(self):
        if self.relay:
            os.kill(self.relay, signal.SIGKILL)
            os.waitpid(self.relay, 0)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def mpirun(self, mpirun):
        mca = {"plm": "rsh", "plm_rsh_agent": ROOT / "tests" / "mpi" / "rsh", "plm_rsh_no_tree_spawn": 1,
               "oob_tcp_if_include": "10.77.34.0/24", "btl": "tcp,self", "btl_tcp_if_include": "10.77.34.0/24"}
        return ["ip", "netns", "exec", self.names[0], mpirun, "--oversubscribe",
                *(str(word) for name, value in mca.items() for word in ("--mca", name, value)),
                "-H", ",".join(f"10.77.34.{i + 1}:1" for i in range(len(self.names)))]


def seconds_of_update(command, tokens, folder):
    file = folder / "train.json"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run([*map(str, command), "-o", folder / "model", "--overwrite", "--json", file], check=True,
                   env=environment, stdout=subprocess.DEVNULL)
    return tokens / json.loads(file.read_text(encoding="utf-8"))["train"]["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--alibi", default="build-openmpi/alibi")
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e9, help="bits per second of each host [%(default)s]")
    parser.add_argument("--delay", type=float, default=0.001, help="seconds from host to host [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--options", default=" ".join(DEFAULT), help="options of `alibi train` [%(default)s]")
    parser.add_argument("--json", help="also write the results to this file")
    arguments = parser.parse_args()
    options = [*arguments.options.split(), "--shards", str(arguments.ranks)]
    alibi = os.path.abspath(arguments.alibi)
    train = [alibi, "train", *map(os.path.abspath, arguments.texts), *options, "--threads", "1"]
    tokens = int(options[options.index("--batch-tokens") + 1])
    links = {"shared memory": None, "unlimited": (float("inf"), 0.0), "limited": (arguments.rate, arguments.delay)}
    best = dict.fromkeys(links, float("inf"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for _ in range(arguments.rounds):
            for kind, link in links.items():
                hosts = Hosts(arguments.ranks, *link) if link else None
                try:
                    mpirun = hosts.mpirun(arguments.mpirun) if hosts else [arguments.mpirun, "--oversubscribe"]
                    seconds = seconds_of_update([*mpirun, "-np", arguments.ranks, *train], tokens, folder)
                finally:
                    if hosts:
                        hosts.close()
                best[kind] = min(best[kind], seconds)
                print(f"{kind}: {seconds:.3f} s for an update", flush=True)
        plan = folder / "plan.json"
        subprocess.run([alibi, "train", "--plan", *options, "--ranks", str(arguments.ranks), "--link",
                        f"{arguments.rate / 1e6:g}Mbit,{1e3 * arguments.delay:g}ms", "--update-seconds",
                        str(best["unlimited"] * arguments.ranks), "--json", plan], check=True, stdout=subprocess.DEVNULL)
        planned = json.loads(plan.read_text(encoding="utf-8"))["ranks"]
    share = best["unlimited"] / best["limited"]
    print(f"an update of {arguments.ranks} ranks: {best['shared memory']:.3f} s over shared memory, {best['unlimited']:.3f} s "
          f"over the relay without limit, {best['limited']:.3f} s with {arguments.rate / 1e9:g} Gbit/s and "
          f"{1e3 * arguments.delay:g} ms")
    print(f"planned: {planned['seconds_per_update']['all']:.3f} s, {planned['sent_per_update'] / 1e6:.1f} MB sent by a rank")
    print(f"share of ideal: {share:.3f} measured, {planned['share_of_ideal']:.3f} planned")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"benchmark": "link", "ranks": arguments.ranks, "rate": arguments.rate, "delay": arguments.delay,
             "seconds_of_update": best, "plan": planned, "share_of_ideal": share}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
