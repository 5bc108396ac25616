// alibi embed: vectors of texts.
#include "alibi/embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"
#include "core/format.h"
#include "core/isa.h"
#include "embed_items.h"
#include "embed_output.h"
#include "embedder.h"
#include "evaluate/checks.h"
#include "evaluate/ragged.h"
#include "formats/json_copy.h"
#include "formats/safetensors.h"
#include "formats/tensor_rows.h"
#include "model/position.h"
#include "places.h"
#include "ranks.h"
#include "stop_signals.h"
#include "text/text_encoding.h"
#include "train/identity.h"

namespace alibi::cli {
namespace {

std::string hashes_of(const std::vector<EmbedItem>& items) {
  std::string all;
  for (const EmbedItem& item : items) {
    all += core::xxh64(item.text);
    for (const std::string& chunk : item.chunks) all += core::xxh64(chunk);
  }
  return all;
}

/// What the rows of an interrupted run follow from.
std::string identity_of(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  std::string all = fmt::format("{} {} {} {} {} {} {} {} {} {} ", static_cast<int>(options.kind()), name_of(isa()),
                                options.use.weights, options.pooling, options.embed.normalize, options.max_tokens,
                                options.embed.batch_tokens, name_of(model.precision()),
                                model::interpolation_json(model.interpolation()).dump(),
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
  all += hashes_of(items);
  return core::xxh64(all);
}

/// A line of JSON for each row of an item.
std::string json_lines(const EmbedItem& item, std::span<const TokenSpan> spans, const Tensor& rows) {
  std::string lines;
  const int64_t width = rows.size(1);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    nlohmann::ordered_json name = item.name;
    if (!item.chunks.empty()) {
      const auto chunk = static_cast<size_t>(i);
      if (item.lines.empty()) {
        name["chunk"] = chunk;
      } else {
        name["line"] = item.lines[chunk];
      }
      name["text"] = text::well_formed(item.chunks[chunk]);
      if (!spans.empty()) name["tokens"] = {spans[chunk].begin, spans[chunk].end};
    }
    std::string line = formats::to_line(name);
    line.pop_back();
    const float* const vector = rows.data<float>() + i * rows.stride(0);
    lines += fmt::format("{}, \"embedding\": [{}]}}\n", line, fmt::join(vector, vector + width, ", "));
  }
  return lines;
}

/// The states of all tokens, one line of JSON for each text, which is printed as the states are computed.
void say_token_vectors(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  int64_t cut = 0;
  for (const EmbedItem& item : items) {
    const Work work = work_of(options, model, item);
    cut += work.was_cut ? 1 : 0;
    nlohmann::ordered_json line = item.name;
    line["ids"] = work.input.ids;
    for (const int32_t id : work.input.ids) {
      line["tokens"].push_back(
          text::well_formed(model.tokenizer().decode(std::span(&id, 1), {.skip_special_tokens = false})));
    }
    std::string begun = formats::to_line(line);
    begun.pop_back();
    say_text(begun + ",\"embeddings\":[");
    evaluation::each_hidden(
        model, std::span(&work.input, 1), {.batch_tokens = options.embed.batch_tokens},
        [&](const evaluation::States& states) {
          const int64_t width = states.rows.size(1);
          for (int64_t row = 0; row < states.rows.size(0); ++row) {
            float* const vector = states.rows.data<float>() + row * width;
            const double norm = std::sqrt(std::inner_product(vector, vector + width, vector, 0.0));
            evaluation::check_finite("embed", static_cast<float>(norm), "state of token", states.first + row);
            if (options.embed.normalize && norm > 0) {
              for (int64_t i = 0; i < width; ++i) {
                vector[i] = static_cast<float>(static_cast<double>(vector[i]) / norm);
              }
            }
            say_text(fmt::format("{}[{}]", states.first + row > 0 ? "," : "", fmt::join(vector, vector + width, ",")));
          }
        });
    say_text("]}\n");
    flush_output();
    check_output();
  }
  warn_of_cut(options, cut);
}

/// Writes version 1.0 of NumPy's format.
void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little);
  check(tensor.dtype() == DType::float32 && formats::has_contiguous_rows(tensor) && tensor.axes() > 0,
        "[npy] the array is {} {}, expected float32 with contiguous rows", name_of(tensor.dtype()),
        to_string(tensor.shape()));
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", fmt::join(tensor.shape(), ", "));
  constexpr size_t before = 10, alignment = 64;
  header.append((alignment - (before + header.size() + 1) % alignment) % alignment, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  core::write_file(path, [&](const auto& append) {
    append(file);
    formats::append_rows(tensor, append);
  });
}

void write_rows(const LanguageModel& model, const std::vector<EmbedItem>& items, const std::filesystem::path& file,
                const Tensor& rows) {
  const std::string kind = file.extension().string();
  if (kind == ".npy") return write_npy(file, rows);
  if (kind == ".safetensors") return formats::write_safetensors(file, {formats::NamedTensor{"embeddings", rows}});
  core::write_file(file, [&](const AppendText& append) {
    int64_t at = 0;
    for (const EmbedItem& item : items) {
      std::vector<TokenSpan> spans;
      if (!item.chunks.empty()) spans = chunked_input(model, item.chunks).spans;
      append(json_lines(item, spans, rows.slice(0, at, at + item.rows())));
      at += item.rows();
    }
  });
}

/// Subtracts the mean of the targets from all vectors, and scales them to length 1.
void center(std::vector<float>& targets, std::vector<float>& queries, size_t width) {
  std::vector<double> mean(width);
  const auto count = static_cast<double>(targets.size() / width);
  for (size_t i = 0; i < targets.size(); ++i) mean[i % width] += double{targets[i]} / count;
  for (std::vector<float>* vectors : {&targets, &queries}) {
    for (auto vector = vectors->begin(); vector != vectors->end(); vector += static_cast<int64_t>(width)) {
      std::vector<double> centred(width);
      for (size_t i = 0; i < width; ++i) centred[i] = double{vector[static_cast<int64_t>(i)]} - mean[i];
      const double norm = std::sqrt(std::inner_product(centred.begin(), centred.end(), centred.begin(), 0.0));
      std::transform(centred.begin(), centred.end(), vector,
                     [norm](double value) { return static_cast<float>(norm > 0 ? value / norm : 0); });
    }
  }
}

/// For each text, the texts of the other list with the largest cosines.
void say_similarity(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items) {
  const auto [others, files] = read_items(options.similarity, options.kind(), options.field);
  warn_of_skipped(files);
  const auto vectors_of = [&](const std::vector<EmbedItem>& some) {
    Embedder embedder(options, model, some, true);
    std::vector<float> all = embedder.vectors();
    warn_of_cut(options, embedder.cut());
    return all;
  };
  check_usage(!options.center || others.size() > 1,
              "[embed] --center subtracts the mean of the texts of --similarity, and there is only one; give more, or "
              "leave it out");
  std::vector<float> targets = vectors_of(others), queries = vectors_of(items);
  const auto width = static_cast<size_t>(model.config().transformer.d_model);
  if (options.center) center(targets, queries, width);
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
    say_text(formats::to_line(line) + "\n");
  }
  flush_output();
  check_output();
}

