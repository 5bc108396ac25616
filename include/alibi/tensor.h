// Tensor: a cheap handle to a strided block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "alibi/export.h"

namespace alibi {

namespace core {
struct Access;  // private to the library; reaches the private state of the classes that name it a friend
}

/// Brain floating point: the upper half of a float32. Arithmetic is done in float32.
struct ALIBI_API bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit bfloat16(float value);
  explicit operator float() const;
};

/// IEEE half precision, for weights of models and for attention.
struct ALIBI_API float16 {
  uint16_t bits = 0;

  float16() = default;
  /// Rounds to nearest, ties to even; infinity beyond 65504. NaN stays NaN.
  explicit float16(float value);
  explicit operator float() const;
};

/// 32 numbers that share a scale, as GGUF files store them (Q8_0): number i is scale * values[i].
struct q8_block {
  static constexpr int64_t size = 32;

  float16 scale;
  int8_t values[size];
};

/// float16 and those after it are data types of weights (Parameter::value). An element of a q8_0 tensor is a block of
/// 32 numbers (q8_block), so a matrix [rows, columns] has the shape [rows, columns / 32]. The same holds for the other
/// types of GGUF files that begin with q, whose blocks have 32 (q4_0) or 256 numbers; their weights are only read.
enum class DType : uint8_t { float32, bfloat16, int32, float16, q8_0, q4_0, q4_k, q5_k, q6_k };

/// Numbers in one element: 32 or 256 in a block, else 1.
constexpr int64_t numbers_in(DType dtype) {
  return dtype < DType::q8_0 ? 1 : dtype <= DType::q4_0 ? q8_block::size : 256;
}
/// Bytes of one element.
ALIBI_API size_t size_of(DType dtype);
ALIBI_API const char* name_of(DType dtype);

/// Device whose memory holds a tensor and that computes with it. All tensors of a call are on one device. A device that
/// the build or the machine lacks throws Error. cuda, an NVIDIA GPU, needs a build with ALIBI_CUDA and supports
/// attention only (docs/how-to/gpu.md).
enum class Device : uint8_t { cpu, cuda };
ALIBI_API const char* name_of(Device device);

using Shape = std::vector<int64_t>;

/// "[2, 128, 256]"
ALIBI_API std::string to_string(const Shape& shape);

/// A handle: copies share the memory. Shapes are written as, e.g., [batch, length, heads, head_dim]. Strides count
/// elements. Owned memory is aligned to 64 bytes and starts as zeros.
class ALIBI_API Tensor {
 public:
  /// No memory, no elements: `defined()` is false.
  Tensor() = default;
  /// A new contiguous tensor of zeros. Throws Error if an extent is negative or the size overflows.
  explicit Tensor(Shape shape, DType dtype = DType::float32, Device device = Device::cpu);

  /// Like the constructor, but the elements are undefined, for outputs that a kernel writes completely.
  static Tensor empty(Shape shape, DType dtype = DType::float32, Device device = Device::cpu);

  /// A new tensor with a copy of the values. Throws Error if their number does not match the shape.
  static Tensor from(std::span<const float> values, Shape shape);
  static Tensor from(std::span<const int32_t> values, Shape shape);
  /// A view of memory that the caller owns and keeps alive. Strides default to contiguous.
  static Tensor view(void* data, Shape shape, DType dtype = DType::float32, Shape strides = {},
                     Device device = Device::cpu);
  /// A contiguous view of the CPU's memory, which `owner` keeps alive.
  static Tensor view(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype);

  bool defined() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int axes() const { return static_cast<int>(shape_.size()); }
  /// Extent of an axis; negative axes count from the end.
  int64_t size(int axis) const;
  int64_t stride(int axis) const;
  /// Number of elements.
  int64_t elements() const;
  /// Bytes of the elements, without gaps between strides.
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype_); }
  bool contiguous() const;

  /// The first element. Throws Error if T is not the tensor's data type, or if the tensor is not in the CPU's memory.
  template <class T>
  T* data() const;
  /// Address in the memory of the device.
  void* raw() const { return data_; }

  /// The part [begin, end) of an axis, sharing memory.
  Tensor slice(int axis, int64_t begin, int64_t end) const;
  /// The same elements under another shape, sharing memory. One extent may be -1. Needs a contiguous tensor.
  Tensor reshape(Shape shape) const;
  /// A contiguous copy, of another data type if one is given.
  Tensor clone() const { return to(dtype_); }
  Tensor to(DType dtype) const;
  /// Returns this tensor if it is on that device, otherwise a contiguous copy.
  Tensor to(Device device) const;
  /// All elements as float32 or int32, in row-major order (for tests, files and small results).
  std::vector<float> to_floats() const;
  std::vector<int32_t> to_ints() const;

  void fill(float value);
  /// Copies the elements of a tensor of the same shape from any device, and converts the data type if it differs.
  void copy_from(const Tensor& other);

 private:
  ALIBI_HIDDEN Tensor(Shape shape, DType dtype, Device device, bool zeros);
  ALIBI_HIDDEN void copy_from_device(const Tensor& other);

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  Shape strides_;
  DType dtype_ = DType::float32;
  Device device_ = Device::cpu;
};

}  // namespace alibi
