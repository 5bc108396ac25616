"""Two network namespaces as hosts, joined by a link that can be cut. For Open MPI, and root.

Open MPI starts ranks on a host through tests/mpi/rsh, which needs no SSH server. scripts/test/mpi runs this.
"""

import pathlib
import subprocess
import time
import unittest

from mpi_case import LONG, RUN, MpiCase, environment_of_mpi, ranks_of

HOSTS = {"alibi-host1": "10.77.34.1", "alibi-host2": "10.77.34.2"}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, stderr=subprocess.PIPE)


class TwoHosts(MpiCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False, stderr=subprocess.DEVNULL)
            try:
                ip("netns", "add", host)
            except (OSError, subprocess.CalledProcessError):
                raise unittest.SkipTest("SKIPPED: network namespaces are not permitted here") from None
            cls.addClassCleanup(ip, "netns", "del", host)
        ip("link", "add", "alibi1", "netns", "alibi-host1", "type", "veth", "peer", "name", "alibi2", "netns", "alibi-host2")
        for number, (host, address) in enumerate(HOSTS.items(), 1):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", f"alibi{number}")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", f"alibi{number}", "up")

    def start_on_hosts(self, ranks, *arguments, environment=None):
        mca = {"plm": "rsh", "plm_rsh_agent": pathlib.Path(__file__).parent / "rsh", "plm_rsh_no_tree_spawn": 1,
               "oob_tcp_if_include": "10.77.34.0/24", "btl": "tcp,self", "btl_tcp_if_include": "10.77.34.0/24"}
        hosts = ",".join(f"{address}:{(ranks + 1) // 2}" for address in HOSTS.values())
        process = subprocess.Popen(
            ["ip", "netns", "exec", "alibi-host1", self.mpirun, "--oversubscribe",
             *(str(word) for name, value in mca.items() for word in ("--mca", name, value)),
             "-x", "ALIBI_RANKS_TIMEOUT", "-H", hosts, "-np", str(ranks), self.command, *map(str, arguments)],
            env={**environment_of_mpi(), "ALIBI_RANKS_TIMEOUT": "50", **(environment or {})}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def sent_bytes(self):
        lines = subprocess.run(["ip", "netns", "exec", "alibi-host1", "cat", "/proc/net/dev"], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
        return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("alibi1:"))

    def test_two_hosts_give_the_model_of_one_process(self):
        reference, model = self.folder / "reference", self.folder / "two-hosts"
        self.alone("train", self.text, "-o", reference, *RUN)
        process = self.start_on_hosts(4, "train", self.text, "-o", model, *RUN)
        output = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0, output)
        self.assert_same_model(reference, model)

    def test_bytes_on_the_wire(self):
        """At most 1.1 x 8N(P-1)/P for each rank, update and N parameters, with all headers."""
        model = self.folder / "bytes"
        options = ("--shards", "2", "--layers", "4", "--d-model", "256", "--heads", "4", "--train-length", "32",
                   "--batch-tokens", "64", "--checkpoint-minutes", "0")
        sent = {}
        for updates in (4, 12):
            before = self.sent_bytes()
            process = self.start_on_hosts(2, "train", self.text, "-o", model, *options, "--train-tokens",
                                          str(64 * updates), "--overwrite")
            output = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, output)
            sent[updates] = self.sent_bytes() - before
        parameters = int(output.split(" parameters")[0].split()[-1].replace(",", ""))
        each = (sent[12] - sent[4]) / 8  # the last checkpoint and the start are in both
        bound = 8 * parameters * (2 - 1) / 2
        print(f"\nsent by a host per update: {each:,.0f} bytes, {each / bound:.3f} x 8N(P-1)/P of {parameters:,} parameters")
        self.assertLess(each, 1.1 * bound)
        self.assertGreater(each, 0.9 * bound)

    def test_a_dead_link_is_noticed(self):
        model = self.folder / "dead"
        process = self.start_on_hosts(2, "train", self.text, "-o", model, *LONG, environment={"ALIBI_RANKS_TIMEOUT": "8"})
        self.wait_for_checkpoint(process, model)
        ip("-n", "alibi-host2", "link", "set", "alibi2", "down")
        cut = time.monotonic()
        try:
            while ranks_of(self.command):
                self.assertLess(time.monotonic() - cut, 25, "ranks wait for each other after the link was cut")
                time.sleep(0.1)
            took = time.monotonic() - cut
            process.kill()  # mpirun itself waits for the other host
            output = process.communicate()[0]
        finally:
            ip("-n", "alibi-host2", "link", "set", "alibi2", "up")
        print(f"\nthe ranks ended {took:.1f} s after the link was cut, at a limit of 8 s")
        self.assertRegex(output, r"rank 0 on \S+ heard nothing from rank 1 on alibi-host2 for \d+ s")
        self.assertRegex(output, r"The checkpoint of update \d+ is intact and can be resumed")


if __name__ == "__main__":
    unittest.main()
