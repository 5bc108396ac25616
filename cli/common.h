// What the subcommands share: options that all of them have, and their effect.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "command.h"
#include "text/training_data.h"

namespace alibi::cli {

struct CommonOptions {
  std::string json;
  int64_t threads = 0;  ///< 0: the library's choice
  uint64_t seed = 0;

  void add_to(Command& command);
  /// Sets the number of threads, and makes sure before any work is done that the results can be written.
  void apply() const;
  /// Writes the file of --json, if one was asked for.
  void write_json(const nlohmann::ordered_json& results) const;
  void write_json(const std::string& results) const;
};

void add_preset(Command& command, std::string& preset);
void add_tokenizer(Command& command, TokenizerChoice& choice);
void add_valid(Command& command, std::vector<std::string>& texts);

}  // namespace alibi::cli
