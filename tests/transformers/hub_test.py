"""Names of the Hugging Face hub, with the real `hf download` and a small server in place of the hub:

    hub_test.py ALIBI
"""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

ALIBI = os.path.abspath(sys.argv.pop(1))
HF = pathlib.Path(sys.executable).parent / "hf"
COMMITS = {"main": "1" * 40, "v1": "2" * 40}


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as `hf download` asks for. `repositories` has the files of each repository and revision."""

    repositories: dict = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, json.dumps({"error": code}).encode(), X_Error_Code=code, X_Error_Message=code)

    def do_GET(self):  # noqa: N802
        parts = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(self.path).path.strip("/").split("/")]
        is_api = parts[:2] == ["api", "models"]
        repository, rest = "/".join(parts[2:4] if is_api else parts[:2]), parts[4:] if is_api else parts[2:]
        if repository not in self.repositories:
            return self.refuse(404, "RepoNotFound")
        revision = rest[1] if len(rest) > 1 else "main"
        commit = COMMITS.get(revision, revision)
        if commit not in COMMITS.values():
            return self.refuse(404, "RevisionNotFound")
        files = {} if repository == "org/gated" else self.repositories[repository][commit]
        if is_api and rest[:1] == ["tree"]:
            listed = [{"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                      for name, content in (files or {"config.json": b"{}"}).items()]
            return self.answer(200, json.dumps(listed).encode(), Content_Type="application/json")
        if is_api:
            about = {"id": repository, "sha": commit, "siblings": [{"rfilename": name} for name in files]}
            return self.answer(200, json.dumps(about).encode(), Content_Type="application/json")
        if repository == "org/gated":
            return self.refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
        content = files.get("/".join(rest[2:]))
        if content is None:
            return self.refuse(404, "EntryNotFound")
        return self.answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)

    do_HEAD = do_GET


def run(*words, **environment):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


class HubNames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="alibi-hub-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        text = cls.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog\n" * 300)
        files = {}
        for revision, commit in COMMITS.items():
            model = cls.folder / revision
            done = run(ALIBI, "train", text, "-o", model, "--train-length", 32, "--train-tokens", "2k",
                       "--batch-tokens", 512, "--seed", len(files))
            assert done.returncode == 0, done.stderr
            gguf = cls.folder / f"{revision}.gguf"
            done = run(ALIBI, "convert", model, gguf, "--to", "gguf")
            assert done.returncode == 0, done.stderr
            names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
            files[commit] = {path.name: path.read_bytes() for path in model.iterdir() if path.name in names}
            files[commit].update({"sub/model.gguf": gguf.read_bytes(), "pytorch_model.bin": b"the same for PyTorch"})
        Hub.repositories = {"org/name": files, "org/gated": {}}
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        cls.endpoint = f"http://127.0.0.1:{server.server_port}"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="alibi-hub-home-")
        self.addCleanup(scratch.cleanup)
        self.home = pathlib.Path(scratch.name)

    def alibi(self, *words, **more):
        environment = {"HF_HOME": str(self.home), "HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0",
                       "HF_HUB_DISABLE_TELEMETRY": "1", "PATH": f"{HF.parent}:{os.environ['PATH']}"}
        return run(ALIBI, *words, **{**environment, **more})

    def listing(self):
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in (self.home / "hub").rglob("*")}

    def generated(self, *words):
        done = self.alibi("generate", *words, "--prompt", "the quick", "--max-tokens", 8, "--temperature", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_download_and_use(self):
        missing = self.alibi("info", "org/name")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("run: hf download org/name --exclude '*.bin'", missing.stderr)
        fetched = self.alibi("info", "org/name", "--download", "--json", "-")
        self.assertEqual(fetched.returncode, 0, fetched.stderr)
        json.loads(fetched.stdout)  # the output of hf is not in it
        snapshot = self.home / "hub/models--org--name/snapshots" / COMMITS["main"]
        self.assertTrue((snapshot / "model.safetensors").is_symlink())
        self.assertFalse((snapshot / "pytorch_model.bin").exists())
        before = self.listing()
        here = self.generated(self.folder / "main")
        self.assertEqual(self.generated("org/name"), here)
        self.assertEqual(self.generated("hf:org/name"), here)
        self.assertEqual(self.generated("hf:org/name/sub/model.gguf"), self.generated(self.folder / "main.gguf"))
        tuned = self.alibi("train", self.folder / "text.txt", "-o", self.home / "tuned", "--from", "org/name",
                           "--train-tokens", "1k", "--train-length", 32, "--batch-tokens", 512)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        tokens = self.alibi("tokenize", self.folder / "text.txt", "-o", self.home / "data", "--like", "hf:org/name")
        self.assertEqual(tokens.returncode, 0, tokens.stderr)
        inside = self.alibi("convert", "org/name", snapshot / "model.safetensors", "--to", "gguf", "--overwrite")
        self.assertNotEqual(inside.returncode, 0)
        self.assertEqual(self.listing(), before)

    def test_revision(self):
        for words in (("org/name", "--revision", "v1"), ("hf:org/name@v1",)):
            missing = self.alibi("info", *words)
            self.assertEqual(missing.returncode, 1)
            self.assertIn("run: hf download org/name --revision v1", missing.stderr)
        self.assertEqual(self.alibi("info", "hf:org/name@v1", "--download").returncode, 0)
        there = self.alibi("info", "org/name", "--revision", "v1", "--json", "-")
        self.assertEqual(pathlib.Path(json.loads(there.stdout)["model"]).name, COMMITS["v1"])
        self.assertEqual(self.alibi("info", "org/name").returncode, 1)
        unknown = self.alibi("info", "org/name", "--revision", "v9", "--download")
        self.assertEqual(unknown.returncode, 1)
        self.assertIn("Revision", unknown.stderr)

    def test_one_file(self):
        fetched = self.alibi("info", "hf:org/name/sub/model.gguf", "--download")
        self.assertEqual(fetched.returncode, 0, fetched.stderr)
        snapshot = self.home / "hub/models--org--name/snapshots" / COMMITS["main"]
        self.assertEqual([path.name for path in snapshot.rglob("*.*")], ["model.gguf"])
        absent = self.alibi("info", "hf:org/name/other.gguf", "--download")
        self.assertEqual(absent.returncode, 1)
        self.assertIn("hf download org/name other.gguf", absent.stderr)

    def test_failures_of_the_download_are_passed_on(self):
        for name, token, says in (("org/gated", "", "gated"), ("org/gated", "hf_abc", "gated"), ("org/none", "", "not found")):
            failed = self.alibi("info", name, "--download", **({"HF_TOKEN": token} if token else {}))
            self.assertEqual(failed.returncode, 1, failed.stderr)
            self.assertIn(says, failed.stderr.lower())
            self.assertIn(f"'hf download {name} --exclude *.bin' failed with exit code 1", failed.stderr)
        absent = self.alibi("info", "org/name", "--download", PATH="/nonexistent")
        self.assertEqual(absent.returncode, 1)
        self.assertIn("pip install huggingface_hub", absent.stderr)
        for option in (("--download",), ("--revision", "v1")):
            path = self.alibi("info", self.folder / "main", *option)
            self.assertEqual(path.returncode, 2)
            self.assertIn("is a path", path.stderr)


if __name__ == "__main__":
    if not HF.exists():
        sys.exit(print(f"SKIPPED: there is no {HF} (pip install huggingface_hub), so no model was downloaded."))
    unittest.main()
