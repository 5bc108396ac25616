#include "formats/weight_source.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/float16.h"
#include "core/parallel.h"
#include "core/system.h"
#include "formats/weight_types.h"

namespace alibi::formats {
namespace {

constexpr int64_t kGrain = 1 << 16;               // elements converted by one task
constexpr int64_t kTransposedElements = 1 << 22;  // that are in memory at a time, besides the result

void copy_bytes(const std::byte* data, Tensor& out) {
  auto* to = static_cast<std::byte*>(out.raw());
  core::parallel_ranges(static_cast<int64_t>(out.bytes()), kGrain * 4,
                        [&](int64_t begin, int64_t end) { std::memcpy(to + begin, data + begin, end - begin); });
}

/// Numbers of 16 bits.
template <class Convert>
void convert_halves(const std::byte* data, Tensor& out, const Convert& convert) {
  float* to = out.data<float>();
  core::parallel_ranges(out.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint16_t bits;  // which need not be aligned
      std::memcpy(&bits, data + i * 2, sizeof bits);
      to[i] = convert(bits);
    }
  });
}
float widen(uint16_t bf16_bits) { return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits) << 16); }

/// Blocks of a quantized type, and any type where speed does not matter.
void convert_blocks(const WeightType& type, const std::byte* data, Tensor& out) {
  const int64_t blocks = out.elements() / type.block_elements;
  core::parallel_ranges(blocks, std::max<int64_t>(kGrain / type.block_elements, 1), [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(type.block_elements));
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * type.block_elements;
      type.decode(data + block * type.block_bytes, values.data());
      if (out.dtype() == DType::float32) {
        std::copy(values.begin(), values.end(), out.data<float>() + at);
      } else {
        std::transform(values.begin(), values.end(), out.data<bfloat16>() + at, [](float v) { return bfloat16(v); });
      }
    }
  });
}

/// Blocks of any quantized type into blocks of q8_0.
void requantize_blocks(const WeightType& type, const std::byte* data, Tensor& out) {
  const int64_t blocks = out.elements() * q8_block::size / type.block_elements;
  core::parallel_ranges(blocks, kGrain / type.block_elements, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(type.block_elements));
    q8_block* to = out.data<q8_block>() + begin * type.block_elements / q8_block::size;
    for (int64_t block = begin; block < end; ++block) {
      type.decode(data + block * type.block_bytes, values.data());
      for (int at = 0; at < type.block_elements; at += q8_block::size)
        *to++ = quantized(&values[static_cast<size_t>(at)]);
    }
  });
}

/// Of the first element that holds an infinite number or NaN; -1: there is none such.
int64_t first_not_finite(const Tensor& tensor) {
  std::atomic<int64_t> first = tensor.elements();
  if (numbers_in(tensor.dtype()) > 1) {
    const auto* const blocks = static_cast<const std::byte*>(tensor.raw());
    const auto size = static_cast<int64_t>(size_of(tensor.dtype()));
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (!is_finite_block(tensor.dtype(), blocks + i * size)) return i;
    }
    return -1;
  }
  const auto search = [&]<class Bits>(const Bits* bits, Bits exponent) {
    core::parallel_ranges(tensor.elements(), kGrain, [&](int64_t begin, int64_t end) {
      bool found = false;
      for (int64_t i = begin; i < end; ++i) found |= (bits[i] & exponent) == exponent;
      if (!found) return;
      int64_t at = begin;
      while ((bits[at] & exponent) != exponent) ++at;
      for (int64_t known = first; at < known && !first.compare_exchange_weak(known, at);) {
      }
    });
  };
  if (tensor.dtype() == DType::float32) search(static_cast<const uint32_t*>(tensor.raw()), uint32_t{0x7f800000});
  if (tensor.dtype() == DType::bfloat16) search(static_cast<const uint16_t*>(tensor.raw()), uint16_t{0x7f80});
  if (tensor.dtype() == DType::float16) search(static_cast<const uint16_t*>(tensor.raw()), uint16_t{0x7c00});
  return first < tensor.elements() ? first.load() : -1;
}

/// The indices of an element by its number in row-major order.
Shape place_of(int64_t element, const Shape& shape) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) place[axis] = element % shape[axis];
  return place;
}

}  // namespace

