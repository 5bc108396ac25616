// What a model folder on disk may do to whoever loads it: nothing but give the model or say what is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "alibi/language_model.h"
#include "core/files.h"
#include "core/memory.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "killed_child.h"
#include "model/families/model_files.h"
#include "model/own_folder.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/word_tokenizer.h"

namespace alibi::model {
namespace {

namespace fs = std::filesystem;
using test::ChildEnd;
using test::expect_error;
using test::TemporaryFolder;

LanguageModelConfig folder_config(Position position = Position::alibi) {
  LanguageModelConfig config;
  config.transformer.layers = 1;
  config.transformer.d_model = 8;
  config.transformer.attention.heads = 2;
  config.transformer.position = position;
  if (position == Position::learned) config.transformer.embedding.max_length = 16;
  config.train_length = 16;
  return config;
}

std::shared_ptr<const Tokenizer> words(const std::string& first) {
  return std::make_shared<text::WordTokenizer>(std::vector<text::WordCount>{{first, 3}, {"b", 2}, {"c", 1}});
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// The kind of the tokenizer, and how the weights begin.
std::string summary(const LanguageModel& model) {
  return fmt::format("{} {}", model.tokenizer().kind(), model.parameters().front()->value.to_floats().front());
}

TEST(ModelFolder, KilledInASaveItHoldsTheOldModelOrTheNew) {
  const LanguageModel old_model(folder_config(), 1), new_model(folder_config(), 2, words("a"));
  std::set<std::string> found;
  for (int change = 0;; change += 3) {
    SCOPED_TRACE(change);
    const TemporaryFolder folder;
    old_model.save(folder.path());
    const ChildEnd end = test::run_killed(change, [&] { new_model.save(folder.path()); });
    if (end == ChildEnd::cannot_trace) GTEST_SKIP() << "this machine does not let a process trace its child";
    found.insert(summary(LanguageModel::load(folder.path())));
    if (end == ChildEnd::done) break;
  }
  EXPECT_EQ(found, (std::set<std::string>{summary(old_model), summary(new_model)}));
}

TEST(ModelFolder, ASaveReplacesTheModelAndNothingElse) {
  const TemporaryFolder folder;
  for (const char* name : {"checkpoints/step-000001/config.json", "train.json", "metrics.jsonl", "loss.svg"}) {
    folder.write(name, "kept");
  }
  LanguageModel(folder_config(), 1, words("a")).save(folder.path());
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"checkpoints", "train.json", "metrics.jsonl", "loss.svg", "config.json", "dict.txt",
                                   "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  LanguageModel(folder_config(), 2).save(folder.path());
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"checkpoints", "train.json", "metrics.jsonl", "loss.svg", "config.json",
                                   "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(core::read_file(folder / "train.json"), "kept");
  // One without a tokenizer does not leave another's behind.
  LanguageModelConfig config = folder_config();
  config.vocab_size = 300;
  LanguageModel(config, 3).save(folder.path());
  EXPECT_FALSE(fs::exists(folder / "tokenizer.json"));
}

TEST(ModelFolder, ATokenizerThatDoesNotBelongToTheWeightsIsRefused) {
  const TemporaryFolder folder;
  LanguageModel(folder_config(), 1, words("a")).save(folder.path());
  EXPECT_EQ(LanguageModel::load(folder.path()).tokenizer().kind(), "words");
  const auto load = [&] { LanguageModel::load(folder.path()); };
  // The same words in another order: every id means another word, and nothing else would tell.
  words("z")->save(folder.path());
  for (const char* part : {"config.json: the weights were trained with a tokenizer of the kind 'words'", "dict.txt",
                           "Put back the file"}) {
    expect_error(load, part);
  }
  ByteTokenizer().save(folder.path());
  expect_error(load, "tokenizer.json holds another one (byte, ");
  // Counts do not change ids.
  text::WordTokenizer({{"a", 7}, {"b", 7}, {"c", 7}}).save(folder.path());
  EXPECT_NO_THROW(load());
  // Folders of other programs say nothing of it.
  words("z")->save(folder.path());
  formats::Json config = formats::Json::parse(core::read_file(folder / "config.json"));
  config["alibi"].erase("tokenizer");
  core::write_file(folder / "config.json", config.dump());
  EXPECT_NO_THROW(load());
  // But one that is larger than the table cannot be right.
  config["vocab_size"] = 5;
  core::write_file(folder / "config.json", config.dump());
  LanguageModelConfig five = folder_config();
  five.vocab_size = 5;
  const TemporaryFolder other;
  LanguageModel(five, 1).save(other.path());
  fs::copy_file(other / "model.safetensors", folder / "model.safetensors", fs::copy_options::overwrite_existing);
  expect_error(load, "config.json: vocab_size is 5, but " + (folder / "dict.txt").string() + " has 7 tokens");
}

/// Writes a number over one of a tensor's, in the file.
void overwrite(const fs::path& file, const std::string& tensor, int64_t element, float value) {
  const size_t at = formats::Safetensors(file).info(tensor).begin + static_cast<size_t>(element) * sizeof value;
  std::string content = core::read_file(file);
  std::memcpy(content.data() + at, &value, sizeof value);
  std::ofstream(file, std::ios::binary) << content;
}

TEST(ModelFolder, NumbersThatAreNoneAreNamedWithTheirPlace) {
  const TemporaryFolder folder;
  LanguageModelConfig config = folder_config();
  config.transformer.block.activation = Activation::swiglu;
  LanguageModel(config, 1).save(folder.path());
  const fs::path file = folder / "model.safetensors";
  const std::string good = core::read_file(file);
  const auto load = [&] { LanguageModel::load(folder.path()); };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  overwrite(file, "transformer.wte.weight", 3 * 8 + 5, NAN);
  expect_error(load, file.string() + ": \"transformer.wte.weight\" [3, 5] is nan, expected finite numbers");
  overwrite(file, "transformer.wte.weight", 3 * 8 + 2, -infinity);
  expect_error(load, "\"transformer.wte.weight\" [3, 2] is -inf");  // the first of them
  folder.write(file, good);
  overwrite(file, "transformer.blocks.0.ffn.up_proj.weight", 0, infinity);
  expect_error(load, "\"transformer.blocks.0.ffn.up_proj.weight\" [0, 0] is inf");
  folder.write(file, good);
  overwrite(file, "transformer.blocks.0.norm_1.weight", 7, NAN);
  expect_error(load, "\"transformer.blocks.0.norm_1.weight\" [7] is nan");
  folder.write(file, good);
  overwrite(file, "transformer.blocks.0.norm_1.weight", 7, std::numeric_limits<float>::max());
  EXPECT_NO_THROW(load());
}

TEST(ModelFolder, TheFirstBadNumberIsNamedAtAnyThreadCount) {
  const test::RuntimeGuard guard;
  const TemporaryFolder folder;
  const int64_t n = 1 << 18;  // several pieces of work
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Tensor values({4, n / 4});
    values.data<float>()[200'001] = NAN;
    values.data<float>()[n - 1] = NAN;
    const fs::path file = folder / "w.safetensors";
    formats::write_safetensors(file, {{"w", values.to(dtype)}});
    const formats::Safetensors read(file);
    for (const int threads : {1, 2, 5}) {
      set_threads(threads);
      for (const DType type : {DType::float32, DType::bfloat16}) {
        Tensor out = Tensor::empty({4, n / 4}, type);
        expect_error([&] { read.load_finite_into("w", out); }, "\"w\" [3, 3393] is nan");
      }
    }
  }
}

TEST(ModelFolder, BadValuesOfTheConfigurationAreNamedByFileAndKey) {
  struct Bad {
    const char* key;  // a JSON pointer
    const char* value;
    const char* says;  // after the path of the file
    Position position = Position::alibi;
  };
  const std::vector<Bad> all = {
      {"/model_type", "\"gpt2\"", "model_type is 'gpt2', expected alibi or mpt"},
      {"/model_type", "7", "model_type is 7, expected a string"},
      {"/d_model", "0", "d_model is 0, expected 1 to"},
      {"/d_model", "9", "d_model is 9, expected a multiple of n_heads, 2"},
      {"/d_model", "1024", "d_model / n_heads is 512, expected a head_dim of 1 to 256"},
      {"/d_model", "6", "d_model / n_heads is 3, expected an even head_dim", Position::rotary},
      {"/d_model", "8.5", "d_model is 8.5, expected an integer"},
      {"/d_model", "1e300", "d_model is 1e+300, expected an integer"},
      {"/d_model", "null", "d_model is missing"},
      {"/n_heads", "0", "n_heads is 0, expected 1 to 4096"},
      {"/n_heads", "3", "d_model is 8, expected a multiple of n_heads, 3"},
      {"/n_layers", "-1", "n_layers is -1, expected 0 to 10000"},
      {"/n_layers", "[1]", "n_layers is an array of 1, expected an integer"},
      {"/vocab_size", "0", "vocab_size is 0, expected 1 to"},
      {"/vocab_size", "1e15", "vocab_size is 1000000000000000, expected 1 to"},
      {"/no_bias", "1", "no_bias is 1, expected true or false"},
      {"/norm_type", "\"batchnorm\"", "norm_type is 'batchnorm', expected layernorm"},
      {"/norm_eps", "0", "norm_eps is 0, expected above 0 and below 1"},
      {"/norm_eps", "1", "norm_eps is 1, expected above 0 and below 1"},
      {"/emb_pdrop", "1", "emb_pdrop is 1, expected at least 0 and below 1"},
      {"/resid_pdrop", "1", "resid_pdrop is 1, expected at least 0 and below 1"},
      {"/resid_pdrop", "-0.5", "resid_pdrop is -0.5, expected 0 to 1"},
      {"/attn_config", "[]", "attn_config is an array of 0, expected an object"},
      {"/attn_config/alibi_bias_max", "0", "attn_config.alibi_bias_max is 0, expected above 0"},
      {"/alibi/slopes", "[1, 2, 3, 4, 5]", "alibi.slopes are 5 numbers, expected"},
      {"/alibi/slopes", "[-1]", "alibi.slopes is -1, expected at least 0"},
      {"/alibi/slopes", "\"steep\"", "slopes"},
      {"/alibi/window", "-1", "window"},
      {"/alibi/slope_training", "\"often\"", "choose from fixed, learned, learned_random"},
      {"/attn_config/alibi", "false", "attn_config.alibi is false, but "},
      {"/attn_config/clip_qkv", "6", "attn_config.clip_qkv is set"},
      {"/ffn_config/ffn_hidden_size", "0", "ffn_config.ffn_hidden_size is 0, expected 1 to 512"},
      {"/ffn_config/ffn_hidden_size", "513", "ffn_config.ffn_hidden_size is 513, expected 1 to 512"},
      {"/tie_word_embeddings", "false", "tie_word_embeddings is set"},
      {"/alibi", "3", "alibi is 3, expected an object"},
      {"/alibi/position", "\"polar\"", "alibi.position: there is no position method called 'polar'"},
      {"/alibi/position", "5", "alibi.position is 5, expected a string"},
      {"/alibi/activation", "\"sine\"", "alibi.activation: there is no activation called 'sine'"},
      {"/alibi/activation_dropout", "1", "alibi.activation_dropout is 1, expected at least 0 and below 1"},
      {"/alibi/embedding_scale", "0", "alibi.embedding_scale is 0, expected above 0"},
      {"/alibi/final_norm", "\"no\"", "alibi.final_norm is \"no\", expected true or false"},
      {"/alibi/rotary_theta", "1", "alibi.rotary_theta is 1, expected above 1", Position::rotary},
      {"/alibi/t5_buckets", "1", "alibi.t5_buckets is 1, expected 2 to 4096", Position::t5},
      {"/alibi/t5_max_distance", "8", "alibi.t5_max_distance is 8, expected 32 to", Position::t5},
      {"/alibi/max_length", "0", "alibi.max_length is 0, expected 1 to", Position::learned},
      {"/alibi/adaptive", R"({"cutoffs": [9, 8], "factor": 4})", "alibi.adaptive.cutoffs are 9, 8, expected to rise"},
      {"/alibi/adaptive", R"({"cutoffs": [300], "factor": 4})", "alibi.adaptive.cutoffs are 300, expected to rise"},
      {"/alibi/adaptive", R"({"cutoffs": [9], "factor": 0})", "alibi.adaptive.factor is 0, expected 1 to"},
      {"/alibi/adaptive", R"({"cutoffs": [9], "factor": 99})", "d_model 8 and alibi.adaptive.factor 99 leave no width"},
      {"/alibi/adaptive", R"({"cutoffs": [9], "factor": 4, "dropout": 1})", "alibi.adaptive.dropout is 1, expected"},
      {"/alibi/tokenizer", "\"byte\"", "alibi.tokenizer is \"byte\", expected an object"},
      {"/alibi/tokenizer/fingerprint", "5", "alibi.tokenizer.fingerprint is 5, expected a string"},
  };
  const TemporaryFolder folder;
  for (const Bad& bad : all) {
    SCOPED_TRACE(fmt::format("{} = {}", bad.key, bad.value));
    const std::string model = name_of(bad.position);
    if (!fs::exists(folder / model)) LanguageModel(folder_config(bad.position), 1).save(folder / model);
    const fs::path file = folder / model / "config.json";
    formats::Json config = formats::Json::parse(core::read_file(file));
    const std::string good = config.dump();
    config[formats::Json::json_pointer(bad.key)] = formats::Json::parse(bad.value);
    folder.write(file, config.dump());
    try {
      LanguageModel::load(folder / model);
      ADD_FAILURE() << "it was loaded";
    } catch (const UsageError& error) {  // exit code 2 is for a wrong command line
      ADD_FAILURE() << "a usage error: " << error.what();
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(file.string()), std::string::npos) << message;
      EXPECT_NE(message.find(bad.says), std::string::npos) << message;
    }
    folder.write(file, good);
  }
}

/// What loading a folder that is refused allocated at most.
int64_t bytes_to_refuse(const fs::path& folder, std::string_view says) {
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  expect_error([&] { LanguageModel::load(folder); }, says);
  return peak_tensor_bytes() - before;
}

TEST(ModelFolder, ClaimsThatTheFileDoesNotKeepAreRefusedBeforeAnythingIsMade) {
  const TemporaryFolder folder;
  LanguageModel(folder_config(), 1).save(folder.path());
  const formats::Json good = formats::Json::parse(core::read_file(folder / "config.json"));
  const auto with = [&](const char* key, const formats::Json& value) {
    formats::Json changed = good;
    changed[formats::Json::json_pointer(key)] = value;
    core::write_file(folder / "config.json", changed.dump());
  };
  with("/vocab_size", 1 << 28);
  EXPECT_EQ(
      bytes_to_refuse(folder.path(), "\"transformer.wte.weight\" has the shape [257, 8], expected [268435456, 8]"), 0);
  with("/n_layers", 2);
  EXPECT_EQ(bytes_to_refuse(folder.path(), "has no tensor \"transformer.blocks.1.norm_1.weight\""), 0);
  with("/n_layers", 10000);  // more layers than tensors: not even the names of what is missing are made
  EXPECT_EQ(bytes_to_refuse(folder.path(), "13 tensors, but config.json says n_layers 10000"), 0);
  with("/ffn_config/ffn_hidden_size", 512);
  EXPECT_EQ(bytes_to_refuse(folder.path(), "ffn.up_proj.weight\" has the shape [8, 8], expected [512, 8]"), 0);
  formats::Json wide = good;
  wide["d_model"] = 8192;
  wide["n_heads"] = 64;
  core::write_file(folder / "config.json", wide.dump());
  EXPECT_EQ(bytes_to_refuse(folder.path(), "has the shape [257, 8], expected [257, 8192]"), 0);
  // A tensor of another type, which the size of the model was once taken from.
  const auto with_header = [&](const std::string& header, size_t bytes) {
    const uint64_t size = header.size();
    std::string file(reinterpret_cast<const char*>(&size), sizeof size);
    folder.write("model.safetensors", file + header + std::string(bytes, '\0'));
  };
  with_header(R"({"x":{"dtype":"F4","shape":[1048576,1048576],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(bytes_to_refuse(folder.path(), "\"x\".data_offsets spans 4 bytes, expected those of F4"), 0);
  with_header(R"({"x":{"dtype":"F5","shape":[1048576,1048576],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(bytes_to_refuse(folder.path(), "\"x\".dtype is \"F5\", which is not a type of the format"), 0);
  with_header(R"({"transformer.wte.weight":{"dtype":"F4","shape":[257,8192],"data_offsets":[0,1052672]}})", 1052672);
  EXPECT_EQ(bytes_to_refuse(folder.path(), "\"transformer.wte.weight\" is of type F4, expected"), 0);
}

TEST(ModelFolder, IsDescribedWithoutMemoryForItsParameters) {
  const TemporaryFolder folder;
  LanguageModelConfig config = folder_config();
  config.transformer.attention.slope_training = SlopeTraining::learned_random;
  const LanguageModel model(config, 1);
  model.save(folder.path());
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  const ModelFiles files(folder.path());
  EXPECT_EQ(peak_tensor_bytes(), before);
  EXPECT_EQ(files.config.parameter_count(), model.parameter_count());
  EXPECT_EQ(files.slopes(), model.slopes());
  LanguageModel::load(folder.path());
  EXPECT_LE(peak_tensor_bytes() - before, 4 * model.parameter_count() + 4096);  // no second copy of the weights
  fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 1);
  expect_error([&] { ModelFiles(folder.path()); }, "model.safetensors");
}

}  // namespace
}  // namespace alibi::model
