"""The operator in PyTorch."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import alibi_attention as alibi
import reference

H, D, L = 4, 32, 70


def qkv(dtype=torch.float32, grad=False, keys=L, seed=0, kv_heads=H):
    torch.manual_seed(seed)
    return [torch.randn(2, n, h, D, dtype=dtype).requires_grad_(grad) for n, h in ((L, H), (keys, kv_heads), (keys, kv_heads))]


def slopes():
    return torch.tensor(alibi.slopes(H))


def sdpa(q, k, v, s, causal=True):
    """In float64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    distance = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])[None]
    bias = -s.double()[..., :, None, None] * distance.abs()
    if causal:
        bias = bias.masked_fill(distance < 0, float("-inf"))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


def assert_close(a, b, tolerance):
    assert not torch.isnan(a).any() and (a.double() - b.double()).abs().max() <= tolerance


@pytest.mark.parametrize("causal", [True, False])
def test_same_bits_as_numpy_and_on_every_way_to_the_kernel(causal):
    q, k, v = qkv(keys=90)
    s = slopes()
    expected = alibi.attention(q.numpy(), k.numpy(), v.numpy(), alibi_slopes=s.numpy(), causal=causal)
    direct = alibi.attention(q, k, v, alibi_slopes=s, causal=causal)
    dispatched = alibi.attention(*(x.clone().requires_grad_() for x in (q, k, v)), alibi_slopes=s, causal=causal)
    assert dispatched.requires_grad and not direct.requires_grad
    assert np.array_equal(direct.numpy(), expected) and np.array_equal(dispatched.detach().numpy(), expected)
    for given in (alibi.slopes(H), list(alibi.slopes(H)), s.double()):
        assert torch.equal(alibi.attention(q, k, v, alibi_slopes=given, causal=causal), direct)