void WeightSource::add_file(core::MappedFile file, const std::string& source, std::vector<TensorInfo> tensors) {
  for (TensorInfo& info : tensors) {
    const auto [entry, added] = by_name_.emplace(info.name, tensors_.size());
    check(added, "[{}] {}: \"{}\" is also in {}", format_, source, info.name,
          added || file_of_[entry->second] == files_.size() ? source : sources_[file_of_[entry->second]]);
    file_of_.push_back(files_.size());
    tensors_.push_back(std::move(info));
  }
  files_.push_back(std::make_shared<core::MappedFile>(std::move(file)));
  sources_.push_back(source);
}

const TensorInfo* WeightSource::find(std::string_view name) const {
  const auto entry = by_name_.find(name);
  return entry == by_name_.end() ? nullptr : &tensors_[entry->second];
}

const TensorInfo& WeightSource::info(std::string_view name) const {
  const TensorInfo* info = find(name);
  check(info != nullptr, "[{}] {}: has no tensor \"{}\"", format_, fmt::join(sources_, ", "), name);
  return *info;
}

const std::string& WeightSource::source_of(std::string_view name) const {
  info(name);
  return sources_[file_of(name)];
}

std::span<const std::byte> WeightSource::bytes(std::string_view name) const {
  const TensorInfo& found = info(name);
  return files_[file_of(name)]->bytes().subspan(found.begin, found.end - found.begin);
}

bool WeightSource::are_equal(std::string_view one, std::string_view other) const {
  const TensorInfo &first = info(one), &second = info(other);
  if (first.shape != second.shape) return false;
  if (first.dtype == second.dtype) {
    const std::span<const std::byte> a = bytes(one), b = bytes(other);
    return std::equal(a.begin(), a.end(), b.begin());
  }
  if (first.shape.empty()) return load(one).to_floats() == load(other).to_floats();
  int64_t of_row = 1;
  for (size_t axis = 1; axis < first.shape.size(); ++axis) of_row *= first.shape[axis];
  const int64_t rows = first.shape[0], most = std::max<int64_t>(1, kTransposedElements / std::max<int64_t>(of_row, 1));
  for (int64_t row = 0; row < rows; row += most) {
    Shape shape = first.shape;
    shape[0] = std::min(most, rows - row);
    Tensor a = Tensor::empty(shape), b = Tensor::empty(shape);
    load_rows_into(one, row, a), load_rows_into(other, row, b);
    if (a.to_floats() != b.to_floats()) return false;
  }
  return true;
}

void WeightSource::check_loadable(std::string_view name, const Shape& shape, DType dtype) const {
  const TensorInfo& found = info(name);
  const std::string& source = source_of(name);
  check(found.dtype == "I32" || weight_type(found.dtype) != nullptr,
        "[{}] {}: \"{}\" is of type {}, expected {} or I32", format_, source, name, found.dtype, weight_type_names());
  check(shape == found.shape, "[{}] {}: \"{}\" has the shape {}, expected {}", format_, source, name,
        to_string(found.shape), to_string(shape));
  check((found.dtype == "I32") == (dtype == DType::int32), "[{}] {}: \"{}\" is of type {}, expected {}", format_,
        source, name, found.dtype, name_of(dtype));
}

Tensor WeightSource::view(std::span<const std::string> names) const {
  const TensorInfo& first = info(names.front());
  const WeightType* type = weight_type(first.dtype);
  if (type == nullptr || first.shape.size() != 2) return {};
  const DType dtype = type->dtype;
  Shape shape = first.shape;
  shape[1] /= numbers_in(dtype);
  size_t end = first.end;
  for (const std::string& name : names.subspan(1)) {
    const TensorInfo& next = info(name);
    const bool follows = next.begin == end && file_of(name) == file_of(names.front());
    if (!follows || next.dtype != first.dtype || next.shape.size() != 2 || next.shape[1] != first.shape[1]) return {};
    shape[0] += next.shape[0];
    end = next.end;
  }
  const std::shared_ptr<core::MappedFile>& file = files_[file_of(names.front())];
  const std::byte* data = file->bytes().data() + first.begin;
  const uintptr_t alignment = dtype == DType::float32 ? alignof(float) : 2;  // blocks begin with a scale of 16 bits
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) return {};
  return Tensor::view(file, const_cast<std::byte*>(data), std::move(shape), dtype);
}

