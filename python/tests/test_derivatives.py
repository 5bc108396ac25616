"""Forward-mode derivatives and the transforms of torch.func."""

import functools

import pytest

torch = pytest.importorskip("torch")

import alibi_attention as alibi  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

H, D, SCALE = 4, 8, 8**-0.5


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def plain(q, k, v, slopes=None, *, causal=True, window=None, after=None, softcap=0.0, scale=SCALE, metric=None, seen=None):
    """(out, lse) in float64, by PyTorch's own operations."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    distance = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        bias = -slopes.double().reshape(-1, slopes.shape[-1], 1, 1) * (distance.abs() if metric is None else metric)
        if after is not None:
            behind = -after.double().reshape(-1, after.shape[-1], 1, 1) * distance.abs()
            bias = torch.where(distance < 0, behind, bias)
        scores = scores + bias
    if metric is None:
        visible = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            visible = visible & (distance <= window[0]) & (distance >= -window[1])
        scores = scores.masked_fill(~visible, float("-inf"))
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v), scores.logsumexp(-1)


def close(found, expected, tolerance=2e-5):
    if isinstance(found, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            close(one, other, tolerance)
        return
    assert found.shape == expected.shape
    difference = (found.double() - expected).abs().max().item() if found.numel() else 0
    assert difference <= tolerance * max(1, expected.abs().max().item()), difference


def forward_mode(function, primals, tangents):
    """By dual numbers, as torch.func.jvp gives it."""
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, dx) for x, dx in zip(primals, tangents)]
        outputs = function(*duals)
        parts = [forward_ad.unpack_dual(x) for x in outputs]
        return tuple(x.primal for x in parts), tuple(x.tangent for x in parts)


CASES = {
    "causal": ({}, {}),
    "both sides": ({"causal": False}, {"causal": False}),
    "softcap": ({"softcap": 0.7}, {"softcap": 0.7}),
    "window": ({"causal": False, "window_size": (4, 2)}, {"causal": False, "window": (4, 2)}),
    "scale": ({"softmax_scale": 0.3}, {"scale": 0.3}),
    "skipping": ({"tolerance": 2**-24}, {}),
}


@pytest.mark.parametrize("mode", [torch.func.jvp, forward_mode])
@pytest.mark.parametrize("case", CASES)
def test_tangents_of_attention(case, mode):
    ours, theirs = CASES[case]
    primals = (draw(2, 9, H, D), draw(2, 11, 2, D), draw(2, 11, 2, D, seed=1), torch.tensor(alibi.slopes(H)))
    tangents = tuple(draw(*x.shape, seed=5) for x in primals)

    def run(q, k, v, slopes):
        return alibi.attention(q, k, v, alibi_slopes=slopes, return_lse=True, **ours)

    found = mode(run, primals, tangents)
    expected = torch.func.jvp(lambda *x: plain(*x, **theirs), tuple(x.double() for x in primals),
                              tuple(x.double() for x in tangents))  # fmt: skip
    close(found, expected)
    assert found[1][0].abs().max() > 0.1 and found[1][1].abs().max() > 0.1


def test_tangents_of_sinks():
    """A sink is a first key at which every score is the sink, and whose value is zero."""
    q, k, v = (draw(1, 9, H, D, seed=i) for i in range(3))
    sinks, dsinks = draw(H, seed=7), draw(H, seed=8)

    def expected(q, k, v, sinks):
        scores = SCALE * torch.einsum("bihd,bjhd->bhij", q, k).masked_fill(torch.ones(9, 9).triu(1) > 0, float("-inf"))
        weights = torch.cat([scores, sinks[:, None, None].expand(1, H, 9, 1)], -1).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights[..., :9], v)

    given = (q, k, v, sinks), (draw(1, 9, H, D, seed=5), draw(1, 9, H, D, seed=6), draw(1, 9, H, D, seed=9), dsinks)
    close(torch.func.jvp(lambda q, k, v, s: alibi.attention(q, k, v, sinks=s), *given), torch.func.jvp(expected, *given))
    close(torch.func.grad(lambda s: alibi.attention(q, k, v, sinks=s).square().sum())(sinks),
          torch.func.grad(lambda s: expected(q, k, v, s).square().sum())(sinks))  # fmt: skip


def test_tangents_of_both_slopes_and_of_one_argument():
    q, k, v = (draw(1, 9, H, D, seed=i) for i in range(3))
    slopes, after = torch.tensor(alibi.slopes(H)), torch.tensor([0.1, 0.0, 0.5, 2.0])

    def run(slopes, after):
        return alibi.attention(q, k, v, alibi_slopes=slopes, alibi_slopes_after=after, causal=False)

    given = (slopes, after), (draw(H), draw(H, seed=1))
    expected = torch.func.jvp(lambda a, b: plain(q, k, v, a, after=b, causal=False)[0], *given)
    close(torch.func.jvp(run, *given), expected)
    closed = torch.tensor([0.1, float("inf"), 0.5, 2.0])
    one = torch.func.jvp(lambda v: alibi.attention(q, k, v, alibi_slopes=slopes, alibi_slopes_after=closed, causal=False), (v,), (k,))
    close(one[1], alibi.attention(q, k, k, alibi_slopes=slopes, alibi_slopes_after=closed, causal=False))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tangents_of_narrow_types(dtype):
    primals = tuple(draw(1, 9, H, D, seed=i).to(dtype) for i in range(3))
    tangents = tuple(draw(1, 9, H, D, seed=i + 5).to(dtype) for i in range(3))
    found = torch.func.jvp(alibi.attention, primals, tangents)
    assert found[1].dtype == dtype
    expected = torch.func.jvp(lambda *x: plain(*x)[0], tuple(x.double() for x in primals), tuple(x.double() for x in tangents))
    close(found, expected, 2e-2)


def test_tangents_through_every_function():
    q, k, v = (draw(2, 9, H, D, seed=i) for i in range(3))
    slopes = torch.tensor(alibi.slopes(H))
    tangents = tuple(draw(2, 9, H, D, seed=i + 5) for i in range(3))
    expected = torch.func.jvp(lambda *x: plain(*x, slopes)[0], (q, k, v), tangents)
    close(torch.func.jvp(lambda *x: alibi.flash_attn_func(*x, causal=True, alibi_slopes=slopes), (q, k, v), tangents), expected)
    offsets = torch.tensor([0, 9, 18])

    def packed(*given):
        return alibi.flash_attn_varlen_func(*(x.flatten(0, 1) for x in given), offsets, offsets, 9, 9, causal=True,
                                            alibi_slopes=slopes).unflatten(0, (2, 9))  # fmt: skip

    close(torch.func.jvp(packed, (q, k, v), tangents), expected)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :4] = True

    def padded(*given):
        return alibi.attention(*given, alibi_slopes=slopes, key_padding_mask=padding)

    found = torch.func.jvp(padded, (q, k, v), tangents)[1]
    close(found[:1], expected[1][:1])
    alone = torch.func.jvp(lambda *x: plain(*x, slopes)[0], *(tuple(x[1:, 4:] for x in y) for y in ((q, k, v), tangents)))
    close(found[1:, 4:], alone[1])
    assert found[1, :4].abs().max() == 0

    layer = alibi.AlibiAttention(H * D, H, learned_slopes=True, bias=True)
    x, dx = draw(2, 9, H * D), draw(2, 9, H * D, seed=3)

    def by_hand(x):
        heads = torch.nn.functional.linear(x, layer.qkv.weight.double(), layer.qkv.bias.double()).view(2, 9, 3 * H, D)
        out = plain(*heads.split(H, 2), layer.slopes)[0]
        return torch.nn.functional.linear(out.flatten(2), layer.out.weight.double(), layer.out.bias.double())

    expected = torch.func.jvp(by_hand, (x.double(),), (dx.double(),))
    for mode in (torch.func.jvp, lambda f, *given: tuple(y[0] for y in forward_mode(lambda x: (f(x),), *given))):
        close(mode(layer, (x,), (dx,)), expected)


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_tangents_of_positions(distance):
    primals = (*(draw(2, 7, H, D, seed=i) for i in range(3)), torch.tensor(alibi.slopes(H)))
    tangents = tuple(draw(*x.shape, seed=5) for x in primals)
    points = draw(2, 7, 2)
    used = torch.tensor([7, 5])
    metric = (points[:, :, None] - points[:, None]).double()
    metric = metric.norm(dim=-1) if distance == "euclidean" else metric.abs().sum(-1)
    metric[:, :1], metric[:, :, :1] = 0, 0
    seen = (torch.arange(7) < used[:, None])[:, None, None]

    def run(q, k, v, slopes):
        return alibi.attention_positions(q, k, v, points, alibi_slopes=slopes, distance=distance, leading=1, seqused_q=used,
                                         seqused_k=used)  # fmt: skip

    expected = torch.func.jvp(lambda *x: plain(*x, metric=metric[:, None], seen=seen)[0] * seen.mT[:, 0, :, :, None], primals,
                              tangents)  # fmt: skip
    close(torch.func.jvp(run, primals, tangents), expected)
    close(tuple(x[0] for x in forward_mode(lambda *x: (run(*x),), primals, tangents)), expected)
    packed = torch.func.jvp(lambda *x: alibi.attention_positions(
        *(y[:1] for y in x[:3]), points[:1], alibi_slopes=x[3], distance=distance, cu_seqlens_q=[0, 3, 7], cu_seqlens_k=[0, 3, 7]),
        primals, tangents)  # fmt: skip
    alone = torch.func.jvp(lambda *x: alibi.attention_positions(
        *(y[:1, 3:] for y in x[:3]), points[:1, 3:], alibi_slopes=x[3], distance=distance), primals, tangents)  # fmt: skip
    close(packed[1][:, 3:], alone[1].double())


def test_transforms_of_torch_func():
    q, k, v = (draw(2, 7, H, D, seed=i) for i in range(3))
    slopes, weights = torch.tensor(alibi.slopes(H)), draw(2, 7, H, D, seed=9)

    def loss(run, *given):
        return (run(*given) * weights).sum()

    ours = functools.partial(loss, lambda q, k, v, s: alibi.attention(q, k, v, alibi_slopes=s))
    theirs = functools.partial(loss, lambda *x: plain(*x)[0])
    given, every = (q, k, v, slopes), (0, 1, 2, 3)
    close(torch.func.grad(ours, every)(*given), torch.func.grad(theirs, every)(*given))
    _, back = torch.func.vjp(ours, *given)
    close(back(torch.tensor(1.0)), torch.func.grad(theirs, every)(*given))
    small = [x[:1, :3, :, :2] for x in (q, k, v)]
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        found = transform(lambda *x: alibi.attention(*x, softmax_scale=SCALE), (0, 1, 2))(*small)
        close(found, transform(lambda *x: plain(*x)[0], (0, 1, 2))(*small))
    many = tuple(torch.stack([x, 2 * x, -x]) for x in (q, k, v))

    def each(transform):
        return torch.func.vmap(transform, (0, 0, 0, None))(*many, slopes)

    close(each(torch.func.grad(ours, every)), each(torch.func.grad(theirs, every)))
    close(each(lambda *x: alibi.attention(*x[:3], alibi_slopes=x[3])), each(lambda *x: plain(*x)[0]))
    swapped = torch.func.vmap(alibi.attention, (1, 0, 1), 2)(many[0].transpose(0, 1), many[1], many[2].transpose(0, 1))
    assert torch.equal(swapped[:, :, 1], alibi.attention(*(x[1] for x in many)))
    close(torch.func.grad(lambda q: torch.func.vmap(lambda v: ours(q, k, v, slopes))(many[2]).sum())(q),
          torch.func.grad(lambda q: torch.func.vmap(lambda v: theirs(q, k, v, slopes))(many[2]).sum())(q))  # fmt: skip
    points = draw(7, 2)
    metric = (points[:, None] - points[None]).double().norm(dim=-1)

    def ours_at(q, k, v, s):
        return loss(lambda q, k, v: alibi.attention_positions(q, k, v, points, alibi_slopes=s), q, k, v)

    def theirs_at(q, k, v, s):
        return loss(lambda q, k, v: plain(q, k, v, s, metric=metric)[0], q, k, v)

    close(torch.func.grad(ours_at, every)(*given), torch.func.grad(theirs_at, every)(*given))
    close(each(torch.func.grad(ours_at, every)), each(torch.func.grad(theirs_at, every)))
    layer = alibi.AlibiAttention(H * D, H, learned_slopes=True)
    parameters = dict(layer.named_parameters())
    x = draw(3, 1, 7, H * D)
    gradients = torch.func.vmap(torch.func.grad(lambda p, x: torch.func.functional_call(layer, p, x).square().sum()), (None, 0))
    found = gradients(parameters, x)
    layer(x[1]).square().sum().backward()
    for name, parameter in parameters.items():
        close(found[name][1], parameter.grad.double())


def test_autocast_within_a_transform():
    q, k, v = (draw(1, 9, H, D, seed=i) for i in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.func.grad(lambda q: alibi.attention(q, k, v).float().sum())(q)
        out = torch.func.vmap(alibi.attention)(*(x[None] for x in (q, k, v)))
    q.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        alibi.attention(q, k, v).float().sum().backward()
    assert out.dtype == torch.bfloat16 and torch.equal(found, q.grad)


def test_what_has_no_derivative_says_so():
    q, k, v = (draw(1, 5, H, D, seed=i) for i in range(3))
    out, lse = alibi.attention(q, k, v, return_lse=True)
    cache = alibi.KvCache(1, H, D)
    cache.append(k, v)
    keys, values = k.clone(), v.clone()
    lengths = torch.tensor([3])
    calls = {
        "merge": (lambda out: alibi.merge_attention(out, lse, out, lse)[0], out),
        "merge lse": (lambda lse: alibi.merge_attention(out, lse, out, lse)[0], lse),
        "decode": (lambda q: alibi.attention_decode(q, cache), q),
        "append": (lambda k: cache.append(k, v), k),
        "with_kvcache": (lambda q: alibi.flash_attn_with_kvcache(q, keys, values), q),
        "new keys": (lambda k: alibi.flash_attn_with_kvcache(q[:, :1], keys, values, k[:, :1], v[:, :1], cache_seqlens=lengths), k),
        "pages": (lambda x: alibi.flash_attn_varlen_func(q[0], x, values, [0, 5], [0, 5], 5, 5, block_table=[[0]]), keys),
        "cache of a layer": (lambda x: alibi.AlibiAttention(H * D, H)(x, alibi.KvCache(1, H, D)), draw(1, 5, H * D)),
        "dropout": (lambda q: alibi.attention(q, k, v, dropout_p=0.5, dropout_seed=1), q),
        "positions": (lambda x: alibi.attention_positions(q, k, v, x), draw(5, 2)),
    }
    grown = len(cache)
    for name, (call, x) in calls.items():
        with pytest.raises(alibi.Error, match="tangent|transform|forward-mode|gradient"):
            torch.func.jvp(lambda x: call(x), (x,), (torch.ones_like(x),))
            pytest.fail(name)
        with torch.no_grad(), pytest.raises(alibi.Error, match="tangent|forward-mode|gradient"):
            forward_mode(lambda x: (call(x),), (x,), (torch.ones_like(x),))
            pytest.fail(name)
    assert len(cache) == grown and torch.equal(keys, k)
    for twice in (lambda f: torch.func.grad(lambda q: torch.func.grad(f)(q).sum()), torch.func.hessian):
        with pytest.raises(alibi.Error, match="not twice differentiable"):
            twice(lambda q: alibi.attention(q, k, v).sum())(q)
    with pytest.raises(alibi.Error, match="lse has no gradient"):
        torch.func.grad(lambda q: alibi.attention(q, k, v, return_lse=True)[1].sum())(q)
    with pytest.raises(alibi.Error, match="call alibi_attention.attention"):
        torch.func.jvp(lambda q: torch.ops.alibi.attention(q, k, v, None, None, True, 0, 0, 0, None, None, None, None, 0, 0, 0,
                                                            None, None)[0], (q,), (q,))  # fmt: skip
    assert not alibi.attention(q.clone().requires_grad_(), k, v, return_lse=True)[1].requires_grad


def test_compiled_transforms():
    q, k, v = (draw(1, 5, H, D, seed=i) for i in range(3))

    def run(q):
        return torch.func.jvp(lambda q: alibi.attention(q, k, v), (q,), (k,))

    try:
        found = torch.compile(run, backend="eager")(q)
    except RuntimeError as error:  # of PyTorch before 2.15, which raises instead of running the code eagerly
        assert "call alibi_attention.attention() instead, outside of torch.compile" in str(error)
    else:
        close(found, torch.func.jvp(lambda q: plain(q, k, v)[0], (q.double(),), (k.double(),)))
