#include "nn/matmul_plan.h"

#include <algorithm>

#include "core/parallel.h"

namespace alibi::nn {
namespace {

/// Enough tasks to keep 16 threads busy.
constexpr int64_t most_tasks = 32;
/// Multiplications below which a task is not worth handing to another thread (some 50 microseconds).
constexpr int64_t least_cost = int64_t{1} << 22;
/// An element read, packed or written costs about as much as this many multiplications.
constexpr int64_t element_cost = 16;
constexpr int64_t most_pieces_k = 4;

int64_t cost(int64_t m, int64_t n, int64_t k) { return m * n * k + element_cost * (m * k + k * n + m * n); }

/// Half of x, in whole steps of the blocks that the kernels work in.
int64_t half(int64_t x, int64_t block) { return ceil_div(ceil_div(x, 2), block) * block; }

}  // namespace

MatmulPlan plan_matmul(int64_t m, int64_t n, int64_t k, bool may_split_k) {
  constexpr int64_t block_m = 32, block_n = 64, block_k = 256;
  MatmulPlan plan{m, n, k, 1, 1, 1};
  while (plan.tasks() < most_tasks && cost(plan.tile_m, plan.tile_n, plan.tile_k) >= 2 * least_cost) {
    // What a task packs or reads grows with tile_m + tile_n for each k, so the longer side is cut. An inner axis that
    // is much longer than both is cut first: halves of it leave the tiles square and large.
    const bool cut_k =
        may_split_k && plan.pieces_k < most_pieces_k && plan.tile_k >= 8 * std::max(plan.tile_m, plan.tile_n);
    const bool can_cut_m = plan.tile_m > block_m, can_cut_n = plan.tile_n > block_n;
    if (cut_k) {
      plan.tile_k = half(plan.tile_k, block_k);
    } else if (can_cut_m && (plan.tile_m >= plan.tile_n || !can_cut_n)) {
      plan.tile_m = half(plan.tile_m, block_m);
    } else if (can_cut_n) {
      plan.tile_n = half(plan.tile_n, block_n);
    } else {
      break;
    }
    plan.tiles_m = ceil_div(m, plan.tile_m);
    plan.tiles_n = ceil_div(n, plan.tile_n);
    plan.pieces_k = ceil_div(k, plan.tile_k);
  }
  return plan;
}

}  // namespace alibi::nn
