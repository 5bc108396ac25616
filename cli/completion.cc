// Shell completion. The hidden command `alibi __complete WORD...` offers what may stand in place of the last word, and
// the scripts of `alibi completion` make a shell call it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "commands.h"
#include "output.h"

namespace alibi::cli {
namespace {

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }
bool may_lack_value(const CLI::Option& option) { return option.get_type_name().starts_with('['); }

/// The option of this name; null if the command has none.
const CLI::Option* option_called(const CLI::App& command, const std::string& name) {
  return name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
}

/// Lines for the shell: a word, a tab and what it means; or what else the shell is to do: ":file" or ":directory" to
/// offer these, ":list" to add no space.
class Candidates {
 public:
  /// Offers only words that begin with `word`.
  explicit Candidates(std::string word) : word_(std::move(word)) {}

  /// The values of an option. `before` of the word's letters are complete.
  void add_values(const CLI::Option& option, size_t before) {
    const bool is_list = option.get_delimiter() != '\0';
    if (is_list) before = std::max(before, word_.rfind(',') + 1);
    const std::vector<std::string> known = known_values(option);
    for (const std::string& value : known) add(word_.substr(0, before) + value);
    if (is_list) more(":list");
    if (!known.empty()) return;
    std::string type = option.get_type_name();
    std::erase_if(type, [](char c) { return c == '[' || c == ']'; });
    if (type == "MODEL" || type == "DATA" || type == "DIR") more(":directory");
    if (type == "FILE" || type == "TEXT") more(":file");
  }
  void add_options(const CLI::App& command) {
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_positional() || option->get_group().empty()) continue;  // an argument, or hidden
      for (const std::string& name : shown_names(*option)) add(name, option->get_description());
    }
  }
  /// What is no option: commands, or files for the arguments.
  void add_words(const CLI::App& command) {
    for (const CLI::App* deeper : command.get_subcommands([](const CLI::App*) { return true; })) {
      add(deeper->get_name(), deeper->get_description());
    }
    const std::vector<const CLI::Option*> options = command.get_options();
    const auto is_argument = [](const CLI::Option* option) { return option->get_positional(); };
    std::any_of(options.begin(), options.end(), is_argument) ? more(":file") : add_options(command);
  }
  const std::string& lines() const { return lines_; }

 private:
  void add(const std::string& candidate, const std::string& help = "") {
    if (candidate.starts_with(word_)) more(help.empty() ? candidate : candidate + '\t' + help);
  }
  void more(const std::string& line) { lines_ += line + '\n'; }

  std::string word_, lines_;
};

constexpr const char* kBash = R"(# Completion of alibi for bash; written by `alibi completion bash`.
_alibi() {
  local line word=${COMP_WORDS[COMP_CWORD]#=}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
    :file | :directory)
      compopt -o filenames
      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "-${line:1:1}" -- "$word")
      ;;
    :list) compopt -o nospace ;;
    *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${1/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _alibi alibi
)";

constexpr const char* kZsh = R"(#compdef alibi
# Completion of alibi for zsh; written by `alibi completion zsh`.
_alibi() {
  local line
  local -a found space
  for line in "${(@f)$(${(Q)~words[1]} __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :file) compset -P '--*='; _files ;;
      :directory) compset -P '--*='; _files -/ ;;
      :list) space=(-S '') ;;
      ?*) found+=("${${line//:/\\:}/$'\t'/:}") ;;
    esac
  done
  _describe alibi found "${space[@]}"
}
if [[ $funcstack[1] == _alibi ]]; then _alibi "$@"; else compdef _alibi alibi; fi
)";

constexpr const char* kFish = R"(# Completion of alibi for fish; written by `alibi completion fish`.
function __alibi_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l before (string match -r -- '^--[^=]*=' "$word")
    set -l rest (string replace -r -- '^--[^=]*=' '' "$word")
    for line in ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
        switch $line
            case :file
                string replace -r -- '^' "$before" (__fish_complete_path "$rest")
            case :directory
                string replace -r -- '^' "$before" (__fish_complete_directories "$rest")
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c alibi -f -a '(__alibi_complete)'
)";

}  // namespace

std::string completed(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  if (words.back() == "=") words.back().clear();  // for bash, "=" is a word of its own
  std::erase(words, "=");
  const std::string word = words.back();
  words.pop_back();
  const CLI::App* command = &app;
  const CLI::Option* option = nullptr;  // the one whose value is next
  for (const std::string& before : words) {
    const bool is_value = option != nullptr && !(may_lack_value(*option) && before.starts_with('-'));
    option = is_value ? nullptr : option_called(*command, before);
    if (option != nullptr && !takes_value(*option)) option = nullptr;
    const auto deeper = command->get_subcommands([&](const CLI::App* one) { return one->get_name() == before; });
    if (!is_value && !deeper.empty()) command = deeper.front();
  }
  Candidates candidates(word);
  const size_t equals = word.find('=');
  const CLI::Option* named = option_called(*command, word.substr(0, equals));
  if (option == nullptr && equals != std::string::npos && named != nullptr) {
    candidates.add_values(*named, equals + 1);
    return candidates.lines();
  }
  if (option != nullptr) candidates.add_values(*option, 0);
  if (option != nullptr && !may_lack_value(*option)) return candidates.lines();
  word.starts_with('-') ? candidates.add_options(*command) : candidates.add_words(*command);
  return candidates.lines();
}

void add_completion(CLI::App& app) {
  CLI::App& group = add_command_group(app, "completion", "Print a script that completes this command in a shell");
  const auto add = [&](const std::string& shell, const char* script, const std::string& place) {
    Command command(group, shell, "Print the completion script for " + shell);
    command.examples("  alibi completion " + shell + " > " + place);
    command.runs([script] { say_text(script); });
  };
  add("bash", kBash, "~/.local/share/bash-completion/completions/alibi");
  add("zsh", kZsh, "FOLDER/_alibi      (a folder of $fpath)");
  add("fish", kFish, "~/.config/fish/completions/alibi.fish");
}

}  // namespace alibi::cli
