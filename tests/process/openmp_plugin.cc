// What openmp_host.cc loads: the library with oneDNN and its OpenMP.
#include <cstring>
#include <vector>

#include "alibi/runtime.h"
#include "core/random.h"
#include "nn/linear.h"

/// Writes the bits of a product whose inner axis oneDNN cuts by the number of OpenMP threads. With `accumulate` it is
/// added to zeros: a primitive of its own, or one made for another number of threads would serve both.
extern "C" void alibi_test_product(bool accumulate, float (&bits)[31 * 33]) {
  using alibi::Tensor;
  alibi::set_threads(1);
  const auto random = [](int64_t rows, int64_t columns, uint64_t seed) {
    Tensor tensor = Tensor::empty({rows, columns});
    const alibi::core::Random numbers(seed);
    for (int64_t i = 0; i < rows * columns; ++i) tensor.data<float>()[i] = numbers.normal(static_cast<uint64_t>(i));
    return tensor;
  };
  const Tensor a = random(4001, 31, 1), b = random(4001, 33, 2);
  Tensor c({31, 33});
  alibi::nn::matmul(a, true, b, false, c, accumulate);
  std::memcpy(bits, c.raw(), c.bytes());
}
