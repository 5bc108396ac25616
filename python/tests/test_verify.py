"""alibi_attention.verify: what it finds in the fixtures of all families, without a fault and with one."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import alibi_attention as alibi
from alibi_attention import _core

if not _core.has_models:
    pytest.skip("the package is built without models", allow_module_level=True)

from alibi_attention import _formulas, verify as module
from alibi_attention._weights import read_header, weight_files
from alibi_attention.verify import verify

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "fixtures"
needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason=f"there is no {FIXTURES}")
FAMILIES = sorted(path.name for path in (FIXTURES / "models").iterdir()) if FIXTURES.exists() else []
TOKENIZERS = {"mpt": "neox", "bloom": "bloom", "falcon": "falcon", "baichuan": "spm-bpe-identity", "btlm": "gpt2",
              "gpt_refact": "refact", "bert": "jina", "replit_lm": "spm-unigram"}


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def copied(name, folder):
    """A copy of a fixture in one file, and its tensors as raw bytes to change."""
    source = FIXTURES / "models" / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(source)))
    header, tensors = {}, {}
    for file in weight_files(source):
        found, first = read_header(file)
        data = file.read_bytes()[first:]
        for tensor, place in found.items():
            header[tensor] = place
            tensors[tensor] = bytearray(data[slice(*place["data_offsets"])])
    return folder, header, tensors


def write(folder, header, tensors):
    at, placed = 0, {}
    for name, place in header.items():
        placed[name] = {**place, "data_offsets": [at, at + len(tensors[name])]}
        at += len(tensors[name])
    text = json.dumps(placed).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(map(bytes, tensors.values())))


def array(header, tensors, name):
    """The numbers of a tensor; what is written into the result of float32() goes back with set_array()."""
    kind, raw = header[name]["dtype"], bytes(tensors[name])
    if kind == "BF16":
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[kind]).astype(np.float32)
    return values.reshape(header[name]["shape"])


def set_array(header, tensors, name, values):
    """As float32, which holds every change."""
    header[name] = {**header[name], "dtype": "F32"}
    tensors[name] = bytearray(np.ascontiguousarray(values, "<f4").tobytes())


def check(model, **options):
    return verify(model, isolate=False, **options)


@pytest.fixture
def formulas_alone(monkeypatch):
    """transformers takes seconds; what it finds has tests of its own."""
    monkeypatch.setattr(module.sides, "why_not_transformers", lambda *_: "this test is of the formulas")


def scaled_tensors(names):
    """Tensors to change, with the name of the place that the report must give."""
    last = max(int(number) for name in names for number in re.findall(r"\.(\d+)\.", name))
    for pattern, place in {
        # BLOOM normalizes the embedding, which hides a factor; its norm is scaled there.
        r"word_embeddings_layernorm\.weight$" if any("word_embeddings_layernorm" in name for name in names)
        else r"(embeddings?|embed_tokens|wte)\.weight$": "the embedding",
        rf"\.{last}\..*(attn\.out_proj|self_attention\.dense|o_proj|attn\.c_proj|attention\.output\.dense)\.weight$":
            f"layer {last}, attention",
        rf"\.0\..*(down_proj|mlp_down|dense_4h_to_h|mlp\.c_proj|mlp\.wo|down_layer)\.weight$": "layer 0, feed-forward",
        r"^(transformer\.|model\.)?(norm_f|ln_f|norm)\.weight$": "the final norm",
    }.items():
        for name in sorted(names):
            if re.search(pattern, name) and "token_type" not in name and "position" not in name:
                yield name, place
                break


@needs_fixtures
@pytest.mark.parametrize("name", FAMILIES)
def test_fixtures_are_equal(name, formulas_alone):
    found = check(FIXTURES / "models" / name)
    assert found.verdict == "equal", found
    assert found.results["differences_of_outputs"][-1]["formulas"] < 5e-6


@needs_fixtures
@pytest.mark.parametrize("name", FAMILIES)
def test_a_scaled_tensor_is_named(name, tmp_path, formulas_alone):
    folder, header, tensors = copied(name, tmp_path / "model")
    places = 0
    for tensor, place in scaled_tensors(header):
        changed_header, changed = dict(header), dict(tensors)
        set_array(changed_header, changed, tensor, array(header, tensors, tensor) * np.float32(1.001))
        write(folder, changed_header, changed)
        found = check(folder, reference=FIXTURES / "models" / name)
        if name == "bloom-residual" and place == "the final norm":  # its output is the stream
            place = f"layer {_formulas.layers_of(config_of(folder)) - 1}, feed-forward network or the norm after it"
        assert found.verdict == "differs", (tensor, str(found))
        assert found.differences[0].startswith(place), (tensor, found.differences)
        places += 1
    assert places >= 3


@needs_fixtures
@pytest.mark.parametrize("name", FAMILIES)
def test_rotated_heads_are_named(name, tmp_path, formulas_alone):
    """The queries of all heads move on by one head."""
    folder, header, tensors = copied(name, tmp_path / "model")
    config = config_of(folder)
    heads = _formulas.heads_in(config)
    tensor = next(t for t in sorted(header) if re.search(
        r"\.1\..*(Wqkv|query_key_value|W_pack|c_attn|attn\.q|self\.query)\.weight$", t))
    values = array(header, tensors, tensor)
    if "c_attn" in tensor:
        values = values.T
    width = values.shape[1]
    if "query_key_value" in tensor:  # query, key and value of a head
        parts = values.reshape(heads, 3, width // heads, width).copy()
        parts[:, 0] = np.roll(parts[:, 0], 1, 0)
        values = parts.reshape(values.shape)
    else:
        values = np.concatenate([np.roll(values[:width], width // heads, 0), values[width:]])
    set_array(header, tensors, tensor, values.T if "c_attn" in tensor else values)
    write(folder, header, tensors)
    found = check(folder, reference=FIXTURES / "models" / name)
    assert found.differences[0].startswith("layer 1, attention"), found
    if config["model_type"] != "bert":
        assert "queries" in found.differences[0]


@needs_fixtures
@pytest.mark.parametrize("name", FAMILIES)
def test_wrong_slopes_are_named(name, monkeypatch, formulas_alone):
    """The formulas get those of the heads in the opposite order."""
    right = _formulas.slopes_of
    monkeypatch.setattr(_formulas, "slopes_of", lambda config, weights: right(config, weights)[::-1])
    found = check(FIXTURES / "models" / name)
    assert found.differences[0].startswith("the ALiBi slopes: head 0 of layer 0"), found
    assert any(text.startswith("layer 0, attention") for text in found.differences[1:])


@needs_fixtures
@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_another_tokenizer_is_named(kind, tmp_path, formulas_alone):
    """Two tokens change places in the vocabulary, or the file is that of another model."""
    name = next(n for n in FAMILIES if config_of(FIXTURES / "models" / n)["model_type"] == kind)
    tokenizer = FIXTURES / "tokenizers" / TOKENIZERS[kind]
    file = next(path for path in tokenizer.iterdir() if path.name in ("tokenizer.json", "tokenizer.model"))
    pytest.importorskip("tokenizers" if file.suffix == ".json" else "sentencepiece")
    folder, header, tensors = copied(name, tmp_path / "model")
    other = tmp_path / "other"
    replacement = FIXTURES / "tokenizers" / ("spm-bpe-bytes" if file.suffix == ".model" else TOKENIZERS[kind])
    size = max(alibi.Tokenizer.load(path).vocab_size for path in (tokenizer, replacement))
    config = config_of(folder)
    for table, shape in [(t, p["shape"]) for t, p in header.items() if p["shape"][:1] == [config["vocab_size"]]]:
        values = np.resize(array(header, tensors, table), (size, *shape[1:]))
        set_array(header, tensors, table, values)
        header[table]["shape"] = list(values.shape)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": size}))
    write(folder, header, tensors)
    shutil.copy(file, folder)
    shutil.copytree(folder, other)
    assert check(folder, tokens=40).verdict == "equal"
    if file.suffix == ".json":
        described = json.loads(file.read_text())
        vocabulary = described["model"]["vocab"]
        if isinstance(vocabulary, dict):
            a, b = (next(t for t in vocabulary if t.endswith(letter) and len(t) == 1) for letter in "et")
            vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
        (other / file.name).write_text(json.dumps(described))
    else:
        shutil.copy(replacement / file.name, other / file.name)
    found = check(other, reference=folder, tokens=40)
    assert found.differences[0].startswith("the tokenizer: token"), found


@needs_fixtures
@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_layer_of_a_model(name, formulas_alone):
    found = check(FIXTURES / "models" / name, layers=1)
    assert found.verdict == "equal" and found.results["config"]["layers"] == 1, found


@needs_fixtures
@pytest.mark.parametrize(("name", "layers"), [("mpt", None), ("bloom", 2), ("bloom-residual", None), ("falcon-rw", 1)])
def test_transformers_agrees(name, layers):
    pytest.importorskip("transformers")
    found = check(FIXTURES / "models" / name, layers=layers)
    assert found.verdict == "equal", found
    assert found.results["differences_of_outputs"][0]["transformers"] < 2e-5
    assert found.results["greedy"]["transformers"] == "equal"


@needs_fixtures
def test_a_fault_that_transformers_finds(tmp_path, monkeypatch):
    """Without the formulas, the layer is named by transformers' states."""
    pytest.importorskip("transformers")
    folder, header, tensors = copied("mpt", tmp_path / "model")
    tensor = "transformer.blocks.1.ffn.up_proj.weight"
    set_array(header, tensors, tensor, array(header, tensors, tensor) * np.float32(1.01))
    write(folder, header, tensors)
    monkeypatch.setattr(module.sides, "formulas_of", lambda *_: (_ for _ in ()).throw(module.sides.SideError("none")))
    found = check(folder, reference=FIXTURES / "models" / "mpt")
    assert found.differences[0].startswith("the last layer or the final norm: differs from transformers"), found


