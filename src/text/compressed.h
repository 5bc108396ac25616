// Text that is compressed by gzip or Zstandard, or has one record per line (JSON Lines).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

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

/// Calls use(object, line number) for each line that is not blank; the objects are for copying (formats/json_copy.h).
/// `name` is used in messages. Throws Error with the line number and the cause if a line is not a JSON object.
void each_record(std::string_view lines, const std::string& name,
                 const std::function<void(const formats::Json& object, int64_t line)>& use);

/// The member `field` of a record. Throws Error that lists the fields that it has if this one is missing.
const formats::Json& field_of(const formats::Json& object, const std::string& field, const std::string& name,
                              int64_t line);

/// The string `field` of each line's object; blank lines and empty strings are left out. Throws Error with the line
/// number if a line is not an object or lacks the string, and lists the fields that it has.
std::vector<Record> read_records(std::string_view lines, const std::string& field, const std::string& name);

}  // namespace alibi::text
