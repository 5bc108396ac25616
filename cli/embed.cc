// alibi embed and alibi rerank: vectors of texts, and scores of documents for a query.
#include "alibi/embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "alibi/encoder_model.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"
#include "core/format.h"
#include "embed_items.h"
#include "embed_output.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "report/progress.h"
#include "stop_signals.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

struct EmbedCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts, similarity;
  std::string pooling = "mean", out, field = "text";
  int64_t check = 0;
  bool whole = false, late_chunking = false, token_vectors = false;
  int64_t max_tokens = 0, top = 10;
  EmbedOptions embed;
  ModelUse use;

  ItemKind kind() const { return late_chunking ? ItemKind::chunks : whole ? ItemKind::files : ItemKind::lines; }
};

/// A text as the model reads it, and the rows that it gives.
struct Work {
  const EmbedItem* item;
  EncoderInput input;
  std::vector<TokenSpan> spans;  ///< late chunking
  bool was_cut = false;

  int64_t rows() const { return spans.empty() ? 1 : std::ssize(spans); }
};

Work work_of(const EmbedCommand& options, const LanguageModel& model, const EmbedItem& item) {
  Work work{.item = &item, .input = {}, .spans = {}};
  if (options.late_chunking) {
    ChunkedInput chunked = chunked_input(model, item.chunks);
    work.input = std::move(chunked.input);
    work.spans = std::move(chunked.spans);
    return work;
  }
  work.input = encoder_input(model, item.text);
  if (options.max_tokens > 0 && std::ssize(work.input.ids) > options.max_tokens) {
    work.input = encoder_input(model, item.text, options.max_tokens);
    work.was_cut = true;
  }
  return work;
}

void warn_of_cut(const EmbedCommand& options, int64_t count) {
  if (count == 0) return;
  report_warning(
      fmt::format("{} texts were cut to {} tokens (--max-tokens)", core::format_integer(count), options.max_tokens));
}

/// What the rows of an interrupted run follow from.
std::string identity_of(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  std::string all =
      fmt::format("{} {} {} {} {} {} {} ", options.use.weights, options.pooling, options.embed.normalize,
                  options.max_tokens, name_of(model.precision()), interpolation_json(options.use.interpolation).dump(),
                  std::filesystem::weakly_canonical(options.model).string());
  const auto add_file = [&](const std::filesystem::path& path) {
    const auto changed = std::filesystem::last_write_time(path).time_since_epoch().count();
    all += fmt::format("{} {} {} ", path.filename().string(), std::filesystem::file_size(path), changed);
  };
  if (!core::is_folder(options.model)) {
    add_file(options.model);
  } else {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(options.model)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& path : files) add_file(path);
  }
  for (const EmbedItem& item : items) {
    all += core::xxh64(item.text);
    for (const std::string& chunk : item.chunks) all += core::xxh64(chunk);
  }
  return core::xxh64(all);
}

/// Computes rows and shows the progress.
class Embedder {
 public:
  Embedder(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items, bool is_shown)
      : options_(options),
        model_(model),
        items_(items),
        progress_(stderr, is_shown ? lines_without_terminal() : report::ProgressOptions()) {
    for (const EmbedItem& item : items) bytes_ += bytes_of(item);
    progress_.begin("embed");
  }

