// A strict little reader of markup: enough of XML to tell whether tags balance and what text an element holds.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::testing {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  ///< of the element and all inside it, entities as written
};

/// All elements in the order in which they end. Throws std::runtime_error where the markup is not well-formed.
/// `html`: <meta> and <link> need no end, the doctype is skipped, and <style> and <script> hold plain text.
class MarkupReader {
 public:
  MarkupReader(std::string_view markup, bool html) : rest_(markup), html_(html) {}

  std::vector<Element> read() {
    while (!rest_.empty()) {
      if (html_ && eat("<!DOCTYPE html>")) continue;
      rest_[0] == '<' ? tag() : text();
    }
    expect(open_.empty(), "an element without an end");
    return std::move(done_);
  }

 private:
  void expect(bool condition, const std::string& what) const {
    if (!condition) throw std::runtime_error("markup: " + what + " at '" + std::string(rest_.substr(0, 60)) + "'");
  }
  bool eat(std::string_view token) {
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  std::string word() {
    size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '-')) ++n;
    expect(n > 0, "no name");
    std::string name(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return name;
  }
  void text() {
    const size_t n = std::min(rest_.find('<'), rest_.size());
    const std::string_view part = rest_.substr(0, n);
    check_content(part);
    for (Element& element : open_) element.text += part;
    rest_.remove_prefix(n);
  }
  void check_content(std::string_view part) const {
    for (size_t i = 0; i < part.size(); ++i) {
      const auto c = static_cast<unsigned char>(part[i]);
      expect(c >= 0x20 || c == '\n' || c == '\t', "a control character");
      if (c != '&') continue;
      static const std::set<std::string_view> known = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "&nbsp;"};
      expect(known.count(part.substr(i, part.find(';', i) + 1 - i)) == 1, "an unknown entity");
    }
  }
  void tag() {
    if (eat("</")) {
      const std::string name = word();
      expect(eat(">") && !open_.empty() && open_.back().name == name, "</" + name + "> closes nothing");
      close();
      return;
    }
    expect(eat("<"), "no tag");
    Element element;
    element.name = word();
    while (eat(" ") || eat("\n")) {
      if (rest_[0] == '/' || rest_[0] == '>') break;
      const std::string key = word();
      expect(eat("=\""), "an attribute without a quoted value");
      const size_t end = rest_.find('"');
      expect(end != std::string_view::npos, "an open quote");
      check_content(rest_.substr(0, end));
      expect(rest_.substr(0, end).find('<') == std::string_view::npos, "'<' in an attribute");
      expect(element.attributes.emplace(key, rest_.substr(0, end)).second, "an attribute twice");
      rest_.remove_prefix(end + 1);
    }
    const bool empty = eat("/>");
    expect(empty || eat(">"), "an open tag");
    open_.push_back(std::move(element));
    const std::string& name = open_.back().name;
    if (empty || (html_ && (name == "meta" || name == "link"))) {
      close();
    } else if (html_ && (name == "style" || name == "script")) {
      const size_t end = rest_.find("</" + name);
      expect(end != std::string_view::npos, "<" + name + "> without an end");
      open_.back().text = rest_.substr(0, end);
      rest_.remove_prefix(end);
    }
  }
  void close() {
    done_.push_back(std::move(open_.back()));
    open_.pop_back();
  }

  std::string_view rest_;
  bool html_;
  std::vector<Element> open_, done_;
};

inline std::vector<Element> read_markup(std::string_view markup, bool html = false) {
  return MarkupReader(markup, html).read();
}

/// The drawing's title and description are found by their ids, which belong to this drawing alone: a page holds many.
inline void expect_labelled(const std::string& svg, std::string_view id) {
  const std::vector<Element> elements = read_markup(svg);
  const std::string name(id);
  EXPECT_EQ(elements.back().attributes.at("aria-labelledby"), name + "-title " + name + "-desc");
  int found = 0;
  for (const Element& element : elements) {
    const auto own = element.attributes.find("id");
    if (own == element.attributes.end()) continue;
    if (own->second == name + "-title" || own->second == name + "-desc") found += element.text.empty() ? 0 : 1;
  }
  EXPECT_EQ(found, 2) << svg.substr(0, 600);
}

}  // namespace alibi::testing
