// /v1/embeddings, /pooling and /v1/rerank.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "serve/api.h"

namespace alibi::serve {
namespace {

/// Maximum number of numbers in the vectors of an answer: about 200 MB of text.
constexpr int64_t max_numbers = int64_t{1} << 24;
/// Maximum number of tokens of a request for scores, in which every document is read with the query.
constexpr int64_t max_pair_tokens = int64_t{1} << 22;

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? letters[word >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

/// The float32 numbers, least significant byte first, in base64; or a list.
OrderedJson vector_json(const float* values, int64_t width, bool as_base64) {
  if (!as_base64) return std::vector<float>(values, values + width);
  static_assert(std::endian::native == std::endian::little);
  return base64({reinterpret_cast<const char*>(values), static_cast<size_t>(width) * sizeof(float)});
}

void check_length(const ServedModel& model, int64_t tokens, const char* field) {
  const std::optional<int64_t> most = model.max_tokens();
  if (!most || tokens <= *most) return;
  throw ApiError{400, fmt::format("a text of {} has {} tokens, expected at most {}", field, tokens, *most), field,
                 "context_length_exceeded"};
}

/// The states [tokens, d_model] of one input.
Tensor token_vectors(const LanguageModel& model, const EncoderInput& input, const EmbedOptions& options) {
  std::vector<TokenSpan> spans;
  for (int64_t i = 0; i < std::ssize(input.ids); ++i) spans.push_back({i, i + 1});
  return embed_spans(model, input, spans, {.pooling = Pooling::mean, .normalize = options.normalize});
}

/// The number of tokens to which texts are cut; 0: they are not cut.
int64_t truncation_of(const Fields& fields, const ServedModel& model) {
  const int64_t most = fields.integer("truncate_prompt_tokens", -1).value_or(0);
  if (most == 0 && fields.has("truncate_prompt_tokens")) {
    fields.fail("truncate_prompt_tokens", "expected at least 1, or -1 for as many tokens as the model reads");
  }
  return most == -1 ? model.max_tokens().value_or(0) : most;
}

}  // namespace

void Api::embeddings(const HttpRequest& request, const Responding& responder) { embed(request, responder, true); }
void Api::pooling(const HttpRequest& request, const Responding& responder) { embed(request, responder, false); }

/// OpenAI's embeddings have length 1; /pooling returns vectors as the model gives them, of each token unless a kind of
/// pooling is given.
void Api::embed(const HttpRequest& request, const Responding& responder, bool as_embeddings) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  const int64_t width = model.model().config().transformer.d_model;
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.fail("encoding_format", "expected \"float\" or \"base64\"");
  const std::string name = fields.text("pooling").value_or(name_of(model.pooling()));
  EmbedOptions options{.pooling = pooling_from(name), .normalize = fields.flag("normalize", as_embeddings)};
  fields.expect("dimensions", {width});
  const bool per_token = !as_embeddings && fields.find("pooling") == nullptr;

