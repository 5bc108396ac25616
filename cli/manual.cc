#include "manual.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "alibi/version.h"

namespace alibi::cli {
namespace {

/// Text as it is: nothing in it is an instruction, and dashes are those of a keyboard.
std::string plain(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string entry(const OptionOutline& option) {
  std::string head;
  for (const std::string& name : option.names) head += (head.empty() ? "\\fB" : ", \\fB") + plain(name) + "\\fR";
  if (!option.value.empty()) {
    const std::string value = "\\fI" + plain(option.value) + "\\fR";
    head += option.value_optional ? " [" + value + "]" : " " + value;
  }
  return ".TP\n" + head + "\n" + plain(option.help) + "\n";
}

std::string synopsis(const CommandOutline& command) {
  std::string words = "alibi";
  for (const char c : command.path) words += c == '/' ? ' ' : c;
  std::string line = "\\fB" + plain(words) + "\\fR [\\fIOPTIONS\\fR]";
  for (const OptionOutline& argument : command.arguments) {
    const std::string name = "\\fI" + plain(argument.names.front()) + "\\fR" + (argument.repeats ? "..." : "");
    line += argument.required ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string section(const CommandOutline& command) {
  std::string text = ".SS \"" + synopsis(command) + "\"\n" + plain(command.help) + ".\n";
  for (const OptionOutline& argument : command.arguments) {
    text += ".TP\n\\fI" + plain(argument.names.front()) + "\\fR\n" + plain(argument.help) + "\n";
  }
  std::string group;
  for (const OptionOutline& option : command.options) {
    if (option.group != group && option.group != "Options") text += ".PP\n" + plain(option.group) + ":\n";
    group = option.group;
    text += entry(option);
  }
  if (!command.footer.empty()) text += ".PP\n.nf\n" + plain(command.footer) + "\n.fi\n";
  return text;
}

}  // namespace

std::string manual_page(const CommandOutline& program) {
  const std::string summary = program.help.substr(0, program.help.find_last_not_of('.') + 1);
  std::string page = ".TH " + capitals(program.name) + " 1 \"\" \"alibi " + version +
                     "\" \"User Commands\"\n.SH NAME\n" + plain(program.name + " - " + summary) + "\n.SH SYNOPSIS\n";
  std::string sections;
  for (const CommandOutline* command : program.all()) {
    if (!command->commands.empty()) continue;  // it does nothing by itself
    page += synopsis(*command) + "\n.br\n";
    sections += section(*command);
  }
  page += ".SH OPTIONS\n";
  for (const OptionOutline& option : program.options) page += entry(option);
  page += ".SH COMMANDS\n" + sections + ".SH ENVIRONMENT\n.nf\n" + plain(program.footer) + "\n.fi\n";
  page += R"(.SH EXIT STATUS
.TP
0
Done.
.TP
1
Failed.
.TP
2
Called wrongly.
.TP
128 + N
Ended by signal N.
)";
  return page;
}

}  // namespace alibi::cli
