// Models of every family, made with random weights beside the project, against outputs of a float64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "alibi/encoder_model.h"
#include "alibi/language_model.h"
#include "core/check.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/families/convert.h"
#include "model/families/family.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

std::filesystem::path fixtures() { return test::shared_data().parent_path() / "fixtures"; }

/// The expected outputs of a model.
class Expected {
 public:
  explicit Expected(const std::filesystem::path& file) : file_(file) {}

  Tensor ids(const std::string& name) const {
    const std::vector<int32_t> values = integers(name);
    const Shape& shape = file_.info(name).shape;
    return Tensor::from(values, shape.size() == 1 ? Shape{1, shape[0]} : shape);
  }
  std::vector<int32_t> integers(const std::string& name) const {
    const std::span<const std::byte> bytes = file_.bytes(name);
    std::vector<int64_t> wide(bytes.size() / sizeof(int64_t));
    std::memcpy(wide.data(), bytes.data(), bytes.size());
    return {wide.begin(), wide.end()};
  }
  std::vector<float> floats(const std::string& name) const { return file_.load(name).to_floats(); }
  bool contains(const std::string& name) const { return file_.contains(name); }

 private:
  formats::Safetensors file_;
};

/// The largest difference, as a share of the largest expected magnitude.
double error_of(const Tensor& found, const std::vector<float>& expected) {
  const std::vector<float> values = found.to_floats();
  if (values.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(static_cast<double>(values[i]) - expected[i]);
    if (!(difference <= worst)) worst = difference;
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

/// The issue allows 1e-4; products in float32 give a hundredth of it.
constexpr double kTolerance = 1e-5;

int32_t most_likely(const Tensor& logits) {
  const std::vector<float> values = logits.to_floats();
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

void expect_outputs(const LanguageModel& model, const Expected& expected) {
  for (const std::string name : {"short", "long", "greedy"}) {
    SCOPED_TRACE(name);
    Tensor ids;
    if (name == "greedy") {
      std::vector<int32_t> all = expected.integers("greedy.prompt"), rest = expected.integers("greedy.ids");
      all.insert(all.end(), rest.begin(), rest.end());
      ids = Tensor::from(all, {1, static_cast<int64_t>(all.size())});
    } else {
      ids = expected.ids(name + ".ids");
    }
    const double error = error_of(model.logits(ids), expected.floats(name + ".logits"));
    EXPECT_TRUE(error <= kTolerance) << error;
  }
  if (!expected.contains("batch.ids")) return;
  const double error =
      error_of(model.logits(expected.ids("batch.ids"), expected.ids("batch.mask")), expected.floats("batch.logits"));
  EXPECT_TRUE(error <= kTolerance) << "padded batch: " << error;
}

void expect_greedy_tokens(const LanguageModel& model, const Expected& expected) {
  const std::vector<int32_t> prompt = expected.integers("greedy.prompt"), ids = expected.integers("greedy.ids");
  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = std::ssize(ids);
  EXPECT_EQ(model.generate_ids(prompt, options), ids);  // through the cache

  std::vector<int32_t> text = prompt;  // and without
  for (const int32_t id : ids) {
    ASSERT_EQ(most_likely(model.next_logits(Tensor::from(text, {1, std::ssize(text)}))), id) << text.size();
    text.push_back(id);
  }
}

class FamilyFolder : public testing::TestWithParam<const char*> {};

TEST_P(FamilyFolder, GivesTheExpectedOutputs) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Expected expected(folder / "expected.safetensors");
  const LanguageModel model = LanguageModel::load(folder);
  expect_outputs(model, expected);
  expect_greedy_tokens(model, expected);
}

/// Its own bits again, from the folder that this library writes.
TEST_P(FamilyFolder, IsTheSameModelWhenItIsSavedAndLoaded) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const LanguageModel model = LanguageModel::load(folder);
  const test::TemporaryFolder saved;
  model.save(saved.path());
  const Tensor ids = Expected(folder / "expected.safetensors").ids("short.ids");
  EXPECT_TRUE(test::same_bits(LanguageModel::load(saved.path()).logits(ids), model.logits(ids)));
}

/// A broken variant is refused with a message that names the problem, or is loaded and right, as its list says.
/// `error_of_variant` loads a folder and returns its error.
void expect_broken_variants(const std::filesystem::path& folder,
                            const std::function<double(const std::filesystem::path&)>& error_of_variant) {
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const test::TemporaryFolder out;
  const std::string command =
      fmt::format("python3 '{}' '{}' '{}' >/dev/null", (fixtures() / "generate" / "mutations.py").string(),
                  folder.string(), (out / "all").string());
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no Python here to make the variants";
  const formats::JsonObject list = formats::read_json_object(out / "all" / "mutations.json");
  for (const formats::Json& variant : list.raw().at("mutations")) {
    const std::string path = variant.at("path"), expectation = variant.at("expect");
    SCOPED_TRACE(path + ": " + variant.at("what").get<std::string>() + ": " + expectation);
    try {
      const double error = error_of_variant(out / "all" / path);
      EXPECT_NE(expectation, "refused");
      if (expectation == "no crash") continue;
      EXPECT_TRUE(error <= kTolerance) << error;
    } catch (const Error& error) {
      EXPECT_NE(expectation, "exact") << error.what();
      if (expectation != "refused" || variant.at("names").is_null()) continue;
      EXPECT_NE(std::string(error.what()).find(variant.at("names").get<std::string>()), std::string::npos)
          << error.what() << " names no " << variant.at("names");
    }
  }
}

TEST_P(FamilyFolder, BrokenVariantsAreRefusedByName) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  expect_broken_variants(folder, [&](const std::filesystem::path& variant) {
    const Expected expected(folder / "expected.safetensors");
    return error_of(LanguageModel::load(variant).logits(expected.ids("short.ids")), expected.floats("short.logits"));
  });
}