  const int64_t most = truncation_of(fields, model);
  std::vector<EncoderInput> inputs;
  int64_t tokens = 0;
  for (const TextInput& input : inputs_of(fields, "input")) {
    if (input.text) {
      model.tokenizer();  // throws if there is none
      inputs.push_back(encoder_input(model.model(), *input.text, most));
    } else {
      inputs.push_back({.ids = model.prompt(input, "input")});
      if (most > 0 && std::ssize(input.ids) > most) inputs.back().ids.resize(static_cast<size_t>(most));
    }
    check_length(model, std::ssize(inputs.back().ids), "input");
    tokens += std::ssize(inputs.back().ids);
  }
  if (const int64_t rows = per_token ? tokens : std::ssize(inputs); rows > max_numbers / width) {
    throw ApiError{400,
                   fmt::format("{} vectors of {} numbers, expected at most {}; {}", rows, width, max_numbers / width,
                               per_token ? "set \"pooling\" for a vector of each text" : "send fewer texts"),
                   "input"};
  }
  responder->note("model", model.name());
  responder->note("prompt_tokens", tokens);
  const auto data = std::make_shared<std::vector<OrderedJson>>(inputs.size());
  const bool as_base64 = format == "base64";
  const auto compute = [=, &model](std::span<const EncoderInput> some, std::span<const size_t> index) {
    const auto row_json = [&](const Tensor& rows, int64_t row) {
      return vector_json(rows.data<float>() + row * width, width, as_base64);
    };
    for (size_t i = 0; per_token && i < some.size(); ++i) {
      auto vectors = OrderedJson::array();
      const Tensor states = token_vectors(model.model(), some[i], options);
      for (int64_t row = 0; row < states.size(0); ++row) vectors.push_back(row_json(states, row));
      (*data)[index[i]] = std::move(vectors);
    }
    if (per_token) return;
    const Tensor vectors = embed_inputs(model.model(), some, options);
    for (size_t i = 0; i < some.size(); ++i) (*data)[index[i]] = row_json(vectors, static_cast<int64_t>(i));
  };
  const auto finish = [=, &model] {
    auto all = OrderedJson::array();
    for (OrderedJson& one : *data) {
      all.push_back({{"object", as_embeddings ? "embedding" : "pooling"},
                     {"index", all.size()},
                     {as_embeddings ? "embedding" : "data", std::move(one)}});
    }
    responder->reply(json_reply({{"object", "list"},
                                 {"data", std::move(all)},
                                 {"model", model.name()},
                                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}));
  };
  model.vectors().submit({std::move(inputs), compute, finish, responder});
}

void Api::rerank(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  const EncoderModel& reranker = model.reranker();
  const std::optional<std::string> query = fields.text("query");
  if (!query) fields.fail("query", "expected a text");
  std::vector<std::string> documents;
  const Json& given = fields.at("documents");
  if (!given.is_array() || given.empty()) fields.fail("documents", "expected a list of at least one document");
  if (std::ssize(given) > options_.max_inputs)
    throw ApiError{400, fmt::format("{} documents, expected at most {}", given.size(), options_.max_inputs),
                   "documents"};
  for (const Json& document : given) {
    const Json* const text = document.is_object() && document.contains("text") ? &document["text"] : &document;
    if (!text->is_string()) fields.fail("documents", "expected texts, or objects with a \"text\"");
    documents.push_back(text->get<std::string>());
  }
  const auto top = static_cast<size_t>(fields.integer("top_n", 0).value_or(0));
  const bool with_documents = fields.flag("return_documents", true);
  // Without a number documents are cut to the model's positions, as other servers do.
  const int64_t most =
      fields.has("truncate_prompt_tokens") ? truncation_of(fields, model) : model.positions().value_or(0);
  std::vector<EncoderInput> inputs;
  int64_t tokens = 0;
  for (const std::string& document : documents) {
    inputs.push_back(reranker.encode_pair(*query, document, most));
    check_length(model, std::ssize(inputs.back().ids), "documents");
    tokens += std::ssize(inputs.back().ids);
    if (tokens > max_pair_tokens) {
      throw ApiError{400,
                     fmt::format("the query and the first {} documents have {} tokens, expected at most {} for all "
                                 "documents, each of which is read with the query",
                                 inputs.size(), tokens, max_pair_tokens),
                     "documents"};
    }
  }
  responder->note("model", model.name());
  responder->note("prompt_tokens", tokens);
  const auto scores = std::make_shared<std::vector<double>>(inputs.size());
  const auto compute = [=, &reranker](std::span<const EncoderInput> some, std::span<const size_t> index) {
    const std::vector<float> logits = reranker.logits(some).to_floats();
    for (size_t i = 0; i < some.size(); ++i) (*scores)[index[i]] = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
  };
  const auto finish = [=, &model, documents = std::move(documents)] {
    std::vector<size_t> order(scores->size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*scores)[a] > (*scores)[b]; });
    if (top > 0) order.resize(std::min(order.size(), top));
    auto results = OrderedJson::array();
    for (const size_t i : order) {
      OrderedJson one{{"index", i}, {"relevance_score", (*scores)[i]}};
      if (with_documents) one["document"] = {{"text", documents[i]}};
      results.push_back(std::move(one));
    }
    responder->reply(json_reply({{"object", "list"},
                                 {"model", model.name()},
                                 {"results", std::move(results)},
                                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}));
  };
  model.vectors().submit({std::move(inputs), compute, finish, responder});
}

}  // namespace alibi::serve
