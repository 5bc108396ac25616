"""Forget gates: attention(log_decay=...) and forgetting_attention()."""

import numpy as np
import pytest

import alibi_attention as alibi

B, L, H, D = 2, 90, 4, 16


def arrays(kv_heads=2, queries=L):
    random = np.random.default_rng(3)
    shapes = ((B, queries, H, D), (B, L, kv_heads, D), (B, L, kv_heads, D))
    gates = -random.uniform(0, 0.3, (B, L, H)).astype(np.float32)
    return (*(random.standard_normal(shape).astype(np.float32) for shape in shapes), gates)


def dense(q, k, v, gates, slopes=None):
    """In float64, with the library of the arrays: rows (batch, heads, queries, keys)."""
    queries, keys = q.shape[1], k.shape[1]
    of_keys = np.arange(keys)
    distance = np.arange(keys - queries, keys)[:, None] - of_keys
    group = q.shape[2] // k.shape[2]
    scores = np.einsum("bihd,bjhd->bhij", q.astype(float), np.repeat(k, group, 2).astype(float)) * q.shape[3] ** -0.5
    for t in range(keys):  # the gate of key t is in the scores of queries from t on and keys before t
        over = (np.arange(keys - queries, keys)[:, None] >= t) & (of_keys < t)
        scores = scores + np.where(over, gates[:, t].astype(float)[:, :, None, None], 0)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * distance
    scores = np.where(distance < 0, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), np.repeat(v, group, 2).astype(float))


@pytest.mark.parametrize("queries", [L, 7])
def test_numpy(queries):
    q, k, v, gates = arrays(queries=queries)
    assert np.abs(alibi.attention(q, k, v, log_decay=gates) - dense(q, k, v, gates)).max() < 2e-6
    slopes = alibi.slopes(H)
    out = alibi.attention(q, k, v, log_decay=gates.tolist(), alibi_slopes=slopes, tolerance=2**-24)
    assert np.abs(out - dense(q, k, v, gates, slopes)).max() < 2e-6
    gates[:, 40] = -np.inf
    out = alibi.attention(q, k, v, log_decay=gates)
    alone = alibi.attention(q[:, -min(queries, 50) :], k[:, 40:], v[:, 40:], log_decay=gates[:, 40:])
    assert np.abs(out[:, -min(queries, 50) :] - alone).max() < 2e-6


