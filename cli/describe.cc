// The command `alibi completion`.
#include <functional>
#include <string>

#include "command.h"
#include "commands.h"
#include "completion.h"
#include "outline.h"
#include "output.h"

namespace alibi::cli {

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
