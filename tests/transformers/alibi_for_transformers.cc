// For compare.py and vocabularies.py: what the command does not write.
//   alibi_for_transformers make FOLDER    a model with random weights whose sizes no preset has
//   alibi_for_transformers encode MODEL TEXTS IDS    texts that end with a zero byte -> their int32 ids, each with -1
//   alibi_for_transformers logits FOLDER IDS LOGITS    int32 ids of one sequence -> float32 [length, vocab_size]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
#include <vector>

#include "alibi/language_model.h"
#include "core/files.h"

namespace {

using alibi::Tensor;

void make(const char* folder) {
  alibi::LanguageModelConfig config = alibi::preset("tiny");
  alibi::TransformerConfig& t = config.transformer;
  t.layers = 3;
  t.d_model = 96;
  t.attention.heads = 12;  // no power of two: two formulas of the slopes meet
  t.block.norm_eps = 0.25f;
  t.block.dropout = t.embedding.dropout = t.attention.dropout = t.block.activation_dropout = 0.3f;
  config.train_length = 100000;
  alibi::LanguageModel model(config, 7);
  // Larger than a new model's, so that scores of the attention differ.
  for (alibi::Parameter* parameter : model.parameters()) {
    if (!parameter->decays) continue;
    float* value = parameter->value.data<float>();
    for (int64_t i = 0; i < parameter->value.elements(); ++i) value[i] *= 3;
  }
  model.save(folder);
}

void encode(const char* model, const char* texts_file, const char* ids_file) {
  const std::string texts = alibi::core::read_file(texts_file);
  const auto tokenizer = alibi::Tokenizer::load(model);
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = std::min(texts.find('\0', begin), texts.size());
    const std::vector<int32_t> found = tokenizer->encode(std::string_view(texts).substr(begin, end - begin));
    ids.insert(ids.end(), found.begin(), found.end());
    ids.push_back(-1);
    begin = end + 1;
  }
  alibi::core::write_file(ids_file, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

void logits(const char* folder, const char* ids_file, const char* logits_file) {
  const std::string bytes = alibi::core::read_file(ids_file);
  const auto length = static_cast<int64_t>(bytes.size() / sizeof(int32_t));
  Tensor ids = Tensor::empty({1, length}, alibi::DType::int32);
  std::memcpy(ids.data<int32_t>(), bytes.data(), static_cast<size_t>(length) * sizeof(int32_t));
  const std::vector<float> values = alibi::LanguageModel::load(folder).logits(ids).to_floats();
  alibi::core::write_file(logits_file, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view action = argc > 1 ? argv[1] : "";
    if (action == "make" && argc == 3) return make(argv[2]), 0;
    if (action == "encode" && argc == 5) return encode(argv[2], argv[3], argv[4]), 0;
    if (action == "logits" && argc == 5) return logits(argv[2], argv[3], argv[4]), 0;
    std::fputs("usage: alibi_for_transformers make FOLDER | encode MODEL TEXTS IDS | logits FOLDER IDS LOGITS\n",
               stderr);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
