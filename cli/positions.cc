// alibi positions: the position methods, as their files describe them.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "command.h"
#include "commands.h"
#include "common.h"
#include "model/position.h"
#include "output.h"

namespace alibi::cli {
namespace {

void run_positions(CommonOptions& options) {
  options.apply();
  constexpr const char* parts[] = {"a vector added to the embeddings", "a rotation of queries and keys",
                                   "a bias of the attention scores"};  // in the order of PositionMethod::make
  nlohmann::ordered_json json;
  say("Names for --position and --positions. One of each kind may be joined by +, as in rotary+alibi.\n");
  for (const model::PositionMethod& method : model::position_methods()) {
    const char* part = parts[method.make.index()];
    say("\n{:<11} {}\n            {}; {}\n            {}\n", method.name, method.formula, part, method.cost,
        method.paper);
    json["positions"].push_back({{"name", method.name},
                                 {"kind", part},
                                 {"formula", method.formula},
                                 {"cost", method.cost},
                                 {"paper", method.paper}});
  }
  say("\nnone        no positions\n");
  options.write_json(json);
}

}  // namespace

void add_positions(CLI::App& app) {
  auto options = std::make_shared<CommonOptions>();
  Command command(app, "positions", "List the position methods with their formulas, costs and papers");
  options->add_to(command);
  command.examples(
      "  alibi positions\n"
      "  alibi positions --json -");
  command.runs([options] { run_positions(*options); });
}

}  // namespace alibi::cli
