#include "nn/matmul_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/checksum.h"
#include "core/parallel.h"
#include "nn/products.h"

namespace alibi::nn {
namespace {

// Costs are in units of one multiplication at oneDNN's best rate. A core does some 50 (AVX2) to 60 (AVX-512) of them
// per nanosecond. Fitted to products of sizes 512 to 4096 on two cores of an AMD EPYC (Zen 4) with oneDNN 2.6.
constexpr double operand_cost = 12;             // per operand element that a task reads and copies, with AVX2
constexpr double operand_cost_any_layout = 20;  // the same with AVX-512, which multiplies faster
constexpr double result_cost = 16;              // per element that a task writes
constexpr double partial_cost = 48;             // per element of a partial sum: written, read and added
constexpr double turn_cost = 65;                // per transposed element
constexpr double call_cost = 1 << 17;
constexpr double min_cost = 1 << 22;  // per task that runs on another thread (about 80 microseconds)

/// With AVX2, oneDNN's gemm copies operands to its own layout if 1/m + 1/n of the product is below this value (its
/// nocopy_checker_avx2), and is then equally fast for every layout. In smaller products, operands that are not inner
/// axis first are read in place, which costs a cache line and often a page for every few numbers.
constexpr double min_to_copy = 0.0038;
constexpr double copied = 1.03, read_in_place = 1.8;

/// The wanted number of tasks. Each should cost `good_cost`, up to `max_tasks` tasks. Smaller products are divided
/// into `few_tasks` if these are large enough. Half of the wanted number counts like an increase of the time by the
/// factor `halved`, or `halved_of_many` if even half of them keep many threads busy.
constexpr double good_cost = 150e6, few_tasks = 16, many_tasks = 64, max_tasks = 256;
constexpr double halved = 0.04, halved_of_many = 0.015;
/// Weight of the time in which many threads wait for the last one.
constexpr double waited = 0.05;

constexpr int64_t kernel_m = 32, kernel_n = 64, kernel_k = 256;  // block sizes of the kernels

int64_t tile_of(int64_t size, int64_t tiles, int64_t block) {
  return std::min(size, core::ceil_div(core::ceil_div(size, tiles), block) * block);
}

/// The cost of a plan.
double evaluate(const ProductShape& shape, ProductKernels kernels, const MatmulPlan& plan) {
  const auto m = static_cast<double>(plan.tile_m), n = static_cast<double>(plan.tile_n);
  const auto k = static_cast<double>(plan.tile_k);
  double rate = 1;
  if (kernels == ProductKernels::inner_first) {
    const bool inner_first = (shape.a_inner_first || plan.transpose_a) && (shape.b_inner_first || plan.transpose_b);
    if (!inner_first) rate = 1 / m + 1 / n < min_to_copy ? copied : read_in_place;
  }
  const double element = kernels == ProductKernels::inner_first ? operand_cost : operand_cost_any_layout;
  const double task = rate * m * n * k + element * (m * k + k * n) + result_cost * m * n + call_cost;
  const double all_m = static_cast<double>(shape.m), all_n = static_cast<double>(shape.n);
  const double turned = static_cast<double>((plan.transpose_a ? shape.m : 0) + (plan.transpose_b ? shape.n : 0)) *
                        static_cast<double>(shape.k);
  const double beside = turn_cost * turned + partial_cost * static_cast<double>(plan.pieces_k - 1) * all_m * all_n;
  if (plan.tasks() > 1 && task < min_cost) return std::numeric_limits<double>::infinity();
  const double time = static_cast<double>(core::ceil_div(plan.tasks(), 2) * 2) * task + beside;
  const double work = all_m * all_n * static_cast<double>(shape.k);
  const double wanted = std::clamp(work / good_cost, std::min(few_tasks, std::max(1.0, work / min_cost)), max_tasks);
  const auto missing = [&](double limit) {
    return std::max(0.0, std::log2(std::min(wanted, limit) / static_cast<double>(plan.tasks())));
  };
  const auto tasks = static_cast<double>(plan.tasks());
  const double rounds = std::ceil(tasks / many_tasks) * many_tasks / tasks;
  const double waiting = wanted >= many_tasks && tasks >= many_tasks ? waited * (rounds - 1) : 0;
  return time * (1 + (halved - halved_of_many) * missing(many_tasks) + halved_of_many * missing(max_tasks) + waiting);
}

/// Tries numbers of tiles for an axis.
template <class Try>
void for_each_count(int64_t size, int64_t block, int64_t most, const Try& attempt) {
  const int64_t last = std::min(most, core::ceil_div(size, block));
  for (int64_t count = 1; count <= last; count += count < 8 ? 1 : count / 4) attempt(count);
}

template <class Try>
void for_each_plan(const ProductShape& shape, ProductKernels kernels, const Try& attempt) {
  constexpr int64_t max_tiles = 256, max_pieces = 16;
  const bool may_turn = kernels == ProductKernels::inner_first;
  const bool transposable_a = may_turn && !shape.a_inner_first, transposable_b = may_turn && !shape.b_inner_first;
  MatmulPlan plan{};
  for (const bool turn : {false, true}) {
    if (turn && !transposable_a && !transposable_b) continue;
    plan.transpose_a = turn && transposable_a;
    plan.transpose_b = turn && transposable_b;
    for_each_count(shape.k, kernel_k, shape.may_split_k ? max_pieces : 1, [&](int64_t pieces) {
      // Partial sums must not take more memory than half of the operands.
      if ((pieces - 1) * shape.m * shape.n > shape.k * (shape.m + shape.n) / 2) return;
      plan.tile_k = tile_of(shape.k, pieces, kernel_k);
      plan.pieces_k = core::ceil_div(shape.k, plan.tile_k);
      for_each_count(shape.m, kernel_m, max_tiles, [&](int64_t tiles_m) {
        plan.tile_m = tile_of(shape.m, tiles_m, kernel_m);
        plan.tiles_m = core::ceil_div(shape.m, plan.tile_m);
        for_each_count(shape.n, kernel_n, max_tiles, [&](int64_t tiles_n) {
          plan.tile_n = tile_of(shape.n, tiles_n, kernel_n);
          plan.tiles_n = core::ceil_div(shape.n, plan.tile_n);
          attempt(plan);
        });
      });
    });
  }
}

MatmulPlan search(const ProductShape& shape, ProductKernels kernels) {
  MatmulPlan best{};
  double least = std::numeric_limits<double>::infinity();
  for_each_plan(shape, kernels, [&](const MatmulPlan& plan) {
    const double cost = evaluate(shape, kernels, plan);
    if (cost >= least) return;
    least = cost;
    best = plan;
  });
  return best;
}

/// The calling thread's most recent plans. A model needs the same few plans repeatedly, and a search takes as long as a
/// small product.
struct Remembered {
  ProductShape shape{};
  ProductKernels kernels{};
  MatmulPlan plan{};
};

size_t place_of(const ProductShape& shape) {
  const std::array<int64_t, 5> words = {shape.m, shape.n, shape.k, shape.a_inner_first, shape.b_inner_first};
  return core::digest_of({reinterpret_cast<const char*>(words.data()), sizeof words}).low;
}

}  // namespace

ProductKernels product_kernels(DType dtype) {
  return product_provider().prefers_inner_first(dtype) ? ProductKernels::inner_first : ProductKernels::any_layout;
}

MatmulPlan plan_matmul(const ProductShape& shape, ProductKernels kernels) {
  thread_local std::array<Remembered, 64> remembered;
  Remembered& place = remembered[place_of(shape) % remembered.size()];
  if (place.shape != shape || place.kernels != kernels) place = {shape, kernels, search(shape, kernels)};
  return place.plan;
}

}  // namespace alibi::nn