  /// Calls use(works, rows [sum of their rows, width]) for some items at a time, from the item `first` on.
  void run(size_t first, const std::function<void(std::span<const Work> works, const Tensor& rows)>& use) {
    for (size_t i = 0; i < first; ++i) done_ += bytes_of(items_[i]);
    const int64_t before = done_;
    const auto begun = std::chrono::steady_clock::now();
    while (first < items_.size()) {
      std::vector<Work> works;
      const int64_t begun_with = done_;
      do {
        done_ += bytes_of(items_[first]);
        works.push_back(work_of(options_, model_, items_[first++]));
      } while (first < items_.size() && works.size() < kMostItems && done_ - begun_with < kMostBytes);
      use(works, rows_of(works));
      for (const Work& work : works) {
        tokens_ += std::ssize(work.input.ids);
        cut_ += work.was_cut ? 1 : 0;
      }
      seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      const double left =
          seconds_ / static_cast<double>(std::max<int64_t>(1, done_ - before)) * static_cast<double>(bytes_ - done_);
      progress_.update(
          static_cast<double>(done_) / static_cast<double>(std::max<int64_t>(1, bytes_)),
          fmt::format("{} of {} texts  {} tokens/s", first, items_.size(), core::format_count(tokens_per_second())),
          left);
      if (const int signal = StopSignals::received()) {
        progress_.clear();
        throw Interrupted{signal};
      }
    }
    progress_.clear();
  }

  int64_t tokens() const { return tokens_; }
  int64_t cut() const { return cut_; }
  double tokens_per_second() const { return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0; }

 private:
  static constexpr size_t kMostItems = 1024;
  static constexpr int64_t kMostBytes = 1 << 20;

  static int64_t bytes_of(const EmbedItem& item) {
    return std::accumulate(item.chunks.begin(), item.chunks.end(), std::ssize(item.text) + 1,
                           [](int64_t sum, const std::string& chunk) { return sum + std::ssize(chunk); });
  }

  Tensor rows_of(std::span<const Work> works) const {
    if (!options_.late_chunking) {
      std::vector<EncoderInput> inputs;
      for (const Work& work : works) inputs.push_back(work.input);
      return embed_inputs(model_, inputs, options_.embed);
    }
    int64_t count = 0;
    for (const Work& work : works) count += work.rows();
    Tensor rows = Tensor::empty({count, int64_t{model_.config().transformer.d_model}});
    int64_t at = 0;
    for (const Work& work : works) {
      rows.slice(0, at, at + work.rows()).copy_from(embed_spans(model_, work.input, work.spans, options_.embed));
      at += work.rows();
    }
    return rows;
  }

  const EmbedCommand& options_;
  const LanguageModel& model_;
  const std::vector<EmbedItem>& items_;
  report::Progress progress_;
  int64_t bytes_ = 0, done_ = 0, tokens_ = 0, cut_ = 0;
  double seconds_ = 0;
};

/// A line of JSON for each row of an item.
std::string json_lines(const EmbedItem& item, std::span<const TokenSpan> spans, const Tensor& rows) {
  std::string lines;
  const int64_t width = rows.size(1);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    nlohmann::ordered_json name = item.name;
    if (!item.chunks.empty()) {
      const auto chunk = static_cast<size_t>(i);
      name["line"] = item.lines[chunk];
      name["text"] = text::well_formed(item.chunks[chunk]);
      if (!spans.empty()) name["tokens"] = {spans[chunk].begin, spans[chunk].end};
    }
    std::string line = name.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    line.pop_back();
    const float* const vector = rows.data<float>() + i * width;
    lines += fmt::format("{}, \"embedding\": [{}]}}\n", line, fmt::join(vector, vector + width, ", "));
  }
  return lines;
}

