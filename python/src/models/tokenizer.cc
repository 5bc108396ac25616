// Tokenizers, without a model.
#include "alibi/tokenizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "alibi/hub.h"
#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

nb::list list_of(std::span<const int32_t> numbers) {
  nb::list list;
  for (const int32_t number : numbers) list.append(number);
  return list;
}

struct LoadedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
};

LoadedTokenizer load_tokenizer(const std::string& path) {
  return computed([&] { return LoadedTokenizer{Tokenizer::load(find_model(path))}; });
}

nb::list encode_text(const LoadedTokenizer& self, const std::string& text, bool add_special_tokens) {
  return list_of(computed([&] { return self.tokenizer->encode(text, {.add_special_tokens = add_special_tokens}); }));
}

nb::tuple encode_texts(const LoadedTokenizer& self, const std::string& first, const std::string& second,
                       bool add_special_tokens) {
  const Encoding encoding =
      computed([&] { return self.tokenizer->encode_pair(first, second, {.add_special_tokens = add_special_tokens}); });
  return nb::make_tuple(list_of(encoding.ids), list_of(encoding.type_ids));
}

nb::object decode_ids(const LoadedTokenizer& self, nb::handle ids, bool skip_special_tokens) {
  const Tensor read = ids_of(ids, "decode");
  return text_of(
      computed([&] { return self.tokenizer->decode(tokens_of(read), {.skip_special_tokens = skip_special_tokens}); }));
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<LoadedTokenizer>(m, "Tokenizer")
      .def_static("load", load_tokenizer, "path"_a)
      .def("kind", [](const LoadedTokenizer& self) { return std::string(self.tokenizer->kind()); })
      .def("vocab_size", [](const LoadedTokenizer& self) { return self.tokenizer->vocab_size(); })
      .def("begin_of_text", [](const LoadedTokenizer& self) { return self.tokenizer->begin_of_text(); })
      .def("end_of_text", [](const LoadedTokenizer& self) { return self.tokenizer->end_of_text(); })
      .def("encode", encode_text, "text"_a, "add_special_tokens"_a)
      .def("encode_pair", encode_texts, "first"_a, "second"_a, "add_special_tokens"_a)
      .def("decode", decode_ids, "ids"_a, "skip_special_tokens"_a)
      .def(
          "save", [](const LoadedTokenizer& self, const std::string& folder) { self.tokenizer->save(folder); },
          "folder"_a);
}

}  // namespace alibi::python