INSTANTIATE_TEST_SUITE_P(All, FamilyFolder,
                         testing::Values("mpt", "mpt-bias", "mpt-clip", "mpt-gqa", "mpt-max16", "mpt-mqa", "mpt-qkln",
                                         "mpt-untied", "bloom", "bloom-residual", "falcon-rw", "falcon-rw-old",
                                         "baichuan", "baichuan2", "btlm", "btlm-scaled", "btlm-dynamic", "jais",
                                         "refact", "replit", "replit-renamed"),
                         test::underscored);

/// The inputs of a padded batch, or one input.
std::vector<EncoderInput> inputs_of(const Expected& expected, const std::string& name) {
  const Tensor ids = expected.ids(name + ".ids");
  const std::vector<int32_t> values = expected.integers(name + ".ids");
  const std::vector<int32_t> types =
      expected.contains(name + ".types") ? expected.integers(name + ".types") : std::vector<int32_t>(values.size());
  const std::vector<int32_t> mask =
      expected.contains(name + ".mask") ? expected.integers(name + ".mask") : std::vector<int32_t>(values.size(), 1);
  std::vector<EncoderInput> inputs(static_cast<size_t>(ids.size(0)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (mask[i] == 0) continue;
    EncoderInput& input = inputs[i / static_cast<size_t>(ids.size(1))];
    input.ids.push_back(values[i]);
    input.token_types.push_back(types[i]);
  }
  return inputs;
}

/// The states of the inputs, with zeros for padding, computed together.
Tensor padded_states(const EncoderModel& model, std::span<const EncoderInput> inputs, int64_t length) {
  Tensor result({std::ssize(inputs), length, model.model().config().transformer.d_model});
  model.hidden(inputs, [&](int64_t index, const Tensor& states) {
    Tensor row = result.slice(0, index, index + 1).slice(1, 0, states.size(0));
    row.copy_from(states.reshape(row.shape()));
  });
  return result;
}

void expect_vectors(const Tensor& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.elements(), std::ssize(expected));
  const std::vector<float> values = found.to_floats();
  for (int64_t row = 0; row < found.size(0); ++row) {
    double product = 0;
    for (int64_t c = row * found.size(1); c < (row + 1) * found.size(1); ++c) {
      product += static_cast<double>(values[static_cast<size_t>(c)]) * expected[static_cast<size_t>(c)];
    }
    EXPECT_NEAR(product, 1, 1e-6);
  }
}

void expect_states(const EncoderModel& model, const Expected& expected) {
  for (const std::string name : {"short", "long", "typed", "batch"}) {
    if (!expected.contains(name + ".hidden")) continue;
    SCOPED_TRACE(name);
    const std::vector<EncoderInput> inputs = inputs_of(expected, name);
    const Tensor states = padded_states(model, inputs, expected.ids(name + ".ids").size(1));
    const double error = error_of(states, expected.floats(name + ".hidden"));
    EXPECT_TRUE(error <= kTolerance) << error;
    if (!expected.contains(name + ".mean")) continue;
    expect_vectors(model.embed_inputs(inputs, {.pooling = Pooling::mean, .normalize = true}),
                   expected.floats(name + ".mean"));
    expect_vectors(model.embed_inputs(inputs, {.pooling = Pooling::first, .normalize = true}),
                   expected.floats(name + ".cls"));
  }
}

class EncoderFolder : public testing::TestWithParam<const char*> {};

TEST_P(EncoderFolder, GivesTheExpectedStates) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Expected expected(folder / "expected.safetensors");
  const EncoderModel model = EncoderModel::load(folder);
  expect_states(model, expected);
  test::expect_error<Error>([&] { model.model().logits(expected.ids("short.ids")); }, "no probabilities of tokens");
  if (!expected.contains("pairs.logits")) {
    test::expect_error<Error>([&] { model.logits(inputs_of(expected, "short")); }, "no classifier");
    return;
  }
  const double error = error_of(model.logits(inputs_of(expected, "pairs")), expected.floats("pairs.logits"));
  EXPECT_TRUE(error <= kTolerance) << error;
}

