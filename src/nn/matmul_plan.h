// How a matrix product is cut into tasks: by its shape alone, so that its bits do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace alibi::nn {

/// Tasks are tiles [tile_m, tile_n] of c, each summed over pieces of tile_k of the inner axis; with more than one
/// piece the tasks write partial sums that are added in order.
struct MatmulPlan {
  int64_t tile_m, tile_n, tile_k;
  int64_t tiles_m, tiles_n, pieces_k;

  int64_t tasks() const { return tiles_m * tiles_n * pieces_k; }
};

MatmulPlan plan_matmul(int64_t m, int64_t n, int64_t k, bool may_split_k);

}  // namespace alibi::nn
