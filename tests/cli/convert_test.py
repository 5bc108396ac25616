"""alibi convert: formats, types of weights, and what does not fit."""

import json
import struct
import unittest

from cli_case import SENTENCE, TINY_TRAINING, CliTest


class ConvertTest(CliTest):
    def converts(self, *words):
        report = self.folder / "report.json"
        self.succeeds("convert", *words, "--json", report)
        return self.json_of("report.json")

    def test_the_name_of_the_output_gives_the_format(self):
        file, folder = self.folder / "m.gguf", self.folder / "named.folder"
        report = self.converts(self.model, file)
        self.assertEqual((report["format"], report["type"], report["other_types"]), ("gguf", "f16", {}))
        self.assertEqual(file.read_bytes()[:4], b"GGUF")
        report = self.converts(self.model, folder)
        self.assertEqual(report["format"], "hf")
        self.assertTrue((folder / "config.json").is_file())
        report = self.converts(self.model, self.folder / "asked.gguf", "--to", "hf")
        self.assertTrue((self.folder / "asked.gguf" / "config.json").is_file())

    def test_a_gguf_file_is_written_in_another_type_and_as_a_folder(self):
        first, second, folder = self.folder / "a.gguf", self.folder / "b.gguf", self.folder / "own"
        self.converts(self.model, first, "--type", "f32")
        self.converts(first, second, "--type", "bf16")
        self.converts(second, folder, "--to", "alibi")
        bits = {}
        for path in (self.model, first, second, folder):
            bits[path] = float(self.succeeds("score", path, stdin=SENTENCE.format(7)).split("\t")[1])
        self.assertAlmostEqual(bits[first], bits[self.model], delta=0.01)
        self.assertAlmostEqual(bits[second], bits[self.model], delta=0.005 * bits[self.model])
        self.assertAlmostEqual(bits[folder], bits[second], delta=0.01)

    def test_a_trained_forgetting_transformer(self):
        """All that flash-linear-attention's configuration has is an option of `alibi train`."""
        own, written = self.folder / "gated", self.folder / "forgetting"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", own, *TINY_TRAINING, "--position", "gates", "--norm", "rms_norm",
                      "--activation", "swiglu", "--output-gate", "--qk-norm", "--qk-norm-per-head")
        self.converts(own, written)
        config = json.loads((written / "config.json").read_text())
        self.assertEqual((config["model_type"], config["use_output_gate"], config["qk_norm"]), ("forgetting_transformer", True, True))
        scores = [self.succeeds("score", folder, stdin=SENTENCE.format(7)).split("\t")[1] for folder in (own, written)]
        self.assertEqual(*scores)

    def test_what_does_not_fit_is_named(self):
        """A weight of 70,000."""
        own = self.folder / "large"
        self.converts(self.model, own, "--to", "alibi")
        file = own / "model.safetensors"
        data = bytearray(file.read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        name = next(name for name in header if name.endswith("ffn.down_proj.weight"))
        begin = 8 + size + header[name]["data_offsets"][0]
        data[begin:begin + 4] = struct.pack("<f", 70000.0)
        file.write_bytes(data)
        out = self.folder / "large.gguf"
        self.fails(1, "ffn_down.weight", "convert", own, out)
        self.fails(1, "--type bf16", "convert", own, out, "--type", "f16")
        self.assertFalse(out.exists())
        self.converts(own, out, "--type", "bf16")


if __name__ == "__main__":
    unittest.main()
