"""flash_attn_with_kvcache: a cache that the caller owns."""

import numpy as np
import pytest

import alibi_attention as alibi
import reference

H, D = 4, 16


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, np.float32).astype(dtype)


def error(a, b):
    return np.abs(np.asarray(a, np.float64) - b).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("given", ["plain", "causal", "slopes", "window", "softcap", "one length", "leftpad", "entries", "scale"])
def test_matches_the_formula(given, queries, dtype):
    lengths = np.array([90, 47], np.int32)
    k_cache, v_cache = draw(5, 96, 2, D, seed=1, dtype=dtype), draw(5, 96, 2, D, seed=2, dtype=dtype)
    entries, first = np.array([0, 1], np.int32), np.array([0, 0], np.int32)
    q = draw(2, queries, H, D, dtype=dtype)
    ours, theirs = {"cache_seqlens": lengths}, {"causal": given == "causal"}
    if given == "causal":
        ours["causal"] = True
    if given == "slopes":
        ours["alibi_slopes"] = theirs["slopes"] = np.stack([alibi.slopes(H), alibi.slopes(H) / 3])
    if given == "window":
        ours["window_size"] = theirs["window_size"] = (10, 3)
    if given == "softcap":
        ours["softcap"] = theirs["softcap"] = 0.5
    if given == "scale":
        ours["softmax_scale"] = theirs["scale"] = 0.7
    if given == "one length":
        lengths = np.array([60, 60], np.int32)
        ours["cache_seqlens"] = 60
    if given == "leftpad":
        ours["cache_leftpad"] = first = np.array([7, 13], np.int32)
    if given == "entries":
        ours["cache_batch_idx"] = entries = np.array([3, 0], np.int32)
    else:
        k_cache, v_cache = k_cache[:2], v_cache[:2]
    out, lse = alibi.flash_attn_with_kvcache(q, k_cache, v_cache, return_softmax_lse=True, **ours)
    assert out.dtype == dtype and lse.shape == (2, H, queries)
    for b in range(2):
        one = {name: x[b] if name == "slopes" else x for name, x in theirs.items()}
        keys, values = (x[entries[b], first[b] : lengths[b]][None] for x in (k_cache, v_cache))
        expected, expected_lse = reference.attention(q[b : b + 1], keys, values, **one)
        assert error(out[b], expected[0]) <= (3e-6 if dtype == np.float32 else 2e-3)
        assert error(lse[b], expected_lse[0]) <= 3e-5


@pytest.mark.parametrize("rows", [1, 16, 48, 64, 256])
def test_pages_of_any_size(rows):
    lengths = np.array([200, 3, 65], np.int32)
    most = -(-203 // rows)
    order = np.random.default_rng(1).permutation(3 * most + 2).astype(np.int32)
    table = order[: 3 * most].reshape(3, most)
    k_cache, v_cache = draw(len(order), rows, 2, D, seed=1), draw(len(order), rows, 2, D, seed=2)
    k, v, q = draw(3, 3, 2, D, seed=3), draw(3, 3, 2, D, seed=4), draw(3, 3, H, D)
    out = alibi.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=table, causal=True,
                                        alibi_slopes=alibi.slopes(H))  # fmt: skip
    for b in range(3):
        keys, values = (x[table[b]].reshape(1, -1, 2, D)[:, : lengths[b] + 3] for x in (k_cache, v_cache))
        assert np.array_equal(keys[0, -3:], k[b]) and np.array_equal(values[0, -3:], v[b])
        assert error(out[b], reference.attention(q[b : b + 1], keys, values, alibi.slopes(H))[0][0]) <= 3e-6


