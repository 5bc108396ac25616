"""key_padding_mask: each row of a batch as its tokens alone."""

import numpy as np
import pytest

import alibi_attention as alibi
import reference

H, D = 4, 16
# (tokens before which there is padding, tokens) of rows of 40
PADDINGS = {
    "right": [(0, 40), (0, 23), (0, 1), (0, 32)],
    "left": [(0, 40), (17, 23), (39, 1), (8, 32)],
    "both": [(1, 38), (7, 9), (39, 1), (3, 37)],
    "none": [(0, 40)] * 4,
    "rows without tokens": [(0, 0), (5, 20), (0, 0), (0, 0)],
    "only padding": [(0, 0)] * 4,
}


def mask_of(padding, length=40):
    mask = np.ones((len(padding), length), bool)
    for row, (begin, count) in enumerate(padding):
        mask[row, begin : begin + count] = False
    return mask


def qkv(batch=4, queries=40, keys=40, kv_heads=H):
    random = np.random.default_rng(7)
    return [random.standard_normal((batch, n, h, D), np.float32) for n, h in ((queries, H), (keys, kv_heads), (keys, kv_heads))]


def of_tokens(q, k, v, mask, **given):
    """(out, lse) of every row's tokens alone, by the reference; zeros and -inf at padding."""
    out, lse = np.zeros(q.shape), np.full((q.shape[0], H, q.shape[1]), -np.inf)
    first = k.shape[1] - q.shape[1]
    for row in range(len(q)):
        keys = np.flatnonzero(~mask[row])
        queries = keys[keys >= first] - first
        if len(queries):
            found = reference.attention(q[row : row + 1, queries], k[row : row + 1, keys], v[row : row + 1, keys], **given)
            out[row, queries], lse[row][:, queries] = found[0][0], found[1][0]
    return out, lse


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("given", ["plain", "slopes", "window", "grouped", "fewer queries", "one query"])
def test_rows_are_those_of_their_tokens(padding, causal, given):
    queries = {"fewer queries": 25, "one query": 1}.get(given, 40)
    q, k, v = qkv(queries=queries, kv_heads=2 if given == "grouped" else H)
    mask = mask_of(PADDINGS[padding])
    slopes = None if given == "plain" else alibi.slopes(H)
    window = (5, 0 if causal else 5) if given == "window" else (-1, -1)
    for tolerance in (0.0, 2**-24):
        out, lse = alibi.attention(q, k, v, alibi_slopes=slopes, causal=causal, window_size=window, return_lse=True,
                                   key_padding_mask=mask, tolerance=tolerance)  # fmt: skip
        expected, expected_lse = of_tokens(q, k, v, mask, slopes=slopes, causal=causal, window_size=window)
        assert out.shape == q.shape and out.dtype == np.float32 and lse.shape == expected_lse.shape
        assert not (np.abs(out - expected).max() > 1e-6) and np.isfinite(out).all()
        assert (out[mask[:, 40 - queries :]] == 0).all()
        seen = np.isfinite(expected_lse)
        assert np.array_equal(np.isfinite(lse), seen) and np.allclose(lse[seen], expected_lse[seen], atol=1e-5)


def test_padding_is_not_looked_at():
    q, k, v = qkv()
    mask = mask_of(PADDINGS["both"])
    given = {"alibi_slopes": alibi.slopes(H), "causal": False, "key_padding_mask": mask}
    expected = alibi.attention(q, k, v, **given)
    for x in (q, k, v):
        x[mask] = np.nan
    assert np.array_equal(alibi.attention(q, k, v, **given), expected)


@pytest.mark.parametrize("shape", [(0, 40), (4, 0)])
def test_batches_of_nothing(shape):
    q = np.zeros((*shape, H, D), np.float32)
    out, lse = alibi.attention(q, q, q, key_padding_mask=np.zeros(shape, bool), return_lse=True)
    assert out.shape == q.shape and lse.shape == (shape[0], H, shape[1])


