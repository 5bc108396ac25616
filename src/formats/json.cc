#include "formats/json.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/check.h"
#include "core/files.h"
#include "formats/json_copy.h"

namespace alibi::formats {
namespace {

/// The message without its code: "[json.exception.parse_error.101] parse error at line 1, column 5: ..." from "parse"
/// on.
std::string_view without_code(std::string_view message) {
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

/// Empties a value from the innermost level outwards. The destructor of a value without elements does not allocate.
void empty(Json& value) noexcept {
  if (value.is_array()) {
    auto& elements = value.get_ref<Json::array_t&>();
    for (Json& element : elements) empty(element);
    elements.clear();
  } else if (value.is_object()) {
    auto& members = value.get_ref<Json::object_t&>();
    for (auto& [key, member] : members) empty(member);
    members.clear();
  }
}

std::shared_ptr<Json> shared(Json json) {
  return {new Json(std::move(json)), [](Json* held) {
            empty(*held);
            delete held;
          }};
}

/// Builds a value, and refuses deep nesting and repeated keys, which the library would accept. (The library's own hook
/// for this, the parser callback, takes quadratic time in the number of keys.)
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view source, Json& root, bool keeps_numbers)
      : source_(source), root_(root), keeps_numbers_(keeps_numbers) {}

  bool start_object(size_t) override { return enter(Json::object()); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(Json::array()); }
  bool end_array() override { return leave(); }
  bool key(std::string& key) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(key, nullptr);
    check(is_new, "[json] {}: the key \"{}\" occurs twice in one object", source_, key);
    member_ = &place->second;
    return true;
  }
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& written) override {
    if (!keeps_numbers_) return add(value);
    return add(Json::binary({written.begin(), written.end()}));
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has no binary values
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail("[json] {}: {}", source_, without_code(error.what()));
  }

 private:
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    auto& elements = open_.back()->get_ref<Json::array_t&>();
    return elements.emplace_back(std::move(value));
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool enter(Json value) {
    check(open_.size() < kMaxJsonDepth, "[json] {}: nests deeper than {} levels", source_, kMaxJsonDepth);
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  std::string_view source_;
  Json& root_;
  bool keeps_numbers_;
  std::vector<Json*> open_;  // open arrays and objects, innermost last
  Json* member_ = nullptr;   // in the innermost object: the value of the last key
};

SharedJson parsed(std::string_view text, std::string_view source, bool keeps_numbers) {
  const std::shared_ptr<Json> root = shared(nullptr);
  Builder builder(source, *root, keeps_numbers);
  Json::sax_parse(text, &builder);
  return root;
}

std::string describe(const Json& value) {
  if (value.is_structured()) return fmt::format("an {} of {}", value.type_name(), value.size());
  return shown(value);
}

bool has_number_as_written(const OrderedJson& json) {
  return json.is_binary() || (json.is_structured() && std::any_of(json.begin(), json.end(), has_number_as_written));
}

/// The text of a value, in one line if `indent` is negative. The library writes what has no number as it was written.
std::string dumped(const OrderedJson& json, int indent, int depth) {
  if (json.is_binary()) return {json.get_binary().begin(), json.get_binary().end()};
  if (!json.is_structured() || json.empty() || (depth == 0 && !has_number_as_written(json))) {
    return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
  }
  const auto line = [&](int level) {
    return indent < 0 ? std::string() : "\n" + std::string(static_cast<size_t>(indent * level), ' ');
  };
  std::string text;
  for (const auto& item : json.items()) {
    text += (text.empty() ? "" : ",") + line(depth + 1);
    if (json.is_object()) {
      text += OrderedJson(item.key()).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      text += indent < 0 ? ":" : ": ";
    }
    text += dumped(item.value(), indent, depth + 1);
  }
  return (json.is_object() ? "{" : "[") + text + line(depth) + (json.is_object() ? "}" : "]");
}

/// Whether a number has no fraction and fits int64_t.
bool is_int64(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return number == std::trunc(number) && std::abs(number) < 0x1p53;
}

