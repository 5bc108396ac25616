// alibi tokenize: converts text to a folder of tokens, which any number of trainings can use.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/format.h"
#include "report/markup.h"
#include "text/corpus.h"
#include "text/data_folder.h"

namespace alibi::cli {
namespace {

struct TokenizeCommand : CommonOptions {
  std::vector<std::string> texts, valid;
  std::string out, check, field = kTextField;
  bool overwrite = false;
  TokenizerChoice tokenizer;
};

void print_part(const char* name, size_t tokens, int64_t bytes) {
  say("{:<6} {:>14} tokens  {:>15} bytes  {:.3f} bytes per token\n", name, core::format_integer(tokens),
      core::format_integer(bytes), static_cast<double>(bytes) / static_cast<double>(tokens));
}

nlohmann::ordered_json describe(const std::string& folder, const TrainingData& data) {
  return {{"data", folder},
          {"tokenizer", {{"kind", data.tokenizer->kind()}, {"vocab_size", data.tokenizer->vocab_size()}}},
          {"train", {{"tokens", data.train.tokens.size()}, {"bytes", data.train_bytes}}},
          {"valid", {{"tokens", data.valid.tokens.size()}, {"bytes", data.valid_bytes}}},
          {"split_rule", data.split_rule},
          {"skipped", skipped_json(data.files)}};
}

void print(const TrainingData& data) {
  say("{} tokenizer, {} different tokens\n", data.tokenizer->kind(),
      core::format_integer(data.tokenizer->vocab_size()));
  print_part("train", data.train.tokens.size(), data.train_bytes);
  print_part("valid", data.valid.tokens.size(), data.valid_bytes);
}

TrainingData write(const TokenizeCommand& options) {
  check_usage(!options.texts.empty(), "[tokenize] TEXT is missing; give files, folders, or - for standard input");
  check_usage(!options.out.empty(), "[tokenize] --out is missing; name the folder to write");
  text::validate(options.tokenizer);
  hold_output_folder(options.out);
  text::prepare_data_folder(options.out, options.overwrite);
  return with_progress([&](const TextProgress& progress) {
    progress("read", 0);
    const text::Corpus corpus = text::read_corpus(options.texts, options.valid, std::cin, options.field);
    const std::shared_ptr<const Tokenizer> tokenizer = text::make_tokenizer(options.tokenizer, corpus.train, progress);
    text::write_data_folder(options.out, corpus, *tokenizer, progress);
    TrainingData data = text::read_data_folder(options.out);
    data.files = corpus.files;
    return data;
  });
}

void run_tokenize(TokenizeCommand& options) {
  check_output_folder(options.out, "--out", text::data_file_names());
  options.apply();
  const auto start = core::Clock::now();
  const bool checks = !options.check.empty();
  check_usage(!checks || (options.texts.empty() && options.out.empty()),
              "[tokenize] --check reads an existing folder; leave out TEXT and --out");
  const TrainingData data = checks ? with_progress([&](const TextProgress& progress) {
    return text::check_data_folder(options.check, progress);
  })
                                   : write(options);
  const double seconds = core::seconds_since(start);
  warn_of_skipped(data.files);
  print(data);
  const std::string& folder = checks ? options.check : options.out;
  if (checks) {
    say("{}: the tokens are intact\n", folder);
  } else {
    say("{}\nTokens: {} ({})\n", report::visible_text(data.split_rule), folder, core::format_duration(seconds));
  }
  nlohmann::ordered_json json = describe(folder, data);
  json["seconds"] = seconds;
  options.write_json(json);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeCommand>();
  Command command(app, "tokenize",
                  "Convert text to a folder of tokens for training; the text may be larger than memory");
  command.texts(options->texts, false, "Text files, folders of text files, or - for standard input");
  command.text("-o,--out", options->out, "DATA", "Output folder for the tokens and the tokenizer");
  command.flag("--overwrite", options->overwrite, "Replace the tokens and the tokenizer in the output folder");
  add_valid(command, options->valid);
  add_field(command, options->field);
  add_tokenizer(command, options->tokenizer);
  command.text("--check", options->check, "DATA", "Check that this folder of tokens is intact, instead of writing one");
  command.reads("--check");
  options->add_to(command);
  command.examples(
      "  alibi tokenize novels/ -o data/ --tokenizer bpe --vocab-size 8000\n"
      "  alibi train data/ -o model/\n"
      "  alibi tokenize wiki.train.tokens --valid wiki.valid.tokens -o wikitext/ --tokenizer words\n"
      "  alibi tokenize pages.jsonl.zst --field content -o data/ --tokenizer bpe\n"
      "  alibi tokenize more/ -o more-data/ --like model/\n"
      "  alibi tokenize --check data/");
  command.runs([options] { run_tokenize(*options); });
}

}  // namespace alibi::cli
