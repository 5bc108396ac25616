// Trains a small language model on nine tenths of a text at a short length, then reads the rest and writes at lengths
// far past it.
//   train_and_generate FILE [TOKENS TO TRAIN ON]
#include <alibi/alibi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

std::pair<std::span<const int32_t>, std::span<const int32_t>> split(std::span<const int32_t> tokens) {
  const size_t held_out = tokens.size() / 10;
  return {tokens.first(tokens.size() - held_out), tokens.last(held_out)};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: train_and_generate FILE [TOKENS TO TRAIN ON]\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});

  const int64_t train_length = 64;
  const alibi::LanguageModelConfig config =
      alibi::with_position(alibi::preset("tiny"), alibi::Position::alibi, train_length);
  alibi::LanguageModel model(config, /*seed=*/1);
  const std::vector<int32_t> tokens = model.tokenizer().encode(text);
  const auto [known, held_out] = split(tokens);

  alibi::TrainOptions options;
  options.train_length = train_length;
  options.train_tokens = argc > 2 ? std::atoll(argv[2]) : 200'000;
  options.batch_tokens = 2048;
  alibi::train(model, known, options, [](const alibi::TrainStatus& status) {
    if (status.step % 10 == 0) {
      std::printf("step %lld of %lld, loss %.3f\n", static_cast<long long>(status.step),
                  static_cast<long long>(status.steps), status.loss);
    }
  });

  for (const int64_t length : {train_length, 8 * train_length}) {
    alibi::EvaluateOptions evaluate;
    evaluate.length = length;
    std::printf("held out: perplexity at %lld: %.3f\n", static_cast<long long>(length),
                alibi::evaluate(model, held_out, evaluate).perplexity());
  }

  alibi::GenerateOptions generate;
  generate.max_tokens = 4 * train_length;
  generate.temperature = 0.7;
  const std::string prompt = text.substr(0, 20);
  std::cout << prompt << model.generate(prompt, generate) << std::endl;
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
