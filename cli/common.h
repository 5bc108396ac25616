// What the subcommands share: options that all of them have, checks of values, output.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace alibi::cli {

struct CommonOptions {
  std::filesystem::path json;
  int threads = 0;  ///< 0: the library's choice
  uint64_t seed = 0;

  /// Sets the number of threads, and makes sure before any work is done that the results can be written.
  void apply() const;
  /// Writes the file of --json, if one was asked for.
  void write_json(const nlohmann::ordered_json& results) const;
  void write_json(const std::string& results) const;
};

void add_common(CLI::App& command, CommonOptions& options);

/// An option for a whole number of at least 1; 5k and 2M are understood.
CLI::Option* add_count(CLI::App& command, const std::string& name, int64_t& value, const std::string& help);
/// The same for a list separated by commas.
CLI::Option* add_counts(CLI::App& command, const std::string& name, std::vector<int64_t>& values,
                        const std::string& help);
/// An option for a number of at least 0.
CLI::Option* add_number(CLI::App& command, const std::string& name, double& value, const std::string& help);
/// --preset NAME
CLI::Option* add_preset(CLI::App& command, std::string& preset);
/// TEXT...: files, folders or "-".
CLI::Option* add_texts(CLI::App& command, std::vector<std::string>& texts);
/// --valid TEXT, which may be repeated.
CLI::Option* add_valid(CLI::App& command, std::vector<std::string>& texts);

}  // namespace alibi::cli
