"""Wrong values for every argument of the operator's functions, in NumPy and PyTorch, and arrays that must not be written."""


import numpy as np
import pytest

import alibi_attention as alibi
import wrong_values

H, D = 4, 16
KINDS = ["numpy", "torch", "torch with gradients"]


def draw(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, np.float32)


def as_kind(kind, *arrays):
    if kind == "numpy":
        return arrays
    torch = pytest.importorskip("torch")
    return tuple(torch.tensor(x, requires_grad=kind != "torch") for x in arrays)


ATTENTION = {
    "q": "array", "k": "array", "v": "array", "alibi_slopes": "slopes", "alibi_slopes_after": "slopes", "causal": "flag",
    "window_size": "window", "softmax_scale": [0, 0.0, 1e-46, *wrong_values.WRONG["number"]],
    "sinks": "slopes", "log_decay": "slopes", "softcap": [1e-46, -1.0, *wrong_values.WRONG["number"]], "dropout_p": "share", "query_offset": "integer",
    "cu_seqlens_q": "offsets", "cu_seqlens_k": "offsets", "tolerance": "share", "return_lse": "flag",
    "dropout_seed": "integer", "key_padding_mask": [x for x in wrong_values.WRONG["array"] if x is not None],
}  # fmt: skip


def has_all(function, kinds, without=()):
    assert set(wrong_values.arguments_of(function)) == {*kinds, *without}


@pytest.mark.parametrize("kind", KINDS)
def test_attention(kind):
    q, k, v = as_kind(kind, *(draw(1, 6, H, D, seed=i) for i in range(3)))
    has_all(alibi.attention, ATTENTION)
    given = {"q": q, "k": k, "v": v, "causal": False, "alibi_slopes": alibi.slopes(H)}
    apart = {"cu_seqlens_q", "cu_seqlens_k"}
    wrong_values.check(alibi.attention, given, {n: x for n, x in ATTENTION.items() if n not in apart}, [q, k, v])
    given["cu_seqlens_q"] = given["cu_seqlens_k"] = np.array([0, 2, 6])
    wrong_values.check(alibi.attention, given, {n: ATTENTION[n] for n in apart}, [q, k, v])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_decode_and_cache(kind):
    q, k, v = as_kind(kind, *(draw(1, 3, H, D, seed=i) for i in range(3)))
    cache = alibi.KvCache(1, H, D)
    cache.append(k, v)
    own = {"cache": [x for x in wrong_values.WRONG["array"]]}
    kinds = {name: ATTENTION[name] for name in wrong_values.arguments_of(alibi.attention_decode) if name in ATTENTION}
    has_all(alibi.attention_decode, kinds | own)
    given = {"q": q, "cache": cache, "causal": False, "alibi_slopes": alibi.slopes(H)}
    wrong_values.check(alibi.attention_decode, given, kinds | own, [q])
    wrong_values.check(cache.append, {"k": k, "v": v}, {"k": "array", "v": "array"}, [k, v])
    wrong_values.check(cache.truncate, {}, {"length": "count"})
    wrong_values.check(cache.reserve, {}, {"keys": "count"})
    assert len(cache) == 3 and np.array_equal(cache.keys(), np.asarray(k))
    numbers = dict.fromkeys(("batch", "kv_heads", "head_dim"), "count")
    has_all(alibi.KvCache, numbers | {"dtype": "choice"})
    wrong_values.check(alibi.KvCache, {"batch": 1, "kv_heads": 2, "head_dim": 8}, numbers | {"dtype": "choice"})