def rotary_model(name):
    """A model of transformers with random weights, and a tensor of it with the name of its place in a report."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 300, "intermediate_size": 96,
             "max_position_embeddings": 128}  # fmt: skip
    rotation = {"rope_type": "linear", "rope_theta": 300.0, "factor": 1.5}
    model = {
        "jais2": lambda: transformers.Jais2ForCausalLM(
            transformers.Jais2Config(**sizes, num_key_value_heads=2, bos_token_id=None, eos_token_id=None)),
        "jais2, linear": lambda: transformers.Jais2ForCausalLM(
            transformers.Jais2Config(**sizes, bos_token_id=None, eos_token_id=None, rope_parameters=rotation)),
        "gte": lambda: transformers.GteModel(transformers.GteConfig(**sizes)),
        "gte, linear": lambda: transformers.GteModel(transformers.GteConfig(**sizes, rope_parameters=rotation)),
    }[name]()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).add_(torch.randn_like(parameter), alpha=0.1)
    return model, (model.model if "jais2" in name else model).layers[1].mlp.up_proj.weight


@pytest.mark.parametrize("name", ["jais2", "jais2, linear", "gte", "gte, linear"])
@pytest.mark.parametrize("by", ["formulas", "transformers"])
def test_rotary_models(name, by, tmp_path, monkeypatch):
    model, tensor = rotary_model(name)
    model.save_pretrained(tmp_path / "model")
    if by == "formulas":
        monkeypatch.setattr(module.sides, "why_not_transformers", lambda *_: "this test is of the formulas")
    else:
        monkeypatch.setattr(module.sides, "formulas_of", lambda *_: (_ for _ in ()).throw(module.sides.SideError("none")))
    found = check(tmp_path / "model", tokens=40)
    assert found.verdict == "equal", found
    assert found.results["differences_of_outputs"][-1][by] < 2e-5, found
    tensor.data.mul_(1.001 if by == "formulas" else 1.01)
    model.save_pretrained(tmp_path / "other")
    found = check(tmp_path / "other", reference=tmp_path / "model", tokens=40)
    place = "layer 1, feed-forward network" if by == "formulas" else "the last layer or the final norm"
    assert found.differences[0].startswith(f"{place}: differs from "), found


@pytest.mark.parametrize("theta", [20.0, 21.0])
def test_ntk_scaling_of_gte(theta, tmp_path, formulas_alone):
    """Files of the authors' code, which transformers does not have. Another base is found."""
    model, _ = rotary_model("gte")
    for folder, base in (("model", 20.0), ("other", theta)):
        model.save_pretrained(tmp_path / folder)
        config = {key: value for key, value in config_of(tmp_path / folder).items() if key != "rope_parameters"}
        config.update(model_type="new", rope_theta=base, rope_scaling={"type": "ntk", "factor": 8.0})
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
    found = check(tmp_path / "other", reference=tmp_path / "model", tokens=40)
    assert (found.verdict == "equal") == (theta == 20.0), found
    assert theta == 20.0 or found.differences[0].startswith("layer 0, attention"), found