def test_bfloat16_and_strides_without_copies():
    q, k, v = (torch.randn(2, H, L, D, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    out, lse = alibi.attention(q, k, v, alibi_slopes=slopes(), return_lse=True)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32 and out.is_contiguous()
    assert_close(out, sdpa(q, k, v, slopes()), 2e-2)
    contiguous = (q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(out, alibi.attention(*contiguous, alibi_slopes=slopes(), return_lse=True)[0])
    without = alibi.attention(q, k, v, alibi_slopes=slopes())  # its weights may be computed to fewer digits
    assert torch.equal(without, alibi.attention(*contiguous, alibi_slopes=slopes()))
    assert_close(without, sdpa(q, k, v, slopes()), 2e-2)


@pytest.mark.parametrize("tolerance", [0.0, 2**-24])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("per_batch", [True, False])
def test_gradients(causal, tolerance, per_batch):
    q, k, v = qkv(grad=True, keys=90, kv_heads=2)
    s = slopes()
    s = (torch.stack([s, s / 3]) if per_batch else s).requires_grad_()
    w = torch.randn(2, L, H, D)
    ours = torch.autograd.grad((alibi.attention(q, k, v, alibi_slopes=s, causal=causal, tolerance=tolerance) * w).sum(), (q, k, v, s))
    theirs = torch.autograd.grad((sdpa(q, k, v, s, causal) * w).sum(), (q, k, v, s))
    for a, b in zip(ours, theirs):
        assert a.shape == b.shape and a.dtype == torch.float32
        assert_close(a, b, 1e-5 * max(1, b.abs().max()))


def test_gradients_of_a_sum_and_of_slopes_alone():
    q, k, v = qkv()
    s = slopes().requires_grad_()
    alibi.attention(q, k, v, alibi_slopes=s).sum().backward()  # its gradient has strides of 0
    expected = torch.autograd.grad(sdpa(q, k, v, s).sum(), s)[0]
    assert_close(s.grad, expected, 1e-6 * expected.abs().max())


def test_gradients_of_packed_sequences():
    q, k, v = (x[:1] for x in qkv())
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    offsets = torch.tensor([0, 20, 21, L], dtype=torch.int32)
    for tolerance in (0.0, 1e-6):
        out = alibi.attention(q, k, v, alibi_slopes=slopes(), cu_seqlens_q=offsets, cu_seqlens_k=offsets, tolerance=tolerance)
        ours = torch.autograd.grad(out.square().sum(), (q, k, v))
        parts = [sdpa(q[:, a:b], k[:, a:b], v[:, a:b], slopes()) for a, b in zip(offsets, offsets[1:])]
        for a, b in zip(ours, torch.autograd.grad(torch.cat(parts, 1).square().sum(), (q, k, v))):
            assert_close(a, b, 1e-4)


def arguments(q, k, v, s, tolerance=0.0, seed=None, offsets=None, softcap=0.0, sinks=None):
    return (q, k, v, s, None, True, 0, 0.0, 0.25 if seed is not None else 0.0, seed, None, offsets, offsets, tolerance, 0, softcap,
            sinks, None)


@pytest.mark.parametrize("given", ["plain", "tolerance", "dropout", "packed", "no slopes", "softcap", "sinks"])
def test_opcheck(given):
    q, k, v = qkv(grad=True)
    s = None if given == "no slopes" else slopes().requires_grad_()
    offsets = None
    if given == "packed":
        q, k, v = (x[:1].detach().requires_grad_() for x in (q, k, v))
        offsets = torch.tensor([0, 33, L], dtype=torch.int32)
    args = arguments(q, k, v, s, tolerance=1e-6 if given in ("tolerance", "packed") else 0.0,
                     seed=torch.tensor([7]) if given == "dropout" else None, offsets=offsets,
                     softcap=0.75 if given == "softcap" else 0.0,
                     sinks=torch.randn(H).requires_grad_() if given == "sinks" else None)  # fmt: skip
    torch.library.opcheck(torch.ops.alibi.attention.default, args)


def test_saved_words_are_as_many_as_the_library_says():
    from alibi_attention import _core, _torch
    from alibi_attention._options import Options

    for tolerance in (0.0, 1e-6):
        for queries in (1, 32, 33, 100):
            given = Options(tolerance=tolerance)
            q = torch.empty(3, queries, 5, 8)
            assert _torch._saved_words(q, None, tolerance) == _core.saved_words(3, queries, 5, given)
    offsets = np.array([0, 1, 33, 100], np.int32)
    given = Options(cu_seqlens_q=offsets, cu_seqlens_k=offsets, tolerance=1e-6)
    assert _torch._saved_words(torch.empty(1, 100, 5, 8), torch.tensor(offsets), 1e-6) >= _core.saved_words(1, 100, 5, given)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(dynamic):
    def loss(q, k, v, s):
        return alibi.attention(q * 1.5, k, v, alibi_slopes=s, tolerance=2**-24).square()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for keys in (L, 90):
        q, k, v = qkv(grad=True, keys=keys)
        s = slopes().requires_grad_()
        expected, found = loss(q, k, v, s), compiled(q, k, v, s)
        assert torch.equal(expected, found)
        for a, b in zip(*(torch.autograd.grad(x.sum(), (q, k, v, s)) for x in (expected, found))):
            assert torch.equal(a, b)
        with torch.no_grad():
            assert torch.equal(compiled(q, k, v, s), expected)


def test_autocast_leaves_slopes_in_float32():
    q, k, v = qkv(grad=True)
    s = (slopes() + 1e-3).requires_grad_()  # the same in bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = alibi.attention(q, k, v, alibi_slopes=s)
        with torch.no_grad():
            assert torch.equal(alibi.attention(q, k, v, alibi_slopes=s), out)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, alibi.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), alibi_slopes=s))
    gradients = torch.autograd.grad(out.float().sum(), (q, k, v, s))
    assert all(x.dtype == torch.float32 for x in gradients)


