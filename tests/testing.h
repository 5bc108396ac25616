// What tests of every room share: random tensors, comparisons that NaN cannot pass, numerical gradients, messages of
// errors, and loops over instruction sets and thread counts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/error.h"
#include "alibi/runtime.h"
#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi::test {

/// Normal distribution with the given standard deviation.
inline Tensor random_tensor(Shape shape, uint64_t seed, float scale = 1, DType dtype = DType::float32) {
  Tensor result = Tensor::empty(std::move(shape));
  float* values = result.data<float>();
  const core::Random random(seed);
  for (int64_t i = 0; i < result.elements(); ++i) values[i] = scale * random.normal(static_cast<uint64_t>(i));
  return dtype == DType::float32 ? result : result.to(dtype);
}

/// int32 values in [0, below).
inline Tensor random_ids(Shape shape, uint64_t seed, int64_t below) {
  Tensor result = Tensor::empty(std::move(shape), DType::int32);
  int32_t* values = result.data<int32_t>();
  const core::Random random(seed);
  for (int64_t i = 0; i < result.elements(); ++i) {
    values[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(below)));
  }
  return result;
}

/// All elements in row-major order, whatever the strides and the floating-point type.
inline std::vector<double> doubles(const Tensor& tensor) {
  const std::vector<float> values = tensor.to_floats();
  return {values.begin(), values.end()};
}

/// Largest |a - b|; infinity if the sizes differ or any difference is not a number. Equal infinities do not differ.
template <class A, class B>
double max_abs_diff(const A& a, const B& b) {
  if (std::size(a) != std::size(b)) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < std::size(a); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == y) continue;
    const double diff = std::abs(x - y);
    if (std::isnan(diff)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, diff);
  }
  return worst;
}
inline double max_abs_diff(const Tensor& a, const std::vector<double>& b) { return max_abs_diff(doubles(a), b); }
inline double max_abs_diff(const Tensor& a, const Tensor& b) { return max_abs_diff(doubles(a), doubles(b)); }

template <class A>
double max_abs(const A& a) {
  double worst = 0;
  for (const auto x : a) {
    const double magnitude = std::abs(static_cast<double>(x));
    if (std::isnan(magnitude)) return magnitude;
    worst = std::max(worst, magnitude);
  }
  return worst;
}

/// max_abs_diff relative to the largest expected magnitude. Compare as !(relative_diff(...) <= tolerance).
template <class A>
double relative_diff(const A& found, const std::vector<double>& expected) {
  const double scale = max_abs(expected);
  return max_abs_diff(found, expected) / (scale > 0 ? scale : 1);
}

/// The same data type, shape and bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = a.clone(), y = b.clone();
  return x.elements() == 0 || std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

/// sum of a * b: turns an output into a scalar by a random cotangent.
inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Gradient of f: vector<double> -> double at x by central differences. f must be written in float64.
template <class F>
std::vector<double> numerical_gradient(const F& f, std::vector<double> x, double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

/// The message of the E that the call throws; "no error" if nothing is thrown.
template <class E = Error, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

/// The call throws E, and its message holds `part`.
template <class E = Error, class Call>
void expect_error(const Call& call, std::string_view part) {
  const std::string message = message_of<E>(call);
  EXPECT_NE(message.find(part), std::string::npos) << "found: " << message << "\nexpected it to hold: " << part;
}

/// Puts the number of threads and the instruction set back when a test ends.
class RuntimeGuard {
 public:
  RuntimeGuard() = default;
  ~RuntimeGuard() {
    set_threads(threads_);
    set_isa(isa_);
  }
  RuntimeGuard(const RuntimeGuard&) = delete;
  RuntimeGuard& operator=(const RuntimeGuard&) = delete;

 private:
  int threads_ = threads();
  Isa isa_ = isa();
};

/// Runs the body under every instruction set of this machine.
template <class Body>
void for_each_isa(const Body& body) {
  const RuntimeGuard guard;
  for (const Isa candidate : available_isas()) {
    SCOPED_TRACE(name_of(candidate));
    set_isa(candidate);
    body();
  }
}

/// run() -> std::vector<Tensor>: the same bits at 1, 2, 3 and 5 threads.
template <class Run>
void expect_same_bits_at_any_thread_count(const Run& run) {
  const RuntimeGuard guard;
  set_threads(1);
  const std::vector<Tensor> expected = run();
  for (const int count : {2, 3, 5}) {
    set_threads(count);
    const std::vector<Tensor> found = run();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i], expected[i])) << "output " << i << " at " << count << " threads";
    }
  }
}

/// Names a test after its parameter, with '_' for '-', which names of tests cannot have.
inline std::string underscored(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace alibi::test
