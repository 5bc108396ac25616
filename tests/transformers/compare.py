"""Models that alibi wrote, opened by other programs: folders by Hugging Face's transformers, GGUF files by the gguf
package and, where the modules can be imported, by llama.cpp (llama_cpp) and flash-linear-attention (fla). Called by
scripts/test/transformers:

    compare.py ALIBI ALIBI_FOR_TRANSFORMERS [TEST]

With ALIBI_WRITE_EXPECTED=1 the outputs that the unit tests of families expect are written again.

Logits may differ by 1e-4, perplexities by 1e-4 of their value, by 1e-3 in llama.cpp.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import gguf
import numpy
import safetensors.torch
import torch
import transformers

transformers.logging.disable_progress_bar()

ALIBI, HELPER = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
TOLERANCE = 1e-4
TRAINED_AT = 64
SENTENCE = "The {} naïve fox, aged {}, jumps over {} lazy dogs;\t“why?” asks the   owl. 雪\r\n\n"
WORDS = "quick brown old small white red clever silent hungry tired".split()
TEXT = "".join(SENTENCE.format(WORDS[i * i % 10], i * 7 % 31, WORDS[(i + 3) * i % 9]) for i in range(400))
HELD_OUT = "".join(SENTENCE.format(WORDS[i * 7 % 10], i * 5 % 29, WORDS[i % 8]) for i in range(30))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


def train(folder, *options):
    run(ALIBI, "train", folder.parent / "text.txt", "--valid", folder.parent / "held-out.txt", "--out", folder,
        "--train-length", TRAINED_AT, "--train-tokens", "60k", "--batch-tokens", "512", *options)


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def outputs_there(model, ids):
    """The logits; of an encoder, the states."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0][0].numpy()


def as_transformers_has_it(config):
    """transformers has no "new" and no "ntk". These are its "gte" and "linear", since NTK's rule scales the base by the
    factor f, and then all frequencies by f^(-2 / head_dim): NTKScalingRotaryEmbedding of vLLM."""
    if config["model_type"] != "new":
        return config
    theta, factor = config["rope_theta"], config["rope_scaling"]["factor"]
    size = config["hidden_size"] // config["num_attention_heads"]
    rotation = {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / size)}
    return {**{key: value for key, value in config.items() if not key.startswith("rope")}, "model_type": "gte",
            "rope_parameters": rotation}


def logits_here(folder, ids):
    ids_file, logits_file = folder.parent / "ids", folder.parent / "logits"
    numpy.array(ids, numpy.int32).tofile(ids_file)
    run(HELPER, "logits", folder, ids_file, logits_file)
    return numpy.fromfile(logits_file, numpy.float32).reshape(len(ids), -1)


def perplexity_there(model, ids, length, first):
    """Over windows that do not overlap, as `alibi eval` has them: the input of a target is the token before it."""
    inputs = [first, *ids[:-1]]
    loss = 0.0
    with torch.no_grad():
        for begin in range(0, len(ids), length):
            logits = model(torch.tensor([inputs[begin:begin + length]])).logits[0].double()
            targets = torch.tensor(ids[begin:begin + length])
            loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    return math.exp(loss / len(ids))


def formula_values(number, count):
    """Those of the unit test's tensor with this number: a hash of the index, between -1 and 1."""
    mask = 0xffffffff
    values = []
    for i in range(count):
        bits = (i * 0x9e3779b9 + number * 0x85ebca6b + 1) & mask
        bits = ((bits ^ bits >> 15) * 0x2c1b3c6d) & mask
        bits = ((bits ^ bits >> 12) * 0x297a2d39) & mask
        values.append((bits >> 8) / 2 ** 23 - 1)
    return torch.tensor(values, dtype=torch.float32)


