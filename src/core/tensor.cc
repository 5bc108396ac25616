#include "alibi/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/blocks.h"
#include "core/check.h"
#include "core/device.h"
#include "core/float16.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi {

bfloat16::bfloat16(float value) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    u |= 0x00400000u;  // keeps a NaN with its payload in the lower half from becoming infinity
  } else {
    u += 0x7fffu + ((u >> 16) & 1u);
  }
  bits = static_cast<uint16_t>(u >> 16);
}

bfloat16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float16::float16(float value) : bits(core::float_to_float16(value)) {}
float16::operator float() const { return core::float16_to_float(bits); }

size_t size_of(DType dtype) {
  return core::as_type(nullptr, dtype, [](const auto* element) { return sizeof(*element); });
}

const char* name_of(DType dtype) {
  static constexpr const char* names[] = {"float32", "bfloat16", "int32", "float16", "q8_0",
                                          "q4_0",    "q4_k",     "q5_k",  "q6_k"};
  const auto index = static_cast<size_t>(dtype);
  return index < std::size(names) ? names[index] : "?";
}

const char* name_of(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

namespace {

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

int64_t checked_elements(const Shape& shape) {
  int64_t count = 1;  // empty axes count as 1, so that the strides of other axes do not overflow
  bool none = false;
  for (const int64_t extent : shape) {
    check(extent >= 0, "[tensor] the shape is {}, expected no negative extents", shape);
    check(!__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count) &&
              count <= std::numeric_limits<int64_t>::max() / 8,
          "[tensor] the shape is {}, which has more elements than memory can address", shape);
    none |= extent == 0;
  }
  return none ? 0 : count;
}

float load(const void* base, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::float32:
      return static_cast<const float*>(base)[i];
    case DType::bfloat16:
      return static_cast<float>(static_cast<const bfloat16*>(base)[i]);
    case DType::int32:
      return static_cast<float>(static_cast<const int32_t*>(base)[i]);
    case DType::float16:
      return static_cast<float>(static_cast<const float16*>(base)[i]);
    default:
      fail("[tensor] blocks of {} are copied to {} only", name_of(dtype), name_of(dtype));
  }
}

void store(void* base, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::float32:
      static_cast<float*>(base)[i] = value;
      break;
    case DType::bfloat16:
      static_cast<bfloat16*>(base)[i] = bfloat16(value);
      break;
    case DType::int32:
      static_cast<int32_t*>(base)[i] = static_cast<int32_t>(value);
      break;
    case DType::float16:
      static_cast<float16*>(base)[i] = float16(value);
      break;
    default:
      fail("[tensor] blocks of {} are copied from {} only", name_of(dtype), name_of(dtype));
  }
}

/// Calls row(offset in a, offset in b) for each row along the last axis.
template <class Row>
void for_each_row(const Shape& shape, const Shape& a, const Shape& b, const Row& row) {
  if (shape.empty()) {
    row(0, 0);
    return;
  }
  const size_t outer = shape.size() - 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Shape index(outer, 0);
  int64_t at_a = 0;
  int64_t at_b = 0;
  for (;;) {
    row(at_a, at_b);
    size_t axis = outer;
    for (; axis-- > 0;) {
      at_a += a[axis];
      at_b += b[axis];
      if (++index[axis] < shape[axis]) break;
      at_a -= a[axis] * shape[axis];
      at_b -= b[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis == static_cast<size_t>(-1)) return;
  }
}

template <class T>
constexpr DType dtype_of = DType::float32;
template <>
constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <>
constexpr DType dtype_of<int32_t> = DType::int32;
template <>
constexpr DType dtype_of<float16> = DType::float16;
template <>
constexpr DType dtype_of<q8_block> = DType::q8_0;

}  // namespace

Tensor::Tensor(Shape shape, DType dtype, Device device, bool zeros)
    : shape_(std::move(shape)), dtype_(dtype), device_(device) {
  const size_t size = static_cast<size_t>(checked_elements(shape_)) * size_of(dtype);
  strides_ = contiguous_strides(shape_);
  owner_ = device == Device::cpu ? core::allocate(size, zeros) : core::device_memory(device).allocate(size, zeros);
  data_ = owner_.get();
}

Tensor::Tensor(Shape shape, DType dtype, Device device) : Tensor(std::move(shape), dtype, device, true) {}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) { return {std::move(shape), dtype, device, false}; }

