#include <algorithm>
#include <set>
#include <utility>

#include "core/check.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

constexpr const Family* kFamilies[] = {&kMpt,    &kBloom, &kFalcon,     &kBaichuan, &kJais, &kRefact,
                                       &kReplit, &kBert,  &kForgetting, &kJais2,    &kGte};

const Family& family_named(const std::string& name, Layout Family::*layout, const std::string& key) {
  std::vector<std::string_view> known;
  for (const Family* family : kFamilies) {
    for (const std::string_view one : (family->*layout).names) {
      if (one.empty()) break;
      if (one == name) return *family;
      known.push_back(one);
    }
  }
  fail("[config] {} is '{}', expected one of {}", key, name, fmt::join(known, ", "));
}

/// "blocks.#.norm_1" for block 3 -> "blocks.3.norm_1", "blocks.#-1.norm_1" -> "blocks.2.norm_1"
std::string with_block(std::string_view pattern, std::string_view block) {
  std::string name(pattern);
  const size_t at = name.find('#');
  if (at == std::string::npos) return name;
  constexpr std::string_view before = "#-1";
  if (pattern.substr(at, before.size()) != before) return name.replace(at, 1, block);
  return name.replace(at, before.size(), std::to_string(std::atoll(std::string(block).c_str()) - 1));
}

/// A name split into the parts that patterns are compared with.
struct Name {
  std::string pattern, block, ending;  // "blocks.#.norm_1", "3", ".weight"

  explicit Name(std::string name) : pattern(std::move(name)) {
    for (const std::string_view known : {".weight", ".bias"}) {
      if (!pattern.ends_with(known)) continue;
      ending = known;
      pattern.resize(pattern.size() - known.size());
    }
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (size_t at = 0; (at = pattern.find('.', at)) != std::string::npos;) {
      const size_t end =
          std::find_if_not(pattern.begin() + static_cast<int64_t>(++at), pattern.end(), is_digit) - pattern.begin();
      if (end == at || (end < pattern.size() && pattern[end] != '.')) continue;
      block = pattern.substr(at, end - at);
      pattern.replace(at, end - at, "#");
      return;
    }
  }
};

/// The prefix of a layout's names, and that of the file's.
struct Prefix {
  std::string_view own, in_file;

  std::string replaced(const std::string& name) const {
    return name.starts_with(own) ? std::string(in_file) + name.substr(own.size()) : name;
  }
};

/// The tensors of a mapping for one of our parameters.
std::vector<std::string> tensors_of(const Mapping& mapping, const Name& parameter, const Prefix& prefix) {
  std::vector<std::string> names;
  for (const std::string_view tensor : mapping.tensors) {
    if (tensor.empty()) break;
    names.push_back(prefix.replaced(with_block(tensor, parameter.block) + parameter.ending));
  }
  return names;
}

/// The first prefix that a tensor has; none if no tensor has any.
Prefix prefix_of(const Layout& layout, const formats::WeightSource& weights) {
  const std::vector<formats::TensorInfo>& tensors = weights.tensors();
  for (const std::string_view prefix : layout.prefixes) {
    const auto begins_with_prefix = [&](const auto& tensor) { return tensor.name.starts_with(prefix); };
    if (std::any_of(tensors.begin(), tensors.end(), begins_with_prefix)) return {layout.prefixes.front(), prefix};
    if (prefix.empty()) break;
  }
  return {layout.prefixes.front(), {}};
}

/// Throws Error unless the tensors make a parameter of this shape.
void check_shapes(const Source& source, const formats::WeightSource& weights, const Shape& shape) {
  const bool transposed = is_transposed(source, shape);
  int64_t rows = 0;
  for (const std::string& name : source.tensors) {
    const Shape& found = weights.info(name).shape;
    Shape expected = shape;
    if (source.tensors.size() > 1 && found.size() == shape.size()) expected[0] = found[transposed ? 1 : 0];
    rows += expected.empty() ? 0 : expected[0];
    if (transposed) std::swap(expected[0], expected[1]);
    weights.check_loadable(name, expected, DType::float32);
  }
  check(shape.empty() || rows == shape[0], "[model] {}: the tensors {} have {} rows together, expected {}",
        weights.source_of(source.tensors.front()), fmt::join(source.tensors, ", "), rows, shape[0]);
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& family_of_folder(const formats::JsonObject& config) {
  return family_named(config.get<std::string>("model_type"), &Family::folder, config.where() + "model_type");
}

const Family& family_of_gguf(const formats::JsonObject& metadata) {
  constexpr const char* key = "general.architecture";
  return family_named(metadata.get<std::string>(key), &Family::gguf, metadata.where() + key);
}

LanguageModelConfig config_of(const Layout& layout, const formats::JsonObject& file,
                              const formats::WeightSource& weights, std::vector<std::string>* warnings) {
  LanguageModelConfig config = layout.config(file, weights);
  const std::string head(layout.tied_head);
  if (head.empty() || !config.transformer.head.tied || !weights.contains(head)) return config;
  const auto embedding = std::find_if(layout.mappings.begin(), layout.mappings.end(),
                                      [](const Mapping& mapping) { return mapping.parameter == "wte"; });
  const std::string table = tensors_of(*embedding, Name("wte.weight"), prefix_of(layout, weights)).front();
  if (!weights.contains(table) || weights.are_equal(head, table)) return config;
  config.transformer.head.tied = false;
  if (warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: {} differs from {}, although the configuration says that both are one; both are kept. Set "
                    "tie_word_embeddings to false to silence this warning",
                    weights.source_of(head), head, table));
  }
  return config;
}