def test_dropout_repeats():
    q, k, v = qkv(grad=True)

    def attend(q, k, v):
        return alibi.attention(q, k, v, alibi_slopes=alibi.slopes(H), dropout_p=0.3)

    torch.manual_seed(1)
    first = attend(q, k, v)
    second = attend(q, k, v)
    torch.manual_seed(1)
    assert torch.equal(attend(q, k, v), first) and not torch.equal(first, second)
    expected = torch.autograd.grad(first.square().sum(), (q, k, v))
    torch.manual_seed(1)
    again = torch.utils.checkpoint.checkpoint(attend, q, k, v, use_reentrant=False)
    assert torch.equal(again, first)
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(again.square().sum(), (q, k, v)), expected))
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    found = compiled(q, k, v)
    assert torch.equal(found, first)
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(found.square().sum(), (q, k, v)), expected))


def test_double_backward_is_an_error():
    q, k, v = qkv(grad=True)
    (gradient,) = torch.autograd.grad(alibi.attention(q, k, v, alibi_slopes=slopes()).square().sum(), q, create_graph=True)
    with pytest.raises(alibi.Error, match="twice differentiable"):
        gradient.sum().backward()


def test_lse_has_no_gradient_and_slopes_after_none():
    q, k, v = qkv(grad=True)
    out, lse = alibi.attention(q, k, v, alibi_slopes=slopes(), return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    after = (slopes() * 2).requires_grad_()
    out = alibi.attention(q, k, v, alibi_slopes=slopes(), alibi_slopes_after=after, causal=False)
    with pytest.raises(alibi.UsageError, match="alibi_slopes_after"):
        out.sum().backward()


def test_transforms_see_the_operator():
    q, k, v = qkv()
    s = slopes()
    stacked = torch.vmap(lambda a, b, c: alibi.attention(a, b, c, alibi_slopes=s))(*(torch.stack([x, 2 * x]) for x in (q, k, v)))
    assert_close(stacked[1], alibi.attention(2 * q, 2 * k, 2 * v, alibi_slopes=s), 1e-6)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in (q, k, v)]
        assert alibi.attention(*fake).shape == q.shape
    traced = torch.jit.trace(lambda a, b, c: alibi.attention(a, b, c), (q, k, v), check_trace=False)
    assert torch.equal(traced(2 * q, k, v), alibi.attention(2 * q, k, v))


def test_the_number_of_threads_follows_torch():
    q, k, v = qkv()
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(alibi.attention(q, k, v))
            assert alibi.threads() == count
            results.append(alibi.attention(*(x.clone().requires_grad_() for x in (q, k, v))).detach())
            assert alibi.threads() == count
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], other) for other in results)


