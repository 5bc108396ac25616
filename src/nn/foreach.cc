#include "nn/foreach.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/pieces.h"
#include "nn/elementwise.h"
#include "nn/operators.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

/// Elements for one task: some ten microseconds of reading and writing memory.
constexpr int64_t grain_of_many = int64_t{1} << 15;

/// Expects as many tensors as `like`, each with as many elements.
void check_like(const char* operation, const char* name, const Tensors& tensors, const Tensors& like) {
  check(tensors.size() == like.size(), "[{}] {} tensors as {}, expected {}", operation, tensors.size(), name,
        like.size());
  for (size_t i = 0; i < like.size(); ++i) {
    check_vector(operation, name, tensors[i], like[i].elements(), DType::float32);
  }
}

core::Pieces pieces_of(const Tensors& tensors) {
  core::Pieces pieces(grain_of_many);
  for (const Tensor& tensor : tensors) pieces.add(tensor.elements());
  return pieces;
}

std::span<float> part(const Tensors& tensors, const core::Piece& piece) {
  return {tensors[piece.array].data<float>() + piece.begin, static_cast<size_t>(piece.end - piece.begin)};
}

/// work(piece), all of them at once
template <class Work>
void each_piece(const Tensors& tensors, const Work& work) {
  const core::Pieces pieces = pieces_of(tensors);
  core::parallel_for(pieces.size(), [&](int64_t task) { work(pieces.at(task)); });
}

}  // namespace

void fill(const Tensors& tensors, float value) {
  if (ran_elsewhere(&Operators::fill, "fill", tensors, value)) return;
  check_like("fill", "tensor", tensors, tensors);
  each_piece(tensors, [&](const core::Piece& piece) {
    const std::span<float> values = part(tensors, piece);
    std::fill(values.begin(), values.end(), value);
  });
}

void convert(const Tensors& from, const Tensors& to) {
  if (ran_elsewhere(&Operators::convert_many, "convert", from, to)) return;
  check(from.size() == to.size(), "[convert] {} tensors to {}", from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    check(is_floating(from[i].dtype()) && is_floating(to[i].dtype()) && from[i].shape() == to[i].shape() &&
              from[i].contiguous() && to[i].contiguous(),
          "[convert] tensor {} is {} {}, its result {} {}; expected one shape, floating point, contiguous", i,
          name_of(from[i].dtype()), to_string(from[i].shape()), name_of(to[i].dtype()), to_string(to[i].shape()));
  }
  each_piece(from, [&](const core::Piece& piece) {
    const Tensor &x = from[piece.array], &y = to[piece.array];
    const auto at = [&](const Tensor& tensor) {
      return static_cast<char*>(tensor.raw()) + piece.begin * static_cast<int64_t>(size_of(tensor.dtype()));
    };
    convert_row(at(x), x.dtype(), piece.end - piece.begin, at(y), y.dtype());
  });
}

double sum_of_squares(const Tensors& tensors) {
  if (const auto there = elsewhere(&Operators::sum_of_squares, "sum_of_squares", tensors)) return there(tensors);
  check_like("sum_of_squares", "tensor", tensors, tensors);
  const core::Pieces pieces = pieces_of(tensors);
  std::vector<double> sums(static_cast<size_t>(pieces.size()));
  core::parallel_for(pieces.size(), [&](int64_t task) {
    const std::span<const float> values = part(tensors, pieces.at(task));
    sums[static_cast<size_t>(task)] = sum_of_squares(values.data(), static_cast<int64_t>(values.size()));
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void adamw(const Tensors& weights, const Tensors& gradients, const Tensors& m, const Tensors& v,
           const std::vector<bool>& decays, const AdamW& options, int64_t step, float gradient_factor) {
  if (ran_elsewhere(&Operators::adamw, "adamw", weights, gradients, m, v, decays, options, step, gradient_factor))
    return;
  check_like("adamw", "weight", weights, weights);
  check_like("adamw", "gradient", gradients, weights);
  check_like("adamw", "m", m, weights);
  check_like("adamw", "v", v, weights);
  check(decays.size() == weights.size(), "[adamw] decays has {} entries, expected {}", decays.size(), weights.size());
  each_piece(weights, [&](const core::Piece& piece) {
    AdamW own = options;
    if (!decays[piece.array]) own.weight_decay = 0;
    adamw(part(weights, piece), part(gradients, piece), part(m, piece), part(v, piece), own, step, gradient_factor);
  });
}

void nag(const Tensors& weights, const Tensors& gradients, const Tensors& buffers, const std::vector<bool>& decays,
         const Nag& options, float gradient_factor) {
  if (ran_elsewhere(&Operators::nag, "nag", weights, gradients, buffers, decays, options, gradient_factor)) return;
  check_like("nag", "weight", weights, weights);
  check_like("nag", "gradient", gradients, weights);
  check_like("nag", "buffer", buffers, weights);
  check(decays.size() == weights.size(), "[nag] decays has {} entries, expected {}", decays.size(), weights.size());
  each_piece(weights, [&](const core::Piece& piece) {
    Nag own = options;
    if (!decays[piece.array]) own.weight_decay = 0;
    nag(part(weights, piece), part(gradients, piece), part(buffers, piece), own, gradient_factor);
  });
}

}  // namespace alibi::nn
