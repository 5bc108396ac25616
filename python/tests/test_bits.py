"""The same bits as in C++. scripts/test/python says where the programs are."""

import os
import subprocess

import numpy as np
import pytest

import alibi_attention as alibi


@pytest.mark.skipif("ALIBI_ATTENTION_BITS" not in os.environ, reason="ALIBI_ATTENTION_BITS: the program is not there")
@pytest.mark.parametrize("tolerance", [0.0, 2.0**-24])
def test_attention(tolerance):
    shape = (1, 300, 4, 64)
    q, k, v, dout = np.random.default_rng(1).standard_normal((4, *shape), np.float32)
    program = [os.environ["ALIBI_ATTENTION_BITS"], "300", "4", "64", str(tolerance)]
    expected = subprocess.run(program, input=b"".join(x.tobytes() for x in (q, k, v, dout)), capture_output=True, check=True)
    expected = np.frombuffer(expected.stdout, np.float32).reshape(4, *shape)
    slopes = alibi.slopes(4)
    assert np.array_equal(alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=tolerance), expected[0])
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = alibi.attention(*tensors, alibi_slopes=torch.tensor(slopes), tolerance=tolerance)
    out.backward(torch.tensor(dout))
    for found, wanted in zip((out.detach(), *(tensor.grad for tensor in tensors)), expected):
        assert np.array_equal(found.numpy(), wanted)


@pytest.mark.skipif("ALIBI_COMMAND" not in os.environ, reason="ALIBI_COMMAND: the command is not there")
@pytest.mark.skipif(not alibi._core.has_models, reason="this build has the operator alone")
def test_a_trained_model(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(2000)), encoding="utf-8")
    options = {"layers": 1, "d_model": 32, "heads": 2, "train_length": 32, "train_tokens": 4096, "batch_tokens": 1024, "seed": 3}
    given = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
    subprocess.run([os.environ["ALIBI_COMMAND"], "train", text, "-o", tmp_path / "theirs", *given], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    alibi.train(text, out=tmp_path / "ours", **options)
    ours, theirs = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("ours", "theirs"))
    assert ours == theirs