TEST_P(EncoderFolder, IsTheSameModelWhenItIsSavedAndLoaded) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const LanguageModel model = LanguageModel::load(folder);
  const test::TemporaryFolder saved;
  model.save(saved.path());
  const Tensor ids = Expected(folder / "expected.safetensors").ids("short.ids");
  EXPECT_TRUE(test::same_bits(LanguageModel::load(saved.path()).hidden(ids), model.hidden(ids)));
}

TEST_P(EncoderFolder, BrokenVariantsAreRefusedByName) {
  const std::filesystem::path folder = fixtures() / "models" / GetParam();
  expect_broken_variants(folder, [&](const std::filesystem::path& variant) {
    const Expected expected(folder / "expected.safetensors");
    const Tensor states = EncoderModel::load(variant).hidden(inputs_of(expected, "short").front());
    return error_of(states, expected.floats("short.hidden"));
  });
}

INSTANTIATE_TEST_SUITE_P(All, EncoderFolder,
                         testing::Values("jina-en", "jina-code", "jina-original", "jina-reranker", "mosaic-bert",
                                         "dnabert2"),
                         test::underscored);

class GgufFile : public testing::TestWithParam<const char*> {};

TEST_P(GgufFile, GivesTheExpectedOutputs) {
  const std::filesystem::path file = fixtures() / "gguf" / (std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const Expected expected(fixtures() / "gguf" / (std::string(GetParam()) + ".expected.safetensors"));
  if (expected.contains("short.hidden")) return expect_states(EncoderModel::load(file), expected);
  const LanguageModel model = LanguageModel::load(file);
  for (const std::string name : {"short", "long"}) {
    const double error = error_of(model.logits(expected.ids(name + ".ids")), expected.floats(name + ".logits"));
    EXPECT_TRUE(error <= kTolerance) << name << ": " << error;
  }
}

/// In another type, and in our own layout.
TEST_P(GgufFile, IsWrittenAgain) {
  const std::filesystem::path file = fixtures() / "gguf" / (std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const Expected inputs(fixtures() / "gguf" / (std::string(GetParam()) + ".expected.safetensors"));
  const test::TemporaryFolder out;
  const auto outputs = [&](const std::filesystem::path& path) {
    if (!inputs.contains("short.hidden")) return LanguageModel::load(path).logits(inputs.ids("long.ids"));
    return padded_states(EncoderModel::load(path), inputs_of(inputs, "long"), inputs.ids("long.ids").size(1));
  };
  const Tensor expected = outputs(file);
  const auto metadata_of = [](const std::filesystem::path& path) {
    formats::Json json = formats::Gguf(path).metadata().raw();
    json.erase("general.file_type");
    return json;
  };
  for (const auto& [type, tolerance] :
       {std::pair("f32", 1e-5), {"f16", 5e-3}, {"bf16", 2e-2}, {"q8_0", 5e-2}, {"q4_k", .6}}) {
    SCOPED_TRACE(type);
    rewrite_gguf(file, out / "m.gguf", type);
    EXPECT_EQ(metadata_of(out / "m.gguf"), metadata_of(file));
    const double error = test::relative_diff(test::doubles(outputs(out / "m.gguf")), test::doubles(expected));
    EXPECT_TRUE(error <= tolerance) << error;
    const formats::Gguf before(file), after(out / "m.gguf");
    for (const formats::TensorInfo& tensor : before.tensors()) {
      if (after.info(tensor.name).dtype != tensor.dtype) continue;
      const std::span<const std::byte> a = before.bytes(tensor.name), b = after.bytes(tensor.name);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << tensor.name;
    }
  }
  write_own(LanguageModel::load(file), out / "own");
  EXPECT_TRUE(test::relative_diff(test::doubles(outputs(out / "own")), test::doubles(expected)) <= 1e-5);
}

TEST_P(GgufFile, BrokenVariantsAreRefusedOrLoaded) {
  const std::filesystem::path file = fixtures() / "gguf" / (std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const test::TemporaryFolder out;
  const std::string command =
      fmt::format("python3 '{}' '{}' '{}' >/dev/null", (fixtures() / "generate" / "mutations.py").string(),
                  file.string(), (out / "all").string());
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no Python here to make the variants";
  const formats::JsonObject list = formats::read_json_object(out / "all" / "mutations.json");
  for (const formats::Json& variant : list.raw().at("mutations")) {
    const std::string path = variant.at("path"), expectation = variant.at("expect");
    SCOPED_TRACE(path + ": " + variant.at("what").get<std::string>() + ": " + expectation);
    try {
      LanguageModel::load(out / "all" / path);
      EXPECT_NE(expectation, "refused");
    } catch (const Error& error) {
      EXPECT_NE(expectation, "exact") << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufFile,
                         testing::Values("mpt-f32", "mpt-f16", "mpt-bf16", "mpt-q8_0", "mpt-q4_k_q6_k", "bloom-f16",
                                         "refact-q8_0", "jina-bert-v2-f16"),
                         test::underscored);

}  // namespace
}  // namespace alibi::model