def test_a_forked_child_computes():
    q, k, v = qkv(grad=True)
    expected = alibi.attention(q, k, v, alibi_slopes=slopes())
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        torch.set_num_threads(1)  # as workers of a DataLoader do
        os._exit(0 if torch.equal(alibi.attention(q, k, v, alibi_slopes=slopes()), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return alibi.attention(*qkv(seed=i), alibi_slopes=slopes())


def test_workers_of_a_data_loader():
    alibi.attention(*qkv())  # the threads are there
    batches = list(torch.utils.data.DataLoader(Dataset(), batch_size=None, num_workers=2, timeout=120))
    for i, batch in enumerate(batches):
        assert torch.equal(batch, alibi.attention(*qkv(seed=i), alibi_slopes=slopes()))


BITS = """
import sys, hashlib
{imports}
import numpy as np
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 300, 4, 32), np.float32)
before = alibi.attention(q, k, v, alibi_slopes=alibi.slopes(4), tolerance=2**-24)
import torch
torch.randn(300, 300) @ torch.randn(300, 300)
a, b, c = (torch.tensor(x) for x in (q, k, v))
after = alibi.attention(a, b, c, alibi_slopes=alibi.slopes(4), tolerance=2**-24).numpy()
assert np.array_equal(before, after)
compiled = torch.compile(lambda a, b, c: alibi.attention(a, b, c), fullgraph=True, backend="eager")
assert torch.equal(compiled(a, b, c), alibi.attention(a, b, c))
bits = before.tobytes()
if alibi._core.has_models:  # whose products are oneDNN's, with an OpenMP of its own
    text = "".join(f"line {{i}} of a text\\n" for i in range(2000))
    bits += alibi.train(text, train_tokens=4096, layers=1, d_model=64, heads=2, train_length=64, batch_tokens=1024).loss.tobytes()
print(hashlib.sha256(bits).hexdigest())
"""


def test_both_import_orders_give_the_same_bits_at_any_number_of_openmp_threads():
    runs = []
    for imports in ("import alibi_attention as alibi", "import torch, alibi_attention as alibi"):
        for count in ("1", "4"):
            runs.append(
                subprocess.run(
                    [sys.executable, "-c", BITS.format(imports=imports)],
                    env={**os.environ, "OMP_NUM_THREADS": count},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            )
    assert all(run.returncode == 0 for run in runs), [run.stderr[-500:] for run in runs]
    assert len({run.stdout for run in runs}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_sinks_are_a_key_without_a_value(dtype, compiled):
    q, k, v = qkv(dtype, grad=True, kv_heads=2)
    s, sinks = slopes().requires_grad_(), torch.tensor([0.5, -1.0, 3.0, float("-inf")][:H]).repeat(H)[:H].requires_grad_()
    w = torch.randn(2, L, H, D)
    attend = torch.compile(alibi.attention, fullgraph=True) if compiled else alibi.attention
    out = attend(q, k, v, alibi_slopes=s, sinks=sinks)
    wide, keys, values = (x.double().transpose(1, 2) for x in (q, k, v))
    keys, values = (x.repeat_interleave(H // 2, 1) for x in (keys, values))
    distance = torch.arange(L)[:, None] - torch.arange(L)[None]
    scores = wide @ keys.transpose(2, 3) / D**0.5 - s.double()[:, None, None] * distance.abs()
    scores = torch.cat([scores.masked_fill(distance < 0, float("-inf")),
                        sinks.double()[:, None, None].expand(2, H, L, 1)], -1)  # fmt: skip
    expected = (scores.softmax(-1)[..., :L] @ values).transpose(1, 2)
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    assert_close(out, expected, tolerance)
    found, wanted = (torch.autograd.grad((x.double() * w).sum(), (q, k, v, s, sinks)) for x in (out, expected))
    for a, b in zip(found, wanted):
        assert_close(a, b, tolerance * max(1, b.abs().max().item()))
    with pytest.raises(ValueError, match=r"sinks has shape \[1\], expected"):
        alibi.attention(q, k, v, sinks=torch.zeros(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("window", [(-1, -1), (5, 20), (-1, 3), (30, -1)])
@pytest.mark.parametrize("tolerance", [0.0, 2**-24])
def test_gradients_with_softcap_and_windows_of_two_sides(dtype, window, tolerance):
    q, k, v = qkv(dtype, grad=True, keys=90, kv_heads=2)
    s = torch.stack([slopes(), slopes() / 3]).requires_grad_()
    w = torch.randn(2, L, H, D)
    out = alibi.attention(q, k, v, alibi_slopes=s, causal=False, window_size=window, softcap=0.75, tolerance=tolerance)
    assert out.dtype == dtype
    wide, keys, values = (x.double().transpose(1, 2) for x in (q, k, v))
    keys, values = (x.repeat_interleave(2, 1) for x in (keys, values))
    scores = 0.75 * torch.tanh(wide @ keys.transpose(2, 3) / D**0.5 / 0.75)
    distance = torch.arange(L)[:, None] + 90 - L - torch.arange(90)[None]
    scores = scores - s.double()[..., None, None] * distance.abs()
    if window[0] >= 0:
        scores = scores.masked_fill(distance > window[0], float("-inf"))
    if window[1] >= 0:
        scores = scores.masked_fill(-distance > window[1], float("-inf"))
    expected = (scores.softmax(-1) @ values).transpose(1, 2)
    unit = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    assert_close(out, expected, unit)
    ours = torch.autograd.grad((out * w).sum(), (q, k, v, s))
    theirs = torch.autograd.grad((expected * w).sum(), (q, k, v, s))
    for a, b in zip(ours, theirs):
        assert_close(a, b, unit * max(1, b.abs().max()))


def test_gradients_of_slopes_of_each_packed_sequence():
    q, k, v = (x[:1].detach() for x in qkv())
    offsets = torch.tensor([0, 20, 21, L], dtype=torch.int32)
    s = (torch.rand(3, H) + 0.1).requires_grad_()
    out = alibi.attention(q, k, v, alibi_slopes=s, cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    parts = [sdpa(q[:, a:b], k[:, a:b], v[:, a:b], s[i]) for i, (a, b) in enumerate(zip(offsets, offsets[1:]))]
    ours, theirs = (torch.autograd.grad(x.square().sum(), s)[0] for x in (out, torch.cat(parts, 1)))
    assert_close(ours, theirs, 1e-4)
    assert torch.equal(alibi.flash_attn_varlen_func(q[0], k[0], v[0], offsets, offsets, L, L, causal=True, alibi_slopes=s), out[0])
    with pytest.raises(alibi.UsageError, match="alibi_slopes has shape"):
        alibi.attention(q, k, v, alibi_slopes=s[:2], cu_seqlens_q=offsets, cu_seqlens_k=offsets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cache_in_pages(dtype):
    torch.manual_seed(3)
    pages, table = 9, torch.tensor([[7, 0, 3], [8, 5, 1]], dtype=torch.int32)
    k_cache, v_cache = (torch.randn(pages, 64, 2, D, dtype=dtype) for _ in range(2))
    k, v = (torch.randn(2, 3, 2, D, dtype=dtype) for _ in range(2))
    q = torch.randn(2, 3, H, D, dtype=dtype)
    lengths = torch.tensor([100, 5], dtype=torch.int32)
    out, lse = alibi.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=table, causal=True,
                                             alibi_slopes=slopes(), return_softmax_lse=True)  # fmt: skip
    for b in range(2):
        end = int(lengths[b]) + 3
        keys, values = (x[table[b].long()].flatten(0, 1)[None, :end] for x in (k_cache, v_cache))
        assert torch.equal(keys[0, end - 3 :], k[b]) and torch.equal(values[0, end - 3 :], v[b])
        expected = sdpa(q[b : b + 1], keys, values, slopes())[0]
        assert_close(out[b], expected, 1e-5 if dtype == torch.float32 else 2e-2)
    assert lse.shape == (2, H, 3)
    whole = alibi.flash_attn_with_kvcache(q, *(x[table.long()].flatten(1, 2) for x in (k_cache, v_cache)),
                                          cache_seqlens=lengths + 3, causal=True, alibi_slopes=slopes())  # fmt: skip
    assert torch.equal(whole, out)
    queries = torch.tensor([0, 3, 6], dtype=torch.int32)
    keys = torch.tensor([0, 103, 111], dtype=torch.int32)
    packed = q.flatten(0, 1).requires_grad_()
    found = alibi.flash_attn_varlen_func(packed, k_cache, v_cache, queries, keys, 3, 103, causal=True, alibi_slopes=slopes(),
                                         block_table=table)  # fmt: skip
    assert torch.equal(found, out.flatten(0, 1))
    with pytest.raises(alibi.UsageError, match="have no gradient"):
        found.sum().backward()


def test_flash_attention_and_the_cache():
    q, k, v = qkv()
    assert torch.equal(alibi.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes()),
                       alibi.attention(q, k, v, alibi_slopes=slopes()))  # fmt: skip
    offsets = torch.tensor([0, 2, L], dtype=torch.int32)
    out = alibi.flash_attn_varlen_func(q[0], k[0], v[0], offsets, offsets, L, L, alibi_slopes=slopes())
    assert_close(out[2:], sdpa(q[:1, 2:], k[:1, 2:], v[:1, 2:], slopes(), causal=False)[0], 1e-5)
    cache = alibi.KvCache(2, H, D, dtype="bfloat16")
    cache.append(k.bfloat16(), v.bfloat16())
    expected = sdpa(q, k.bfloat16(), v.bfloat16(), slopes())[:, -1:]
    assert_close(alibi.attention_decode(q[:, -1:], cache, alibi_slopes=slopes()), expected, 1e-4)
    with pytest.raises(alibi.UsageError, match="no gradient"):
        alibi.attention_decode(q[:, -1:].requires_grad_(), cache)
    a = alibi.attention(q, k[:, :20], v[:, :20], alibi_slopes=slopes(), query_offset=0, return_lse=True)
    b = alibi.attention(q, k[:, 20:], v[:, 20:], alibi_slopes=slopes(), query_offset=-20, return_lse=True)
    out, lse = alibi.merge_attention(*a, *b)
    assert_close(out, sdpa(q, k, v, slopes()), 1e-5)


def test_errors():
    q, k, v = qkv()
    for call, message in [
        (lambda: alibi.attention(q.double(), k, v), "q is float64"),
        (lambda: alibi.attention(q.half(), k, v), "k is float32, expected float16"),
        (lambda: alibi.attention(q, k.bfloat16(), v), "k is bfloat16"),
        (lambda: alibi.attention(q, k, v.to("meta")), "v is a"),
        (lambda: alibi.attention(q, k, v, alibi_slopes=torch.ones(3)), "alibi_slopes has shape"),
        (lambda: alibi.attention(q[0], k, v), r"expected \[batch"),
        (lambda: alibi.attention(q.transpose(2, 3), k, v), "unit inner stride"),
    ]:
        with pytest.raises(alibi.Error, match=message):
            call()


def test_cuda_tensors_need_a_build_with_cuda():
    from alibi_attention import _core, _torch

    for operator in ("alibi::attention", "alibi::attention_backward"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")
    if not _core.has_cuda():
        q, k, v = qkv(torch.bfloat16)
        with pytest.raises(alibi.Error, match="has no kernels for GPUs; install it from its source"):
            _torch._forward_cuda(q, k, v, *arguments(q, k, v, None)[3:])


def test_module():
    torch.manual_seed(0)
    module = alibi.AlibiAttention(64, 4, kv_heads=2, learned_slopes=True).eval()
    x = torch.randn(2, 30, 64)
    out = module(x)
    assert out.shape == x.shape
    out.sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())
    with torch.no_grad():
        cache = alibi.KvCache(2, 2, 16)
        parts = [module(x[:, :20], cache), *(module(x[:, i : i + 1], cache) for i in range(20, 30))]
    assert_close(torch.cat(parts, 1), out, 1e-5)
    assert "learned slopes" in repr(module)
    half = alibi.AlibiAttention(64, 4, dropout=0.5).bfloat16()
    assert half.slopes.dtype == torch.float32 and "slopes" not in " ".join(half.state_dict())
    assert not torch.equal(half(x.bfloat16()), half(x.bfloat16()))
    with pytest.raises(alibi.UsageError):
        alibi.AlibiAttention(64, 5)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_other_arrays_among_tensors_are_named(place, needs_gradient):
    def tensors():
        return [torch.ones(1, 4, 2, 8, requires_grad=needs_gradient) for _ in range(3)]

    for wrong in ([1.0], None, np.ones((1, 4, 2, 8), np.float32)):
        given = tensors()
        given[place] = wrong
        with pytest.raises(alibi.UsageError, match=r"\[attention\] [qkv] is of type \w+, expected"):
            alibi.attention(*given)
    given = tensors()
    given[place] = given[place].detach().to_sparse()
    with pytest.raises(alibi.UsageError, match=f"{'qkv'[place]} has layout torch.sparse_coo, expected torch.strided"):
        alibi.attention(*given)