def test_other_arrays():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in qkv())
    mask = mask_of(PADDINGS["left"])
    out = alibi.attention(q, k, v, key_padding_mask=mask.tolist())
    expected = of_tokens(*(x.astype(np.float32) for x in (q, k, v)), mask)[0]
    assert out.dtype == q.dtype and np.abs(out.astype(np.float32) - expected).max() < 3e-2


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"key_padding_mask": np.ones((4, 40), np.int64)}, "key_padding_mask is int64, expected bool, True where there is padding"),
        ({"key_padding_mask": np.zeros((4, 39), bool)}, r"shape \(4, 39\), expected \(4, 40\)"),
        ({"key_padding_mask": np.zeros(40, bool)}, r"expected \(4, 40\), \(batch, keys\)"),
        ({"key_padding_mask": np.arange(160).reshape(4, 40) == 45}, "padding between the tokens of row 1"),
        ({"query_offset": 3}, "query_offset 3: expected the queries to be the last rows"),
        ({"cu_seqlens_q": [0, 40], "cu_seqlens_k": [0, 40]}, "are both given"),
        ({"alibi_slopes": np.ones((4, H), np.float32)}, "alibi_slopes has shape"),
    ],
)
def test_what_is_refused(changed, message):
    with pytest.raises(alibi.UsageError, match=message):
        alibi.attention(*qkv(), **{"key_padding_mask": mask_of(PADDINGS["right"]), **changed})
    with pytest.raises(alibi.UsageError, match="expected the queries to be the last rows"):
        alibi.attention(*qkv(queries=41), key_padding_mask=mask_of(PADDINGS["right"]))


def test_hidden_states():
    if not alibi._core.has_models:
        pytest.skip("this build has the operator alone")
    text = "".join(f"line {i} of a text\n" for i in range(300))
    for options in ({}, {"position": "learned"}, {"position": "sinusoidal"}):
        model = alibi.train(text, layers=1, d_model=32, heads=2, train_length=32, train_tokens=2048, batch_tokens=1024, **options).model
        ids = np.random.default_rng(1).integers(0, 256, (4, 20))
        mask = mask_of([(0, 20), (3, 12), (0, 12), (0, 0)], 20)
        states = model.hidden(ids, mask)
        assert states.shape == (4, 20, 32) and (states[mask] == 0).all()
        for row in range(3):
            alone = model.hidden(ids[row][~mask[row]])
            assert np.abs(states[row][~mask[row]] - alone).max() <= 1e-5 * np.abs(alone).max()
        assert np.array_equal(model.hidden(ids[1], mask[1]), model.hidden(ids[1:2], mask[1:2])[0])
        with pytest.raises(alibi.UsageError, match=r"\[hidden\] key_padding_mask"):
            model.hidden(ids, mask[:2])


torch = pytest.importorskip("torch")


