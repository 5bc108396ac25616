// Matrix products as the operators of this folder need them, and the library that computes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "alibi/tensor.h"
#include "nn/weights.h"

namespace alibi::nn {

/// A matrix in memory: rows of `stride` elements, read transposed if asked to. Elements may be blocks of a row.
struct Matrix {
  void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
  DType dtype = DType::float32;

  /// The part that starts at a row and column of the matrix as read (after the transposition). It starts at the
  /// first number of a block.
  Matrix at(int64_t row, int64_t column) const {
    const int64_t line = transposed ? column : row, inside = transposed ? row : column;
    const int64_t offset = line * stride + inside / numbers_in(dtype);
    Matrix part = *this;
    part.data = static_cast<char*>(data) + offset * static_cast<int64_t>(size_of(dtype));
    return part;
  }
};

/// c [m, n] (= or +=) a [m, k] * b [k, n] + bias, with c not transposed and bias null or [n] (see bias_dtype). a is
/// float32 or bfloat16, and b of the same type or, transposed, of any type of weights. Sums are float32. Products of
/// more than a few rows convert weights of float16 and of blocks to the type of a.
struct Product {
  int64_t m, n, k;
  Matrix a, b, c;
  const void* bias = nullptr;
  DType bias_dtype = DType::float32;
  bool accumulate = false;
};

/// A library that multiplies matrices. A build has one, which CMake chooses (ALIBI_MATMUL): onednn.cc or openblas.cc.
/// Its functions run only on the calling thread, so their bits depend only on the arguments. Several threads may call
/// them.
struct ProductProvider {
  /// The name of the library in messages.
  const char* name;
  /// Its name, its version, and the instructions or the processor that it computes for: "oneDNN 2.6.3, avx2".
  std::string (*description)();
  /// Whether the library multiplies matrices of this type on this CPU. If it has no products of a's type, they are
  /// computed in float32.
  bool (*has_products)(DType dtype);
  /// Whether small products of this type are slow unless neighbours along the inner axis are neighbours in memory.
  bool (*prefers_inner_first)(DType dtype);
  /// Returns false if nothing was computed because the process is ending. Throws Error on failure.
  bool (*multiply)(const Product& product);
  /// to [columns, rows] = the transpose of from [rows, columns], whose rows are `stride` elements apart. float32.
  bool (*transpose)(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to);
  /// For benchmarks: a function that runs a product of square matrices in the layout that the library prefers, on the
  /// calling thread. Null if it has no layout of its own.
  std::function<void()> (*product_in_own_layout)(DType dtype, int64_t size);
};
const ProductProvider& product_provider();

/// Computes the product on all threads. Its division into tasks depends only on the shape, so it has the same bits at
/// any number of threads.
void multiply_in_tasks(const Product& product);

/// Computes the product on the calling thread, with the provider if possible.
void multiply(const Product& product);
/// Computes it element by element in double precision, slowly and without a library.
void multiply_plainly(const Product& product);
/// A product of matrices that the provider does not multiply as they are, block by block in another type, which is
/// float32 or one of which the provider has products. The workspace has the same size for any shape.
void multiply_in_blocks(const Product& product, DType dtype);
/// Memory that each thread keeps for products of this type after its first one; 0 if the provider supports the type.
int64_t bytes_to_widen(DType dtype);

/// While one exists that is `wanted`, a row of a product of this thread has the same bits whichever other rows are
/// computed with it. Products whose operands are inner axis first are then skinny products, whatever their number of
/// rows; others are computed row by row.
class IndependentRows {
 public:
  static bool wanted();

  explicit IndependentRows(bool wanted = true);
  ~IndependentRows();
  IndependentRows(const IndependentRows&) = delete;
  IndependentRows& operator=(const IndependentRows&) = delete;

 private:
  const int count_;
};

/// While one exists that is `wanted`, products of this thread with weights in blocks round a to 8 bits.
class IntegerProducts {
 public:
  static bool wanted();

  explicit IntegerProducts(bool wanted = true);
  ~IntegerProducts();
  IntegerProducts(const IntegerProducts&) = delete;
  IntegerProducts& operator=(const IntegerProducts&) = delete;

 private:
  const int count_;
};

/// Computes a product whose a is not transposed and whose b are weights in blocks, transposed, with a rounded to 8
/// bits. The bits of a number of c depend only on its row of a and of b.
void integer_gemm(const Product& product);

/// Writes `count` numbers of a row of c, which is float32 or bfloat16: with the bias, and added to c if the product
/// accumulates.
void store_sums(const Product& product, int64_t row, int64_t column, const float* sums, int64_t count);

/// Whether a product has few rows (8, or 32 if b has another type than a, or any number with IndependentRows) and both
/// operands inner axis first, as in token-by-token generation. With few rows, reading b takes most of its time.
bool is_skinny(const Product& product);
/// Computes a skinny product in tasks of rows of b. The order of each sum depends only on k, so the bits of a row of c
/// depend only on that row of a and on b.
void skinny_gemm(const Product& product);

}  // namespace alibi::nn
