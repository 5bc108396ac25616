// alibi rerank: texts in the order of their relevance for a query.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "alibi/encoder_model.h"
#include "commands.h"
#include "common.h"
#include "embed_items.h"
#include "report/markup.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

struct RerankCommand : CommonOptions {
  std::string model, query, field = "text";
  std::vector<std::string> texts;
  bool whole = false;
  int64_t top = 0, max_tokens = 0;
  ModelUse use;
};

void run_rerank(RerankCommand options) {
  options.apply();
  options.use.check();
  default_to_standard_input(options.texts);
  EncoderModel model = EncoderModel::load(options.model);
  options.use.apply(model.model());
  const auto [items, files] =
      read_items(options.texts, options.whole ? ItemKind::files : ItemKind::lines, options.field);
  warn_of_skipped(files);
  report::Progress progress(stderr);
  progress.begin("rerank");
  std::vector<double> scores;
  constexpr size_t together = 256;
  for (size_t first = 0; first < items.size(); first += together) {
    std::vector<std::string> documents;
    for (size_t i = first; i < std::min(items.size(), first + together); ++i) documents.push_back(items[i].text);
    const std::vector<double> some = model.rerank(options.query, documents, options.max_tokens);
    scores.insert(scores.end(), some.begin(), some.end());
    progress.update(static_cast<double>(scores.size()) / static_cast<double>(items.size()),
                    fmt::format("{} of {} texts", scores.size(), items.size()));
  }
  progress.clear();
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (options.top > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top)));
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const size_t i : order) {
    nlohmann::ordered_json one = {{"index", i}, {"score", scores[i]}};
    one.update(items[i].name);
    results.push_back(std::move(one));
    const auto& name = items[i].name;
    // Escaped, because a text with a line feed could look like another result.
    say("{:.6f}\t{}\n", scores[i],
        report::visible_text((name.contains("file") ? name["file"] : name["text"]).get_ref<const std::string&>()));
  }
  check_output();
  options.write_json({{"model", options.model},
                      {"query", options.query},
                      {"precision", name_of(model.model().precision())},
                      {"skipped", skipped_json(files)},
                      {"results", results}});
}

}  // namespace

void add_rerank(CLI::App& app) {
  auto options = std::make_shared<RerankCommand>();
  Command command(app, "rerank", "Sort texts by their relevance for a query, with a reranker (cross-encoder)");
  command.model(options->model);
  command.text("--query", options->query, "TEXT", "The query", {}, /*required=*/true);
  command.texts(
      options->texts, false,
      "Text files (each line is a text), records (.jsonl), folders, or - for standard input [standard input]");
  command.flag("--whole-files", options->whole, "Score each file as a whole [each line]");
  command.count("--top", options->top, "Print the best N texts [all]", 0);
  command.count("--max-tokens", options->max_tokens,
                "Cut texts so that query and text have N tokens together [texts are never cut]", 0);
  add_field(command, options->field);
  options->use.add_to(command);
  options->add_to(command);
  command.examples(
      "  alibi rerank reranker/ --query 'Who hunts the whale?' passages.txt --top 5\n"
      "  alibi rerank reranker/ --query 'linear biases' abstracts.jsonl --field abstract --json scores.json");
  command.runs([options] { run_rerank(*options); });
}

}  // namespace alibi::cli
