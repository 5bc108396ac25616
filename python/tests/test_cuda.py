"""The operator on PyTorch's CUDA tensors: on a GPU where there is one, or with ALIBI_EMULATED_GPU=1 over a module that was
built with ALIBI_PYTHON_EMULATED_GPU. Its GPU is the CPU's memory, and the operator's key CPU runs the functions of the key
CUDA."""

import contextlib
import os

import pytest

torch = pytest.importorskip("torch")

EMULATED = os.environ.get("ALIBI_EMULATED_GPU") == "1"
host_memory = set()

import alibi_attention as alibi
from alibi_attention import _core, _torch, _torch_cuda

if not EMULATED and not (_core.has_cuda() and torch.cuda.is_available()):
    pytest.skip("no GPU, or a build without CUDA", allow_module_level=True)

DEVICE = "cpu" if EMULATED else "cuda"
H, D, L = 4, 64, 150


class EmulatedCore:
    """The module, whose functions read slopes and offsets in the host's memory and all other tensors in that of the GPU."""

    def __getattr__(self, name):
        return getattr(_core, name)

    def attention(self, *given):
        self._call(_core.attention, *given)

    def attention_backward(self, *given):
        self._call(_core.attention_backward, *given)

    def _call(self, function, *given):
        *tensors, options, stream = given
        assert stream == 77
        assert not any(x.data_ptr() in host_memory for x in tensors if x is not None)
        for name, x in zip(options._fields, options, strict=True):
            assert not isinstance(x, torch.Tensor) or (x.data_ptr() in host_memory) == (name != "log_decay")
        function(*given)
        host_memory.clear()


@contextlib.contextmanager
def emulated_queue(device):
    yield 77


def noted_host(name, given, on_host=_torch_cuda.on_host):
    given = on_host(name, given)
    if given is not None:
        host_memory.add(given.data_ptr())
    return given


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    if not EMULATED:
        yield
        return
    monkeypatch.setattr(_torch_cuda, "_queue", emulated_queue)
    monkeypatch.setattr(_torch_cuda, "_core", EmulatedCore())
    monkeypatch.setattr(_torch_cuda, "on_host", noted_host)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for name, value in (("is_cuda", True), ("is_cpu", False)):
        monkeypatch.setattr(torch.Tensor, name, property(lambda self, value=value: value), raising=False)
    with torch.library._scoped_library("alibi", "IMPL") as library:
        library.impl("attention", _torch._forward_cuda, "CPU", allow_override=True)
        library.impl("attention_backward", _torch._backward_cuda, "CPU", allow_override=True)
        yield


def qkv(dtype=torch.bfloat16, grad=False, keys=L, kv_heads=H, batch=2):
    torch.manual_seed(1)
    shapes = ((L, H), (keys, kv_heads), (keys, kv_heads))
    return [torch.randn(batch, n, h, D, dtype=dtype, device=DEVICE).requires_grad_(grad) for n, h in shapes]


