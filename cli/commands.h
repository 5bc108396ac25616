// The subcommands. Each function adds one to the parser. The subcommand runs after the whole command line has been
// parsed.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace alibi::cli {

void add_compare(CLI::App& app);
void add_report(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_generate(CLI::App& app);
void add_score(CLI::App& app);
void add_embed(CLI::App& app);
void add_rerank(CLI::App& app);
void add_serve(CLI::App& app);
void add_info(CLI::App& app);
void add_convert(CLI::App& app);
void add_verify(CLI::App& app);
void add_positions(CLI::App& app);
void add_bench(CLI::App& app);
void add_completion(CLI::App& app);
/// The output of the hidden command `alibi __complete WORD...`.
std::string completed(const CLI::App& app, std::vector<std::string> words);

/// The command line as typed, quoted for a shell.
const std::string& command_line();

}  // namespace alibi::cli