Tensor WeightSource::load(std::string_view name) const {
  const TensorInfo& found = info(name);
  const DType dtype = found.dtype == "BF16" ? DType::bfloat16 : found.dtype == "I32" ? DType::int32 : DType::float32;
  check_loadable(name, found.shape, dtype);
  Tensor result = Tensor::empty(found.shape, dtype);
  load_into(name, result);
  return result;
}

void WeightSource::load_into(std::string_view name, Tensor& out) const {
  Shape shape = out.shape();
  if (!shape.empty()) shape.back() *= numbers_in(out.dtype());
  check_loadable(name, shape, out.dtype());
  load_rows_into(name, 0, out);
}

void WeightSource::load_rows_into(std::string_view name, int64_t first, Tensor& out) const {
  const TensorInfo& found = info(name);
  Shape wanted = found.shape, given = out.shape();
  if (!wanted.empty()) wanted[0] = out.size(0);
  if (!given.empty()) given.back() *= numbers_in(out.dtype());
  check(given == wanted && first >= 0 && (wanted.empty() || first + out.size(0) <= found.shape[0]),
        "[{}] {}: \"{}\" has the shape {}, expected {} from row {} on", format_, source_of(name), name,
        to_string(found.shape), to_string(given), first);
  check_loadable(name, found.shape, out.dtype());
  check(out.contiguous(), "[{}] \"{}\" cannot be loaded into a tensor that is not contiguous", format_, name);
  if (out.elements() == 0) return;
  std::span<const std::byte> part = bytes(name);
  if (!wanted.empty()) {
    const size_t row_bytes = part.size() / static_cast<size_t>(found.shape[0]);
    part = part.subspan(row_bytes * static_cast<size_t>(first), row_bytes * static_cast<size_t>(out.size(0)));
  }
  const std::byte* const data = part.data();
  const DType to = out.dtype();
  if (found.dtype == "I32" || weight_type(found.dtype)->dtype == to) {
    copy_bytes(data, out);
  } else if (numbers_in(to) > 1 || to == DType::float16) {
    check(to == DType::q8_0 && !weight_type(found.dtype)->is_plain(),
          "[{}] {}: \"{}\" is of type {} and cannot become {}", format_, source_of(name), name, found.dtype,
          name_of(to));
    requantize_blocks(*weight_type(found.dtype), data, out);
  } else if (found.dtype == "BF16") {
    convert_halves(data, out, widen);
  } else if (found.dtype == "F16" && to == DType::float32) {
    convert_halves(data, out, core::float16_to_float);
  } else {
    convert_blocks(*weight_type(found.dtype), data, out);
  }
  core::system::drop_mapped_pages(part.data(), part.size());
}

void WeightSource::load_transposed_into(std::string_view name, Tensor& out) const {
  check(out.axes() == 2 && out.dtype() == DType::float32 && out.contiguous(),
        "[{}] \"{}\" is transposed into a contiguous float32 matrix, not {} {}", format_, name, name_of(out.dtype()),
        to_string(out.shape()));
  const int64_t rows = out.size(0), columns = out.size(1);
  check_loadable(name, {columns, rows}, DType::float32);
  const int64_t most = std::max<int64_t>(1, kTransposedElements / std::max<int64_t>(rows, 1));
  for (int64_t first = 0; first < columns; first += most) {
    const int64_t count = std::min(most, columns - first);
    Tensor some = Tensor::empty({count, rows});
    load_rows_into(name, first, some);
    const float* from = some.data<float>();
    float* to = out.data<float>() + first;
    core::parallel_ranges(rows, std::max<int64_t>(kGrain / count, 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < count; ++i) to[row * columns + i] = from[i * rows + row];
      }
    });
  }
}

void WeightSource::load_finite_into(std::string_view name, Tensor& out) const {
  load_into(name, out);
  check_finite(name, out);
}

void WeightSource::check_finite(std::string_view name, const Tensor& loaded) const {
  const int64_t bad = first_not_finite(loaded);
  if (bad < 0) return;
  const Tensor place = loaded.reshape({loaded.elements()}).slice(0, bad, bad + 1);
  const std::string value = numbers_in(loaded.dtype()) > 1 ? std::string("a block whose scale is infinite or NaN")
                                                           : fmt::format("{}", place.to_floats().front());
  fail("[{}] {}: \"{}\" {} is {}, expected finite numbers: the file is damaged, or its training failed", format_,
       source_of(name), name, to_string(place_of(bad, loaded.shape())), value);
}

}  // namespace alibi::formats
