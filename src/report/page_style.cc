#include "report/page_style.h"

#include <fmt/format.h>

#include <string_view>

#include "report/theme.h"

namespace alibi::report {

namespace {

constexpr std::string_view kLight =
    "--ground: #ffffff; --panel: #f6f7f8; --ink: #1d2125; --muted: #5c6670; --grid: #e1e5e8; --accent: #b34f00;";
constexpr std::string_view kDark =
    "--ground: #14171a; --panel: #1c2024; --ink: #e8eaec; --muted: #a0a9b2; --grid: #2e343a; --accent: #ff9d5c;";

constexpr std::string_view kRules = R"css(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
header, main, footer { max-width: 760px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 56px; }
.kind { margin: 0; color: var(--accent); font-size: 14px; font-weight: 600; letter-spacing: .02em; }
h1 { margin: 6px 0 18px; font-size: 40px; line-height: 1.15; letter-spacing: -.022em; text-wrap: balance; }
.verdict { margin: 0; font-size: 21px; line-height: 1.5; text-wrap: pretty; }
h2 { margin: 64px 0 8px; font-size: 25px; line-height: 1.25; letter-spacing: -.012em; }
h3 { margin: 32px 0 8px; font-size: 17px; }
p { margin: 0 0 14px; }
a { color: var(--accent); }
.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 16px 24px;
  margin: 30px 0 0; padding: 16px 0; border: solid var(--grid); border-width: 1px 0;
}
.facts dt { color: var(--muted); font-size: 13px; }
.facts dd { margin: 0; font-weight: 600; font-size: 16px; overflow-wrap: anywhere; }
.facts dd span { display: block; font-weight: 400; font-size: 13px; color: var(--muted); }
figure { margin: 22px 0 0; }
figcaption, .note { color: var(--muted); font-size: 14.5px; line-height: 1.5; }
figcaption { margin-top: 10px; }
.note { margin-bottom: 8px; }
.scroll { overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; }
@media (min-width: 640px) { .lines text { font-size: 10.5px; } }
.name { white-space: nowrap; }
.bars { display: grid; grid-template-columns: repeat(auto-fill, minmax(290px, 1fr)); gap: 26px 40px; }
.mark { width: .72em; height: .72em; margin-right: .4em; vertical-align: -.04em; }
table { border-collapse: collapse; width: 100%; font-size: 15px; font-variant-numeric: tabular-nums; }
.scroll + .note { margin-top: 22px; }
th, td { padding: 7px 0 7px 12px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th {
  font-size: 14px; line-height: 1.3; white-space: normal; vertical-align: bottom;
  border-bottom: 1.5px solid var(--muted);
}
thead .padded { white-space: nowrap; }
tbody th { font-weight: 400; }
.more { color: var(--muted); font-size: 13px; }
td .more, thead .more { display: inline-block; min-width: 4.2em; text-align: left; }
td.best { font-weight: 700; }
td.best .more { font-weight: 400; }
tr.trained { background: var(--panel); }
td.gap { color: var(--muted); }
.settings th, .settings td { text-align: left; white-space: normal; vertical-align: top; overflow-wrap: anywhere; }
.settings th { width: 30%; color: var(--muted); }
.settings th::first-letter { text-transform: uppercase; }
pre, code, .text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
pre {
  margin: 0 0 14px; padding: 12px 14px; font-size: 14px; line-height: 1.5;
  background: var(--panel); border-radius: 6px;
}
pre, .text { white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.text {
  max-height: 340px; overflow-y: auto; padding: 14px 16px; font-size: 13.5px; line-height: 1.55;
  background: var(--panel); border-radius: 6px;
}
.prompt { font-weight: 700; }
.within { color: var(--muted); }
.passed {
  display: block; margin: 8px 0; padding: 0; color: var(--accent); border-top: 1.5px dashed var(--accent);
  font: 600 12.5px/1.8 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; white-space: normal;
}
.byte { font-style: normal; color: var(--accent); opacity: .85; }
details { margin-top: 18px; }
summary { cursor: pointer; font-size: 15px; color: var(--muted); }
details[open] summary { margin-bottom: 10px; }
footer { margin-top: 72px; padding-bottom: 48px; color: var(--muted); font-size: 14px; }
footer p { border-top: 1px solid var(--grid); padding-top: 16px; }
@media (max-width: 600px) {
  body { font-size: 16px; }
  header { padding-top: 32px; }
  h1 { font-size: 31px; }
  .verdict { font-size: 18.5px; }
  h2 { margin-top: 48px; font-size: 22px; }
}
@media print {
  body { font-size: 11pt; }
  .text { max-height: none; }
  figure, tr { break-inside: avoid; }
}
)css";

std::string method_colors(const std::vector<MethodStyle>& styles, bool dark) {
  std::string out;
  for (const MethodStyle& style : styles) {
    out += fmt::format(" --{0}: {1}; --{0}-text: {2};", style.name, dark ? style.dark_line : style.line,
                       dark ? style.dark_text : style.text);
  }
  return out;
}

}  // namespace

std::string page_style(const std::vector<std::string>& methods) {
  std::vector<MethodStyle> styles = single_styles();
  for (const std::string& method : methods) {
    if (method.find('+') != std::string::npos) styles.push_back(style_of(method));
  }
  // The printed page has a white background even if the screen is dark.
  return fmt::format(
      "\n:root {{ color-scheme: light dark; {}{} }}\n"
      "@media screen and (prefers-color-scheme: dark) {{ :root {{ {}{} }} }}{}",
      kLight, method_colors(styles, false), kDark, method_colors(styles, true), kRules);
}

}  // namespace alibi::report