void check_options(EmbedCommand& options) {
  const std::string kind = std::filesystem::path(options.out).extension().string();
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
  check_usage(!options.center || !options.similarity.empty(),
              "[embed] --center changes the cosines of --similarity; give --similarity too");
  if (!options.similarity.empty()) options.embed.normalize = !options.center;
}

void run_embed(EmbedCommand options, const Command& command) {
  join_ranks(command);
  options.apply();
  check_options(options);
  std::filesystem::path file;
  if (!options.out.empty() && is_first_rank()) {
    file = output_file(options.out, "--out");
    add_outputs({EmbedRows::path_of(file)}, "--out");
  }
  default_to_standard_input(options.texts);
  check_texts_of_ranks(options.texts);
  LanguageModel model = LanguageModel::load(options.model);
  options.use.apply(model);
  model.tokenizer();  // throws an Error if there is none, before anything is written
  const auto [items, files] = read_items(options.texts, options.kind(), options.field);
  warn_of_skipped(files);
  if (options.token_vectors || !options.similarity.empty()) {
    if (!is_first_rank()) return;  // of one process
    options.token_vectors ? say_token_vectors(options, model, items) : say_similarity(options, model, items);
    return options.write_json(nlohmann::ordered_json{{"model", options.model},
                                                     {"texts", items.size()},
                                                     {"skipped", skipped_json(files)},
                                                     {"pooling", options.pooling},
                                                     {"precision", name_of(model.precision())}});
  }

  if (world() != nullptr) {
    ranks::check_same(*world(), {{"the hash of the texts", core::xxh64(hashes_of(items))},
                                 {"the hash of the weights", training::weights_digest(model)}});
  }
  Embedder embedder(options, model, items, !options.out.empty());
  if (!is_first_rank()) {
    const StopSignals signals;
    embedder.run(static_cast<size_t>(of_first_rank(0)), {});
    return;
  }
  int64_t count = 0;
  const auto width = int64_t{model.config().transformer.d_model};
  std::vector<float> to_check;  // vectors of the first items
  int64_t rows_to_check = 0;
  for (size_t i = 0; i < items.size() && std::cmp_less(i, std::max(options.check_float32, options.check_skip)); ++i) {
    rows_to_check += items[i].rows();
  }
  const auto keep = [&](const Tensor& rows) {
    const int64_t missing = rows_to_check - std::ssize(to_check) / width;
    const std::vector<float> values = rows.slice(0, 0, std::min(missing, rows.size(0))).to_floats();
    to_check.insert(to_check.end(), values.begin(), values.end());
  };
  if (options.out.empty()) {
    embedder.run(static_cast<size_t>(of_first_rank(0)), [&](std::span<const Work> works, const Tensor& rows) {
      int64_t at = 0;
      for (const Work& work : works) {
        say_text(json_lines(*work.item, work.spans, rows.slice(0, at, at + work.rows())));
        at += work.rows();
      }
      count += at;
      keep(rows);
      flush_output();
      check_output();  // stop if output fails, because the lines are the only result
    });
  } else {
    const StopSignals signals("\nalibi: stopping; the same command continues from here\n");
    EmbedRows rows(file, identity_of(options, model, items), width);
    if (rows.damaged() > 0) {
      report_warning(fmt::format("{}: {} rows of the interrupted command are damaged and are computed again",
                                 EmbedRows::path_of(file).string(), core::format_integer(rows.damaged())));
    }
    std::vector<int64_t> ends{0};  // rows of the first items
    for (const EmbedItem& item : items) ends.push_back(ends.back() + item.rows());
    const auto whole_items = std::upper_bound(ends.begin(), ends.end(), rows.rows()) - ends.begin() - 1;
    const size_t first = whole_groups(items, static_cast<size_t>(whole_items));
    rows.truncate(ends[first]);
    if (first > 0)
      say("continuing after {} of {} texts\n", core::format_integer(static_cast<int64_t>(first)), items.size());
    embedder.run(static_cast<size_t>(of_first_rank(static_cast<int64_t>(first))),
                 [&](std::span<const Work>, const Tensor& some) { rows.append(some); });
    const Tensor all = rows.all();
    write_rows(model, items, file, all);
    keep(all);
    count = rows.rows();
    rows.remove();
    say("{} vector{} of {} numbers: {}\n", core::format_integer(count), count == 1 ? "" : "s", width, options.out);
  }
  warn_of_cut(options, embedder.cut());
  const nlohmann::ordered_json cosines = checked_vectors(options, model, items, to_check);
  options.write_json({{"model", options.model},
                      {"cosine_to_float32", cosines.value("cosine_to_float32", nlohmann::ordered_json())},
                      {"cosine_to_every_key", cosines.value("cosine_to_every_key", nlohmann::ordered_json())},
                      {"texts", items.size()},
                      {"skipped", skipped_json(files)},
                      {"vectors", count},
                      {"tokens", embedder.tokens()},
                      {"tokens_per_second", embedder.tokens_per_second()},
                      {"cut", embedder.cut()},
                      {"width", width},
                      {"pooling", options.pooling},
                      {"normalize", options.embed.normalize},
                      {"interpolate", model::interpolation_json(model.interpolation())},
                      {"precision", name_of(model.precision())},
                      {"out", options.out}});
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
               "Compute one vector per line that is not blank (or string of a record), from states that have seen the "
               "whole file");
  command.flag("--token-vectors", options->token_vectors, "Print the state of each token, one line of JSON per text");
  command.text("--pooling", options->pooling, "NAME",
               "Pooling of the final token states: mean, first (or cls; encoders only) or last (suits decoders)",
               {"mean", "first", "last"});
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
  command.reads("--similarity");
  command.count("--top", options->top, "Number of similar texts that --similarity prints");
  command.flag("--center", options->center,
               "With --similarity: subtract the mean vector of its texts first, so that cosines differ more");
  command.count(
      "--check-float32", options->check_float32,
      "Also compute the first N texts in float32, and show the cosines between both vectors (with --out or --json)");
  command.count(
      "--check-skip", options->check_skip,
      "Also compute the first N texts without skipping negligible keys, and show the cosines between both vectors "
      "(with --out or --json)");
  options->use.add_to(command);
  options->add_to(command);
  command.examples(
      "  alibi embed encoder/ sentences.txt -o vectors.npy --normalize\n"
      "  alibi embed encoder/ --whole-files letters/ | jq -c .embedding\n"
      "  alibi embed encoder/ questions.txt --similarity answers.jsonl --center --top 3\n"
      "  echo 'a line' | alibi embed model/ --pooling last");
  command.runs_over_ranks([options, command] { run_embed(*options, command); });
}

}  // namespace alibi::cli