bool is_transposed(const Source& source, const Shape& shape) {
  return source.arrangement == Arrangement::transposed && shape.size() == 2;
}

int64_t rows_of(const Source& source, const Shape& tensor) {
  return tensor.empty() ? 1 : tensor[is_transposed(source, tensor) ? 1 : 0];
}

std::vector<Source> sources_of(const Layout& layout, const formats::WeightSource& weights,
                               const LanguageModelConfig& config, const std::vector<ParameterSpec>& specs) {
  const std::vector<formats::TensorInfo>& tensors = weights.tensors();
  const Prefix prefix = prefix_of(layout, weights);

  std::set<std::string, std::less<>> used;
  std::vector<Source> sources;
  for (const ParameterSpec& spec : specs) {
    Name parameter(spec.name);
    if (parameter.block.empty()) parameter.block = std::to_string(config.transformer.layers);
    const std::string_view of_one_block =
        std::string_view(spec.name).substr(0, spec.name.size() - parameter.ending.size());
    Source source;
    for (const Mapping& mapping : layout.mappings) {
      if (mapping.parameter != parameter.pattern && mapping.parameter != of_one_block) continue;
      source = {tensors_of(mapping, parameter, prefix), mapping.arrangement};
      if (mapping.parameter != parameter.pattern) break;
      const auto is_there = [&](const std::string& name) { return weights.contains(name); };
      if (std::all_of(source.tensors.begin(), source.tensors.end(), is_there)) break;
    }
    check(!source.tensors.empty(), "[model] {}: such a model has no place for the parameter {}",
          weights.sources().front(), spec.name);
    if (config.transformer.head.normalized && parameter.pattern == "lm_head")
      source.arrangement = Arrangement::unit_rows;
    check_shapes(source, weights, spec.shape);
    for (const std::string& name : source.tensors) {
      check(used.insert(name).second,
            "[model] {}: a tensor is missing: {} would be read for {}, but is a part of another parameter",
            weights.source_of(name), name, spec.name);
    }
    sources.push_back(std::move(source));
  }
  for (const formats::TensorInfo& tensor : tensors) {
    const auto& ignored = layout.ignored;
    const bool is_ignored =
        is_tied_head(layout, tensor.name) || std::any_of(ignored.begin(), ignored.end(), [&](std::string_view pattern) {
          if (pattern.empty()) return false;
          const std::string name = prefix.replaced(with_block(pattern, Name(tensor.name).block));
          return name.ends_with(".*") ? tensor.name.starts_with(name.substr(0, name.size() - 1)) : tensor.name == name;
        });
    check(is_ignored || used.contains(tensor.name),
          "[model] {}: the tensor {} has no place in the model that the configuration describes ({} blocks)",
          weights.source_of(tensor.name), tensor.name, config.transformer.layers);
  }
  return sources;
}

bool is_tied_head(const Layout& layout, const std::string& tensor) {
  return !layout.tied_head.empty() && tensor == layout.tied_head;
}

Tensor stored_tensor(const Source& source, const Tensor& value, int64_t begin, const Shape& shape,
                     const LanguageModelConfig& config) {
  const bool transposed = is_transposed(source, shape);
  const int64_t rows = rows_of(source, shape);
  const Tensor part = shape.empty() ? value : value.slice(0, begin, begin + rows);
  if (transposed) return Tensor::view(part.raw(), shape, part.dtype(), {1, part.stride(0)}).clone();
  if (source.arrangement == Arrangement::halves_swapped) {
    Tensor swapped = Tensor::empty(shape, part.dtype());
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, rows / 2}, {rows / 2, 0}}) {
      swapped.slice(0, to, to + rows / 2).copy_from(part.slice(0, from, from + rows / 2));
    }
    return swapped;
  }
  if (source.arrangement != Arrangement::heads_interleaved) return part;
  const int64_t heads = config.transformer.attention.heads, dim = rows / (3 * heads);
  Tensor result = Tensor::empty(shape, part.dtype());
  for (int64_t i = 0; i < 3 * heads; ++i) {  // head i / 3; query, key or value
    const int64_t from = (i % 3 * heads + i / 3) * dim;
    result.slice(0, i * dim, (i + 1) * dim).copy_from(part.slice(0, from, from + dim));
  }
  return result;
}

std::vector<std::string> tensor_names(const Layout& layout, const std::string& name) {
  const Name parameter(name);
  for (const Mapping& mapping : layout.mappings) {
    if (mapping.parameter == parameter.pattern && mapping.arrangement == Arrangement::plain) {
      return tensors_of(mapping, parameter, {});
    }
  }
  fail("[model] files of {} have no place for the parameter {}", layout.names.front(), name);
}

}  // namespace alibi::model
