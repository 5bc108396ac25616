// Whether tensors share memory. Two tensors have a byte in common if
//
//   a + sum_i a_i x_i = b + sum_j b_j y_j      0 <= x_i < shape of a,  0 <= y_j < shape of b
//
// has a solution, where a and b are the lowest addresses, and a_i and b_j the magnitudes of the strides in bytes; the
// bytes of an element are one more axis. With y_j counted from the other end, all terms are on one side:
//
//   sum_i a_i x_i + sum_j b_j (n_j - 1 - y_j) = b - a + sum_j b_j (n_j - 1)
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "attention/problem.h"
#include "core/check.h"

namespace alibi::kernels {
namespace {

/// The numbers 0, step, .., count * step.
struct Term {
  int64_t step, count;
  int64_t end() const { return step * count; }
};

/// The terms of a tensor's axes, and of the bytes of an element.
template <class Visit>
void for_terms(const Tensor& tensor, const Visit& visit) {
  const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
  visit(Term{1, size - 1});
  for (int axis = 0; axis < tensor.axes(); ++axis) {
    const Term term{std::abs(tensor.stride(axis)) * size, tensor.size(axis) - 1};
    if (term.end() > 0) visit(term);
  }
}

/// Addresses of the first and of the last byte.
struct Span {
  int64_t first, last;
};

Span span_of(const Tensor& tensor) {
  auto first = static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.raw()));
  const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
  for (int axis = 0; axis < tensor.axes(); ++axis) {
    if (tensor.stride(axis) < 0) first += tensor.stride(axis) * size * (tensor.size(axis) - 1);
  }
  int64_t last = first;
  for_terms(tensor, [&](const Term& term) { last += term.end(); });
  return {first, last};
}

/// Whether a number is a sum of one number of each term.
class Sums {
 public:
  explicit Sums(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.step < b.step; });
    int64_t reach = 0;
    bool complete = true;
    for (const Term& term : terms) {
      if (!levels_.empty() && levels_.back().term.step == term.step) {
        levels_.back().term.count += term.count;
      } else {
        complete = complete && term.step <= reach + 1;
        levels_.push_back({term, reach, complete});
      }
      reach += term.end();
      levels_.back().reach = reach;
    }
  }

  /// A search that takes too many steps is given up with true, so that no overlap is missed.
  bool contain(int64_t number) {
    steps_left_ = 100000;
    return contain(number, levels_.size());
  }

 private:
  struct Level {
    Term term;
    int64_t reach;  ///< the largest sum of this term and of those with smaller steps
    bool complete;  ///< all numbers from 0 to reach are such sums
  };

  bool contain(int64_t number, size_t levels) {
    const int64_t reach = levels == 0 ? 0 : levels_[levels - 1].reach;
    if (number < 0 || number > reach) return false;
    if (levels == 0 || levels_[levels - 1].complete || --steps_left_ < 0) return true;
    const Term& term = levels_[levels - 1].term;
    const int64_t below = reach - term.end();
    for (int64_t i = std::min(term.count, number / term.step); i >= 0 && number - i * term.step <= below; --i) {
      if (contain(number - i * term.step, levels - 1)) return true;
    }
    return false;
  }

  std::vector<Level> levels_;
  int64_t steps_left_ = 0;
};

}  // namespace

bool share_memory(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.elements() == 0 || b.elements() == 0) return false;
  const Span left = span_of(a), right = span_of(b);
  if (left.last < right.first || right.last < left.first) return false;
  std::vector<Term> terms;
  for (const Tensor* tensor : {&a, &b}) for_terms(*tensor, [&](const Term& term) { terms.push_back(term); });
  return Sums(std::move(terms)).contain(right.last - left.first);
}

void check_apart(const char* operation, const char* output_name, const Tensor& output, const char* name,
                 const Tensor& tensor) {
  check_usage(!share_memory(output, tensor), "[{}] {} shares memory with {}, expected separate memory", operation,
              output_name, name);
}

void check_writable(const char* operation, const char* name, const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // (stride, extent)
  for (int axis = 0; axis < tensor.axes(); ++axis) {
    if (tensor.size(axis) > 1) axes.emplace_back(std::abs(tensor.stride(axis)), tensor.size(axis));
  }
  std::sort(axes.begin(), axes.end());
  int64_t covered = 1;
  for (const auto& [stride, extent] : axes) {
    check_usage(stride >= covered,
                "[{}] {} has strides {} for shape {}, so its elements overlap; expected separate elements", operation,
                name, tensor.strides(), tensor.shape());
    covered = stride * (extent - 1) + covered;
  }
}

}  // namespace alibi::kernels
