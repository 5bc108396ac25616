// The `alibi` command: parses the command line, runs a subcommand, and converts exceptions to messages and exit codes.
// Exit codes: 0 success, 1 failure, 2 usage error, 75 stopped by a job scheduler (the same command line continues),
// 128 + number ended by a signal.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <set>
#include <sstream>
#include <string>

#include "alibi/error.h"
#include "alibi/version.h"
#include "alibi/warning.h"
#include "command.h"
#include "commands.h"
#include "core/memory_reserve.h"
#include "output.h"
#include "ranks.h"
#include "stop_signals.h"
#include "suggestion.h"

namespace alibi::cli {
namespace {

std::string typed;

std::string shell_quoted(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int report(std::string_view message, int code) {
  report_error(message);
  return code;
}

/// The command that was called, as far as its name was recognized.
const CLI::App& called(const CLI::App& app) {
  const auto deeper = app.get_subcommands();
  return deeper.empty() ? app : called(*deeper.front());
}

/// The option that the typed word means; "" if none is like it.
std::string suggested_option(const std::string& word, const CLI::App& command) {
  std::set<std::string> names;  // in alphabetical order, as suggested() prefers the first
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden option
    for (const std::string& name : shown_names(*option)) names.insert(name);
  }
  return suggested(word, {names.begin(), names.end()});
}

std::vector<std::string> names_of_commands(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

/// Explains an unknown option or command; "" if there is none.
std::string explain_unknown(const CLI::App& command) {
  const std::vector<std::string> unknown = command.remaining();
  for (const std::string& word : unknown) {  // checked first, because an unknown option may cause the other errors
    if (!word.starts_with('-') || word == "-" || word == "--") continue;
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("there is no option '{}' of '{}'{}", name, full_name(command),
                       did_you_mean(suggested_option(name, command)));
  }
  const std::vector<std::string> commands = names_of_commands(command);
  if (unknown.empty() || commands.empty()) return values_after_list(command, unknown);
  const std::string name = suggested(unknown.front(), commands);
  return fmt::format("there is no command '{}'{}", unknown.front(),
                     did_you_mean(name.empty() ? "" : full_name(command) + ' ' + name));
}

/// The parser's message, reworded where it is hard to understand.
std::string explain(const CLI::ParseError& error, const CLI::App& command) {
  if (const std::string unknown = explain_unknown(command); !unknown.empty()) return unknown;
  if (error.get_name() != "ArgumentMismatch") return error.what();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_expected_max() == 1 && option->count() > 1) {
      return fmt::format("{} is given {} times, expected once", option->get_name(), option->count());
    }
  }
  return error.what();
}

/// Shows help without rare options, unless all are requested.
struct HelpFormatter : CLI::Formatter {
  bool all = false;

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return CLI::Formatter::make_option_name(option, true);
    return fmt::format("{}", fmt::join(shown_names(*option), ","));
  }
  /// Without the dots of a repeated option after a list, whose values are separated by commas, and without the options
  /// that are excluded, which the help names where that helps.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    text.resize(std::min(text.find(" Excludes:"), text.size()));
    const size_t dots = option->get_delimiter() == '\0' ? std::string::npos : text.find(" ...");
    return dots == std::string::npos ? text : text.erase(dots, 4);
  }
  std::string make_group(std::string title, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (!all) std::erase_if(options, [](const CLI::Option* option) { return is_rare(*option); });
    return options.empty() ? "" : CLI::Formatter::make_group(std::move(title), is_positional, std::move(options));
  }
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(command, std::move(name), mode);
    return CLI::detail::find_and_replace(help, "\n\n\n", "\n\n");
  }
  std::string make_footer(const CLI::App* command) const override {
    const size_t rare = number_of_rare(*command);
    const std::string footer = CLI::Formatter::make_footer(command);
    if (all || rare == 0) return footer;
    return fmt::format("Run '{} --help all' for {} more options.\n\n{}", full_name(*command), rare, footer);
  }

  static size_t number_of_rare(const CLI::App& command) {
    return command.get_options([](const CLI::Option* option) { return is_rare(*option); }).size();
  }
};

/// Whether --help is followed by "all". The parser takes this word for an argument, or leaves it over.
bool asks_for_all(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool is_help = word == "--help" || word == "-h";
    if (word == "--help=all" || (is_help && i + 1 < argc && argv[i + 1] == std::string_view("all"))) return true;
  }
  return false;
}

int run(int argc, char** argv) {
  typed = "alibi";
  core::keep_memory_reserve();
  set_warning_handler(report_warning);
  for (int i = 1; i < argc; ++i) typed += ' ' + shell_quoted(argv[i]);

  CLI::App app("Transformers trained on short sequences and run at any length.", "alibi");
  app.set_version_flag("--version", fmt::format("alibi {}", version));
  app.require_subcommand(1);
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->all = asks_for_all(argc, argv);
  app.formatter(formatter);
  app.get_formatter()->column_width(28);  // set before the subcommands are added, because they inherit it
  app.footer(
      "Run 'alibi COMMAND --help' for the options of a command and for examples.\n"
      "ALIBI_ISA=scalar|avx2|avx512|avx512_bf16|amx limits alibi on x86-64 to that instruction set and simpler ones.");
  add_compare(app);
  add_report(app);
  add_tokenize(app);
  add_train(app);
  add_eval(app);
  add_generate(app);
  add_score(app);
  add_embed(app);
  add_rerank(app);
  add_serve(app);
  add_info(app);
  add_convert(app);
  add_verify(app);
  add_positions(app);
  add_bench(app);
  add_completion(app);
  if (argc > 1 && argv[1] == std::string_view("__complete")) {
    say_text(completed(app, {argv + 2, argv + argc}));
    finish_output();
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    app.exit(asked, text, text);
    say_text(text.str());
  } catch (const CLI::ParseError& e) {
    const CLI::App& command = called(app);
    report_error(explain(e, command));
    const char* all = HelpFormatter::number_of_rare(command) > 0 ? " all" : "";
    std::fputs(fmt::format("Run '{} --help{}' for usage.\n", full_name(command), all).c_str(), stderr);
    return 2;
  }
  finish_output();
  return 0;
}

}  // namespace

const std::string& command_line() { return typed; }

}  // namespace alibi::cli

namespace {

int exit_code_of(int argc, char** argv) {
  try {
    return alibi::cli::run(argc, argv);
  } catch (const alibi::cli::Interrupted& stopped) {
    return stopped.code;
  } catch (const alibi::UsageError& e) {
    return alibi::cli::report(e.what(), 2);
  } catch (const std::bad_alloc&) {
    return alibi::cli::report("[memory] out of memory; use a shorter length or a smaller batch", 1);
  } catch (const std::filesystem::filesystem_error& e) {
    return alibi::cli::report("[files] " + e.path1().string() + ": " + e.code().message(), 1);
  } catch (const alibi::Error& e) {
    return alibi::cli::report(e.what(), 1);
  } catch (const std::exception& e) {  // from the system or from another library
    return alibi::cli::report(std::string("[alibi] ") + e.what(), 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  alibi::cli::reserve_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // makes writing to a file at its size limit fail like writing to a full disk
  return alibi::cli::leave_ranks(exit_code_of(argc, argv));
}
