#include "embed_items.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "text/compressed.h"
#include "text/documents.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

/// Calls use(line, number) for each line, numbered from 1, without its line feed.
template <class Use>
void each_line(const std::string& text, const Use& use) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    use(text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r\f\v") == std::string::npos; }

void add_chunks(const std::string& text, EmbedItem& item) {
  each_line(text, [&](const std::string& line, int64_t number) {
    if (is_blank(line)) return;
    item.chunks.push_back(line);
    item.lines.push_back(number);
  });
}

bool is_array_of_texts(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& one) { return one.is_string(); });
}

void read_records(const std::string& path, ItemKind kind, const std::string& field, std::vector<EmbedItem>& items) {
  const bool chunks = kind == ItemKind::chunks;
  each_line(core::read_file(path), [&](const std::string& line, int64_t number) {
    if (is_blank(line)) return;
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    check(record.is_object() && record.contains(field) &&
              (record[field].is_string() || (chunks && is_array_of_texts(record[field]))),
          "[embed] {} line {}: expected a JSON object with a string{} under \"{}\" (--field)", path, number,
          chunks ? ", or an array of strings," : "", field);
    EmbedItem item;
    if (record.contains("id")) item.name["id"] = record["id"];
    if (!chunks) {
      item.text = record[field];
      item.name["text"] = item.text;
    } else if (record[field].is_string()) {
      add_chunks(record[field], item);
    } else {
      record[field].get_to(item.chunks);
    }
    if (!chunks || !item.chunks.empty()) items.push_back(std::move(item));
  });
}

}  // namespace

std::vector<EmbedItem> read_items(const std::vector<std::string>& inputs, ItemKind kind, const std::string& field) {
  std::vector<EmbedItem> items;
  for (const std::string& input : inputs) {
    if (text::has_records(input)) {
      read_records(input, kind, field, items);
      continue;
    }
    for (const text::Document& document : text::read_documents({input}, std::cin, field)) {
      const std::string text = document.text();
      if (kind == ItemKind::lines) {
        each_line(text, [&](const std::string& line, int64_t) {
          items.push_back({.name = {{"text", text::well_formed(line)}}, .text = line});
        });
        continue;
      }
      EmbedItem item{.name = {{"file", text::well_formed(document.name)}}};
      if (kind == ItemKind::files) item.text = text;
      if (kind == ItemKind::chunks) add_chunks(text, item);
      if (kind == ItemKind::chunks && item.chunks.empty()) continue;
      items.push_back(std::move(item));
    }
  }
  return items;
}

}  // namespace alibi::cli
