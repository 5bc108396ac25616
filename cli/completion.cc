// The command `alibi completion`: scripts for shells that complete commands, options, their values, and files.
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "commands.h"
#include "outline.h"
#include "output.h"

namespace alibi::cli {
namespace {

using Words = std::vector<std::string>;

std::string joined(const Words& words, const std::string& between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

/// Quotes text for use inside single quotes. A backslash precedes special characters.
std::string escaped(std::string_view text, std::string_view special, const std::string& quote) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
      continue;
    }
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

enum class Value { none, any, choices, folder, file };

Value value_of(const OptionOutline& option) {
  if (option.value.empty()) return Value::none;
  if (!option.choices.empty()) return Value::choices;
  if (option.value == "MODEL" || option.value == "DATA" || option.value == "DIR") return Value::folder;
  if (option.value == "FILE" || option.value == "TEXT") return Value::file;
  return Value::any;
}

Words option_names(const CommandOutline& command) {
  Words names;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) names.push_back(name);
  }
  return names;
}

Words command_names(const CommandOutline& command) {
  Words names;
  for (const CommandOutline& deeper : command.commands) names.push_back(deeper.name);
  return names;
}

/// "/compare | /bench | /bench/attention"
std::string paths(const CommandOutline& program) {
  Words all;
  for (const CommandOutline* command : program.all()) all.push_back(command->path);
  return joined(all, " | ");
}

std::string bash_values(const OptionOutline& option) {
  switch (value_of(option)) {
    case Value::choices:
      return (option.is_list ? "_alibi_list '" : "_alibi_words '") + joined(option.choices, " ") + "'";
    case Value::folder:
      return "_alibi_files -d";
    case Value::file:
      return "_alibi_files -f";
    default:
      return ":";
  }
}

std::string bash_cases(const CommandOutline& command) {
  std::string cases;
  for (const OptionOutline& option : command.options) {
    if (option.value.empty()) continue;
    Words patterns;
    for (const std::string& name : option.names) patterns.push_back("'" + command.path + " " + name + "'");
    // Another option may follow an option whose value was omitted.
    cases += "    " + joined(patterns, " | ") + ") " + bash_values(option) +
             (option.value_optional ? "; _alibi_more" : "") + "; return ;;\n";
  }
  return cases;
}

std::string zsh_value(const OptionOutline& option) {
  if (option.value.empty()) return "";
  std::string action;
  switch (value_of(option)) {
    case Value::choices:
      action = option.is_list ? "_values -s , " + option.value + " " + joined(option.choices, " ")
                              : "(" + joined(option.choices, " ") + ")";
      break;
    case Value::folder:
      action = "_files -/";
      break;
    case Value::file:
      action = "_files";
      break;
    default:
      action = " ";
  }
  return (option.value_optional ? "::" : ":") + option.value + ":" + action;
}

std::string zsh_specs(const CommandOutline& command) {
  std::string specs;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      const bool takes_equals = name.starts_with("--") && !option.value.empty();
      specs += " \\\n        '" + std::string(option.repeats ? "*" : "") + name + (takes_equals ? "=" : "") + "[" +
               escaped(option.help, "[]:\\", "'\\''") + "]" + zsh_value(option) + "'";
    }
  }
  for (const OptionOutline& argument : command.arguments) {
    specs += " \\\n        '" + std::string(argument.repeats ? "*" : "") + zsh_value(argument) + "'";
  }
  return specs;
}