@needs_fixtures
@pytest.mark.parametrize("file", sorted(path.name for path in (FIXTURES / "gguf").glob("*.gguf")) if FIXTURES.exists() else [])
def test_gguf(file):
    pytest.importorskip("gguf")
    found = check(FIXTURES / "gguf" / file)
    assert found.verdict == "equal", found
    assert found.results["differences_of_outputs"][-1]["formulas"] < 5e-6


@needs_fixtures
def test_a_fault_in_a_gguf_file(tmp_path):
    gguf = pytest.importorskip("gguf")
    source = FIXTURES / "gguf" / "mpt-f32.gguf"
    changed = tmp_path / "changed.gguf"
    shutil.copy(source, changed)
    changed.chmod(0o644)
    tensor = next(t for t in gguf.GGUFReader(source).tensors if t.name == "blk.1.ffn_up.weight")
    with open(changed, "r+b") as out:
        out.seek(int(tensor.data_offset))
        out.write((np.array(tensor.data) * np.float32(1.001)).tobytes())
    found = check(changed, reference=source)
    assert found.differences[0].startswith("layer 1, feed-forward network"), found


@needs_fixtures
@pytest.mark.parametrize("file", ["mpt-q8_0.gguf", "bloom-f16.gguf", "jina-bert-v2-f16.gguf"])
def test_first_layers_of_a_gguf_file(file, tmp_path):
    """The written file has the first layer's tensors as they were, and all programs open it."""
    gguf = pytest.importorskip("gguf")
    source, written = FIXTURES / "gguf" / file, tmp_path / "first.gguf"
    module.write_first_layers_of_gguf(source, 1, written)
    before, after = ({t.name: t for t in gguf.GGUFReader(path).tensors} for path in (source, written))
    assert list(after) == [name for name in before if not name.startswith("blk.") or name.startswith("blk.0.")]
    assert all(np.array_equal(t.data, before[name].data) and t.tensor_type == before[name].tensor_type for name, t in after.items())
    fields = gguf.GGUFReader(written).fields
    for name, field in gguf.GGUFReader(source).fields.items():
        if not name.startswith("GGUF.") and not name.endswith(".block_count"):
            assert fields[name].contents() == field.contents(), name
    found = check(source, layers=1)
    assert found.verdict == "equal" and found.results["config"]["layers"] == 1, found