Tensor Tensor::from(std::span<const float> values, Shape shape) {
  check(checked_elements(shape) == static_cast<int64_t>(values.size()),
        "[tensor] {} values were given for the shape {}, expected as many as it has elements", values.size(), shape);
  Tensor result(std::move(shape));
  std::copy(values.begin(), values.end(), result.data<float>());
  return result;
}

Tensor Tensor::from(std::span<const int32_t> values, Shape shape) {
  check(checked_elements(shape) == static_cast<int64_t>(values.size()),
        "[tensor] {} values were given for the shape {}, expected as many as it has elements", values.size(), shape);
  Tensor result(std::move(shape), DType::int32);
  std::copy(values.begin(), values.end(), result.data<int32_t>());
  return result;
}

Tensor Tensor::view(void* data, Shape shape, DType dtype, Shape strides, Device device) {
  if (device != Device::cpu)
    core::device_memory(device);  // throws an Error that names the device if the build does not support it
  const int64_t count = checked_elements(shape);
  check(data != nullptr || count == 0, "[tensor] the data of a view of shape {} is a null pointer, expected memory",
        shape);
  check(strides.empty() || strides.size() == shape.size(),
        "[tensor] {} strides were given for the shape {}, expected one per axis", strides.size(), shape);
  Tensor result;
  result.data_ = data;
  result.strides_ = strides.empty() ? contiguous_strides(shape) : std::move(strides);
  result.shape_ = std::move(shape);
  result.dtype_ = dtype;
  result.device_ = device;
  return result;
}

Tensor Tensor::view(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype) {
  Tensor result = view(data, std::move(shape), dtype);
  result.owner_ = std::move(owner);
  return result;
}

int64_t Tensor::size(int axis) const {
  const int index = axis < 0 ? axis + axes() : axis;
  check(index >= 0 && index < axes(), "[tensor] axis {} does not exist in the shape {}", axis, shape_);
  return shape_[static_cast<size_t>(index)];
}

int64_t Tensor::stride(int axis) const {
  const int index = axis < 0 ? axis + axes() : axis;
  check(index >= 0 && index < axes(), "[tensor] axis {} does not exist in the shape {}", axis, shape_);
  return strides_[static_cast<size_t>(index)];
}

int64_t Tensor::elements() const {
  int64_t count = data_ == nullptr && shape_.empty() ? 0 : 1;
  for (const int64_t extent : shape_) count *= extent;
  return count;
}

bool Tensor::contiguous() const {
  bool ok = true;  // a tensor without elements is always contiguous
  int64_t step = 1;
  for (size_t axis = shape_.size(); axis-- > 0;) {
    if (shape_[axis] == 0) return true;
    ok &= shape_[axis] == 1 || strides_[axis] == step;
    step *= shape_[axis];
  }
  return ok;
}

template <class T>
T* Tensor::data() const {
  // Kernels call this for each row, so the names for the messages below are not made before something is wrong.
  if (dtype_ == dtype_of<T> && device_ == Device::cpu) return static_cast<T*>(data_);
  check(dtype_ == dtype_of<T>, "[tensor] {} elements were requested from a {} tensor; convert it with to(DType) first",
        name_of(dtype_of<T>), name_of(dtype_));
  fail("[tensor] elements were requested from a tensor on '{}', expected one on 'cpu'; copy it with to(Device::cpu)",
       name_of(device_));
}
template float* Tensor::data<float>() const;
template bfloat16* Tensor::data<bfloat16>() const;
template int32_t* Tensor::data<int32_t>() const;
template float16* Tensor::data<float16>() const;
template q8_block* Tensor::data<q8_block>() const;

Tensor Tensor::slice(int axis, int64_t begin, int64_t end) const {
  const int64_t extent = size(axis);
  check(0 <= begin && begin <= end && end <= extent, "[tensor] slice [{}, {}) of axis {} is outside the shape {}",
        begin, end, axis, shape_);
  const size_t index = static_cast<size_t>(axis < 0 ? axis + axes() : axis);
  Tensor result = *this;
  result.shape_[index] = end - begin;
  result.data_ = static_cast<std::byte*>(data_) + begin * strides_[index] * static_cast<int64_t>(size_of(dtype_));
  return result;
}