def test_padding_and_packed_sequences():
    q, k, v, gates = arrays()
    padding = np.zeros((B, L), bool)
    padding[0, :20] = padding[1, 60:] = True
    out = alibi.attention(q, k, v, log_decay=gates, key_padding_mask=padding)
    for b, rows in ((0, slice(20, L)), (1, slice(0, 60))):
        alone = alibi.attention(*(x[b : b + 1, rows] for x in (q, k, v)), log_decay=gates[b : b + 1, rows])
        assert np.abs(out[b, rows] - alone[0]).max() < 2e-6
    offsets = [0, 33, L]
    packed = alibi.attention(q[:1], k[:1], v[:1], log_decay=gates[:1], cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    for begin, end in ((0, 33), (33, L)):
        alone = alibi.attention(*(x[:1, begin:end] for x in (q, k, v)), log_decay=gates[:1, begin:end])
        assert np.abs(packed[:, begin:end] - alone).max() < 2e-6


def test_forgetting_attention():
    q, k, v, gates = arrays()
    expected = alibi.attention(q, k, v, log_decay=gates, softmax_scale=0.3)
    assert np.array_equal(alibi.forgetting_attention(q, k, v, gates, sm_scale=0.3), expected)
    swapped = [np.ascontiguousarray(np.swapaxes(x, 1, 2)) for x in (q, k, v, gates)]
    out = alibi.forgetting_attention(*swapped, head_first=True, sm_scale=0.3)
    assert np.array_equal(np.swapaxes(out, 1, 2), expected)
    out = alibi.forgetting_attention(q, k, v, gates, seq_start=[0, 30])
    alone = alibi.forgetting_attention(*(x[1:, 30:] for x in (q, k, v, gates)))
    assert np.abs(out[1:, 30:] - alone).max() < 2e-6
    assert np.array_equal(out[:1], alibi.forgetting_attention(q, k, v, gates)[:1])


def test_errors():
    q, k, v, gates = arrays()
    for change, part in (
        (lambda: alibi.attention(q, k, v, log_decay=-gates), r"log_decay\[0\]\[0\]\[0\] is .*, expected -2\^40 to 0"),
        (lambda: alibi.attention(q, k, v, log_decay=gates[:, :, :2]), r"log_decay has shape \[2, 90, 2\]"),
        (lambda: alibi.attention(q, k, v, log_decay=gates, causal=False), "not causal"),
        (lambda: alibi.attention(q, k, v, log_decay=gates[:1], key_padding_mask=np.zeros((B, L), bool)), "log_decay has shape"),
        (lambda: alibi.forgetting_attention(q, k, v, gates[0]), "log_fgate has shape"),
        (lambda: alibi.forgetting_attention(q, k, v, gates, seq_start=[0, L]), "seq_start is"),
    ):
        with pytest.raises(alibi.UsageError, match=part):
            change()
    with pytest.raises(TypeError, match="log_decay"):
        alibi.attention(q, k, v, log_decay="gates")


def dense_torch(torch, q, k, v, gates):
    """In float64, with gradients; no gate is -infinity."""
    sums = gates.double().cumsum(1).transpose(1, 2)
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    bias = (sums[:, :, -q.shape[2] :, None] - sums[:, :, None]).masked_fill(
        torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1), float("-inf"))  # fmt: skip
    return ((q @ k.mT * q.shape[3] ** -0.5 + bias).softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_caches_hold_the_gates_of_their_keys(kind):
    q, k, v, gates = arrays()
    if kind == "torch":
        q, k, v, gates = (pytest.importorskip("torch").from_numpy(x) for x in (q, k, v, gates))
    whole = np.asarray(alibi.attention(q, k, v, log_decay=gates))
    cache = alibi.KvCache(k.shape[0], k.shape[2], k.shape[3])
    for begin, end in ((0, L // 2), (L // 2, L - 3), (L - 3, L)):
        cache.append(k[:, begin:end], v[:, begin:end], gates[:, begin:end])
        out = np.asarray(alibi.attention_decode(q[:, end - 1 : end], cache, tolerance=2**-24))
        assert np.abs(out - whole[:, end - 1 : end]).max() <= 3e-6
    with pytest.raises(alibi.UsageError, match="log_decay is not given, but the"):
        cache.append(k, v)
    with pytest.raises(alibi.UsageError, match=r"log_decay has shape \[.*\], expected float32"):
        cache.append(k, v, gates[:, 1:])


@pytest.mark.parametrize("tolerance", [0.0, 2**-24])
@pytest.mark.parametrize("queries", [L, 7])
def test_torch(queries, tolerance):
    torch = pytest.importorskip("torch")
    given = [torch.from_numpy(x) for x in arrays(queries=queries)]
    direct = alibi.attention(*given[:3], log_decay=given[3], tolerance=tolerance)
    assert np.array_equal(direct.numpy(), alibi.attention(*arrays(queries=queries)[:3], log_decay=given[3].numpy(), tolerance=tolerance))
    q, k, v, gates = (x.requires_grad_() for x in given)
    w = torch.randn(q.shape, generator=torch.Generator().manual_seed(1))
    out = alibi.attention(q, k, v, log_decay=gates, tolerance=tolerance)
    assert torch.equal(out, direct)
    expected = torch.autograd.grad((dense_torch(torch, q, k, v, gates) * w).sum(), (q, k, v, gates))
    for a, b in zip(torch.autograd.grad((out * w).sum(), (q, k, v, gates)), expected):
        assert a.shape == b.shape and (a - b).abs().max() <= 1e-5 * max(1, b.abs().max())
    alone = torch.autograd.grad((alibi.attention(q.detach(), k.detach(), v.detach(), log_decay=gates) * w).sum(), gates)[0]
    assert (alone - expected[3]).abs().max() <= 1e-5 * max(1, expected[3].abs().max())


@pytest.mark.parametrize("queries", [L, 7])
def test_tangents(queries):
    torch = pytest.importorskip("torch")
    given = tuple(torch.from_numpy(x) for x in arrays(queries=queries))
    tangents = tuple(torch.randn(x.shape, generator=torch.Generator().manual_seed(i)) for i, x in enumerate(given))
    wide = tuple(tuple(x.double() for x in several) for several in (given, tangents))
    slopes = torch.tensor(alibi.slopes(H))

    def run(q, k, v, gates, **more):
        return alibi.attention(q, k, v, log_decay=gates, **more)

    def expected(q, k, v, gates):
        return dense_torch(torch, q, k, v, gates)

    for a, b in zip(torch.func.jvp(run, given, tangents), torch.func.jvp(expected, *wide)):
        assert (a - b).abs().max() <= 2e-5 * max(1, b.abs().max())
    # Slopes are gates that are the same for all tokens.
    of_both = torch.func.jvp(lambda *x: run(*x, alibi_slopes=slopes), given, tangents)[1]
    of_gates = torch.func.jvp(lambda q, k, v, gates: expected(q, k, v, gates - slopes), *wide)[1]
    assert (of_both - of_gates).abs().max() <= 2e-5 * max(1, of_gates.abs().max())
    past = torch.func.jvp(lambda *x: run(*x, query_offset=L + 5), given, tangents)[1]  # as at the last key
    last = torch.func.jvp(lambda *x: run(*x, query_offset=L - 1), *((x[:, -1:], *others) for x, *others in (given, tangents)))[1]
    assert (past[:, -1:] - last).abs().max() <= 2e-5
    # A gate of -infinity hides the keys before it, and packed sequences do the same.
    q, k, v, gates = (x[:1] for x in given)
    dq, dk, dv, dgates = (x[:1] for x in tangents)
    if queries == L:
        packed = torch.func.jvp(lambda *x: run(*x, cu_seqlens_q=[0, 40, L], cu_seqlens_k=[0, 40, L]), (q, k, v, gates), (dq, dk, dv, dgates))
        gates = gates.clone()
        gates[:, 40] = -torch.inf
        closed = torch.func.jvp(run, (q, k, v, gates), (dq, dk, dv, dgates))
        assert (closed[1] - packed[1]).abs().max() <= 2e-5


def test_torch_transforms():
    torch = pytest.importorskip("torch")
    q, k, v, gates = (torch.from_numpy(x) for x in arrays())
    several = torch.stack([gates, gates * 2])
    mapped = torch.func.vmap(lambda g: alibi.attention(q, k, v, log_decay=g))(several)
    assert all(torch.equal(a, alibi.attention(q, k, v, log_decay=g)) for a, g in zip(mapped, several))
    of_gates = torch.func.grad(lambda g: alibi.attention(q, k, v, log_decay=g).square().sum())(gates)
    leaf = gates.clone().requires_grad_()
    alibi.attention(q, k, v, log_decay=leaf).square().sum().backward()
    assert torch.equal(of_gates, leaf.grad)
    leaf = gates.clone().requires_grad_()
    given = (q.requires_grad_(), k, v, None, None, True, 0, 0.0, 0.0, None, None, None, None, 0.0, 0, 0.0, None, leaf)
    torch.library.opcheck(torch.ops.alibi.attention.default, given)
    starts = alibi.forgetting_attention(q, k, v, leaf, seq_start=torch.tensor([0, 30]))
    starts[1, 30:].sum().backward()
    assert leaf.grad[1, :31].abs().max() == 0 and leaf.grad[1, 31:].abs().max() > 0