def forgetting(folder, **more):
    """A random Forgetting Transformer in the format of flash-linear-attention."""
    config = {"model_type": "forgetting_transformer", "hidden_size": 24, "num_hidden_layers": 2, "vocab_size": 50, "num_heads": 3,
              "num_kv_heads": None, "intermediate_size": 40, "qk_norm": False, "norm_eps": 1e-5, **more}  # fmt: skip
    width, keys, inner = 24, 8 * (config["num_kv_heads"] or 3), 40
    shapes = {"model.embeddings.weight": (50, width), "model.norm.weight": (width,), "lm_head.weight": (50, width)}
    for n in range(2):
        p = f"model.layers.{n}."
        shapes |= {p + "attn_norm.weight": (width,), p + "mlp_norm.weight": (width,), p + "attn.q_proj.weight": (width, width),
                   p + "attn.k_proj.weight": (keys, width), p + "attn.v_proj.weight": (keys, width), p + "attn.f_proj.weight": (3, width),
                   p + "attn.f_proj.bias": (3,), p + "attn.o_proj.weight": (width, width), p + "mlp.gate_proj.weight": (inner, width),
                   p + "mlp.up_proj.weight": (inner, width), p + "mlp.down_proj.weight": (width, inner)}  # fmt: skip
        if config.get("use_output_gate"):
            shapes[p + "attn.g_proj.weight"] = (width, width)
        if config["qk_norm"]:
            shapes |= {p + "attn.q_norm.weight": (width,), p + "attn.k_norm.weight": (keys,)}
    random, header, tensors = np.random.default_rng(0), {}, {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape) * 0.3 + (1 if name.endswith("norm.weight") else 2 if name.endswith("bias") else 0)
        header[name] = {"shape": list(shape)}
        set_array(header, tensors, name, values)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write(folder, header, tensors)
    return folder, header, tensors