class Comparison(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="alibi-transformers-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        (cls.scratch / "text.txt").write_bytes(TEXT.encode())
        (cls.scratch / "held-out.txt").write_bytes(HELD_OUT.encode())

    def same_logits(self, name, folder, model, ids):
        there, here = outputs_there(model, ids), logits_here(folder, ids)
        self.assertEqual(there.shape, here.shape)
        self.assertGreater(numpy.abs(here).max(), 1)
        difference = float(numpy.abs(there - here).max())
        print(f"{name}: length {len(ids)}: largest difference of logits {difference:.2g}")
        self.assertTrue(difference <= TOLERANCE, difference)

    def fine_tuned(self, name, model):
        """A model of transformers that is trained here for a few updates and written back as its family."""
        source, folder = self.scratch / f"{name}-source", self.scratch / f"{name}-tuned"
        model.save_pretrained(source)
        run(ALIBI, "train", self.scratch / "text.txt", "--out", self.scratch / "of-tokenizer", "--train-length",
            TRAINED_AT, "--train-tokens", "1k", "--batch-tokens", "512", "--overwrite")
        for file in (self.scratch / "of-tokenizer").glob("tokenizer*"):
            (source / file.name).write_bytes(file.read_bytes())
        ids = list(HELD_OUT.encode()[:3 * TRAINED_AT])
        self.same_logits(f"{name}, as it was", source, model, ids)
        train(folder, "--from", source, "--overwrite")
        config, before = (json.loads((at / "config.json").read_text()) for at in (folder, source))
        self.assertEqual({key: config[key] for key in before if "dtype" not in key},
                         {key: before[key] for key in before if "dtype" not in key})
        tuned = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                  attn_implementation=model.config._attn_implementation)
        self.assertEqual(type(tuned), type(model))
        self.same_logits(f"{name}, trained here", folder, tuned.eval(), ids)
        self.assertGreater(numpy.abs(outputs_there(tuned, ids) - outputs_there(model, ids)).max(), 0.1)

    def as_expected(self, family, kind, **given):
        """The outputs of models with numbers by a formula, which the unit tests of the family expect. `given` are more
        keys of the configuration."""
        path = pathlib.Path(__file__).parent.parent / f"model/families/{family}.json"
        fixture = json.loads(path.read_text())
        for case in fixture["cases"]:
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
            (folder / "config.json").write_text(json.dumps({**as_transformers_has_it(case["config"]), **given}))
            tensors = {}
            for number, (name, shape) in enumerate(case["tensors"]):
                values = formula_values(number, math.prod(shape)).reshape(shape)
                tensors[name] = 1 + values / 2 if len(shape) == 1 else values
            safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
            model, loading = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
            self.assertFalse([key for key in ("missing_keys", "unexpected_keys") if loading[key]], loading)
            key = "logits" if "logits" in case else "states"
            there = outputs_there(model.eval(), case["ids"]).reshape(-1)
            if os.environ.get("ALIBI_WRITE_EXPECTED"):
                case[key] = [round(float(value), 5) for value in there]
            self.assertLess(numpy.abs(there - case[key]).max(), TOLERANCE)
        if os.environ.get("ALIBI_WRITE_EXPECTED"):
            path.write_text('{"cases": [\n' + ",\n".join(map(json.dumps, fixture["cases"])) + "\n]}\n")