@pytest.mark.parametrize("kind", KINDS)
def test_positions(kind):
    q, k, v = as_kind(kind, *(draw(1, 6, H, D, seed=i) for i in range(3)))
    points = draw(6, 2)
    kinds = {
        "q": "array", "k": "array", "v": "array", "positions_q": "array",
        "positions_k": [x for x in wrong_values.WRONG["array"] if x is not None], "alibi_slopes": "slopes",
        "distance": "choice", "leading": "count", "softmax_scale": ATTENTION["softmax_scale"], "cu_seqlens_q": "offsets",
        "cu_seqlens_k": "offsets", "seqused_q": "offsets", "seqused_k": "offsets", "tolerance": "share", "return_lse": "flag",
    }  # fmt: skip
    has_all(alibi.attention_positions, kinds)
    given = {"q": q, "k": k, "v": v, "positions_q": points, "alibi_slopes": alibi.slopes(H)}
    apart = {"cu_seqlens_q", "cu_seqlens_k"}
    wrong_values.check(alibi.attention_positions, given, {n: x for n, x in kinds.items() if n not in apart}, [q, k, v])
    given["cu_seqlens_q"] = given["cu_seqlens_k"] = np.array([0, 2, 6])
    wrong_values.check(alibi.attention_positions, given, {n: kinds[n] for n in apart}, [q, k, v])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_merge(kind):
    q, k, v = (draw(1, 6, H, D, seed=i) for i in range(3))
    given = dict(zip(("out_a", "lse_a"), alibi.attention(q, k, v, return_lse=True)))
    given |= dict(zip(("out_b", "lse_b"), alibi.attention(q, v, k, return_lse=True)))
    given = dict(zip(given, as_kind(kind, *given.values())))
    has_all(alibi.merge_attention, given)
    wrong_values.check(alibi.merge_attention, given, dict.fromkeys(given, "array"), list(given.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_flash(kind):
    arrays = as_kind(kind, *(draw(1, 6, H, D, seed=i) for i in range(3)))
    common = {name: x for name, x in ATTENTION.items() if name in wrong_values.arguments_of(alibi.flash_attn_func)}
    flags = {"deterministic": "flag", "return_attn_probs": "flag"}
    has_all(alibi.flash_attn_func, common | flags)
    wrong_values.check(alibi.flash_attn_func, dict(zip("qkv", arrays)), common | flags, arrays)
    packed = tuple(x[0] for x in arrays)
    own = {"cu_seqlens_q": "offsets", "cu_seqlens_k": "offsets", "max_seqlen_q": "integer", "max_seqlen_k": "integer",
           "block_table": [x for x in wrong_values.WRONG["array"] if x is not None]}  # fmt: skip
    has_all(alibi.flash_attn_varlen_func, common | flags | own)
    offsets = np.array([0, 2, 6])
    given = dict(zip("qkv", packed)) | {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets, "max_seqlen_q": 4, "max_seqlen_k": 4}
    wrong_values.check(alibi.flash_attn_varlen_func, given, common | flags | {n: x for n, x in own.items() if n != "block_table"},
                       packed)  # fmt: skip
    pages = as_kind(kind, draw(3, 4, H, D), draw(3, 4, H, D, seed=1))
    given |= {"k": pages[0], "v": pages[1], "block_table": np.array([[0, 1], [2, 1]])}
    right = repr(np.zeros((2, 3), np.int64))  # as a block table
    paged = {n: x for n, x in (common | flags | own).items() if n not in "kv"} | {"dropout_p": [0.5, *wrong_values.WRONG["share"]]}
    named = {"k": "k|k_cache", "v": "v|v_cache"}
    wrong_values.check(alibi.flash_attn_varlen_func, given, paged, [packed[0], *pages], named=named, accepted=[("block_table", right)])


CACHE = {
    "q": "array", "k_cache": "array", "v_cache": "array", "k": "array", "v": "array", "rotary_cos": "array",
    "rotary_sin": "array", "cache_seqlens": [1.5, "1", [0.5, 1.5], [1], 2**70, -1, [-1, 0], [2**40, 1], [True, False], 9,
                                             [[1, 2]], np.array([1 + 2j] * 2), *wrong_values.NOTHING],
    "cache_batch_idx": [x for x in wrong_values.WRONG["offsets"]], "cache_leftpad": [x for x in wrong_values.WRONG["offsets"]],
    "softmax_scale": ATTENTION["softmax_scale"], "causal": "flag", "window_size": "window", "softcap": ATTENTION["softcap"],
    "rotary_interleaved": "flag", "alibi_slopes": "slopes", "num_splits": "integer", "return_softmax_lse": "flag",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS[:2])
def test_flash_with_kvcache(kind):
    q, k, v = as_kind(kind, *(draw(2, 1, H, D, seed=i) for i in range(3)))
    k_cache, v_cache = as_kind(kind, draw(3, 8, H, D), draw(3, 8, H, D, seed=1))
    cos, sin = as_kind(kind, draw(9, 4), draw(9, 4, seed=1))
    has_all(alibi.flash_attn_with_kvcache, CACHE, ["block_table"])
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "rotary_cos": cos, "rotary_sin": sin,
             "cache_seqlens": np.array([3, 1], np.int32)}  # fmt: skip
    unchanged = [q, k, v, k_cache, v_cache, cos, sin]
    wrong_values.check(alibi.flash_attn_with_kvcache, given, CACHE, unchanged)
    tables = [x for x in wrong_values.WRONG["array"] if x is not None] + [[[0, 1], [0, 9]], [[0, -1]], np.array([[0, 1], [0, 2]])]
    wrong_values.check(alibi.flash_attn_with_kvcache, given, {"block_table": tables}, unchanged)
    wrong_values.check(alibi.flash_attn_with_kvcache, given, {"cache_batch_idx": [[0, 0], [2, 2]]}, unchanged)
    given["cache_seqlens"] = np.array([8, 1], np.int32)  # no row is left
    wrong_values.check(alibi.flash_attn_with_kvcache, given, {"q": [q]}, unchanged, named={"q": "k_cache|block_table|rotary_cos"})


def test_plain_functions():
    wrong_values.check(alibi.slopes, {"heads": 4}, {"heads": [0, 2**40, *wrong_values.WRONG["count"]],
                                                    "bias_max": [0, -1.0, *wrong_values.WRONG["number"]]},
                       accepted=[("bias_max", "1e+300")])  # fmt: skip
    threads = alibi.threads()
    wrong_values.check(alibi.set_threads, {}, {"count": "count"})
    assert alibi.threads() == threads


def test_module():
    torch = pytest.importorskip("torch")
    numbers = dict.fromkeys(("embed_dim", "num_heads", "kv_heads"), [0, -4, *wrong_values.WRONG["integer"]])
    kinds = numbers | {"bias": "flag", "causal": "flag", "window_size": "window", "dropout": "share", "learned_slopes": "flag",
                       "tolerance": "share"}  # fmt: skip
    has_all(alibi.AlibiAttention.__init__, kinds)
    wrong_values.check(alibi.AlibiAttention, {"embed_dim": 64, "num_heads": 4}, kinds)
    layer, x = alibi.AlibiAttention(64, 4), torch.randn(1, 6, 64)
    some = [y for y in wrong_values.WRONG["array"] if y is not None]
    given = {"cache": some, "key_padding_mask": some, "cu_seqlens": "offsets"}
    has_all(alibi.AlibiAttention.forward, given, ["x"])
    wrong_values.check(layer.forward, {"x": x}, given, [x], named={"cu_seqlens": "cu_seqlens_q"})


def test_one_name_for_what_python_and_what_cpp_refuses():
    q, k, v = (draw(1, 6, H, D, seed=i) for i in range(3))
    for wrong in ({"tolerance": 2.0}, {"softmax_scale": 0}, {"k": k[:, :, :3]}, {"alibi_slopes": [-1.0] * H}):
        with pytest.raises(alibi.UsageError) as found:
            alibi.attention(**{"q": q, "k": k, "v": v, **wrong})
        assert next(iter(wrong)) in str(found.value) and "options." not in str(found.value)


def append(k_cache, v_cache, lengths=(3, 1), **more):
    q, k, v = (draw(2, 1, H, D, seed=i) for i in range(3))
    return alibi.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=np.array(lengths, np.int32), **more)


