// The space-filling curve, the blocks and their distances.
#include "attention/spatial/order.h"

#include <algorithm>
#include <set>

#include "attention/skip/penalties.h"
#include "attention/spatial/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// The curve visits each cell once, and goes from each cell to a neighbour.
TEST(SpatialOrder, TheCurveVisitsNeighbours) {
  for (const int dims : {1, 2, 3}) {
    constexpr int bits = 3;
    const uint64_t side = 1 << bits, cells = dims == 1 ? side : dims == 2 ? side * side : side * side * side;
    std::vector<std::array<uint64_t, max_dims>> cell_of(cells, {99, 99, 99});
    for (uint64_t i = 0; i < cells; ++i) {
      const std::array<uint64_t, max_dims> cell = {i % side, i / side % side, i / side / side};
      const uint64_t index = hilbert_index(cell, dims, bits);
      ASSERT_LT(index, cells);
      ASSERT_EQ(cell_of[index][0], 99u) << "two cells have index " << index;
      cell_of[index] = cell;
    }
    for (uint64_t i = 1; i < cells; ++i) {
      int64_t steps = 0;
      for (size_t axis = 0; axis < max_dims; ++axis) {
        steps += std::abs(static_cast<int64_t>(cell_of[i][axis]) - static_cast<int64_t>(cell_of[i - 1][axis]));
      }
      EXPECT_EQ(steps, 1) << "dims " << dims << " index " << i;
    }
  }
}

TEST(SpatialOrder, BlocksHoldEveryTokenOnceInTheirBox) {
  for (const Pattern pattern : all_patterns) {
    for (const int64_t tokens : {0, 1, 63, 64, 65, 500}) {
      for (const int64_t leading : {0, 1, 70}) {
        for (const int dims : {1, 2, 3}) {
          const std::vector<float> at = points(pattern, 1, tokens, dims, 3).to_floats();
          const TokenOrder order = make_order(at, dims, leading, 64);
          EXPECT_EQ(order.leading, std::min(leading, tokens));
          EXPECT_EQ(order.size(), (tokens + 63) / 64);
          std::set<int32_t> seen;
          for (int64_t i = 0; i < tokens; ++i) {
            const int32_t row = order.rows[static_cast<size_t>(i)];
            seen.insert(row);
            EXPECT_EQ(row < leading, i < order.leading);
            const Box* const box = order.box(i / 64);
            EXPECT_EQ(box == nullptr, i / 64 * 64 < order.leading);
            for (int axis = 0; axis < dims && row >= leading; ++axis) {
              const float x = at[static_cast<size_t>(row * dims + axis)];
              EXPECT_EQ(order.axis(axis)[i], x);
              if (box == nullptr) continue;
              EXPECT_TRUE(box->low[static_cast<size_t>(axis)] <= x && x <= box->high[static_cast<size_t>(axis)]);
            }
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), tokens);
        }
      }
    }
  }
}

/// Blocks of the curve are compact: on a full grid of 64 x 64, a block of 64 tokens is a square of 8 x 8.
TEST(SpatialOrder, BlocksOfAGridAreSquares) {
  std::vector<float> at;
  for (int i = 0; i < 64 * 64; ++i) {
    at.push_back(static_cast<float>(i % 64));
    at.push_back(static_cast<float>(i / 64));
  }
  for (const Box& box : make_order(at, 2, 0, 64).boxes) {
    EXPECT_EQ(box.high[0] - box.low[0], 7);
    EXPECT_EQ(box.high[1] - box.low[1], 7);
  }
}

/// In one dimension, sorted tokens keep their order.
TEST(SpatialOrder, OneDimensionIsSorted) {
  const std::vector<float> at = points(Pattern::random, 1, 300, 1, 4, 1e6).to_floats();
  const TokenOrder order = make_order(at, 1, 0, 64);
  for (size_t i = 1; i < 300; ++i) EXPECT_LE(order.coordinates[i - 1], order.coordinates[i]);
}

/// The lower bound never exceeds the distance that the kernels compute, which is float32 with flushed denormals.
TEST(SpatialOrder, ABoxOfTwoContainsBoth) {
  for (const Box& other : {Box{{-3, 5}, {-1, 6}}, Box{{4, -7}, {5, -6}}, Box{{0.5f, 0.5f}, {0.75f, 0.75f}}}) {
    Box both{{0, 0}, {1, 1}};
    both.add(other, 2);
    for (size_t axis = 0; axis < 2; ++axis) {
      EXPECT_EQ(both.low[axis], std::min(0.0f, other.low[axis]));
      EXPECT_EQ(both.high[axis], std::max(1.0f, other.high[axis]));
    }
  }
}

TEST(SpatialOrder, DistanceBoundsHoldForEveryPair) {
  for (const float size : {0x1p-70f, 0x1p-62f, 1.0f, 0x1p50f}) {
    for (const Pattern pattern : all_patterns) {
      for (const int dims : {1, 2, 3}) {
        std::vector<float> at = points(pattern, 1, 400, dims, 5).to_floats();
        for (size_t i = 0; i < at.size(); ++i) at[i] = at[i] * size * (1 + 0.01f * static_cast<float>(i % 7));
        const TokenOrder order = make_order(at, dims, 0, 32);
        for (const bool manhattan : {false, true}) {
          const Coordinates both{.queries = order, .keys = order, .manhattan = manhattan};
          const CoordinateBias bias{.points = &both, .slope = 1};
          double tightest = 0;
          for (int64_t a = 0; a < order.size(); ++a) {
            for (int64_t b = 0; b < order.size(); ++b) {
              const double bound = -bias.beyond(order.box(a), b);
              float least = HUGE_VALF;
              for (int64_t i = a * 32; i < std::min<int64_t>(400, (a + 1) * 32); ++i) {
                for (int64_t j = b * 32; j < std::min<int64_t>(400, (b + 1) * 32); ++j) {
                  float sum = 0;
                  for (int axis = 0; axis < dims; ++axis) {
                    const float part = order.axis(axis)[i] - order.axis(axis)[j];
                    float term = manhattan ? std::abs(part) : part * part;
                    if (term < 0x1p-126f) term = 0;
                    sum += term;
                  }
                  least = std::min(least, manhattan ? sum : std::sqrt(sum));
                }
              }
              EXPECT_TRUE(bound <= static_cast<double>(least)) << bound << " " << least << " size " << size;
              if (least > 0) tightest = std::max(tightest, bound / static_cast<double>(least));
            }
          }
          if (size == 1.0f && pattern == Pattern::grid_with_holes) {
            EXPECT_GT(tightest, 0.9);
          }
        }
      }
    }
  }
}

TEST(SpatialOrder, PenaltyStepsRise) {
  PenaltyStep last = 0;
  for (double penalty = 0; penalty < 1e40; penalty = penalty * 1.01 + 0.01) {
    const PenaltyStep step = penalty_step(penalty);
    EXPECT_GE(step, last);
    EXPECT_LT(step, penalty_steps);
    last = step;
  }
  EXPECT_EQ(last, penalty_steps - 1);
  EXPECT_EQ(penalty_step(0), 0);
  EXPECT_EQ(penalty_step(HUGE_VAL), penalty_steps - 1);
}

}  // namespace
}  // namespace alibi::kernels