class TransformersTest(Comparison):
    def same_perplexities(self, name, folder, model, stream):
        lengths = [TRAINED_AT, 4 * TRAINED_AT, 8 * TRAINED_AT]
        run(ALIBI, "eval", folder, self.scratch / "held-out.txt", "--lengths", ",".join(map(str, lengths)),
            "--json", self.scratch / "eval.json")
        measured = json.loads((self.scratch / "eval.json").read_text())["eval"]
        for length, point in zip(lengths, measured, strict=True):
            self.assertEqual(point["tokens"], len(stream))
            here, there = point["perplexity"], perplexity_there(model, stream, length, model.config.bos_token_id)
            print(f"{name}: length {length} ({length // TRAINED_AT}x): perplexity {here:.6f} here, {there:.6f} there, "
                  f"relative difference {abs(here - there) / here:.2g}")
            self.assertTrue(abs(here - there) <= TOLERANCE * here, (length, here, there))

    def trained(self, name, *options, is_words=False):
        folder = self.scratch / name
        train(folder, *options)
        model = opened(folder)
        self.assertEqual(type(model).__name__, "MptForCausalLM")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(HELD_OUT)["input_ids"]
        self.assertEqual(ids, self.ids_here(folder, HELD_OUT), "the two read the same tokens")
        if not is_words:  # these keep words alone, not what was between them
            self.assertEqual(tokenizer.decode(ids), HELD_OUT)
            ids.append(tokenizer.eos_token_id)  # of the document; lines of words end with it already
        self.same_logits(name, folder, model, ids[:8 * TRAINED_AT])
        self.same_perplexities(name, folder, model, ids)
        return model, tokenizer

    def ids_here(self, folder, text):
        (self.scratch / "to-encode").write_bytes(text.encode())
        run(HELPER, "encode", folder, self.scratch / "to-encode", self.scratch / "ids")
        return numpy.fromfile(self.scratch / "ids", numpy.int32).tolist()[:-1]

    def test_bytes(self):
        model, tokenizer = self.trained("bytes")
        # The key/value cache, and a text longer than any window.
        prompt = tokenizer("The quick", return_tensors="pt")["input_ids"]
        text = [model.generate(prompt, max_new_tokens=2 * TRAINED_AT, do_sample=False, use_cache=cached,
                               eos_token_id=None, pad_token_id=0) for cached in (True, False)]
        self.assertTrue(torch.equal(*text))

    def test_bpe(self):
        self.trained("bpe", "--tokenizer", "bpe", "--vocab-size", "400")

    def test_unigram(self):
        self.trained("unigram", "--tokenizer", "unigram", "--vocab-size", "400")

    def test_words(self):
        self.trained("words", "--tokenizer", "words", is_words=True)

    def converted(self, name, tokenizer):
        """Perplexities of a model as a folder for transformers and as GGUF files of every type."""
        source, folder = self.scratch / name, self.scratch / f"{name}-hf"
        train(source, *tokenizer)
        run(ALIBI, "convert", source, folder, "--to", "hf")
        ids = [*self.ids_here(source, HELD_OUT), transformers.AutoTokenizer.from_pretrained(folder).eos_token_id]
        self.same_perplexities(f"{name}, converted", folder, opened(folder), ids)
        files = {}
        for kind in ("f32", "f16", "bf16", "q8_0", "q4_0"):
            files[kind] = self.scratch / f"{name}-{kind}.gguf"
            run(ALIBI, "convert", source, files[kind], "--to", "gguf", "--type", kind)
        return source, files, ids

    def same_as_gguf_package(self, files):
        plain = {tensor.name: tensor for tensor in gguf.GGUFReader(files["f32"]).tensors}
        for kind, file in files.items():
            reader = gguf.GGUFReader(file)
            self.assertEqual(reader.fields["general.architecture"].contents(), "mpt")
            self.assertEqual({tensor.name for tensor in reader.tensors}, set(plain))
            expected_type = gguf.GGMLQuantizationType[kind.upper()]
            for tensor in reader.tensors:
                is_matrix = len(plain[tensor.name].shape) == 2
                self.assertEqual(tensor.tensor_type, expected_type if is_matrix else gguf.GGMLQuantizationType.F32)
                if not is_matrix:
                    continue
                bytes_there = gguf.quants.quantize(plain[tensor.name].data, expected_type).tobytes()
                self.assertEqual(tensor.data.tobytes(), bytes_there, (file, tensor.name))
            print(f"{file.name}: {len(plain)} tensors have the bytes of the gguf package")

    def perplexities_in_llama_cpp(self, name, source, files, ids):
        try:
            import llama_cpp
        except ImportError:
            print(f"SKIPPED: there is no module llama_cpp (llama-cpp-python), so {name} was not run in llama.cpp")
            return
        length = 4 * TRAINED_AT
        run(ALIBI, "eval", source, self.scratch / "held-out.txt", "--lengths", length, "--json", self.scratch / "eval.json")
        here = json.loads((self.scratch / "eval.json").read_text())["eval"][0]["perplexity"]
        for kind, file in files.items():
            model = llama_cpp.Llama(str(file), n_ctx=length, n_batch=length, n_ubatch=length, logits_all=True,
                                    flash_attn=False, verbose=False)
            self.assertEqual(model.tokenize(HELD_OUT.encode(), add_bos=False, special=False), ids[:-1])
            loss, inputs = 0.0, [ids[-1], *ids[:-1]]
            for begin in range(0, len(ids), length):
                model.reset()
                window = inputs[begin:begin + length]
                model.eval(window)
                logits = torch.tensor(numpy.array(model.scores[:len(window)])).double()
                targets = torch.tensor(ids[begin:begin + length])
                loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
            there = math.exp(loss / len(ids))
            print(f"{name}: perplexity {here:.6f} here, {there:.6f} in llama.cpp as {kind}, relative difference "
                  f"{abs(here - there) / here:.2g}")
            tolerance = {"f32": 1e-3, "f16": 1e-3, "bf16": 1e-2, "q8_0": 2e-2, "q4_0": 0.2}[kind]
            self.assertTrue(abs(here - there) <= tolerance * here, (kind, here, there))

    def test_conversion_of_bytes(self):
        source, files, ids = self.converted("convert-bytes", [])
        self.same_as_gguf_package(files)
        self.perplexities_in_llama_cpp("bytes", source, files, ids)

    def test_conversion_of_bpe(self):
        source, files, ids = self.converted("convert-bpe", ["--tokenizer", "bpe", "--vocab-size", "400"])
        self.same_as_gguf_package(files)
        self.perplexities_in_llama_cpp("bpe", source, files, ids)

    def made(self, kind, config, attention):
        torch.manual_seed(0)
        model = kind._from_config(config, attn_implementation=attention).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4)
        return model

    def test_fine_tuned_mpt(self):
        config = transformers.MptConfig(d_model=64, n_heads=4, n_layers=2, max_seq_len=512, vocab_size=257)
        self.fine_tuned("mpt", self.made(transformers.MptForCausalLM, config, "eager"))

    def test_fine_tuned_bloom(self):
        config = transformers.BloomConfig(hidden_size=64, n_head=4, n_layer=2, vocab_size=257, hidden_dropout=0.0)
        self.fine_tuned("bloom", self.made(transformers.BloomForCausalLM, config, "eager"))

    def test_fine_tuned_falcon(self):
        config = transformers.FalconConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, vocab_size=257,
                                           alibi=True, multi_query=False, parallel_attn=False, bias=True,
                                           new_decoder_architecture=False)
        self.fine_tuned("falcon", self.made(transformers.FalconForCausalLM, config, "sdpa"))

    def jais2(self, **changes):
        sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 257,
                 "intermediate_size": 96, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None}
        return self.made(transformers.Jais2ForCausalLM, transformers.Jais2Config(**{**sizes, **changes}), "eager")

    def test_fine_tuned_jais2(self):
        self.fine_tuned("jais2", self.jais2(num_key_value_heads=2, rope_theta=500000.0))

    def test_logits_that_unit_tests_of_jais2_expect(self):
        self.as_expected("jais2", transformers.Jais2ForCausalLM)

    def test_states_that_unit_tests_of_gte_expect(self):
        self.as_expected("gte", transformers.GteModel)

    def test_sizes_that_no_preset_has(self):
        folder = self.scratch / "made"
        run(HELPER, "make", folder)
        model = opened(folder)
        self.same_logits("12 heads", folder, model, list(HELD_OUT.encode()[:700]))

    def test_what_is_no_mpt_is_refused(self):
        for position in ("rotary", "sinusoidal"):
            folder = self.scratch / position
            train(folder, "--position", position)
            with self.assertRaisesRegex(ValueError, "model type `?alibi"):
                opened(folder)


