// alibi verify: starts the Python package, which compares this library with other implementations.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "programs.h"

namespace alibi::cli {
namespace {

struct VerifyCommand : CommonOptions {
  std::string model, text;
  std::optional<int64_t> tokens, layers;
  bool trust_remote_code = false;

  std::vector<std::string> words() const {
    std::vector<std::string> words = {model};
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) words.insert(words.end(), {name, value});
    };
    add("--text", text);
    add("--tokens", tokens ? std::to_string(*tokens) : "");
    add("--layers", layers ? std::to_string(*layers) : "");
    add("--json", json);
    add("--threads", threads ? std::to_string(*threads) : "");
    add("--seed", std::to_string(seed));
    if (trust_remote_code) words.emplace_back("--trust-remote-code");
    return words;
  }
};

constexpr const char* kProgram =
    "import sys\n"
    "try:\n"
    "    from alibi_attention.verify import main\n"
    "except ImportError as error:\n"
    "    sys.exit(f'alibi: [verify] {error}. verify is in the Python package; install it where python3 finds it: "
    "pip install alibi-attention. It compares with what is installed there: pip install transformers torch, for GGUF "
    "files llama-cpp-python gguf')\n"
    "sys.exit(main())\n";

void run_verify(const VerifyCommand& options) {
  std::vector<std::string> words = {installed_program("python3"), "-c", kProgram};
  for (std::string& word : options.words()) words.push_back(std::move(word));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  fail("[verify] cannot start {}: {}. verify needs Python and the package alibi-attention", words.front(),
       std::strerror(errno));
}

}  // namespace

void add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyCommand>();
  Command command(app, "verify",
                  "Check that a model runs here as in transformers, llama.cpp and the published formulas");
  command.model(options->model);
  command.text("--text", options->text, "FILE", "The text that the models read [a built-in one]");
  command.reads("--text");
  command.count("--tokens", options->tokens,
                "Length of the longest text [twice the training length, shortened for large models]", 4);
  command.count("--layers", options->layers, "Compare only the first N layers, so that a large model fits in memory");
  command.flag("--trust-remote-code", options->trust_remote_code,
               "Let transformers run the Python code in the folder, for families that it does not have itself");
  options->add_to(command);
  command.examples(
      "  alibi verify mpt-7b/ --layers 2\n"
      "  alibi verify bloom-q8_0.gguf\n"
      "  alibi verify model/ --text book.txt --tokens 4096 --json verify.json      (the default file)\n"
      "Exit code: 0 equal, or no reference is installed; 1 the model differs or cannot be run; 2 usage");
  command.runs([options] { run_verify(*options); });
}

}  // namespace alibi::cli
