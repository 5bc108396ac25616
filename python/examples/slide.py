"""Attention over the tiles of a slide: a grid with holes, a CLS token, 12 heads of 64, distances in tiles.

    python python/examples/slide.py                  # 20,000 tiles
    python python/examples/slide.py --tiles 100000 --backward

Prints the time, the growth of memory, and how far the sampled rows are from float64 with the row of distances.
"""

import argparse
import resource
import time

import numpy as np

import alibi_attention as alibi


def slide(tiles: int, seed: int = 0) -> np.ndarray:
    """(tiles, 2): columns and rows of the tiles that show tissue, which is some blobs with holes."""
    random = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(2.2 * tiles)))
    rows, columns = np.divmod(np.arange(side * side), side)
    centres = random.uniform(0.2, 0.8, (7, 2)) * side
    radii = random.uniform(0.15, 0.35, 7) * side
    depth = np.max([1 - np.hypot(columns - x, rows - y) / r for (x, y), r in zip(centres, radii)], axis=0)
    depth -= 3.0 * (random.random(side * side) < 0.1)  # tiles without tissue
    chosen = np.sort(np.argsort(-depth, kind="stable")[:tiles])
    return np.stack([columns[chosen], rows[chosen]], -1)


def peak() -> float:
    """GiB of the process at its peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiles", type=int, default=20_000)
    parser.add_argument("--tolerance", type=float, default=2**-24)
    parser.add_argument("--backward", action="store_true", help="with gradients, in PyTorch")
    given = parser.parse_args()
    heads, head_dim = 12, 64
    coords = np.concatenate([np.zeros((1, 2), int), slide(given.tiles)])  # the position of CLS is not used
    random = np.random.default_rng(1)
    q, k, v = random.standard_normal((3, 1, given.tiles + 1, heads, head_dim), np.float32)
    slopes = alibi.slopes(heads)
    before, start = peak(), time.perf_counter()
    out = alibi.attention_positions(q, k, v, coords, alibi_slopes=slopes, leading=1, tolerance=given.tolerance)
    seconds = time.perf_counter() - start
    print(f"{given.tiles} tiles: {seconds:.2f} s, {1e6 * seconds / given.tiles:.1f} us per tile, "
          f"{peak() - before:.2f} GiB more memory; the matrix of distances of all heads would have "
          f"{heads * 4 * (given.tiles + 1) ** 2 / 2**30:.1f} GiB")  # fmt: skip
    worst = 0.0
    for row in [0, 1, given.tiles // 2, given.tiles]:
        distances = np.hypot(*(coords - coords[row]).T) * (row > 0)
        distances[0] = 0
        for head in range(heads):
            scores = k[0, :, head].astype(float) @ q[0, row, head] / np.sqrt(head_dim) - slopes[head] * distances
            weights = np.exp(scores - scores.max())
            expected = weights @ v[0, :, head] / weights.sum()
            worst = max(worst, float(np.abs(expected - out[0, row, head]).max()))
    print(f"largest difference to float64 in four rows: {worst:.1e}")
    assert worst <= 1e-5
    if given.backward:
        import torch

        inputs = [torch.from_numpy(x).requires_grad_() for x in (q, k, v, slopes)]
        result = alibi.attention_positions(*inputs[:3], coords, alibi_slopes=inputs[3], leading=1,
                                           tolerance=given.tolerance)  # fmt: skip
        start = time.perf_counter()
        result.sum().backward()
        print(f"backward: {time.perf_counter() - start:.2f} s; gradients of the slopes: {inputs[3].grad.tolist()}")


if __name__ == "__main__":
    main()
