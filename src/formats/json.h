// JSON files, read defensively.
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

/// What is read: sorted keys, so that a file cannot make looking them up slow.
using Json = nlohmann::json;
/// What is written: keys in the order they were given.
using OrderedJson = nlohmann::ordered_json;

/// Arrays and objects may lie this deep in each other.
inline constexpr int kMaxJsonDepth = 64;

/// A value, or a part of one, that several owners share. Freeing it needs no memory, unlike the destructor of Json,
/// which allocates and so ends the process where memory is short.
using SharedJson = std::shared_ptr<const Json>;

/// A JSON object and where it stands, so that errors can say it. A key whose value is null counts as missing, as in
/// the configuration files of Hugging Face.
class JsonObject {
 public:
  /// `where` is a prefix of keys in messages: "config.json: " or "config.json: attn_config.".
  /// Throws Error if the value is no object.
  JsonObject(SharedJson json, std::string where);
  JsonObject(Json json, std::string where);

  bool has(std::string_view key) const;
  size_t size() const { return json_->size(); }
  std::vector<std::string> keys() const;
  const Json& raw() const { return *json_; }
  const std::string& where() const { return where_; }

  /// T is bool, int64_t, double, std::string, or a std::vector of int64_t, of std::string or of std::vector<double>.
  /// Throws Error that names the file and the key if it is missing or of another type. An int64_t may be written as a
  /// number with a fraction of zero, as some writers do; a double may be written as an integer.
  template <class T>
  T get(std::string_view key) const;
  /// The same for a key that may be missing.
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

  /// A nested object; missing gives an empty one with object_or_empty().
  JsonObject object(std::string_view key) const;
  JsonObject object_or_empty(std::string_view key) const;

 private:
  const Json& at(std::string_view key) const;

  SharedJson json_;
  std::string where_;
};

/// Throws Error with the source, the line and the column if the text is no JSON, nests deeper than kMaxJsonDepth, or
/// gives a key twice. `source` is the path to show.
SharedJson parse_json(std::string_view text, std::string_view source);

/// Most bytes of a file of JSON. Read, one may take thirty times as much memory: a value of three bytes, such as "",
/// becomes an object of its own.
inline constexpr size_t kMostJsonBytes = size_t{16} << 20;

/// A file that holds one JSON object. Throws Error if it has more than `most` bytes.
JsonObject read_json_object(const std::filesystem::path& path, size_t most = kMostJsonBytes);

/// Two spaces per level and a line feed at the end. Numbers that JSON cannot express (NaN, infinities) become null;
/// bytes that are not UTF-8 become U+FFFD.
std::string to_text(const OrderedJson& json);
void write_json(const std::filesystem::path& path, const OrderedJson& json);

}  // namespace alibi::formats