def test_read_only_caches_are_not_written(tmp_path):
    path = tmp_path / "cache"
    cache = draw(2, 8, H, D)
    cache.tofile(path)
    mapped = np.memmap(path, np.float32, "r", shape=cache.shape)
    frozen = cache.copy()
    frozen.flags.writeable = False
    bytes_ = np.frombuffer(cache.tobytes(), np.float32).reshape(cache.shape)
    one_row = np.broadcast_to(draw(1, 8, H, D), cache.shape)
    row = one_row.copy()
    for read_only in (mapped, frozen, bytes_, one_row):
        for given in ((read_only, cache.copy()), (cache.copy(), read_only)):
            before = np.array(given[0]), np.array(given[1])
            with pytest.raises(alibi.UsageError, match="_cache is read-only"):
                append(*given)
            assert np.array_equal(before[0], given[0]) and np.array_equal(before[1], given[1])
        alibi.flash_attn_with_kvcache(draw(2, 1, H, D), read_only, read_only)  # reading is right
    assert np.array_equal(one_row, row)
    overlapping = np.lib.stride_tricks.as_strided(cache, cache.shape, (0, *cache.strides[1:]))
    with pytest.raises(alibi.UsageError, match="k_cache has strides"):
        append(overlapping, cache.copy())
    with pytest.raises(alibi.UsageError, match="v_cache shares memory with k_cache"):
        append(cache, cache)
    written = np.memmap(path, np.float32, "r+", shape=cache.shape)
    append(written, cache.copy())
    assert np.array_equal(written[0, 3], draw(2, 1, H, D, seed=1)[0, 0])