def without_triton():
    """Replaces the kernels of flash-linear-attention, which need a GPU, by its own references."""
    with warnings.catch_warnings(action="ignore"):  # of packages for GPUs that are not here
        import fla.layers.forgetting_attn
        import fla.modules.mlp
        from fla.modules.norm.layernorm import GroupNorm, group_norm_ref
        from fla.ops.forgetting_attn.naive import naive_forgetting_attn

    fla.layers.forgetting_attn.parallel_forgetting_attn = lambda q, k, v, g, cu_seqlens: naive_forgetting_attn(q, k, v, g)
    fla.modules.mlp.swiglu = lambda gate, x: torch.nn.functional.silu(gate) * x  # it has no reference of this one
    GroupNorm.forward = lambda self, x: group_norm_ref(x, self.weight, self.bias, self.num_groups, eps=self.eps,
                                                       is_rms_norm=self.is_rms_norm)


class ForgettingTransformerTest(Comparison):
    """The Forgetting Transformer of flash-linear-attention, by its own modelling code on a CPU."""

    VARIANTS = {
        "plain": {},
        "grouped": {"num_kv_heads": 2, "intermediate_size": 96},
        "norms": {"qk_norm": True, "norm_eps": 1e-3},
        "tied, grouped, norms": {"qk_norm": True, "num_kv_heads": 1, "tie_word_embeddings": True, "hidden_ratio": 8},
        "output gate": {"use_output_gate": True},
        "output gate, grouped, norms": {"use_output_gate": True, "qk_norm": True, "num_kv_heads": 2},
    }

    UNFUSED = {"fuse_norm": False, "fuse_swiglu": False, "use_cache": False}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            without_triton()
        except ImportError as error:
            print(f"SKIPPED: flash-linear-attention cannot be imported ({error}), so nothing was compared with it")
            raise unittest.SkipTest(str(error)) from error

    def made(self, **changes):
        from fla.models import ForgettingTransformerConfig, ForgettingTransformerForCausalLM

        torch.manual_seed(len(changes))
        sizes = {"hidden_size": 64, "num_heads": 4, "num_hidden_layers": 2, "vocab_size": 257}
        model = ForgettingTransformerForCausalLM(ForgettingTransformerConfig(**{**self.UNFUSED, **sizes, **changes})).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4)
                else:
                    parameter.add_(torch.randn_like(parameter), alpha=0.5)  # norms, and the gates' biases
                if name.endswith("f_proj.weight"):
                    parameter.mul_(4)
                if name.endswith("f_proj.bias"):
                    parameter.add_(2)  # far keys count, and the reference's sums in float32 are small
        return model

    def test_their_folders_are_read_and_written(self):
        ids = list(HELD_OUT.encode()[:4 * TRAINED_AT])
        for name, changes in self.VARIANTS.items():
            with self.subTest(name):
                model = self.made(**changes)
                theirs, own, ours = (self.scratch / f"forgetting-{name}-{part}" for part in ("theirs", "own", "ours"))
                model.save_pretrained(theirs)
                self.same_logits(f"forgetting, {name}, their folder", theirs, model, ids)
                run(ALIBI, "convert", theirs, own, "--to", "alibi")
                run(ALIBI, "convert", own, ours, "--to", "hf")
                again = transformers.AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32, **self.UNFUSED).eval()
                self.assertEqual(type(again), type(model))
                self.assertTrue(numpy.array_equal(outputs_there(model, ids), outputs_there(again, ids)), name)
                self.same_logits(f"forgetting, {name}, our folder", ours, again, ids)

    def test_fine_tuned(self):
        self.fine_tuned("forgetting", self.made(qk_norm=True, num_kv_heads=2, use_output_gate=True))

    def test_what_unit_tests_expect(self):
        from fla.models import ForgettingTransformerForCausalLM

        self.as_expected("forgetting", ForgettingTransformerForCausalLM, **self.UNFUSED)


if __name__ == "__main__":
    unittest.main(verbosity=0)
