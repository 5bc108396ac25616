// Texts as people keep them: compressed by gzip or Zstandard, or a record to a line (JSON Lines).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

/// Whether a file that begins so is compressed by gzip or Zstandard.
bool is_compressed(std::string_view beginning);

/// The bytes that were compressed, of all members or frames one after the other; or what came until it was known not to
/// be text (a NUL byte): of a small file it may be more than memory holds. `name` is for messages. Throws Error for a
/// damaged or unfinished file.
std::string unpack(std::string_view bytes, const std::string& name);

/// "log.jsonl" of "log.jsonl.gz"; names that end in nothing of the kind stay.
std::string unpacked_name(const std::string& name);

/// Whether a file of this name has a JSON object in each line: .jsonl or .ndjson.
bool has_records(const std::string& name);

struct Record {
  int64_t line = 0;  ///< counted from 1
  std::string text;
};

/// The string `field` of each line's object; blank lines and empty strings are left out. Throws Error that names the
/// line for one that is no object or has no such string, with the fields that it has.
std::vector<Record> read_records(std::string_view lines, const std::string& field, const std::string& name);

}  // namespace alibi::text