@pytest.mark.parametrize("wrong", [
    {"alibi_slopes": [-1.0] * H}, {"alibi_slopes": alibi.slopes(3)}, {"softmax_scale": 0.0}, {"softcap": -1.0},
    {"window_size": (1.5, 2)}, {"causal": "no"}, {"cache_batch_idx": [0, 0]}, {"cache_leftpad": [4, 0]},
    {"lengths": (3, 8)}, {"block_table": np.array([[0, 1], [0, 1]])}, {"return_softmax_lse": "no"},
])  # fmt: skip
def test_a_call_that_raises_leaves_the_cache(wrong):
    k_cache, v_cache = draw(3, 8, H, D), draw(3, 8, H, D, seed=1)
    before = k_cache.copy(), v_cache.copy()
    with pytest.raises((TypeError, ValueError)):
        append(k_cache, v_cache, **wrong)
    assert np.array_equal(before[0], k_cache) and np.array_equal(before[1], v_cache)


def test_unsigned_integers_are_no_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (draw(1, 6, H, D, seed=i).astype(ml_dtypes.bfloat16) for i in range(3))
    assert alibi.attention(q, k, v).dtype == ml_dtypes.bfloat16
    for bits in ((q.view(np.uint16), k.view(np.uint16), v.view(np.uint16)), (q, k.view(np.uint16), v)):
        with pytest.raises(alibi.UsageError, match="uint16"):
            alibi.attention(*bits)


def test_offsets_beyond_32_bits_do_not_wrap():
    q, k, v = (draw(1, 6, H, D, seed=i) for i in range(3))
    for offsets in (np.array([2**32, 2**32 + 6]), np.array([0, 2**32 + 6])):
        for kind in KINDS if "torch" in globals() else KINDS[:1]:
            with pytest.raises(alibi.UsageError, match="cu_seqlens_q"):
                alibi.attention(*as_kind(kind, q, k, v), cu_seqlens_q=offsets, cu_seqlens_k=offsets)
