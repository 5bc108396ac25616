// The texts that `alibi embed` and `alibi rerank` read, with their names in the output.
#pragma once

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "alibi/training_data.h"

namespace alibi::cli {

struct EmbedItem {
  /// {"text": ...}, {"file": ...}, or {"id": ..., "text": ...} of a record. formats::to_line() writes the id as the
  /// record has it.
  nlohmann::ordered_json name = {};
  std::string text = {};  ///< empty with chunks
  std::vector<std::string> chunks =
      {};                           ///< late chunking: lines that are not blank, or the strings of a record's array
  std::vector<int64_t> lines = {};  ///< their numbers, from 1; empty for the strings of an array

  /// The number of vectors: one, or one for each chunk.
  int64_t rows() const { return chunks.empty() ? 1 : std::ssize(chunks); }
};

enum class ItemKind { lines, files, chunks };

struct EmbedItems {
  std::vector<EmbedItem> items;
  FilesRead files;
};

/// Files, folders or "-". Lines may end as those of any system, and a byte order mark is left out (text/lines.h). With
/// ItemKind::files an empty file is an item. Files of records (.jsonl, .ndjson) have a text in each line, under the key
/// `field`, and may have an id under the key "id". For ItemKind::chunks the text may be an array of strings, the
/// chunks. Throws Error that names the file, and the line of a record that is no such object.
EmbedItems read_items(const std::vector<std::string>& inputs, ItemKind kind, const std::string& field);

}  // namespace alibi::cli