Tensor Tensor::reshape(Shape shape) const {
  check(contiguous(),
        "[tensor] reshape needs a contiguous tensor, found strides of shape {} that are not; call contiguous() first",
        shape_);
  int64_t known = 1;
  int unknown = -1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == -1) {
      check(unknown < 0, "[tensor] reshape to {}: at most one extent may be -1", shape);
      unknown = static_cast<int>(axis);
    } else {
      known *= shape[axis];
    }
  }
  if (unknown >= 0 && known > 0) shape[static_cast<size_t>(unknown)] = elements() / known;
  check(checked_elements(shape) == elements(),
        "[tensor] reshape of {} elements of shape {} to {}: the numbers of elements differ", elements(), shape_, shape);
  Tensor result = *this;
  result.strides_ = contiguous_strides(shape);
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  Tensor result = empty(shape_, dtype, device_);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor result = empty(shape_, dtype_, device);
  result.copy_from(*this);
  return result;
}

std::vector<float> Tensor::to_floats() const {
  const Tensor copy = to(Device::cpu).to(DType::float32);
  return {copy.data<float>(), copy.data<float>() + copy.elements()};
}

std::vector<int32_t> Tensor::to_ints() const {
  check(dtype_ == DType::int32, "[tensor] int32 values were requested from a {} tensor", name_of(dtype_));
  const Tensor copy = to(Device::cpu).clone();
  return {copy.data<int32_t>(), copy.data<int32_t>() + copy.elements()};
}

void Tensor::fill(float value) {
  if (device_ != Device::cpu) return core::device_memory(device_).fill(*this, value);
  if (contiguous() && dtype_ == DType::float32) {
    auto* const values = static_cast<float*>(data_);
    core::parallel_ranges(elements(), int64_t{1} << 16,
                          [&](int64_t begin, int64_t end) { std::fill(values + begin, values + end, value); });
    return;
  }
  const int64_t row_size = shape_.empty() ? 1 : shape_.back();
  const int64_t step = shape_.empty() ? 1 : strides_.back();
  for_each_row(shape_, strides_, strides_, [&](int64_t at, int64_t) {
    for (int64_t i = 0; i < row_size; ++i) store(data_, dtype_, at + i * step, value);
  });
}

void Tensor::copy_from(const Tensor& other) {
  check(shape_ == other.shape_, "[tensor] cannot copy shape {} into shape {}; expected equal shapes", other.shape_,
        shape_);
  check((dtype_ == DType::int32) == (other.dtype_ == DType::int32),
        "[tensor] cannot copy {} into {}; expected int32 to int32, or two floating-point types", name_of(other.dtype_),
        name_of(dtype_));
  if (device_ != other.device_) return copy_from_device(other);
  if (device_ != Device::cpu) return core::device_memory(device_).copy(other, *this);
  if (dtype_ == other.dtype_ && contiguous() && other.contiguous()) {
    if (elements() > 0) std::memmove(data_, other.data_, bytes());
    return;
  }
  const int64_t row_size = shape_.empty() ? 1 : shape_.back();
  const int64_t to_step = shape_.empty() ? 1 : strides_.back();
  const int64_t from_step = shape_.empty() ? 1 : other.strides_.back();
  for_each_row(shape_, strides_, other.strides_, [&](int64_t to, int64_t from) {
    for (int64_t i = 0; i < row_size; ++i) {
      if (dtype_ == DType::int32) {
        static_cast<int32_t*>(data_)[to + i * to_step] = static_cast<const int32_t*>(other.data_)[from + i * from_step];
      } else {
        store(data_, dtype_, to + i * to_step, load(other.data_, other.dtype_, from + i * from_step));
      }
    }
  });
}

void Tensor::copy_from_device(const Tensor& other) {
  if (dtype_ != other.dtype_ || !contiguous() || !other.contiguous()) {
    // Only contiguous bytes are copied between devices. Strides and types are converted on one side.
    Tensor bytes_here = empty(shape_, dtype_, device_);
    bytes_here.copy_from_device(other.to(dtype_));
    return copy_from(bytes_here);
  }
  if (elements() == 0) return;
  check(device_ == Device::cpu || other.device_ == Device::cpu,
        "[tensor] cannot copy from '{}' to '{}' directly; copy through the CPU", name_of(other.device_),
        name_of(device_));
  if (device_ == Device::cpu) return core::device_memory(other.device_).copy_to_cpu(data_, other.data_, bytes());
  core::device_memory(device_).copy_from_cpu(data_, other.data_, bytes());
}

}  // namespace alibi