std::string fish_lines(const CommandOutline& command) {
  const std::string start = "complete -c alibi -n 'test (__alibi_command) = \"" + command.path + "\"'";
  const auto described = [](const std::string& help) { return " -d '" + escaped(help, "\\", "\\'") + "'"; };
  const auto values = [](const OptionOutline& option) -> std::string {
    switch (value_of(option)) {
      case Value::choices:
        return option.is_list ? " -x -a '(__fish_append , " + joined(option.choices, " ") + ")'"
                              : " -x -a '" + joined(option.choices, " ") + "'";
      case Value::folder:
        return " -x -a '(__fish_complete_directories)'";
      case Value::file:
        return " -r -F";
      case Value::any:
        return " -x";
      case Value::none:
        break;
    }
    return "";
  };
  std::string lines;
  for (const CommandOutline& deeper : command.commands) {
    lines += start + " -f -a " + deeper.name + described(deeper.help) + "\n";
  }
  for (const OptionOutline& option : command.options) {
    std::string names;
    for (const std::string& name : option.names) {
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    lines += start + names + values(option) + described(option.help) + "\n";
  }
  if (command.arguments.empty()) lines += start + " -f\n";
  return lines;
}

std::string bash_completion(const CommandOutline& program) {
  std::string cases = bash_cases(program), options, files;
  const auto words_of = [](const CommandOutline& command) {
    Words words = command_names(command);
    for (const std::string& name : option_names(command)) words.push_back(name);
    return "    '" + command.path + "') words='" + joined(words, " ") + "' ;;\n";
  };
  options += words_of(program);
  Words with_files;
  for (const CommandOutline* command : program.all()) {
    cases += bash_cases(*command);
    options += words_of(*command);
    if (!command->arguments.empty()) with_files.push_back(command->path);
  }
  return R"(# Completion of alibi for bash; written by `alibi completion bash`.
_alibi_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word"); }
_alibi_list() {
  local before=
  [[ $word == *,* ]] && before=${word%,*},
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "${word##*,}")
  compopt -o nospace
}
_alibi_files() {
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen "$1" -- "$word")
}
_alibi_more() {
  local more
  mapfile -t more < <(compgen -W "$words" -- "$word")
  COMPREPLY+=("${more[@]}")
}
_alibi() {
  local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} command= words= i
  # "=" is a word of its own.
  if [[ $word == '=' ]]; then
    word=
  elif [[ $option == '=' ]]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command/${COMP_WORDS[i]}" in
    )" + paths(program) +
         R"() command+=/${COMP_WORDS[i]} ;;
    esac
  done
  COMPREPLY=()
  case "$command" in
)" + options +
         R"(  esac
  case "$command $option" in
)" + cases +
         R"(  esac
  [[ $word == -* ]] || case "$command" in
    )" + joined(with_files, " | ") +
         R"() _alibi_files -f; return ;;
  esac
  _alibi_words "$words"
}
complete -F _alibi alibi
)";
}

std::string zsh_completion(const CommandOutline& program) {
  std::string cases;
  const auto case_of = [](const CommandOutline& command) {
    std::string text = "    '" + command.path + "')\n";
    if (!command.commands.empty()) {
      text += "      local -a commands=(";
      for (const CommandOutline& deeper : command.commands) {
        text += "\n        '" + deeper.name + ":" + escaped(deeper.help, "\\:", "'\\''") + "'";
      }
      text += ")\n";
    }
    text += "      _arguments -S" + zsh_specs(command);
    if (!command.commands.empty())
      text += " \\\n        '1:command:->commands' && return\n      _describe command commands";
    return text + " ;;\n";
  };
  cases += case_of(program);
  for (const CommandOutline* command : program.all()) cases += case_of(*command);
  return R"(#compdef alibi
# Completion of alibi for zsh; written by `alibi completion zsh`.
_alibi() {
  local command= word state line
  local -i depth=0
  for word in "${(@)words[2,CURRENT-1]}"; do
    case $command/$word in
    )" + paths(program) +
         R"() command+=/$word; (( ++depth )) ;;
    esac
  done
  words=(alibi "${(@)words[depth+2,-1]}")
  (( CURRENT -= depth ))
  case $command in
)" + cases +
         R"(  esac
}
if [[ $funcstack[1] == _alibi ]]; then _alibi "$@"; else compdef _alibi alibi; fi
)";
}

std::string fish_completion(const CommandOutline& program) {
  std::string lines = fish_lines(program);
  Words all;
  for (const CommandOutline* command : program.all()) {
    lines += fish_lines(*command);
    all.push_back(command->path);
  }
  return R"(# Completion of alibi for fish; written by `alibi completion fish`.
function __alibi_command
    set -l command
    for word in (commandline -opc)[2..-1]
        if contains -- "$command/$word" )" +
         joined(all, " ") + R"(
            set command "$command/$word"
        end
    end
    echo "$command"
end
)" + lines;
}

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App& group = add_command_group(app, "completion", "Print a script that completes this command in a shell");
  const auto add = [&](const std::string& shell, std::string (*script)(const CommandOutline&),
                       const std::string& place) {
    Command command(group, shell, "Print the completion script for " + shell);
    command.examples("  alibi completion " + shell + " > " + place);
    command.runs([&app, script] { say_text(script(outline_of(app))); });
  };
  add("bash", bash_completion, "~/.local/share/bash-completion/completions/alibi");
  add("zsh", zsh_completion, "FOLDER/_alibi      (a folder of $fpath)");
  add("fish", fish_completion, "~/.config/fish/completions/alibi.fish");
}

}  // namespace alibi::cli