def rotate(x, cos, sin, interleaved):
    """x (length, heads, head_dim) in float64, with a row of angles for each token."""
    x, half = np.array(x, np.float64), cos.shape[-1]
    cos, sin = cos[:, None].astype(np.float64), sin[:, None].astype(np.float64)
    a, b = (x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]) if interleaved else (x[..., :half], x[..., half : 2 * half])
    a, b = a * cos - b * sin, a * sin + b * cos
    parts = np.stack([a, b], -1).reshape(*a.shape[:-1], 2 * half) if interleaved else np.concatenate([a, b], -1)
    return np.concatenate([parts, x[..., 2 * half :]], -1)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_rotary(interleaved, causal):
    lengths = np.array([20, 5], np.int32)
    angles = np.random.default_rng(2).uniform(0, 6, (40, 4)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    k_cache, v_cache = draw(2, 40, 2, D, seed=1), draw(2, 40, 2, D, seed=2)
    k, v, q = draw(2, 3, 2, D, seed=3), draw(2, 3, 2, D, seed=4), draw(2, 3, H, D)
    given = q.copy(), k.copy()
    out = alibi.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cos, sin, lengths, causal=causal,
                                        rotary_interleaved=interleaved)  # fmt: skip
    assert np.array_equal(q, given[0]) and np.array_equal(k, given[1])
    for b in range(2):
        at = lengths[b] + np.arange(3)
        of_queries = at if causal else np.full(3, lengths[b])
        assert error(k_cache[b, at], rotate(k[b], cos[at], sin[at], interleaved)) <= 1e-6
        rotated = rotate(q[b], cos[of_queries], sin[of_queries], interleaved)[None]
        expected, _ = reference.attention(rotated, *(x[b : b + 1, : at[-1] + 1] for x in (k_cache, v_cache)), causal=causal)
        assert error(out[b], expected[0]) <= 3e-6


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = draw(2, 1, H, D, dtype=bfloat16), draw(2, 70, 2, D, seed=1, dtype=bfloat16), draw(2, 70, 2, D, seed=2, dtype=bfloat16)
    new = draw(2, 1, 2, D, seed=3, dtype=bfloat16)
    out = alibi.flash_attn_with_kvcache(q, k, v, new, new, cache_seqlens=60)
    assert out.dtype == bfloat16 and np.array_equal(k[:, 60:61], new)
    expected, _ = reference.attention(*(np.asarray(x, np.float64) for x in (q, k[:, :61], v[:, :61])), causal=False)
    assert error(out, expected) <= 1e-2


def test_errors_name_the_argument():
    q, k_cache, new = draw(2, 1, H, D), draw(2, 16, 2, D), draw(2, 1, 2, D)
    table = np.array([[0], [1]], np.int32)

    def call(*given, **named):
        return lambda: alibi.flash_attn_with_kvcache(q, k_cache, k_cache.copy(), *given, **named)

    for wrong, message in [
        (call(cache_seqlens=17), "cache_seqlens is"),
        (call(cache_seqlens=[1, 2, 3]), "cache_seqlens is"),
        (call(cache_seqlens=[1.5, 2]), "cache_seqlens is float64"),
        (call(new, cache_seqlens=3), "only one of k and v"),
        (call(new, new), "k is given without cache_seqlens"),
        (call(new, new, cache_seqlens=16, block_table=table), "block_table has 1 pages of 16 rows"),
        (call(cache_seqlens=17, block_table=table), "block_table has 1 pages of 16 rows"),
        (call(cache_seqlens=3, block_table=table + 1), r"block_table\[1\]\[0\] is 2, expected 0 to 1"),
        (call(cache_seqlens=3, block_table=table[:1]), "block_table has 1 entries, expected 2"),
        (call(cache_seqlens=3, block_table=table, cache_leftpad=table[:, 0]), "cache_leftpad is given beside a block_table"),
        (call(cache_seqlens=3, cache_batch_idx=[0, 2]), "cache_batch_idx has"),
        (call(cache_seqlens=3, cache_leftpad=[0, 4]), "cache_leftpad is"),
        (call(rotary_cos=q, rotary_sin=q), "rotary_cos is given without k"),
        (call(new, new, np.ones((40, 4)), cache_seqlens=3), "only one of rotary_cos and rotary_sin"),
        (call(new, new, np.ones((3, 4)), np.ones((3, 4)), 3), "rotary_cos has 3 positions, expected at least 4"),
        (call(new, new, np.ones((9, 9)), np.ones((9, 9)), 3), "rotary_dim at most 16"),
        (call(cache_seqlens=3, alibi_slopes=np.ones(3)), "alibi_slopes has shape"),
        (lambda: alibi.flash_attn_with_kvcache(q, k_cache, k_cache[:, :3]), "v_cache has shape"),
        (lambda: alibi.flash_attn_with_kvcache(q, k_cache.astype(np.float16), k_cache), "k is float16|k_cache is float16"),
    ]:
        with pytest.raises(alibi.Error, match=message):
            wrong()
