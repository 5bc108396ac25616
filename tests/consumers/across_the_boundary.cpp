// What must be one and the same on both sides of a shared library: exceptions, and classes with virtual functions.
#include <alibi/alibi.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace {

/// As bytes, but knows upper case letters alone. It is made here and called there.
class Shouting : public alibi::ByteTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::string upper(text);
    for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return alibi::ByteTokenizer::encode(upper);
  }
};

bool catches_usage_error() {
  try {
    alibi::slopes(0);
  } catch (const alibi::UsageError& error) {
    return std::string(error.what()).starts_with("[");
  } catch (...) {
  }
  return false;
}

bool catches_error_as_standard_exception() {
  try {
    alibi::LanguageModel::load("no such folder");
  } catch (const alibi::UsageError&) {
  } catch (const std::exception& error) {
    return dynamic_cast<const alibi::Error*>(&error) != nullptr;
  }
  return false;
}

bool exceptions_pass_through() {
  alibi::LanguageModelConfig config = alibi::preset("tiny");
  config.transformer.layers = 1;
  const alibi::LanguageModel model(config, 1, std::make_shared<Shouting>());
  alibi::GenerateOptions options;
  options.max_tokens = 8;
  options.on_text = [](std::string_view) -> bool { throw std::pair<int, int>(4, 2); };
  try {
    model.generate("prompt", options);
  } catch (const std::pair<int, int>& thrown) {
    return thrown == std::pair<int, int>(4, 2);
  }
  return false;
}

bool calls_what_was_overridden() {
  alibi::LanguageModelConfig config = alibi::preset("tiny");
  config.transformer.layers = 1;
  const alibi::LanguageModel model(config, 1, std::make_shared<Shouting>());
  const auto* tokenizer = dynamic_cast<const alibi::ByteTokenizer*>(&model.tokenizer());
  alibi::GenerateOptions options;
  options.max_tokens = 8;
  options.temperature = 0;
  return tokenizer != nullptr && tokenizer->encode("ab") == alibi::ByteTokenizer().encode("AB") &&
         model.generate("prompt", options) == model.generate("PROMPT", options);
}

}  // namespace

int main() {
  const std::pair<const char*, bool (*)()> checks[] = {
      {"a UsageError is caught as such", catches_usage_error},
      {"an Error is caught as a std::exception", catches_error_as_standard_exception},
      {"an exception of the caller passes through", exceptions_pass_through},
      {"the library calls what was overridden", calls_what_was_overridden},
  };
  int failed = 0;
  for (const auto& [name, holds] : checks) {
    if (holds()) continue;
    std::fprintf(stderr, "does not hold: %s\n", name);
    ++failed;
  }
  return failed;
}
