// alibi embed: computes embedding vectors of texts.
#include "alibi/embed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "core/format.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "report/progress.h"
#include "text/documents.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

struct EmbedCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts;
  std::string pooling = "mean", out;
  bool whole = false;
  EmbedOptions embed;
  ModelUse use;
};

/// A text and its source.
struct Texts {
  std::vector<std::string> names, texts;
};

/// Reads the lines of the files, or the whole files.
Texts read_texts(const EmbedCommand& options) {
  Texts all;
  for (const text::Document& document : text::read_documents(options.texts)) {
    const std::string text = document.text();
    if (options.whole) {
      all.names.push_back(document.name);
      all.texts.push_back(text);
      continue;
    }
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      all.texts.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return all;
}

/// Prints a line of JSON for each vector.
void say_vectors(const Texts& all, size_t first, const Tensor& vectors, bool whole) {
  const int64_t width = vectors.size(1);
  for (int64_t i = 0; i < vectors.size(0); ++i) {
    const size_t at = first + static_cast<size_t>(i);
    const float* vector = vectors.data<float>() + i * width;
    const nlohmann::json text = text::well_formed(whole ? all.names[at] : all.texts[at]);
    say("{{\"{}\": {}, \"embedding\": [{}]}}\n", whole ? "file" : "text", text.dump(),
        fmt::join(vector, vector + width, ", "));
  }
  flush_output();
  check_output();  // stop if output fails, because the lines are the only result
}

void run_embed(EmbedCommand options) {
  options.apply();
  const std::string kind = std::filesystem::path(options.out).extension().string();
  check_usage(options.out.empty() || kind == ".npy" || kind == ".safetensors",
              "[embed] --out {} ends in '{}', expected .npy or .safetensors; leave out --out to print lines of JSON",
              options.out, kind);
  const std::filesystem::path file = options.out.empty() ? "" : output_file(options.out, "--out");
  options.embed.pooling = pooling_from(options.pooling);
  if (options.texts.empty()) options.texts = {"-"};
  LanguageModel model = LanguageModel::load(options.model);
  options.use.apply(model);
  const Texts all = read_texts(options);
  const auto count = static_cast<int64_t>(all.texts.size()), width = int64_t{model.config().transformer.d_model};
  Tensor vectors = Tensor::empty({count, width});
  constexpr int64_t together = 256;
  // Lines on standard output already show the progress.
  report::Progress progress(stderr, options.out.empty() ? report::ProgressOptions() : lines_without_terminal());
  progress.begin("embed");
  for (int64_t first = 0; first < count; first += together) {
    const int64_t end = std::min(count, first + together);
    const auto part = std::span(all.texts).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    const Tensor of_part = embed(model, part, options.embed);
    vectors.slice(0, first, end).copy_from(of_part);
    if (options.out.empty()) {
      say_vectors(all, static_cast<size_t>(first), of_part, options.whole);
    } else {
      progress.update(static_cast<double>(end) / static_cast<double>(count), fmt::format("{} of {}", end, count));
    }
  }
  progress.clear();
  if (kind == ".npy") formats::write_npy(file, vectors);
  if (kind == ".safetensors") formats::write_safetensors(file, {{"embeddings", vectors}});
  if (!options.out.empty()) {
    say("{} vector{} of {} numbers: {}\n", core::format_integer(count), count == 1 ? "" : "s", width, options.out);
  }
  options.write_json({{"model", options.model},
                      {"texts", count},
                      {"width", width},
                      {"pooling", options.pooling},
                      {"normalize", options.embed.normalize},
                      {"interpolate", interpolation_json(options.use.interpolation)},
                      {"precision", name_of(model.precision())},
                      {"out", options.out}});
}

}  // namespace

void add_embed(CLI::App& app) {
  auto options = std::make_shared<EmbedCommand>();
  Command command(app, "embed", "Compute an embedding vector for each line or each file");
  command.model(options->model);
  command.texts(options->texts, false, "Text files, folders of text files, or - for standard input [standard input]");
  command.flag("--whole-files", options->whole, "Compute one vector per file [one vector per line]");
  command.text("--pooling", options->pooling, "NAME",
               "Pooling of the final token states: mean, first (encoders only) or last (suits decoders)");
  command.choices("--pooling", {"mean", "first", "last"});
  command.flag("--normalize", options->embed.normalize,
               "Scale each vector to length 1, so that dot products are cosine similarities");
  command.text("-o,--out", options->out, "FILE",
               "Output file, .npy or .safetensors, with all vectors in one array [JSON lines on standard output]");
  options->use.add_to(command);
  options->add_to(command);
  command.examples(
      "  alibi embed encoder/ sentences.txt -o vectors.npy --normalize\n"
      "  alibi embed encoder/ --whole-files letters/ | jq -c .embedding\n"
      "  echo 'a line' | alibi embed model/ --pooling last");
  command.runs([options] { run_embed(*options); });
}

}  // namespace alibi::cli
