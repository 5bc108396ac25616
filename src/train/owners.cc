#include "train/owners.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"
#include "core/pieces.h"
#include "nn/foreach.h"

namespace alibi::training {
namespace {

/// Of a part. sum_of_squares() adds up the same pieces.
constexpr int64_t kMaxElements = int64_t{1} << 15;

template <class Copy>
void each_part(const std::vector<ParameterRange>& parts, std::span<const Tensor> tensors, size_t packed,
               const Copy& copy) {
  std::vector<int64_t> begin;
  int64_t at = 0;
  for (const ParameterRange& part : parts) {
    begin.push_back(at);
    at += part.size();
  }
  check(at == static_cast<int64_t>(packed), "[ranks] {} elements are packed, expected {}", packed, at);
  core::parallel_for(std::ssize(parts), [&](int64_t i) {
    const ParameterRange& part = parts[static_cast<size_t>(i)];
    copy(tensors[part.parameter].data<float>() + part.begin, part.size(), begin[static_cast<size_t>(i)]);
  });
}

}  // namespace

Owners::Owners(const std::vector<Parameter*>& parameters, int ranks) : parts_of_(static_cast<size_t>(ranks)) {
  core::Pieces pieces(kMaxElements);
  for (const Parameter* parameter : parameters) pieces.add(parameter->value.elements());
  std::vector<int64_t> elements(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < pieces.size(); ++i) {
    const core::Piece piece = pieces.at(i);
    const auto least = std::min_element(elements.begin(), elements.end());
    *least += piece.size();
    owner_.push_back(static_cast<int>(least - elements.begin()));
    parts_of_[static_cast<size_t>(owner_.back())].push_back({piece.array, piece.begin, piece.end});
  }
}

Tensor part_of(const Tensor& values, const ParameterRange& part) {
  return values.reshape({values.elements()}).slice(0, part.begin, part.end);
}

void pack(const std::vector<ParameterRange>& parts, std::span<const Tensor> tensors, std::span<float> packed) {
  each_part(parts, tensors, packed.size(),
            [&](const float* values, int64_t count, int64_t at) { std::copy_n(values, count, packed.data() + at); });
}

void unpack(std::span<const float> packed, const std::vector<ParameterRange>& parts, std::span<const Tensor> tensors) {
  each_part(parts, tensors, packed.size(),
            [&](float* values, int64_t count, int64_t at) { std::copy_n(packed.data() + at, count, values); });
}

int64_t elements_of(const std::vector<ParameterRange>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const ParameterRange& part) { return sum + part.size(); });
}

std::vector<ParameterRange> parts_within(const std::vector<ParameterRange>& parts,
                                         const std::vector<size_t>& parameters) {
  std::vector<ParameterRange> found;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(found), [&](const ParameterRange& part) {
    return std::find(parameters.begin(), parameters.end(), part.parameter) != parameters.end();
  });
  return found;
}

std::vector<double> squares_of(const std::vector<ParameterRange>& parts, const std::vector<Parameter*>& parameters) {
  std::vector<double> squares(parts.size());
  core::parallel_for(std::ssize(parts), [&](int64_t i) {
    const ParameterRange& part = parts[static_cast<size_t>(i)];
    squares[static_cast<size_t>(i)] = nn::sum_of_squares({part_of(parameters[part.parameter]->gradient, part)});
  });
  return squares;
}

void gather_values(ranks::Group& group, const Owners& owners, const std::vector<Parameter*>& parameters,
                   const std::vector<std::vector<size_t>>& groups) {
  std::vector<Tensor> values;
  for (const Parameter* parameter : parameters) values.push_back(parameter->value);
  for (const std::vector<size_t>& together : groups) {
    std::vector<std::vector<ParameterRange>> parts;
    std::vector<std::vector<float>> packed;
    std::vector<std::span<std::byte>> memory;
    for (int rank = 0; rank < group.size(); ++rank) {
      parts.push_back(parts_within(owners.parts_of(rank), together));
      packed.emplace_back(static_cast<size_t>(elements_of(parts.back())));
    }
    for (std::vector<float>& one : packed) memory.push_back(ranks::bytes_of(one));
    const auto here = static_cast<size_t>(group.rank());
    pack(parts[here], values, packed[here]);
    ranks::all_gather(group, ranks::Tag::weights, memory);
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      if (rank != here) unpack(packed[rank], parts[rank], values);
    }
  }
}

}  // namespace alibi::training
