// Named tensors in memory-mapped files, whatever the format: opening reads headers alone, and weights are read into
// their place when they are requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/tensor.h"
#include "core/files.h"

namespace alibi::formats {

/// What a file says of a tensor.
struct TensorInfo {
  std::string name;
  std::string dtype;  ///< as the format names it: "F32", "BF16", "F16", "I32", quantized types of weight_types.h
  Shape shape;
  size_t begin = 0;  ///< bytes from the beginning of the file
  size_t end = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  WeightSource(WeightSource&&) = default;
  WeightSource& operator=(WeightSource&&) = default;

  /// All tensors, in the order of the files and of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws Error if there is no such tensor.
  const TensorInfo& info(std::string_view name) const;

  /// The paths of the files.
  const std::vector<std::string>& sources() const { return sources_; }
  /// Of the one that holds it.
  const std::string& source_of(std::string_view name) const;
  /// The bytes of a tensor in the mapped file.
  std::span<const std::byte> bytes(std::string_view name) const;

  /// Whether two tensors hold the same numbers in the same shape. Reads up to the first difference.
  bool are_equal(std::string_view one, std::string_view other) const;

  /// Throws Error unless there is such a tensor of this shape, of a type that load_into() takes for `dtype`.
  void check_loadable(std::string_view name, const Shape& shape, DType dtype) const;
  /// All rows of the tensors, which are matrices of one type, in the mapped file itself: [rows, columns], read-only,
  /// kept alive by the result; elements of quantized types are blocks. Undefined if they do not lie one after the
  /// other, or where numbers of their type may be read.
  Tensor view(std::span<const std::string> names) const;
  /// A copy: F32, BF16 and I32 as they are, other types as float32. Throws Error for types that cannot be loaded.
  Tensor load(std::string_view name) const;
  /// Copies into a contiguous tensor of the same shape, rounding floating-point numbers to its type. float16 takes F16
  /// alone; q8_0, whose elements are blocks, takes the types of blocks, which take themselves alone.
  void load_into(std::string_view name, Tensor& out) const;
  /// The same for the rows from `first` on, as many as `out` has. The other extents of both are equal.
  void load_rows_into(std::string_view name, int64_t first, Tensor& out) const;
  /// Transposes a tensor [columns, rows] into a float32 tensor [rows, columns].
  void load_transposed_into(std::string_view name, Tensor& out) const;
  /// As load_into() for numbers that are computed with. Throws Error that names the first that is infinite or NaN.
  void load_finite_into(std::string_view name, Tensor& out) const;
  /// Throws that Error if `loaded`, which was made of the tensor, has such a number.
  void check_finite(std::string_view name, const Tensor& loaded) const;

 protected:
  /// `format` begins the messages of errors.
  explicit WeightSource(const char* format) : format_(format) {}
  /// Adds a file and its tensors. Throws Error if one of them has the name of a tensor of another file.
  void add_file(core::MappedFile file, const std::string& source, std::vector<TensorInfo> tensors);
  size_t file_of(std::string_view name) const { return file_of_[by_name_.find(name)->second]; }

 private:
  const TensorInfo* find(std::string_view name) const;

  const char* format_;
  std::vector<std::shared_ptr<core::MappedFile>> files_;
  std::vector<std::string> sources_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> file_of_;  // of each tensor
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace alibi::formats