template <class T>
constexpr const char* kind = nullptr;
template <>
constexpr const char* kind<bool> = "true or false";
template <>
constexpr const char* kind<int64_t> = "an integer";
template <>
constexpr const char* kind<double> = "a number";
template <>
constexpr const char* kind<std::string> = "a string";
template <>
constexpr const char* kind<std::vector<int64_t>> = "a list of integers";
template <>
constexpr const char* kind<std::vector<double>> = "a list of numbers";
template <>
constexpr const char* kind<std::vector<std::string>> = "a list of strings";
template <>
constexpr const char* kind<std::vector<std::vector<double>>> = "a list of lists of numbers";

template <class T>
bool is_a(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return is_int64(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return value.is_number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else {
    return value.is_array() && std::all_of(value.begin(), value.end(), is_a<typename T::value_type>);
  }
}

}  // namespace

JsonObject::JsonObject(SharedJson json, std::string where) : json_(std::move(json)), where_(std::move(where)) {
  const std::string_view itself = std::string_view(where_).substr(0, where_.find_last_not_of(".: ") + 1);
  check(json_->is_object(), "[json] {} is {}, expected an object", itself, describe(*json_));
}

JsonObject::JsonObject(Json json, std::string where) : JsonObject(shared(std::move(json)), std::move(where)) {}

bool JsonObject::has(std::string_view key) const {
  const auto found = json_->find(std::string(key));
  return found != json_->end() && !found->is_null();
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> result;
  for (const auto& item : json_->items()) result.push_back(item.key());
  return result;
}

const Json& JsonObject::at(std::string_view key) const {
  check(has(key), "[json] {}{} is missing", where_, key);
  return *json_->find(std::string(key));
}

template <class T>
T JsonObject::get(std::string_view key) const {
  const Json& value = at(key);
  check(is_a<T>(value), "[json] {}{} is {}, expected {}", where_, key, describe(value), kind<T>);
  return value.get<T>();
}
template bool JsonObject::get(std::string_view) const;
template int64_t JsonObject::get(std::string_view) const;
template double JsonObject::get(std::string_view) const;
template std::string JsonObject::get(std::string_view) const;
template std::vector<int64_t> JsonObject::get(std::string_view) const;
template std::vector<double> JsonObject::get(std::string_view) const;
template std::vector<std::string> JsonObject::get(std::string_view) const;
template std::vector<std::vector<double>> JsonObject::get(std::string_view) const;

int64_t JsonObject::get_int(std::string_view key, int64_t min, int64_t max) const {
  const int64_t value = get<int64_t>(key);
  check(value >= min && value <= max, "[json] {}{} is {}, expected {} to {}", where_, key, value, min, max);
  return value;
}

int64_t JsonObject::get_int_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  return has(key) ? get_int(key, min, max) : fallback;
}

double JsonObject::get_number(std::string_view key, double min, double max) const {
  const double value = get<double>(key);
  check(value >= min && value <= max, "[json] {}{} is {}, expected {} to {}", where_, key, value, min, max);
  return value;
}

double JsonObject::get_number_or(std::string_view key, double fallback, double min, double max) const {
  return has(key) ? get_number(key, min, max) : fallback;
}

JsonObject JsonObject::object(std::string_view key) const {
  return {SharedJson(json_, &at(key)), fmt::format("{}{}.", where_, key)};
}

JsonObject JsonObject::object_or_empty(std::string_view key) const {
  return has(key) ? object(key) : JsonObject(Json::object(), fmt::format("{}{}.", where_, key));
}

SharedJson parse_json(std::string_view text, std::string_view source) { return parsed(text, source, false); }

SharedJson parse_json_to_copy(std::string_view text, std::string_view source) { return parsed(text, source, true); }

JsonObject read_json_object(const std::filesystem::path& path, size_t most) {
  return {parse_json(core::read_file(path, most), path.string()), path.string() + ": "};
}

void keep_numbers(const Json& source, OrderedJson& copy) {
  if (source.is_binary()) copy = OrderedJson::binary(source.get_binary());
  if (source.is_array()) {
    for (size_t i = 0; i < source.size(); ++i) keep_numbers(source[i], copy[i]);
  }
  if (source.is_object()) {
    for (auto& item : copy.items()) keep_numbers(source.at(item.key()), item.value());
  }
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string to_text(const OrderedJson& json) { return dumped(json, 2, 0) + "\n"; }

std::string to_line(const OrderedJson& json) { return dumped(json, -1, 0); }

void write_json(const std::filesystem::path& path, const OrderedJson& json) { core::write_file(path, to_text(json)); }

}  // namespace alibi::formats
