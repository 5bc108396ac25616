#include "embed_items.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "text/compressed.h"
#include "text/documents.h"
#include "text/lines.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

void add_chunks(const std::string& text, EmbedItem& item) {
  text::each_line(text, [&](std::string_view line, int64_t number) {
    if (text::is_blank(line)) return;
    item.chunks.emplace_back(line);
    item.lines.push_back(number);
  });
}

bool is_array_of_texts(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& one) { return one.is_string(); });
}

void read_records(const std::string& path, ItemKind kind, const std::string& field, std::vector<EmbedItem>& items) {
  const bool chunks = kind == ItemKind::chunks;
  std::string lines = core::read_file(path);
  if (text::is_compressed(lines)) lines = text::unpack(lines, path);
  text::each_record(lines, path, [&](const nlohmann::json& record, int64_t line) {
    const nlohmann::json& value = text::field_of(record, field, path, line);
    check(value.is_string() || (chunks && is_array_of_texts(value)),
          "[embed] {}, line {}: the field '{}' is {}, expected a string{}", path, line, field,
          value.is_binary() ? "number" : value.type_name(), chunks ? " or an array of strings" : "");
    EmbedItem item;
    if (record.contains("id")) item.name["id"] = record["id"];
    if (!chunks) {
      item.text = value;
      item.name["text"] = item.text;
    } else if (value.is_string()) {
      add_chunks(text::with_line_feeds(value), item);
    } else {
      value.get_to(item.chunks);
    }
    if (!chunks || !item.chunks.empty()) items.push_back(std::move(item));
  });
}

void add_document(const text::Document& document, ItemKind kind, std::vector<EmbedItem>& items) {
  const std::string text = text::with_line_feeds(document.text());
  if (kind == ItemKind::lines) {
    text::each_line(text, [&](std::string_view line, int64_t) {
      items.push_back({.name = {{"text", text::well_formed(line)}}, .text = std::string(line)});
    });
    return;
  }
  EmbedItem item{.name = {{"file", text::well_formed(document.name)}}};
  if (kind == ItemKind::files) item.text = text;
  if (kind == ItemKind::chunks) add_chunks(text, item);
  if (kind == ItemKind::files || !item.chunks.empty()) items.push_back(std::move(item));
}

}  // namespace

EmbedItems read_items(const std::vector<std::string>& inputs, ItemKind kind, const std::string& field) {
  EmbedItems read;
  for (const std::string& input : inputs) {
    if (text::has_records(text::unpacked_name(input)) && !core::is_folder(input)) {
      read_records(input, kind, field, read.items);
      continue;
    }
    const text::EmptyFiles empty = kind == ItemKind::files ? text::EmptyFiles::keep : text::EmptyFiles::skip;
    for (const text::Document& document : text::read_documents({input}, std::cin, field, &read.files, empty)) {
      add_document(document, kind, read.items);
    }
  }
  return read;
}

}  // namespace alibi::cli