@pytest.mark.parametrize("more", [{"use_output_gate": True}, {"qk_norm": True, "num_kv_heads": 1}])
def test_forgetting_transformers(tmp_path, more):
    right, header, tensors = forgetting(tmp_path / "right", **more)
    found = check(right)
    assert found.verdict == "equal" and found.results["differences_of_outputs"][-1]["formulas"] < 5e-6, found
    for name in sorted(header):
        if more.get("qk_norm") and re.search(r"\.[qk]_proj\.", name):
            continue  # a norm takes the factor away
        changed_header, changed = dict(header), dict(tensors)
        set_array(changed_header, changed, name, array(header, tensors, name) * np.float32(1.001))
        wrong, *_ = forgetting(tmp_path / "wrong", **more)
        write(wrong, changed_header, changed)
        found = check(wrong, reference=right)
        layer = re.search(r"layers\.(\d)\.(attn|mlp)", name)
        place = (f"layer {layer[1]}, {'attention' if layer[2] == 'attn' else 'feed-forward network'}" if layer else
                 {"model.norm.weight": "the final norm", "lm_head.weight": "the output projection"}.get(name, "the embedding"))  # fmt: skip
        assert found.verdict == "differs" and found.differences[0].startswith(place), (name, found.differences)


def test_own_models_without_a_reference(tmp_path):
    text = "the quick brown fox jumps over the lazy dog and runs away from the old bear\n" * 40
    alibi.train(text, preset="tiny", position="rotary", train_length=16, train_tokens=256, batch_tokens=128,
                out=tmp_path / "model")
    found = check(tmp_path / "model", text=text)
    assert found.verdict == "no reference" and "NO REFERENCE" in str(found)
    assert found.results["words"]["perplexity"] > 0


@needs_fixtures
def test_the_command(tmp_path):
    """Exit codes, processes of their own, and no path in the file."""
    model = FIXTURES / "models" / "mpt-max16"
    command = [sys.executable, "-m", "alibi_attention.verify"]
    done = subprocess.run([*command, model, "--tokens", "20"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "EQUAL" in done.stdout
    written = (tmp_path / "verify.json").read_text()
    assert str(tmp_path) not in written and str(FIXTURES) not in written and len(written) < 5000
    results = json.loads(written)
    assert results["verdict"] == "equal" and results["cost"]["alibi"]["peak_bytes"] > 1e6
    assert subprocess.run([*command, tmp_path / "none"], cwd=tmp_path, capture_output=True).returncode == 2
    (tmp_path / "broken").mkdir()
    (tmp_path / "text.txt").write_text("a text")
    done = subprocess.run([*command, tmp_path / "broken", "--text", "text.txt", "--json", tmp_path / "text.txt"],
                          cwd=tmp_path, capture_output=True)
    assert done.returncode == 2 and (tmp_path / "text.txt").read_text() == "a text"
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "mpt"}')
    done = subprocess.run([*command, tmp_path / "broken"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "alibi cannot run" in done.stdout
    assert str(tmp_path) not in (tmp_path / "verify.json").read_text()


@needs_fixtures
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux's /proc")
def test_a_signal_ends_the_command_and_removes_what_it_wrote(tmp_path):
    scratch, pids = tmp_path / "scratch", []
    scratch.mkdir()
    running = subprocess.Popen([sys.executable, "-m", "alibi_attention.verify", FIXTURES / "models" / "mpt-max16", "--layers", "1"],
                               cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.DEVNULL)  # fmt: skip
    while not pids and running.poll() is None:  # until a side runs in its process
        time.sleep(0.01)
        children = pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        pids = [pid for pid in children if b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                and b"_core" in pathlib.Path(f"/proc/{pid}/maps").read_bytes()]  # fmt: skip
    assert list(scratch.iterdir())
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=60) == 128 + signal.SIGTERM and not list(scratch.iterdir())
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)