def exact(q, k, v, slopes=None, causal=True, window=None):
    """In float64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    i = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    distance = i - torch.arange(k.shape[2], device=q.device)[None]
    bias = torch.zeros_like(distance, dtype=torch.float64)
    if slopes is not None:
        bias = -slopes.to(q.device).double()[..., :, None, None] * distance.abs()
    if causal:
        bias = bias.masked_fill(distance < 0, float("-inf"))
    if window is not None:
        bias = bias.masked_fill(distance >= window, float("-inf"))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * D**-0.5 + bias
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def assert_close(found, expected, share):
    difference = (found.double() - expected.double()).abs().max()
    assert difference <= share * (expected.abs().max() + 0.1), float(difference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tolerance", [0.0, 2**-11])
def test_both_passes_against_float64(dtype, causal, tolerance):
    q, k, v = qkv(dtype, grad=True, keys=200, kv_heads=2)
    slopes = torch.tensor(alibi.slopes(H))
    out, lse = alibi.attention(q, k, v, alibi_slopes=slopes, causal=causal, tolerance=tolerance, return_lse=True)
    expected, expected_lse = exact(q, k, v, slopes, causal)
    assert out.dtype is dtype and out.device == q.device and lse.dtype is torch.float32
    share = 2**-6 if dtype is torch.bfloat16 else 2**-9
    assert_close(out, expected, share)
    assert_close(lse, expected_lse, 1e-4)
    dout = torch.randn_like(out)
    ours = torch.autograd.grad(out, (q, k, v), dout)
    theirs = torch.autograd.grad(expected, (q, k, v), dout.double())
    for a, b in zip(ours, theirs):
        assert a.dtype is dtype and a.shape == b.shape
        assert_close(a, b, 2 * share)


def test_a_call_without_gradients_has_the_same_bits():
    q, k, v = qkv()
    slopes = alibi.slopes(H)
    dispatched = alibi.attention(*(x.clone().requires_grad_() for x in (q, k, v)), alibi_slopes=slopes, tolerance=2**-11)
    direct = alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=2**-11)
    again, lse = alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=2**-11, return_lse=True)
    assert dispatched.requires_grad and not direct.requires_grad
    assert torch.equal(direct, dispatched) and torch.equal(direct, again)
    assert_close(lse, exact(q, k, v, torch.tensor(slopes))[1], 1e-3)


@pytest.mark.parametrize("per_batch", [True, False])
@pytest.mark.parametrize("place", ["cpu", DEVICE])
def test_gradients_of_slopes_come_where_the_slopes_are(per_batch, place):
    q, k, v = qkv()
    slopes = torch.tensor(alibi.slopes(H), device=place)
    slopes = (torch.stack([slopes, slopes / 3]) if per_batch else slopes).requires_grad_()
    out = alibi.attention(q, k, v, alibi_slopes=slopes)
    (ours,) = torch.autograd.grad(out.float().square().sum(), slopes)
    (theirs,) = torch.autograd.grad(exact(q, k, v, slopes)[0].square().sum(), slopes)
    assert ours.device == slopes.device and ours.shape == slopes.shape
    assert_close(ours, theirs, 2e-2)


def test_one_sequence_one_head_and_strides_of_any_size():
    # DLPack gives axes of one element the stride 1. The gradient of a sum has strides of 0.
    q, k, v = (x[:1, :, :1].detach().requires_grad_() for x in qkv(grad=True))
    ours = torch.autograd.grad(alibi.attention(q, k, v).sum(), (q, k, v))
    for a, b in zip(ours, torch.autograd.grad(exact(q, k, v)[0].sum(), (q, k, v))):
        assert_close(a, b, 2**-5)
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv())
    assert torch.equal(alibi.attention(q, k, v), alibi.attention(*(x.contiguous() for x in (q, k, v))))


def test_packed_sequences_windows_and_padding():
    q, k, v = qkv(batch=1)
    slopes = torch.tensor(alibi.slopes(H))
    for place in ("cpu", DEVICE):
        offsets = torch.tensor([0, 20, 21, L], dtype=torch.int32, device=place)
        out = alibi.attention(q, k, v, alibi_slopes=slopes, cu_seqlens_q=offsets, cu_seqlens_k=offsets, tolerance=2**-11)
        parts = [exact(q[:, a:b], k[:, a:b], v[:, a:b], slopes)[0] for a, b in ((0, 20), (20, 21), (21, L))]
        assert_close(out, torch.cat(parts, 1), 2**-6)
    out = alibi.attention(q, k, v, alibi_slopes=slopes, window_size=(30, 0))
    assert_close(out, exact(q, k, v, slopes, window=31)[0], 2**-6)
    mask = torch.zeros(1, L, dtype=torch.bool, device=DEVICE)
    mask[:, 100:] = True
    out = alibi.attention(q, k, v, alibi_slopes=slopes, key_padding_mask=mask)
    assert_close(out[:, :100], exact(q[:, :100], k[:, :100], v[:, :100], slopes)[0], 2**-6)
    assert not out[:, 100:].any()


def test_flash_attn_func_and_the_module():
    q, k, v = qkv()
    slopes = torch.tensor(alibi.slopes(H), device=DEVICE)
    out = alibi.flash_attn_func(q, k, v, alibi_slopes=slopes, causal=True)
    assert_close(out, exact(q, k, v, slopes)[0], 2**-6)
    layer = alibi.AlibiAttention(H * D, H, learned_slopes=True).to(DEVICE, torch.bfloat16)
    layer(torch.randn(2, 70, H * D, dtype=torch.bfloat16, device=DEVICE)).sum().backward()
    assert layer.log_slopes.grad.abs().sum() > 0 and layer.qkv.weight.grad.isfinite().all()


def test_sinks_and_gates():
    """Against the definition in float64: the running sum of the gates, and one more key without a value."""
    q, k, v = qkv(grad=True)
    gates = (-torch.rand(1, L, H, device=DEVICE) * 0.3).expand(q.shape[0], L, H).contiguous().requires_grad_()
    sinks = torch.tensor([0.5, -1.0, 3.0, 0.0]).requires_grad_()
    out = alibi.attention(q, k, v, log_decay=gates, sinks=sinks)
    found = torch.autograd.grad(out.double().square().sum(), (q, k, v, gates, sinks))

    q2, k2, v2, g2, s2 = (x.detach().double().to(DEVICE).requires_grad_() for x in (q, k, v, gates, sinks))
    sums = g2.cumsum(1).transpose(1, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q2, k2) / D**0.5 + sums[..., :, None] - sums[..., None, :]
    scores = scores.masked_fill(torch.ones(L, L, device=DEVICE).triu(1).bool(), -torch.inf)
    weights = torch.cat([scores, s2[:, None, None].expand(q.shape[0], H, L, 1)], -1).softmax(-1)[..., :-1]
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, v2)
    assert (out - expected).abs().max() < 0.03
    wanted = torch.autograd.grad(expected.square().sum(), (q2, k2, v2, g2, s2))
    for a, b in zip(found, wanted, strict=True):
        assert a.device.type == ("cpu" if a is found[4] else DEVICE)
        assert (a.to(DEVICE) - b).abs().max() < 0.03 * max(1, b.abs().max())


def test_what_gpus_do_not_support_is_refused():
    q, k, v = qkv()
    slopes = alibi.slopes(H)
    for call, message in [
        (lambda: alibi.attention(q.float(), k.float(), v.float()), "q is float32, expected bfloat16 or float16"),
        (lambda: alibi.attention(*(x[..., :60].contiguous() for x in (q, k, v))), "head_dim is 60"),
        (lambda: alibi.attention(*(x[..., :40] for x in (q[..., 1:], k, v))), "q has rows that do not begin at"),
        (lambda: alibi.attention(q, k, v, softcap=3.0), "softcap is 3"),
        (lambda: alibi.attention(q, k, v, dropout_p=0.1), "dropout_p is 0.1, expected 0 on"),
        (lambda: alibi.attention(q, k, v, alibi_slopes=slopes[:3]), "alibi_slopes has shape"),
        (lambda: alibi.attention(q, k, v, alibi_slopes=slopes, causal=False, window_size=(3, 5)), "expected equal windows"),
    ]:
        with pytest.raises(alibi.Error, match=message):
            call()


@pytest.mark.skipif(EMULATED, reason="needs a GPU")
def test_training_is_captured_into_a_graph():
    q, k, v = qkv(grad=True)
    slopes = torch.tensor(alibi.slopes(H))

    def step():
        out = alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=2**-11)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    # As PyTorch asks for: a first step in another stream, and nothing of it that autograd still keeps.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = [x.clone() for x in step()]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(results, expected))
    on_gpu = slopes.cuda()  # a copy that cannot be captured itself
    with pytest.raises(alibi.UsageError, match="alibi_slopes is on a GPU"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        alibi.attention(q, k, v, alibi_slopes=on_gpu)


@pytest.mark.skipif(EMULATED, reason="needs a GPU")
def test_autocast_and_other_streams():
    q, k, v = qkv(torch.float32, grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        out = alibi.attention(q, k, v)
    assert out.dtype is torch.bfloat16
    out.sum().backward()
    assert q.grad.dtype is torch.float32
    q, k, v = qkv()
    expected = alibi.attention(q, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = alibi.attention(q, k, v)
    stream.synchronize()
    assert torch.equal(out, expected)
