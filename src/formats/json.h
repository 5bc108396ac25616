// Reads JSON files defensively.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace alibi::formats {

/// Type for reading: keys are sorted, so that no file can make lookups slow.
using Json = nlohmann::json;
/// Type for writing: keys keep their order.
using OrderedJson = nlohmann::ordered_json;

/// Maximum nesting depth of arrays and objects.
inline constexpr int kMaxJsonDepth = 64;

/// A value, or a part of one, that several owners share. Freeing it needs no memory. The destructor of Json allocates,
/// and so would end the process when memory runs out.
using SharedJson = std::shared_ptr<const Json>;

/// A JSON object with its location for error messages. A key whose value is null counts as missing, as in the
/// configuration files of Hugging Face.
class JsonObject {
 public:
  /// `where` is a prefix of keys in messages: "config.json: " or "config.json: attn_config.". Throws Error if the value
  /// is not an object.
  JsonObject(SharedJson json, std::string where);
  JsonObject(Json json, std::string where);

  bool has(std::string_view key) const;
  size_t size() const { return json_->size(); }
  std::vector<std::string> keys() const;
  const Json& raw() const { return *json_; }
  const std::string& where() const { return where_; }

  /// T is bool, int64_t, double, std::string, or a std::vector of int64_t, of std::string or of std::vector<double>.
  /// Throws Error that names the file and the key if it is missing or has another type. An int64_t may be written with
  /// a fraction of zero, as some writers do; a double may be written as an integer.
  template <class T>
  T get(std::string_view key) const;
  /// Like get(), for a key that may be missing.
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : std::move(fallback);
  }
  std::string get_or(std::string_view key, const char* fallback) const { return get_or(key, std::string(fallback)); }

  /// A number in [min, max].
  int64_t get_int(std::string_view key, int64_t min, int64_t max) const;
  int64_t get_int_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;
  double get_number(std::string_view key, double min, double max) const;
  double get_number_or(std::string_view key, double fallback, double min, double max) const;

  /// A nested object. object_or_empty() returns an empty object if it is missing.
  JsonObject object(std::string_view key) const;
  JsonObject object_or_empty(std::string_view key) const;

 private:
  const Json& at(std::string_view key) const;

  SharedJson json_;
  std::string where_;
};

/// Throws Error with the source, the line and the column if the text is not JSON, nests deeper than kMaxJsonDepth, or
/// contains a key twice. `source` is the path shown in messages.
SharedJson parse_json(std::string_view text, std::string_view source);

/// Maximum size of a JSON file in bytes. A parsed file may take thirty times as much memory, because a value of three
/// bytes, such as "", becomes an object.
inline constexpr size_t kMaxJsonBytes = size_t{16} << 20;

/// Reads a file that contains one JSON object. Throws Error if it has more than `most` bytes.
JsonObject read_json_object(const std::filesystem::path& path, size_t most = kMaxJsonBytes);

/// The beginning of a value's text, for messages.
std::string shown(const Json& value);

/// Uses two spaces per level and ends with a line feed. Numbers that JSON cannot express (NaN, infinities) become null.
/// Invalid UTF-8 becomes U+FFFD.
std::string to_text(const OrderedJson& json);
void write_json(const std::filesystem::path& path, const OrderedJson& json);

}  // namespace alibi::formats