/// The states of all tokens, one line of JSON for each text.
void say_token_vectors(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  int64_t cut = 0;
  for (const EmbedItem& item : items) {
    const Work work = work_of(options, model, item);
    cut += work.was_cut ? 1 : 0;
    std::vector<TokenSpan> each;
    for (int64_t t = 0; t < std::ssize(work.input.ids); ++t) each.push_back({t, t + 1});
    const Tensor states = embed_spans(model, work.input, each, options.embed);
    nlohmann::ordered_json line = item.name;
    line["ids"] = work.input.ids;
    for (const int32_t id : work.input.ids) {
      line["tokens"].push_back(
          text::well_formed(model.tokenizer().decode(std::span(&id, 1), {.skip_special_tokens = false})));
    }
    for (int64_t t = 0; t < states.size(0); ++t) line["embeddings"].push_back(states.slice(0, t, t + 1).to_floats());
    say_text(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    flush_output();
    check_output();
  }
  warn_of_cut(options, cut);
}

void write_rows(const std::filesystem::path& file, const std::string& kind, const std::vector<EmbedItem>& items,
                const Tensor& rows) {
  if (kind == ".npy") return formats::write_npy(file, rows);
  if (kind == ".safetensors") return formats::write_safetensors(file, {formats::NamedTensor{"embeddings", rows}});
  core::write_file(file, [&](const AppendText& append) {
    int64_t at = 0;
    for (const EmbedItem& item : items) {
      const int64_t count = item.chunks.empty() ? 1 : std::ssize(item.chunks);
      append(json_lines(item, {}, rows.slice(0, at, at + count)));
      at += count;
    }
  });
}

/// For each text, the texts of the other list with the largest cosines.
void say_similarity(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  const std::vector<EmbedItem> others = read_items(options.similarity, options.kind(), options.field);
  const auto vectors_of = [&](const std::vector<EmbedItem>& some) {
    std::vector<float> all;
    Embedder embedder(options, model, some, true);
    embedder.run(0, [&](std::span<const Work>, const Tensor& rows) {
      const std::vector<float> values = rows.to_floats();
      all.insert(all.end(), values.begin(), values.end());
    });
    warn_of_cut(options, embedder.cut());
    return all;
  };
  const std::vector<float> targets = vectors_of(others), queries = vectors_of(items);
  const auto width = static_cast<size_t>(model.config().transformer.d_model);
  for (size_t q = 0; q < items.size(); ++q) {
    std::vector<std::pair<double, size_t>> cosines;
    for (size_t t = 0; t < others.size(); ++t) {
      const float* const a = queries.data() + q * width;
      cosines.emplace_back(std::inner_product(a, a + width, targets.data() + t * width, 0.0), t);
    }
    const size_t count = std::min(cosines.size(), static_cast<size_t>(options.top));
    std::partial_sort(
        cosines.begin(), cosines.begin() + static_cast<int64_t>(count), cosines.end(),
        [](const auto& a, const auto& b) { return a.first > b.first || (a.first == b.first && a.second < b.second); });
    nlohmann::ordered_json line = items[q].name;
    line["similar"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < count; ++i) {
      nlohmann::ordered_json one = {{"cosine", cosines[i].first}, {"index", cosines[i].second}};
      one.update(others[cosines[i].second].name);
      line["similar"].push_back(std::move(one));
    }
    say_text(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  flush_output();
  check_output();
}

/// Cosines between vectors in the chosen precision and those in float32, of the first texts.
nlohmann::ordered_json cosines_to_float32(const EmbedCommand& options, const LanguageModel& model,
                                          std::vector<EmbedItem> items) {
  items.resize(std::min(items.size(), static_cast<size_t>(options.check)));
  const LanguageModel exact = LanguageModel::load(options.model);
  std::vector<Tensor> vectors;
  for (const LanguageModel* const one : {&model, &exact}) {
    std::vector<EncoderInput> inputs;
    for (const EmbedItem& item : items) inputs.push_back(work_of(options, *one, item).input);
    EmbedOptions unit = options.embed;
    unit.normalize = true;
    vectors.push_back(embed_inputs(*one, inputs, unit));
  }
  const std::vector<float> a = vectors[0].to_floats(), b = vectors[1].to_floats();
  const int64_t width = vectors[0].size(1);
  double sum = 0, least = 1;
  for (int64_t i = 0; i < vectors[0].size(0); ++i) {
    const double cosine =
        std::inner_product(a.begin() + i * width, a.begin() + (i + 1) * width, b.begin() + i * width, 0.0);
    sum += cosine;
    least = std::min(least, cosine);
  }
  const double mean = sum / static_cast<double>(items.size());
  if (!options.out.empty()) {  // otherwise standard output is for the vectors
    say("cosine to float32 over {} texts: {:.7f} on average, {:.7f} at least\n", items.size(), mean, least);
  }
  return {{"texts", items.size()}, {"mean", mean}, {"least", least}};
}

void check_options(EmbedCommand& options, const std::string& kind) {
  check_usage(!options.late_chunking || options.check == 0,
              "[embed] --check-float32 cannot be used with --late-chunking");
  check_usage(options.out.empty() || kind == ".npy" || kind == ".safetensors" || kind == ".jsonl",
              "[embed] --out {} ends in '{}', expected .npy, .safetensors or .jsonl; leave out --out to print lines of "
              "JSON",
              options.out, kind);
  check_usage(!options.late_chunking || options.max_tokens == 0,
              "[embed] --late-chunking reads whole files, so --max-tokens cannot be used with it");
  check_usage(options.out.empty() || (!options.token_vectors && options.similarity.empty()),
              "[embed] {} prints lines of JSON and writes no file; leave out --out",
              options.token_vectors ? "--token-vectors" : "--similarity");
  check_usage(!options.late_chunking || (!options.token_vectors && options.similarity.empty()),
              "[embed] {} cannot be used with --late-chunking",
              options.token_vectors ? "--token-vectors" : "--similarity");
  options.embed.pooling = pooling_from(options.pooling);
  if (!options.similarity.empty()) options.embed.normalize = true;
}

void run_embed(EmbedCommand options) {
  options.apply();
  const std::string kind = std::filesystem::path(options.out).extension().string();
  check_options(options, kind);
  const std::filesystem::path file = options.out.empty() ? "" : output_file(options.out, "--out");
  if (options.texts.empty()) options.texts = {"-"};
  LanguageModel model = LanguageModel::load(options.model);
  options.use.apply(model);
  const std::vector<EmbedItem> items = read_items(options.texts, options.kind(), options.field);
  if (options.token_vectors || !options.similarity.empty()) {
    options.token_vectors ? say_token_vectors(options, model, items) : say_similarity(options, model, items);
    return options.write_json(nlohmann::ordered_json{{"model", options.model},
                                                     {"texts", items.size()},
                                                     {"pooling", options.pooling},
                                                     {"precision", name_of(model.precision())}});
  }

  Embedder embedder(options, model, items, !options.out.empty());
  int64_t count = 0;
  const auto width = int64_t{model.config().transformer.d_model};
  if (options.out.empty()) {
    embedder.run(0, [&](std::span<const Work> works, const Tensor& rows) {
      int64_t at = 0;
      for (const Work& work : works) {
        say_text(json_lines(*work.item, work.spans, rows.slice(0, at, at + work.rows())));
        at += work.rows();
      }
      count += at;
      flush_output();
      check_output();  // stop if output fails, because the lines are the only result
    });
  } else {
    const StopSignals signals("\nalibi: stopping; the same command continues from here\n");
    EmbedRows rows(file, identity_of(options, model, items), width);
    size_t first = 0;
    int64_t before = 0;  // rows of whole items
    while (first < items.size()) {
      const int64_t of_item = items[first].chunks.empty() ? 1 : std::ssize(items[first].chunks);
      if (before + of_item > rows.rows()) break;
      before += of_item;
      ++first;
    }
    rows.truncate(before);
    if (first > 0)
      say("continuing after {} of {} texts\n", core::format_integer(static_cast<int64_t>(first)), items.size());
    embedder.run(first, [&](std::span<const Work>, const Tensor& some) { rows.append(some); });
    write_rows(file, kind, items, rows.all());
    count = rows.rows();
    rows.remove();
    say("{} vector{} of {} numbers: {}\n", core::format_integer(count), count == 1 ? "" : "s", width, options.out);
  }
  warn_of_cut(options, embedder.cut());
  nlohmann::ordered_json cosines;
  if (options.check > 0 && !items.empty()) cosines = cosines_to_float32(options, model, items);
  options.write_json({{"model", options.model},
                      {"cosine_to_float32", cosines},
                      {"texts", items.size()},
                      {"vectors", count},
                      {"tokens", embedder.tokens()},
                      {"tokens_per_second", embedder.tokens_per_second()},
                      {"cut", embedder.cut()},
                      {"width", width},
                      {"pooling", options.pooling},
                      {"normalize", options.embed.normalize},
                      {"interpolate", interpolation_json(options.use.interpolation)},
                      {"precision", name_of(model.precision())},
                      {"out", options.out}});
}

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
  if (options.texts.empty()) options.texts = {"-"};
  EncoderModel model = EncoderModel::load(options.model);
  options.use.apply(model.model());
  const std::vector<EmbedItem> items =
      read_items(options.texts, options.whole ? ItemKind::files : ItemKind::lines, options.field);
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
    say("{:.6f}\t{}\n", scores[i], (name.contains("file") ? name["file"] : name["text"]).get<std::string>());
  }
  check_output();
  options.write_json({{"model", options.model},
                      {"query", options.query},
                      {"precision", name_of(model.model().precision())},
                      {"results", results}});
}

}  // namespace

