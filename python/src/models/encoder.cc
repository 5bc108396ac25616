// Encoders: token states, vectors, and scores of a classifier.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "alibi/encoder_model.h"
#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

/// The inputs of a packed batch: ids, and types if there are any, of all inputs one after the other, and their counts.
std::vector<EncoderInput> inputs_of(nb::handle ids, nb::handle types, const std::vector<int64_t>& counts) {
  const Tensor all_ids = ids_of(ids, "encoder");
  const Tensor all_types = types.is_none() ? Tensor() : ids_of(types, "encoder");
  std::vector<EncoderInput> inputs;
  size_t at = 0;
  for (const int64_t count : counts) {
    const auto part = [&](const Tensor& of) {
      const std::span<const int32_t> values = tokens_of(of).subspan(at, static_cast<size_t>(count));
      return std::vector<int32_t>(values.begin(), values.end());
    };
    inputs.push_back({.ids = part(all_ids)});
    if (!types.is_none()) inputs.back().token_types = part(all_types);
    at += static_cast<size_t>(count);
  }
  return inputs;
}

EmbedOptions options_of(const std::string& pooling, bool normalize, int64_t max_tokens = 0) {
  return {.pooling = pooling_from(pooling), .normalize = normalize, .max_tokens = max_tokens};
}

nb::tuple arrays_of(EncoderInput input) {
  input.token_types.resize(input.ids.size());
  return nb::make_tuple(array_of(std::move(input.ids)), array_of(std::move(input.token_types)));
}

nb::object hidden(const EncoderModel& model, nb::handle ids, nb::handle types, const std::vector<int64_t>& counts) {
  const std::vector<EncoderInput> inputs = inputs_of(ids, types, counts);
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const int64_t count : counts) ends.push_back(end += count);
  return array_of(computed([&] {
    Tensor result = Tensor::empty({end, int64_t{model.model().config().transformer.d_model}});
    model.hidden(inputs, [&](int64_t index, const Tensor& states) {
      const int64_t last = ends[static_cast<size_t>(index)];
      result.slice(0, last - states.size(0), last).copy_from(states);
    });
    return result;
  }));
}

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<EncoderModel>(m, "EncoderModel")
      .def(
          "__init__",
          [](EncoderModel* self, const LanguageModel& model) {
            new (self) EncoderModel(model.sharing_weights([](LanguageModelConfig&) {}));
          },
          "model"_a)
      .def("labels", &EncoderModel::labels)
      .def(
          "encode",
          [](const EncoderModel& model, const std::string& text, int64_t max_tokens) {
            return arrays_of(computed([&] { return model.encode(text, max_tokens); }));
          },
          "text"_a, "max_tokens"_a)
      .def(
          "encode_pair",
          [](const EncoderModel& model, const std::string& first, const std::string& second, int64_t max_tokens) {
            return arrays_of(computed([&] { return model.encode_pair(first, second, max_tokens); }));
          },
          "first"_a, "second"_a, "max_tokens"_a)
      .def("hidden", hidden, "ids"_a, "types"_a.none(), "counts"_a)
      .def(
          "embed_inputs",
          [](const EncoderModel& model, nb::handle ids, nb::handle types, const std::vector<int64_t>& counts,
             const std::string& pooling, bool normalize) {
            const std::vector<EncoderInput> inputs = inputs_of(ids, types, counts);
            return array_of(computed([&] { return model.embed_inputs(inputs, options_of(pooling, normalize)); }));
          },
          "ids"_a, "types"_a.none(), "counts"_a, "pooling"_a, "normalize"_a)
      .def(
          "logits",
          [](const EncoderModel& model, nb::handle ids, nb::handle types, const std::vector<int64_t>& counts) {
            const std::vector<EncoderInput> inputs = inputs_of(ids, types, counts);
            return array_of(computed([&] { return model.logits(inputs); }));
          },
          "ids"_a, "types"_a.none(), "counts"_a)
      .def(
          "embed",
          [](const EncoderModel& model, const std::vector<std::string>& texts, const std::string& pooling,
             bool normalize, int64_t max_tokens) {
            const EmbedOptions options = options_of(pooling, normalize, max_tokens);
            return array_of(computed([&] { return model.embed(texts, options); }));
          },
          "texts"_a, "pooling"_a, "normalize"_a, "max_tokens"_a)
      .def(
          "embed_spans",
          [](const EncoderModel& model, nb::handle ids, const std::vector<std::pair<int64_t, int64_t>>& spans,
             const std::string& pooling, bool normalize) {
            const Tensor read = ids_of(ids, "embed");
            const EncoderInput input{.ids = {tokens_of(read).begin(), tokens_of(read).end()}};
            std::vector<TokenSpan> places;
            for (const auto& [begin, end] : spans) places.push_back({begin, end});
            const EmbedOptions options = options_of(pooling, normalize);
            return array_of(computed([&] { return alibi::embed_spans(model.model(), input, places, options); }));
          },
          "ids"_a, "spans"_a, "pooling"_a, "normalize"_a)
      .def(
          "rerank",
          [](const EncoderModel& model, const std::string& query, const std::vector<std::string>& documents,
             int64_t max_tokens) {
            return array_of(computed([&] { return model.rerank(query, documents, max_tokens); }));
          },
          "query"_a, "documents"_a, "max_tokens"_a);
}

}  // namespace alibi::python