def sdpa(q, k, v, s, causal, mask):
    """PyTorch's, in float64 on all rows, with a mask of padding; its rows of padding are nan."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    distance = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])[None]
    bias = -s.double()[:, None, None] * distance.abs()
    if causal:
        bias = bias.masked_fill(distance < 0, float("-inf"))
    bias = bias[None].masked_fill(mask[:, None, None], float("-inf"))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


@pytest.mark.parametrize("padding", ["right", "left", "both", "none", "rows without tokens"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("queries", [40, 25])
def test_values_and_gradients_are_those_of_sdpa(padding, causal, queries):
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in qkv(queries=queries, kv_heads=2))
    mask = torch.from_numpy(mask_of(PADDINGS[padding]))
    s = torch.tensor(alibi.slopes(H)).requires_grad_()
    kept = ~mask[:, 40 - queries :]
    out = alibi.attention(q, k, v, alibi_slopes=s, causal=causal, key_padding_mask=mask)
    theirs = sdpa(q, k, v, s, causal, mask)
    assert (out[~kept] == 0).all() and (out[kept].double() - theirs[kept]).abs().max() <= 1e-6
    weights = torch.randn(out[kept].shape)
    ours = torch.autograd.grad((out[kept] * weights).sum(), (q, k, v, s))
    # Rows of padding have no key there, and nan would reach every gradient: they are computed from the row's tokens alone.
    total = 0
    for row in range(4):
        tokens = (~mask[row]).nonzero()[:, 0]
        asking = tokens[tokens >= 40 - queries] - (40 - queries)
        if len(asking):
            one = sdpa(q[row : row + 1, asking], k[row : row + 1, tokens], v[row : row + 1, tokens], s, causal,
                       torch.zeros(1, len(tokens), dtype=torch.bool))  # fmt: skip
            begin = int(kept[:row].sum())
            total = total + (one[0] * weights[begin : begin + len(asking)]).sum()
    for a, b in zip(ours, torch.autograd.grad(total, (q, k, v, s))):
        assert not torch.isnan(a).any() and (a.double() - b.double()).abs().max() <= 1e-5 * max(1, b.abs().max())


@pytest.mark.parametrize("causal", [True, False])
def test_numpy_and_pytorch_give_the_same_bits(causal):
    q, k, v = qkv()
    mask = mask_of(PADDINGS["both"])
    given = {"alibi_slopes": alibi.slopes(H), "causal": causal, "return_lse": True}
    ours = alibi.attention(q, k, v, key_padding_mask=mask, **given)
    for of_mask in (mask, torch.from_numpy(mask)):
        theirs = alibi.attention(*(torch.from_numpy(x) for x in (q, k, v)), key_padding_mask=of_mask, **given)
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(ours, theirs))


@pytest.mark.parametrize("causal", [True, False])
def test_the_module(causal):
    torch.manual_seed(1)
    module = alibi.AlibiAttention(64, 4, kv_heads=2, causal=causal, bias=True, learned_slopes=True)
    x = torch.randn(4, 40, 64, requires_grad=True)
    mask = torch.from_numpy(mask_of(PADDINGS["both"]))
    out = module(x, key_padding_mask=mask)
    assert (out[mask] == 0).all() and torch.equal(out, module(x, key_padding_mask=mask.tolist()))
    lengths = [int(count) for count in (~mask).sum(1)]
    packed = module(x[~mask][None], cu_seqlens=np.cumsum([0, *lengths]))
    assert torch.equal(packed[0], out[~mask])
    for row in range(4):
        assert (module(x[row][~mask[row]][None])[0] - out[row][~mask[row]]).abs().max() < 1e-5
    out.square().sum().backward()
    assert (x.grad[mask] == 0).all() and (x.grad[~mask].abs().amax(-1) > 0).all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    with torch.no_grad(), pytest.raises(alibi.UsageError, match="a cache holds sequences of one length"):
        module(x, alibi.KvCache(4, 2, 16), key_padding_mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x, key_padding_mask=mask).dtype == torch.bfloat16


def test_torch_compile_splits_its_graph_at_a_mask():
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in qkv())
    mask = torch.from_numpy(mask_of(PADDINGS["right"]))

    def run(q, k, v, mask):
        return alibi.attention(2 * q, k, v, key_padding_mask=mask) * 3

    assert torch.equal(torch.compile(run, backend="eager")(q, k, v, mask), run(q, k, v, mask))


def test_dropout_repeats():
    q, k, v = (torch.from_numpy(x) for x in qkv())
    mask = torch.from_numpy(mask_of(PADDINGS["right"]))
    a, b = (alibi.attention(q, k, v, dropout_p=0.5, dropout_seed=5, key_padding_mask=mask) for _ in range(2))
    assert torch.equal(a, b) and not torch.equal(a, alibi.attention(q, k, v, key_padding_mask=mask))