void add_embed(CLI::App& app) {
  auto options = std::make_shared<EmbedCommand>();
  Command command(app, "embed", "Compute an embedding vector for each line, each record or each file");
  command.model(options->model);
  command.texts(options->texts, false,
                "Text files, records (.jsonl), folders of text files, or - for standard input [standard input]");
  command.flag("--whole-files", options->whole, "Compute one vector per file [one vector per line]");
  command.flag("--late-chunking", options->late_chunking,
               "Compute one vector per line that is not blank, from states that have seen the whole file");
  command.flag("--token-vectors", options->token_vectors, "Print the state of each token, one line of JSON per text");
  command.text("--pooling", options->pooling, "NAME",
               "Pooling of the final token states: mean, first (or cls; encoders only) or last (suits decoders)");
  command.choices("--pooling", {"mean", "first", "last"});
  command.flag("--normalize", options->embed.normalize,
               "Scale each vector to length 1, so that dot products are cosine similarities");
  command.count("--max-tokens", options->max_tokens,
                "Cut longer texts to N tokens and say how many were cut [texts are never cut]", 0);
  command.count("--batch-tokens", options->embed.batch_tokens, "Maximum number of tokens that are computed together");
  add_field(command, options->field);
  command.text(
      "-o,--out", options->out, "FILE",
      "Output file: .npy, .safetensors or .jsonl; an interrupted command continues where it stopped [JSON lines on "
      "standard output]");
  command.repeated("--similarity", options->similarity, "TEXT",
                   "Print, for each text, the most similar texts of this file or folder and their cosines");
  command.count("--top", options->top, "Number of similar texts that --similarity prints");
  command.count(
      "--check-float32", options->check,
      "Also compute the first N texts in float32, and show the cosines between both vectors (with --out or --json)");
  options->use.add_to(command);
  options->add_to(command);
  command.examples(
      "  alibi embed encoder/ sentences.txt -o vectors.npy --normalize\n"
      "  alibi embed encoder/ --whole-files letters/ | jq -c .embedding\n"
      "  alibi embed encoder/ questions.txt --similarity answers.jsonl --top 3\n"
      "  echo 'a line' | alibi embed model/ --pooling last");
  command.runs([options] { run_embed(*options); });
}

void add_rerank(CLI::App& app) {
  auto options = std::make_shared<RerankCommand>();
  Command command(app, "rerank", "Sort texts by their relevance for a query, with a reranker (cross-encoder)");
  command.model(options->model);
  command.text("--query", options->query, "TEXT", "The query", /*required=*/true);
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
