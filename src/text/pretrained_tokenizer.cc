#include "text/pretrained_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "text/byte_tokenizer.h"
#include "text/hash.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_encoding.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pipeline.h"
#include "text/tokenizers/sentencepiece.h"

namespace alibi::text {
namespace {

/// The largest known files have 35 MB. A parsed file takes many times its size.
constexpr size_t kMaxPretrainedBytes = size_t{64} << 20;
/// Names of end-of-text tokens, used if no tokenizer_config.json names one.
constexpr const char* kEndTokens[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<|im_end|>", "<eos>", "[SEP]"};

/// "eos_token" of a tokenizer_config.json: a string, or an object with its content. Empty: none.
std::string token_named(const char* key, const formats::JsonObject& config) {
  if (!config.has(key)) return {};
  if (config.raw()[key].is_object()) return config.object(key).get<std::string>("content");
  return config.get<std::string>(key);
}

std::string config_beside(const std::filesystem::path& file) {
  const std::filesystem::path config = file.parent_path() / kTokenizerConfigFile;
  return core::path_exists(config) ? core::read_file(config, formats::kMaxJsonBytes) : std::string();
}

}  // namespace

PretrainedTokenizer::PretrainedTokenizer(std::unique_ptr<const tokenizers::Engine> engine, Source source)
    : engine_(std::move(engine)),
      source_(std::move(source)),
      kind_(fmt::format("{}-{}", source_.name == kHuggingFaceFile ? "hf" : "spm", engine_->algorithm())) {
  const std::string where = source_.where + ": " + kTokenizerConfigFile;
  const formats::JsonObject config(formats::parse_json(source_.config.empty() ? "{}" : source_.config, where),
                                   where + ": ");
  end_token_ = token_named("eos_token", config);
  const std::string begin = token_named("bos_token", config);
  if (!begin.empty()) begin_ = engine_->id_of(begin);
  if (config.has("add_bos_token")) adds_begin_ = config.get<bool>("add_bos_token");
  if (config.has("add_eos_token")) adds_end_ = config.get<bool>("add_eos_token");
  if (!end_token_.empty()) {
    end_of_text_ = engine_->id_of(end_token_);
    check(end_of_text_.has_value(), "[tokenizer] {}: the eos_token of {} is '{}', which is not a token", source_.where,
          kTokenizerConfigFile, end_token_);
  }
  for (const char* token : kEndTokens) {
    if (end_of_text_ || !engine_->is_special(token)) continue;
    end_token_ = token;
    end_of_text_ = engine_->id_of(token);
  }
  fingerprint_ = fnv1a(fmt::format("{} {}", kind_, end_of_text_.value_or(-1)), fnv1a(source_.bytes));
}

int32_t PretrainedTokenizer::end_of_text() const {
  check(end_of_text_.has_value(),
        "[tokenizer] {}: no token ends a text; name one as the eos_token of a {} in the same folder", source_.where,
        kTokenizerConfigFile);
  return *end_of_text_;
}

std::vector<int32_t> PretrainedTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids = engine_->encode(well_formed(text), false);
  if (!end_of_text_ || std::find(ids.begin(), ids.end(), *end_of_text_) == ids.end()) return ids;
  // The model may have an end-of-text token that is not searched for in text. Then the characters of its name represent
  // it.
  std::vector<int32_t> spelled, result;
  for (size_t at = 0; at < end_token_.size();) {
    const size_t length = std::max<size_t>(utf8_sequence_length(end_token_, at), 1);
    for (const int32_t id : engine_->encode(std::string_view(end_token_).substr(at, length), false)) {
      if (id != *end_of_text_) spelled.push_back(id);
    }
    at += length;
  }
  for (const int32_t id : ids) {
    if (id == *end_of_text_) {
      result.insert(result.end(), spelled.begin(), spelled.end());
    } else {
      result.push_back(id);
    }
  }
  return result;
}

std::vector<int32_t> PretrainedTokenizer::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = engine_->encode(well_formed(text), true);
  if (adds_begin_ || adds_end_) {
    if (adds_begin_.value_or(false) && begin_) ids.insert(ids.begin(), *begin_);
    if (adds_end_.value_or(false) && end_of_text_) ids.push_back(*end_of_text_);
  } else if (source_.name == kHuggingFaceFile) {  // models of SentencePiece alone do not say it
    ids = engine_->frame(std::move(ids), {}, true).ids;
  }
  if (ids.empty()) ids.push_back(begin_ ? *begin_ : end_of_text());
  return ids;
}

Encoding PretrainedTokenizer::encode_as(std::string_view first, const std::string_view* second,
                                        const EncodeOptions& options) const {
  std::vector<int32_t> ids = engine_->encode(well_formed(first), options.parse_special);
  std::optional<std::vector<int32_t>> more;
  if (second) more = engine_->encode(well_formed(*second), options.parse_special);
  tokenizers::Sequence framed = engine_->frame(std::move(ids), more, options.add_special_tokens);
  return {std::move(framed.ids), std::move(framed.types)};
}

void PretrainedTokenizer::save(const std::filesystem::path& folder) const {
  core::write_file(folder / source_.name, source_.bytes);
  if (source_.config.empty()) {
    formats::OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false}};
    if (end_of_text_) config["eos_token"] = end_token_;
    formats::write_json(folder / kTokenizerConfigFile, config);
  } else {
    core::write_file(folder / kTokenizerConfigFile, source_.config);
  }
  remove_other_tokenizers(folder, {source_.name});
}

std::shared_ptr<const Tokenizer> load_tokenizer_json(const std::filesystem::path& file) {
  return tokenizer_from_json(core::read_file(file, kMaxPretrainedBytes), config_beside(file), file.string());
}

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string json, std::string config, const std::string& where) {
  std::unique_ptr<const tokenizers::Engine> engine;
  {
    const formats::JsonObject file(formats::parse_json(json, where), where + ": ");
    if (is_byte_tokenizer(file)) return std::make_shared<ByteTokenizer>();
    engine = std::make_unique<tokenizers::Pipeline>(file);
  }
  return std::make_shared<PretrainedTokenizer>(
      std::move(engine), PretrainedTokenizer::Source{kHuggingFaceFile, std::move(json), std::move(config), where});
}

std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& file) {
  return tokenizer_from_sentencepiece(core::read_file(file, kMaxPretrainedBytes), config_beside(file), file.string());
}

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string model, std::string config,
                                                              const std::string& where) {
  tokenizers::SentencePieceModel read = tokenizers::read_sentencepiece_model(model, where);
  // Models that alibi trains have one control piece, which ends a text.
  const auto controls = std::count_if(read.pieces.begin(), read.pieces.end(), [](const auto& piece) {
    return piece.type == tokenizers::SentencePieceModel::Type::control;
  });
  if (controls == 1 && why_not_lossless(read).empty()) {
    return std::make_shared<SentencePieceTokenizer>(std::move(model), where);
  }
  return std::make_shared<PretrainedTokenizer>(
      std::make_unique<tokenizers::SentencePiece>(std::move(read), where),
      PretrainedTokenizer::Source{kSentencePieceFile, std::move(model), std::move(config), where});
}

}  // namespace alibi::text
