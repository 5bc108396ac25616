// Which rank updates which elements of the parameters (ZeRO stage 1: each rank keeps the optimizer's state of its own
// elements), and the exchanges that follow from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/transformer.h"
#include "ranks/group.h"

namespace alibi::training {

/// The elements [begin, end) of a parameter.
struct ParameterRange {
  size_t parameter;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Divides the parameters into parts of at most 32,768 elements, for which gradient_norm() has one sum each, and gives
/// every part to one rank. All ranks have about the same number of elements.
class Owners {
 public:
  Owners(const std::vector<Parameter*>& parameters, int ranks);

  int ranks() const { return static_cast<int>(parts_of_.size()); }
  /// Rank of each part, in the order of the parameters.
  const std::vector<int>& ranks_of_parts() const { return owner_; }
  const std::vector<ParameterRange>& parts_of(int rank) const { return parts_of_[static_cast<size_t>(rank)]; }

 private:
  std::vector<int> owner_;
  std::vector<std::vector<ParameterRange>> parts_of_;
};

/// The elements as a tensor with one axis, which shares the memory.
Tensor part_of(const Tensor& values, const ParameterRange& part);
/// Copies the parts of the tensors, one after the other, to or from `packed`.
void pack(const std::vector<ParameterRange>& parts, std::span<const Tensor> tensors, std::span<float> packed);
void unpack(std::span<const float> packed, const std::vector<ParameterRange>& parts, std::span<const Tensor> tensors);
int64_t elements_of(const std::vector<ParameterRange>& parts);

/// Sums of squares of this rank's parts of the gradients.
std::vector<double> squares_of(const std::vector<ParameterRange>& parts, const std::vector<Parameter*>& parameters);
/// Gives every rank the values of the parameters that other ranks have updated. The parameters are exchanged in groups,
/// given by their indices.
void gather_values(ranks::Group& group, const Owners& owners, const std::vector<Parameter*>& parameters,
                   const std::vector<std::vector<size_t>>& groups);

/// The parts of these parameters alone.
std::vector<ParameterRange> parts_within(const std::vector<ParameterRange>& parts,
                                         const std::vector<size_t>& parameters);

}  // namespace alibi::training
