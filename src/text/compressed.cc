#include "text/compressed.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>

#include "core/check.h"
#include "formats/json_copy.h"
#include "text/lines.h"

namespace alibi::text {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b", kZstandard = "\x28\xb5\x2f\xfd";
constexpr size_t kPiece = size_t{1} << 18;

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Appends bytes and returns whether the result is still text.
bool append_text(std::string& text, const char* bytes, size_t count) {
  text.append(bytes, count);
  return std::memchr(bytes, 0, count) == nullptr;
}

class Inflater {
 public:
  explicit Inflater(const std::string& name) : name_(name) {
    constexpr int kGzipHeader = 16;
    check(inflateInit2(&stream_, MAX_WBITS + kGzipHeader) == Z_OK, "[text] {}: zlib cannot be initialized", name_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  std::string unpack(std::string_view bytes) {
    std::string text;
    std::vector<char> piece(kPiece);
    bool at_end = false;  // of a member; another member may follow
    while (!bytes.empty() || stream_.avail_in > 0) {
      if (stream_.avail_in == 0) {
        const size_t some = std::min<size_t>(bytes.size(), UINT_MAX);
        stream_.next_in =
            reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not write through this pointer
        stream_.avail_in = static_cast<uInt>(some);
        bytes.remove_prefix(some);
      }
      if (at_end) inflateReset(&stream_);
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      check(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, "[text] {}: is damaged: {}", name_,
            stream_.msg == nullptr ? "it is not in gzip's format" : stream_.msg);
      at_end = result == Z_STREAM_END;
      if (!append_text(text, piece.data(), piece.size() - stream_.avail_out)) return text;
    }
    // The decompressor may hold output that needs no more input.
    while (!at_end) {
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      const size_t came = piece.size() - stream_.avail_out;
      at_end = result == Z_STREAM_END;
      check(at_end || (result == Z_OK && came > 0), "[text] {}: is damaged: it ends too early", name_);
      if (!append_text(text, piece.data(), came)) return text;
    }
    return text;
  }

 private:
  const std::string& name_;
  z_stream stream_{};
};

std::string unpack_zstandard(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  check(context != nullptr, "[text] {}: Zstandard cannot be initialized", name);
  std::string text;
  std::vector<char> piece(kPiece);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  size_t left = 0;
  for (bool full = false; in.pos < in.size || full;) {
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    left = ZSTD_decompressStream(context.get(), &out, &in);
    check(ZSTD_isError(left) == 0, "[text] {}: is damaged: {}", name, ZSTD_getErrorName(left));
    full = out.pos == out.size;
    if (!append_text(text, piece.data(), out.pos)) return text;
  }
  check(left == 0, "[text] {}: is damaged: it ends too early", name);
  return text;
}

std::string fields_of(const formats::Json& object) {
  std::vector<std::string> names;
  constexpr size_t kMax = 20;
  for (const auto& item : object.items()) {
    if (names.size() == kMax) {
      names.emplace_back("...");
      break;
    }
    names.push_back(item.key());
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool is_compressed(std::string_view beginning) {
  return beginning.starts_with(kGzip) || beginning.starts_with(kZstandard);
}

std::string unpack(std::string_view bytes, const std::string& name) {
  return bytes.starts_with(kGzip) ? Inflater(name).unpack(bytes) : unpack_zstandard(bytes, name);
}

std::string unpacked_name(const std::string& name) {
  const bool compressed = ends_with_any(name, {".gz", ".zst"});
  return compressed ? name.substr(0, name.rfind('.')) : name;
}

bool has_records(const std::string& name) { return ends_with_any(name, {".jsonl", ".ndjson"}); }

void each_record(std::string_view lines, const std::string& name,
                 const std::function<void(const formats::Json& object, int64_t line)>& use) {
  if (lines.starts_with(kByteOrderMark)) lines.remove_prefix(kByteOrderMark.size());
  each_line(lines, [&](std::string_view line, int64_t number) {
    if (is_blank(line)) return;
    check(line.size() <= formats::kMaxJsonBytes, "[text] {}, line {}: has {} bytes, expected at most {}", name, number,
          line.size(), formats::kMaxJsonBytes);
    const formats::SharedJson parsed = formats::parse_json_to_copy(line, fmt::format("{}, line {}", name, number));
    check(parsed->is_object(), "[text] {}, line {}: is not a JSON object, which each line of such a file is", name,
          number);
    use(*parsed, number);
  });
}

const formats::Json& field_of(const formats::Json& object, const std::string& field, const std::string& name,
                              int64_t line) {
  const auto found = object.find(field);
  check(found != object.end(),
        "[text] {}, line {}: has no field '{}'; it has {}. Name the one with the text with --field", name, line, field,
        fields_of(object));
  return *found;
}

std::vector<Record> read_records(std::string_view lines, const std::string& field, const std::string& name) {
  std::vector<Record> records;
  each_record(lines, name, [&](const formats::Json& object, int64_t line) {
    const formats::Json& value = field_of(object, field, name, line);
    check(value.is_string(), "[text] {}, line {}: the field '{}' is {}, expected a string", name, line, field,
          value.is_binary() ? "number" : value.type_name());
    std::string text = value.get<std::string>();
    if (!text.empty()) records.push_back({line, std::move(text)});
  });
  return records;
}

}  // namespace alibi::text
