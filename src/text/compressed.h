// Text that is compressed by gzip or Zstandard, or has one record per line (JSON Lines).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

/// Whether a file that begins with these bytes is compressed by gzip or Zstandard.
bool is_compressed(std::string_view beginning);

/// Decompresses all members or frames. Stops at a NUL byte, because the data is then not text, and a small file may
/// decompress to more than fits in memory. `name` is used in messages. Throws Error for a damaged or incomplete file.
std::string unpack(std::string_view bytes, const std::string& name);

/// "log.jsonl" of "log.jsonl.gz"; other names are returned unchanged.
std::string unpacked_name(const std::string& name);

/// Whether a file of this name has a JSON object in each line: .jsonl or .ndjson.
bool has_records(const std::string& name);

struct Record {
  int64_t line = 0;  ///< counted from 1
  std::string text;
};

/// The string `field` of each line's object; blank lines and empty strings are left out. Throws Error with the line
/// number if a line is not an object or lacks the string, and lists the fields that it has.
std::vector<Record> read_records(std::string_view lines, const std::string& field, const std::string& name);

}  // namespace alibi::text
